"""The routes of the extender. Bodies have megabytes, so msgspec decodes and encodes them instead of the framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from stromboli.extender.extender import Extender
from stromboli.extender.sources import NoAnswerError
from stromboli.extender.wire import json, read_args, read_binding, read_preemption

Q = TypeVar("Q")

_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App: TypeAlias = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The answer."},
    400: {"description": "The request cannot be read; a line says why."},
    503: {"description": "This replica does not lead, no session has ended, or something hangs; a line says which."},
}


def extender_routes(extender: Extender) -> APIRouter:
    """`POST /filter`, `/prioritize`, `/preempt` and `/bind`.

    An unreadable body is answered with 400, and with 503 if this replica cannot answer, each with one line of text.
    """
    router = APIRouter(tags=["extender"])

    @router.post("/filter", responses=_ANSWERS)
    async def filter(request: Request) -> Response:
        """Filters the nodes for a pod of kube-scheduler: `ExtenderArgs` in, `ExtenderFilterResult` out."""
        return await _answer(request, read_args, extender.filter)

    @router.post("/prioritize", responses=_ANSWERS)
    async def prioritize(request: Request) -> Response:
        """Scores the nodes for a pod: `ExtenderArgs` in, `HostPriorityList` out."""
        return await _answer(request, read_args, extender.prioritize)

    @router.post("/preempt", responses=_ANSWERS)
    async def preempt(request: Request) -> Response:
        """Filters nodes and victims of a preemption: `ExtenderPreemptionArgs` in, `ExtenderPreemptionResult` out."""
        return await _answer(request, read_preemption, extender.preempt)

    @router.post("/bind", responses=_ANSWERS)
    async def bind(request: Request) -> Response:
        """Binds a pod to the node that was chosen for it: `ExtenderBindingArgs` in, `ExtenderBindingResult` out."""
        return await _answer(request, read_binding, extender.bind)

    return router


class ExtenderFirst:
    """An ASGI application that answers requests to the extender: the layers below cost more than that."""

    def __init__(self, app: _App, extender: Extender) -> None:
        self._app = app
        self._answers: Mapping[str, Callable[[Request], Awaitable[Response]]] = {
            "/filter": lambda request: _answer(request, read_args, extender.filter),
            "/prioritize": lambda request: _answer(request, read_args, extender.prioritize),
            "/preempt": lambda request: _answer(request, read_preemption, extender.preempt),
            "/bind": lambda request: _answer(request, read_binding, extender.bind),
        }

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        posted = scope["type"] == "http" and scope["method"] == "POST"
        answer = self._answers.get(scope["path"]) if posted else None
        if answer is None:
            await self._app(scope, receive, send)
        else:
            response = await answer(Request(scope, receive))
            await response(scope, receive, send)


async def _answer(request: Request, read: Callable[[bytes], Q], question: Callable[[Q], Awaitable[object]]) -> Response:
    try:
        answer = await question(read(await request.body()))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Response(f"{request.url.path}: {error}\n", 400, media_type="text/plain")
    except NoAnswerError as error:
        return Response(f"{request.url.path}: {error}\n", 503, media_type="text/plain")
    return Response(json(answer), media_type="application/json")
