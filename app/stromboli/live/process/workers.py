"""Several tasks that consume one queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


async def run_workers(name: str, count: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `count` copies of an endless coroutine until cancelled, or until one of them raises."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(work(), name=f"{name}-{number}")
