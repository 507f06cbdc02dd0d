"""The dashboard's routes, each with the permission that it requires. Answers are pages of the last session's report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Annotated, Protocol, TypeAlias, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from stromboli.dashboard.filters import JobFilter
from stromboli.dashboard.history import History
from stromboli.dashboard.nodes import node as node_page
from stromboli.dashboard.policy import policy_in_force
from stromboli.dashboard.report import SessionReport
from stromboli.explain.overview import (
    Freshness,
    JobPage,
    JobRow,
    NodePage,
    Nodes,
    Overview,
    PodPage,
    PolicyInForce,
    QueuePage,
    QueueRow,
    SessionPage,
    Sessions,
    Shares,
    Story,
)
from stromboli.framework.session.session import Session
from stromboli.http.api import GROUP, Caller, Reviews, as_json, caller
from stromboli.http.schema import answers

T = TypeVar("T")

#: limits on rows of a page, and on nodes, which are columns of numbers
_MOST, _MOST_NODES = 1_000, 10_000
#: limit on the offset of a page
_LAST = 1 << 31
#: limit on the namespaces that are checked for a caller who may not read all
_MOST_NAMESPACES = 50
#: limit on queues in a chart of shares
_MOST_LINES = 50
#: limit on the time that a chart of shares shows, in seconds
_LONGEST = 86_400
#: a report is kept for this many times its cost, so that requests use a small part of one CPU
_THRIFT = 20
#: seconds after which an unused report is dropped, and its session with it
_IDLE = 60.0
_STANDBY = "this replica runs no sessions: ask the leader"

Offset: TypeAlias = Annotated[int, Query(ge=0, le=_LAST)]
Limit: TypeAlias = Annotated[int, Query(ge=0, le=_MOST)]
NodeLimit: TypeAlias = Annotated[int, Query(ge=0, le=_MOST_NODES)]
Span: TypeAlias = Annotated[float, Query(ge=0, le=_LONGEST)]
Lines: TypeAlias = Annotated[int, Query(ge=0, le=_MOST_LINES)]


class Last(Protocol):
    """The source of sessions."""

    history: History

    def last(self) -> Session | None:
        """The last session of this service, None if this replica runs none."""

    def missing(self) -> Sequence[str]:
        """Why the service's data may be out of date, a line for each problem."""


def _last(source: Last) -> Session:
    """The last session. Raises HTTPException if this replica runs none."""
    session = source.last()
    if session is None:
        raise HTTPException(503, _STANDBY)
    return session


class ReportCache:
    """Caches one report, computed in a thread. A newer session replaces it once its cost is amortized."""

    def __init__(self, source: Last, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._turn = asyncio.Lock()
        self._board: SessionReport | None = None
        self._until = 0.0
        self._forgetting: asyncio.TimerHandle | None = None

    async def ask(self, question: Callable[[SessionReport], T]) -> T:
        """An answer. Raises HTTPException without a session."""
        async with self._turn:
            report = self._current()
            began = self._clock()
            answer = await asyncio.to_thread(question, report)
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

    def _current(self) -> SessionReport:
        session = _last(self._source)
        if self._board is None or (self._board.session is not session and self._clock() >= self._until):
            told = self._source.history.sessions(1)
            at, seconds = (told[0].at, told[0].seconds) if told else (0.0, 0.0)
            self._board, self._until = SessionReport(session, at, seconds), self._clock()
        return self._board


def dashboard_routes(
    source: Last,
    reviews: Reviews | None,
    namespace: str,
    absent: Callable[[str, str], str] = lambda kind, key: "",
) -> APIRouter:
    """Parts of `/api/v1`. `namespace` contains the policy; without `reviews` only loopback is answered.

    `absent` says why sessions know no object of a kind and key, such as that a job is suspended; empty if it does not.
    """
    router, reports = APIRouter(prefix="/api/v1", tags=["dashboard"]), ReportCache(source)

    async def queue_reader(request: Request) -> None:
        await (await caller(request, reviews)).demand("list", GROUP, "queues")

    async def readable(who: Caller, namespace: str) -> frozenset[str] | None:
        """The namespaces where the caller may list jobs with their pods, None for all. Raises HTTPException for
        none."""
        if namespace or await _may_list(who, ""):
            await _pods_of(who, "list", namespace)
            return None
        there = sorted(await reports.ask(lambda report: report.namespaces))
        asked = there if len(there) <= _MOST_NAMESPACES else []
        may = await asyncio.gather(*(_may_list(who, each) for each in asked))
        found = frozenset(compress(asked, may))
        if not found:
            raise HTTPException(403, "you may not list podgroups of all namespaces: specify a namespace")
        return found

    def history() -> History:
        _last(source)
        return source.history

    @router.get("/overview", responses=answers(Overview, 401, 403, 503))
    async def overview(request: Request) -> Response:
        """The cluster in numbers, and what is waiting by reason. Needs `list` on queues."""
        await queue_reader(request)
        return as_json(await reports.ask(lambda report: report.overview()))

    @router.get("/queues", responses=answers(QueuePage, 401, 403, 503))
    async def queues(request: Request, offset: Offset = 0, limit: Limit = 100) -> Response:
        """The queues as a tree, each after its parent. Needs `list` on queues."""
        await queue_reader(request)
        return as_json(await reports.ask(lambda report: report.queues(offset, limit)))

    @router.get("/queues/{name}", responses=answers(QueueRow, 401, 403, 404, 503))
    async def queue(request: Request, name: str) -> Response:
        """One queue. Needs `list` on queues."""
        await queue_reader(request)
        return _found(await reports.ask(lambda report: report.queue(name)), f"there is no queue {name}")

    @router.get("/jobs", responses=answers(JobPage, 401, 403, 503))
    async def jobs(
        request: Request, only: Annotated[JobFilter, Depends()], offset: Offset = 0, limit: Limit = 100
    ) -> Response:
        """Jobs, waiting ones first. Needs `list` on PodGroups and pods, in all namespaces or in `namespace`.

        A caller who may not list them in all namespaces gets those of the permitted namespaces; if jobs are in more
        than 50 namespaces, `namespace` is required. `queue` includes its descendants; `name` is a part of
        `NAMESPACE/NAME`, or of the workload's `KIND/NAME`; `sort` is age, since, priority, position or cards.
        """
        within = await readable(await caller(request, reviews), only.namespace)
        return as_json(await reports.ask(lambda report: report.jobs(offset, limit, only, within)))

    @router.get("/jobs/{namespace}/{name}", responses=answers(JobRow, 401, 403, 404, 503))
    async def job(request: Request, namespace: str, name: str) -> Response:
        """One job. Needs `get` on PodGroups and pods of its namespace."""
        await _pods_of(await caller(request, reviews), "get", namespace)
        key = f"{namespace}/{name}"
        missing = absent("job", key) or f"there is no job {key}"
        return _found(await reports.ask(lambda report: report.job(key)), missing)

    @router.get("/jobs/{namespace}/{name}/pods", responses=answers(PodPage, 401, 403, 503))
    async def pods_of(request: Request, namespace: str, name: str, offset: Offset = 0, limit: Limit = 100) -> Response:
        """The pods of a job. Needs `list` on PodGroups and pods of its namespace."""
        await _pods_of(await caller(request, reviews), "list", namespace)
        return as_json(await reports.ask(lambda report: report.pods(offset, limit, job=f"{namespace}/{name}")))

    @router.get("/jobs/{namespace}/{name}/story", responses=answers(Story, 401, 403, 404, 503))
    async def story(request: Request, namespace: str, name: str) -> Response:
        """History of a job, as far as this replica remembers. Needs `get` on PodGroups and pods of its namespace."""
        await _pods_of(await caller(request, reviews), "get", namespace)
        kept = history().decided
        row, begun = await reports.ask(lambda report: (report.job(key := f"{namespace}/{name}"), report.begun(key)))
        if row is None or begun is None:
            raise HTTPException(404, f"there is no job {namespace}/{name}")
        decided = await asyncio.to_thread(kept.of_job, f"{begun.namespace}/{begun.name}")
        if row.reason and decided and decided[-1].what == "goes on":
            # It waits, so that did not last, and nothing else is known of it.
            decided.pop()
        return as_json(Story(items=[begun, *decided]))

    @router.get("/pods", responses=answers(PodPage, 401, 403, 503))
    async def pods(
        request: Request,
        offset: Offset = 0,
        limit: Limit = 100,
        namespace: str = "",
        reason: str = "",
        node: str = "",
        sort: str = "",
    ) -> Response:
        """The waiting pods or, with `node`, those on a node. `sort` is age, priority or cards.

        Needs `list` on PodGroups and pods, in all namespaces or in `namespace`, as for jobs.
        """
        within = await readable(await caller(request, reviews), namespace)
        if node:
            return as_json(await reports.ask(lambda report: report.pods_on(node, offset, limit, within)))
        return as_json(
            await reports.ask(
                lambda report: report.pods(offset, limit, namespace=namespace, reason=reason, sort=sort, within=within)
            )
        )

    @router.get("/nodes", responses=answers(Nodes, 401, 403, 503))
    async def nodes(
        request: Request,
        offset: Offset = 0,
        limit: NodeLimit = 1_000,
        resource: str = "cpu",
        name: str = "",
        job: str = "",
        cause: str = "",
    ) -> Response:
        """Nodes in columns, with the number of a job's pods on each if `job` is given as `NAMESPACE/NAME`; with
        `cause` those that have one of the causes which the answer about that job tells.

        Needs `list` on nodes, and on PodGroups and pods of the job's namespace.
        """
        who = await caller(request, reviews)
        await who.demand("list", "", "nodes")
        if job:
            await _pods_of(who, "list", job.partition("/")[0])
        return as_json(
            await reports.ask(
                lambda report: report.nodes(offset, limit, resource=resource, name=name, job=job, cause=cause)
            )
        )

    @router.get("/nodes/{name}", responses=answers(NodePage, 401, 403, 404, 503))
    async def one_node(request: Request, name: str) -> Response:
        """One node. Needs `get` on nodes."""
        await (await caller(request, reviews)).demand("get", "", "nodes")
        return _found(await reports.ask(lambda report: node_page(report.session, name)), f"there is no node {name}")

    @router.get("/shares", responses=answers(Shares, 401, 403, 503))
    async def shares(
        request: Request,
        resource: str = "cpu",
        queue: str = "",
        parent: str = "root",
        limit: Lines = 8,
        span: Span = 0,
    ) -> Response:
        """Used, requested and deserved amounts of one queue, or of the children of another, over time: in the last
        `span` seconds, or for all that is known. Needs `list` on queues."""
        await queue_reader(request)
        of = {"queue": queue, "parent": parent}
        told = partial(history().shares, resource, limit, time.time(), span=span, **of)
        return as_json(await asyncio.to_thread(told))

    @router.get("/sessions", responses=answers(Sessions, 401, 403, 503))
    async def sessions(request: Request, limit: Limit = 100) -> Response:
        """The duration and results of the last sessions, newest first. Needs `list` on queues."""
        await queue_reader(request)
        return as_json(Sessions(items=history().sessions(limit)))

    @router.get("/sessions/{number}", responses=answers(SessionPage, 401, 403, 404, 503))
    async def session(request: Request, number: int, offset: Offset = 0, limit: Limit = 100) -> Response:
        """A session and what it decided, as far as this replica remembers. Needs `list` on queues, and on PodGroups
        and pods as for jobs."""
        await queue_reader(request)
        within = await readable(await caller(request, reviews), "")
        row = history().row(number)
        if row is None:
            raise HTTPException(404, f"session {number} is not known here")
        found = await asyncio.to_thread(source.history.decided.of_session, number, within)
        items = (found or [])[offset : offset + limit]
        page = SessionPage(total=len(found or []), offset=offset, row=row, items=items, known=found is not None)
        return as_json(page)

    @router.get("/freshness", responses=answers(Freshness, 401, 403, 503))
    async def freshness(request: Request) -> Response:
        """Time of the data, and why it may be out of date. Needs no right."""
        await caller(request, reviews)
        last = history().sessions(1)
        return as_json(Freshness(at=last[0].at if last else 0.0, problems=list(source.missing())))

    @router.get("/policy", responses=answers(PolicyInForce, 401, 403, 503))
    async def policy(request: Request) -> Response:
        """The policy of the last session. Needs `get` on ConfigMaps of the service's namespace."""
        await (await caller(request, reviews)).demand("get", "", "configmaps", namespace)
        return as_json(policy_in_force(_last(source), source.history.problem))

    return router


async def _may_list(who: Caller, namespace: str) -> bool:
    """Whether the caller may list the jobs of a namespace, or of all, with their pods."""
    return await who.may("list", GROUP, "podgroups", namespace) and await who.may("list", "", "pods", namespace)


async def _pods_of(who: Caller, verb: str, namespace: str) -> None:
    """Raises HTTPException unless the caller may read the jobs of a namespace, or of all, with their pods."""
    await who.demand(verb, GROUP, "podgroups", namespace)
    await who.demand(verb, "", "pods", namespace)


def _found(answer: object, missing: str) -> Response:
    if answer is None:
        raise HTTPException(404, missing)
    return as_json(answer)
