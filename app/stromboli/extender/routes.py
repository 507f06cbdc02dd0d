"""The extender's routes. Bodies are megabytes long, so msgspec reads and writes them, and the framework only routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from stromboli.extender.answers import Extender
from stromboli.extender.wire import ExtenderArgs, json, read_args

_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The answer."},
    400: {"description": "What was sent cannot be read; a line says why."},
}


def extender_routes(extender: Extender) -> APIRouter:
    """`POST /filter` and `POST /prioritize`; a body that cannot be read is answered with 400 and one line."""
    router = APIRouter(tags=["extender"])

    @router.post("/filter", responses=_ANSWERS)
    async def filter(request: Request) -> Response:
        """Which nodes a pod of kube-scheduler may use: `ExtenderArgs` in, `ExtenderFilterResult` out."""
        return await _answer(request, extender.filter)

    @router.post("/prioritize", responses=_ANSWERS)
    async def prioritize(request: Request) -> Response:
        """Which of them it should use: `ExtenderArgs` in, `HostPriorityList` out."""
        return await _answer(request, extender.prioritize)

    return router


async def _answer(request: Request, question: Callable[[ExtenderArgs], object]) -> Response:
    try:
        answer = question(read_args(await request.body()))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Response(f"{request.url.path}: {error}\n", 400, media_type="text/plain")
    return Response(json(answer), media_type="application/json")
