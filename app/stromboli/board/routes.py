"""The board over HTTP, for those who may read what it tells of. Answers are pages, and rest on the last session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import compress
from typing import Annotated, Protocol, TypeAlias, TypeVar

from fastapi import APIRouter, HTTPException, Query, Request, Response

from stromboli.board.board import Board
from stromboli.board.history import History
from stromboli.board.policy import policy_in_force
from stromboli.explain.board import (
    JobPage,
    JobRow,
    Nodes,
    Overview,
    PodPage,
    PolicyInForce,
    QueuePage,
    QueueRow,
    Sessions,
    Shares,
)
from stromboli.framework.session import Session
from stromboli.http_api import GROUP, Caller, Reviews, as_json, caller
from stromboli.http_schema import answers

T = TypeVar("T")

#: rows that are told at once, and nodes, which are columns of numbers
_MOST, _MOST_NODES = 1_000, 10_000
#: where a page begins at the latest: no cluster has more rows
_LAST = 1 << 31
#: namespaces of which each is asked about for who may not read all of them
_MOST_NAMESPACES = 50
#: queues whose shares over time are told at once
_MOST_LINES = 50
#: a board is kept for so many times what it cost, so that looking takes a small part of one processor at most
_THRIFT = 20
#: seconds after which one that nobody asks is let go, and its session with it
_IDLE = 60.0
_STANDBY = "this replica runs no sessions: ask the one that leads"

Offset: TypeAlias = Annotated[int, Query(ge=0, le=_LAST)]
Limit: TypeAlias = Annotated[int, Query(ge=0, le=_MOST)]
NodeLimit: TypeAlias = Annotated[int, Query(ge=0, le=_MOST_NODES)]
Lines: TypeAlias = Annotated[int, Query(ge=0, le=_MOST_LINES)]


class Last(Protocol):
    """What is known of sessions."""

    history: History

    def last(self) -> Session | None:
        """The last session that the service ran, None when this replica runs none."""


def _last(source: Last) -> Session:
    """The last session. Raises HTTPException when this replica runs none."""
    session = source.last()
    if session is None:
        raise HTTPException(503, _STANDBY)
    return session


class Boards:
    """One board at a time, worked out in a thread. A newer session's takes its place when it has paid for itself."""

    def __init__(self, source: Last, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._turn = asyncio.Lock()
        self._board: Board | None = None
        self._until = 0.0
        self._forgetting: asyncio.TimerHandle | None = None

    async def ask(self, question: Callable[[Board], T]) -> T:
        """An answer. Raises HTTPException while there is no session."""
        async with self._turn:
            board = self._current()
            began = self._clock()
            answer = await asyncio.to_thread(question, board)
            now = self._clock()
            self._until = max(self._until, now) + _THRIFT * (now - began)
            self._forget_later()
            return answer

    def _forget_later(self) -> None:
        def forget() -> None:
            self._board = None

        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(_IDLE, forget)

    def _current(self) -> Board:
        session = _last(self._source)
        if self._board is None or (self._board.session is not session and self._clock() >= self._until):
            told = self._source.history.sessions(1)
            at, seconds = (told[0].at, told[0].seconds) if told else (0.0, 0.0)
            self._board, self._until = Board(session, at, seconds), self._clock()
        return self._board


def board_routes(source: Last, reviews: Reviews | None, namespace: str) -> APIRouter:
    """Parts of `/api/v1`. `namespace` is where the policy lies; without `reviews` only loopback is answered."""
    router, boards = APIRouter(prefix="/api/v1", tags=["board"]), Boards(source)

    async def queue_reader(request: Request) -> None:
        await (await caller(request, reviews)).demand("list", GROUP, "queues")

    async def readable(who: Caller, namespace: str) -> frozenset[str] | None:
        """The namespaces where somebody may list jobs with their pods, None for all. Raises HTTPException for none."""
        if namespace or await _may_list(who, ""):
            await _pods_of(who, "list", namespace)
            return None
        there = sorted(await boards.ask(lambda board: board.namespaces))
        asked = there if len(there) <= _MOST_NAMESPACES else []
        may = await asyncio.gather(*(_may_list(who, each) for each in asked))
        found = frozenset(compress(asked, may))
        if not found:
            raise HTTPException(403, "you may not list podgroups of all namespaces: name one that you may read")
        return found

    def history() -> History:
        _last(source)
        return source.history

    @router.get("/overview", responses=answers(Overview, 401, 403, 503))
    async def overview(request: Request) -> Response:
        """The cluster in numbers, and what waits by reason. Needs `list` on queues."""
        await queue_reader(request)
        return as_json(await boards.ask(lambda board: board.overview()))

    @router.get("/queues", responses=answers(QueuePage, 401, 403, 503))
    async def queues(request: Request, offset: Offset = 0, limit: Limit = 100) -> Response:
        """The queues as a tree, each after its parent. Needs `list` on queues."""
        await queue_reader(request)
        return as_json(await boards.ask(lambda board: board.queues(offset, limit)))

    @router.get("/queues/{name}", responses=answers(QueueRow, 401, 403, 404, 503))
    async def queue(request: Request, name: str) -> Response:
        """One queue. Needs `list` on queues."""
        await queue_reader(request)
        return _found(await boards.ask(lambda board: board.queue(name)), f"there is no queue {name}")

    @router.get("/jobs", responses=answers(JobPage, 401, 403, 503))
    async def jobs(
        request: Request,
        offset: Offset = 0,
        limit: Limit = 100,
        namespace: str = "",
        queue: str = "",
        reason: str = "",
        phase: str = "",
        name: str = "",
    ) -> Response:
        """Jobs, those that wait first. Needs `list` on PodGroups and pods, everywhere or in `namespace`.

        Who may not list them everywhere gets those of the namespaces where he may; where jobs are in more than 50, he
        has to name one. `queue` has those of queues below it, too; `name` is a part of `NAMESPACE/NAME`.
        """
        within = await readable(await caller(request, reviews), namespace)
        wanted = {"namespace": namespace, "queue": queue, "reason": reason, "phase": phase, "name": name}
        return as_json(await boards.ask(lambda board: board.jobs(offset, limit, **wanted, within=within)))

    @router.get("/jobs/{namespace}/{name}", responses=answers(JobRow, 401, 403, 404, 503))
    async def job(request: Request, namespace: str, name: str) -> Response:
        """One job. Needs `get` on PodGroups and pods of its namespace."""
        await _pods_of(await caller(request, reviews), "get", namespace)
        key = f"{namespace}/{name}"
        return _found(await boards.ask(lambda board: board.job(key)), f"there is no job {key}")

    @router.get("/jobs/{namespace}/{name}/pods", responses=answers(PodPage, 401, 403, 503))
    async def pods_of(request: Request, namespace: str, name: str, offset: Offset = 0, limit: Limit = 100) -> Response:
        """The pods of a job. Needs `list` on PodGroups and pods of its namespace."""
        await _pods_of(await caller(request, reviews), "list", namespace)
        return as_json(await boards.ask(lambda board: board.pods(offset, limit, job=f"{namespace}/{name}")))

    @router.get("/pods", responses=answers(PodPage, 401, 403, 503))
    async def pods(
        request: Request, offset: Offset = 0, limit: Limit = 100, namespace: str = "", reason: str = ""
    ) -> Response:
        """The pods that wait. Needs `list` on PodGroups and pods, everywhere or in `namespace`, as for jobs."""
        within = await readable(await caller(request, reviews), namespace)
        return as_json(
            await boards.ask(lambda board: board.pods(offset, limit, namespace=namespace, reason=reason, within=within))
        )

    @router.get("/nodes", responses=answers(Nodes, 401, 403, 503))
    async def nodes(
        request: Request,
        offset: Offset = 0,
        limit: NodeLimit = 1_000,
        resource: str = "cpu",
        name: str = "",
        job: str = "",
    ) -> Response:
        """Nodes in columns, with the pods of a job `NAMESPACE/NAME` if one is named.

        Needs `list` on nodes, and on PodGroups and pods of the job's namespace.
        """
        who = await caller(request, reviews)
        await who.demand("list", "", "nodes")
        if job:
            await _pods_of(who, "list", job.partition("/")[0])
        return as_json(
            await boards.ask(lambda board: board.nodes(offset, limit, resource=resource, name=name, job=job))
        )

    @router.get("/shares", responses=answers(Shares, 401, 403, 503))
    async def shares(
        request: Request, resource: str = "cpu", queue: str = "", parent: str = "root", limit: Lines = 8
    ) -> Response:
        """What one queue, or those below another, held, asked for and deserved over time. Needs `list` on queues."""
        await queue_reader(request)
        kept = history()
        return as_json(await asyncio.to_thread(kept.shares, resource, limit, queue=queue, parent=parent))

    @router.get("/sessions", responses=answers(Sessions, 401, 403, 503))
    async def sessions(request: Request, limit: Limit = 100) -> Response:
        """What the last sessions took and did, the newest first. Needs `list` on queues."""
        await queue_reader(request)
        return as_json(Sessions(items=history().sessions(limit)))

    @router.get("/policy", responses=answers(PolicyInForce, 401, 403, 503))
    async def policy(request: Request) -> Response:
        """The policy by which the last session decided. Needs `get` on ConfigMaps of the service's namespace."""
        await (await caller(request, reviews)).demand("get", "", "configmaps", namespace)
        return as_json(policy_in_force(_last(source), source.history.problem))

    return router


async def _may_list(who: Caller, namespace: str) -> bool:
    """Whether somebody may list the jobs of a namespace, or of all, with their pods."""
    return await who.may("list", GROUP, "podgroups", namespace) and await who.may("list", "", "pods", namespace)


async def _pods_of(who: Caller, verb: str, namespace: str) -> None:
    """Raises HTTPException when somebody may not read the jobs of a namespace, or of all, with their pods."""
    await who.demand(verb, GROUP, "podgroups", namespace)
    await who.demand(verb, "", "pods", namespace)


def _found(answer: object, missing: str) -> Response:
    if answer is None:
        raise HTTPException(404, missing)
    return as_json(answer)
