"""What the tests of actions that evict share."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.decisions import Evict, Nominate
from stromboli.engine import SessionResult
from tests.builders import gang, pod, pod_group

BOTH = pytest.mark.parametrize("compatibility", ["volcano", "strict"])


def evicted(result: SessionResult) -> list[str]:
    """The names of the victims."""
    return sorted(d.name for d in result.decisions if isinstance(d, Evict))


def nominated(result: SessionResult) -> dict[str, str]:
    """The node that was nominated for each pod, by name."""
    return {d.name: d.node for d in result.decisions if isinstance(d, Nominate)}


def running(group: str, *on: str, of: str = "rich", least: int = 0, **more: Any) -> list[Any]:
    """A group of queue `of` with a running pod on each of some nodes."""
    pods = [pod(f"{group}-{i}", group, node=name, **more) for i, name in enumerate(on)]
    return [pod_group(group, least, queue=of, phase="Running"), *pods]


def starving(count: int = 1, of: str = "poor", **more: Any) -> list[Any]:
    """A gang of queue `of` that waits."""
    return [pod_group("wants", count, queue=of), *gang("wants", count, **more)]
