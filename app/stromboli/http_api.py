"""The questions that people and tools ask over HTTP: why something waits, and what would be if.

On loopback they are answered to whoever asks. Everybody else needs HTTPS and a token of the cluster; the API server
says whom it belongs to and what he may read, and he learns of no other pods.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

import msgspec
from fastapi import APIRouter, HTTPException, Request, Response

from stromboli.api.crds import SCHEDULING
from stromboli.api.errors import StromboliError
from stromboli.engine import Engine, Successive
from stromboli.explain.answers import Answer, QueueAnswer
from stromboli.explain.queues import explain_queue
from stromboli.explain.redaction import namespaces, redacted
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.remedies import explained
from stromboli.explain.whatif import WhatIf
from stromboli.framework.session import Session
from stromboli.http_origin import demand_media_type, on_loopback
from stromboli.http_schema import answers, file
from stromboli.http_turns import Turns, while_asked
from stromboli.live.access import User
from stromboli.live.client import CONNECTION_ERRORS, ApiError
from stromboli.live.service import Service
from stromboli.simulation.changes import try_changes

T = TypeVar("T")

#: the API group of queues and PodGroups
GROUP = SCHEDULING.partition("/")[0]
#: bytes of a change
_LARGEST_CHANGE = 4 << 20
#: reasons of what is not there, and its kind
_NOT_THERE = {"QueueNotFound": "Queue", "PodGroupNotFound": "PodGroup"}
_CHANGE = {
    "requestBody": {
        "required": True,
        "description": "Objects to add, change or remove, or a policy, as `stromboli whatif -f` takes them.",
        "content": {kind: {"schema": {"type": "string"}} for kind in ("application/yaml", "application/json")},
    }
}


class Source(Protocol):
    """What answers rest on."""

    def rehearsal(self) -> Rehearsal | None:
        """A fork of the cluster as it is now; None while it is not known yet. Called in the event loop."""

    def last(self) -> Session | None:
        """The last session that the service ran, None when this replica runs none."""

    def unreadable(self, kind: str, key: str) -> str:
        """Why an object that is there was set aside; empty when it was not."""

    def engine(self, policy: str) -> Engine:
        """An engine for a policy. Raises PolicyError."""


class LiveCluster:
    """The cluster as the service knows it."""

    def __init__(
        self,
        service: Service,
        sessions: Successive,
        engine: Callable[[str], Engine],
        last: Callable[[], Session | None],
    ) -> None:
        self._service = service
        self._sessions = sessions
        self.engine = engine
        self.last = last

    def unreadable(self, kind: str, key: str) -> str:
        """Why an object that is there was set aside."""
        return self._service.mirror.unreadable(kind, key)

    def rehearsal(self) -> Rehearsal | None:
        """A fork of the cluster, with what the next session would be told."""
        if not self._service.ready:
            return None
        sessions = self._sessions
        told = replace(sessions.environment, node_usage=sessions.node_usage, queue_usage=sessions.queue_usage)
        return Rehearsal(sessions.engine, self._service.state.fork(), told, time.time())


class Reviews(Protocol):
    """Says who asks and what he may read; see `AccessReviews`."""

    async def user(self, token: str) -> User | None: ...

    async def may(self, user: User, verb: str, group: str, resource: str, namespace: str = "") -> bool: ...


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and by which request; `user` is None on loopback, where everything may be read."""

    request: Request
    user: User | None
    reviews: Reviews | None

    @property
    def name(self) -> str:
        """The name of the user, empty on loopback."""
        return "" if self.user is None else self.user.name

    async def may(self, verb: str, group: str, resource: str, namespace: str = "") -> bool:
        """Whether he may read something."""
        if self.user is None or self.reviews is None:
            return True
        try:
            return await self.reviews.may(self.user, verb, group, resource, namespace)
        except (ApiError, *CONNECTION_ERRORS):
            raise HTTPException(503, "the API server did not say what you may read") from None

    async def demand(self, verb: str, group: str, resource: str, namespace: str = "") -> None:
        """Raises HTTPException when he may not."""
        if not await self.may(verb, group, resource, namespace):
            where = f" in namespace {namespace}" if namespace else ""
            raise HTTPException(403, f"you may not {verb} {resource}{where}")


class Questions:
    """Answers one question at a time, for each may cost some dozen sessions; those who ask take turns."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._turns = Turns()

    async def ask(self, who: Caller, question: Callable[[Rehearsal], T]) -> T:
        """An answer, worked out in a thread until the client leaves. Raises HTTPException while nothing is known."""
        async with self._turns.turn(who.name):
            rehearsal = self._source.rehearsal()
            if rehearsal is None:
                raise HTTPException(503, "the cluster is not known yet")
            return await while_asked(who.request, partial(question, rehearsal), rehearsal.abandon)

    async def ask_session(self, who: Caller, question: Callable[[Session, Rehearsal | None], T], *, last: bool) -> T:
        """An answer from a session on the cluster as it is now, with what changes can be tried on.

        With `last` it is the one that the service ran, if this replica runs any: that costs no session, and tries none.
        """
        ran = self._source.last() if last else None
        if ran is None:
            return await self.ask(who, lambda rehearsal: question(*self._session(rehearsal)))
        async with self._turns.turn(who.name):
            return await asyncio.to_thread(question, ran, None)

    def unreadable(self, kind: str, key: str) -> str:
        """`KIND KEY is there, but could not be read: ...`, empty when that is not so."""
        problem = self._source.unreadable(kind, key)
        return f"{kind} {key} is there, but could not be read: {problem}" if problem else ""

    def _session(self, rehearsal: Rehearsal) -> tuple[Session, Rehearsal | None]:
        """A session; where an extender would have to be asked, the last that asked it, and nothing can be tried."""
        session = rehearsal.session()
        if rehearsal.misses_extender:
            return self._source.last() or session, None
        return session, rehearsal


def api_routes(source: Source, reviews: Reviews | None, journal: Callable[[], bytes] | None = None) -> APIRouter:
    """`/api/v1`; without `reviews` only loopback is answered. `journal` gives the newest sessions, if they are kept."""
    router = APIRouter(prefix="/api/v1", tags=["explain"])
    # What is tried may take long, and why something waits must be told meanwhile.
    questions, changes = Questions(source), Questions(source)

    @router.get("/explain/job/{namespace}/{name}", responses=answers(Answer, 401, 403, 404, 429, 503))
    async def explain_job(
        request: Request, namespace: str, name: str, remedies: bool = True, last: bool = False
    ) -> Response:
        """Why a job waits. Needs `get` on pods and PodGroups of its namespace.

        `remedies=false` leaves out what would help, which takes most of the time; `last=true` asks what the last
        session found, which costs no session.
        """
        who = await caller(request, reviews)
        await who.demand("get", GROUP, "podgroups", namespace)
        return await _explain(questions, who, "job", namespace, name, remedies=remedies, last=last)

    @router.get("/explain/pod/{namespace}/{name}", responses=answers(Answer, 401, 403, 404, 429, 503))
    async def explain_pod(
        request: Request, namespace: str, name: str, remedies: bool = True, last: bool = False
    ) -> Response:
        """Why a pod waits. Needs `get` on pods of its namespace. `remedies` and `last` as for a job."""
        who = await caller(request, reviews)
        return await _explain(questions, who, "pod", namespace, name, remedies=remedies, last=last)

    @router.get("/explain/queue/{name}", responses=answers(QueueAnswer, 401, 403, 404, 429, 503))
    async def explain_the_queue(request: Request, name: str, last: bool = False) -> Response:
        """How a queue stands. Needs `get` on queues. `last` as for a job."""
        who = await caller(request, reviews)
        await who.demand("get", GROUP, "queues")
        found = await questions.ask_session(who, lambda session, _: explain_queue(session, name), last=last)
        return await _answer(found, f"there is no queue {name}", who)

    @router.post("/whatif", responses=answers(WhatIf, 400, 401, 403, 413, 415, 429, 503), openapi_extra=_CHANGE)
    async def whatif(request: Request) -> Response:
        """What would be otherwise after the change in the body; nothing is written. Needs `list` on all pods."""
        who = await caller(request, reviews)
        # It tells of pods wherever they are.
        await who.demand("list", "", "pods")
        demand_media_type(request)
        body = await request.body()
        if len(body) > _LARGEST_CHANGE:
            raise HTTPException(413, f"a change has no more than {_LARGEST_CHANGE} bytes")
        try:
            text = body.decode()
            return as_json(
                await changes.ask(who, lambda rehearsal: try_changes({"the request": text}, rehearsal, source.engine))
            )
        except (UnicodeDecodeError, StromboliError) as error:
            raise HTTPException(400, str(error)) from None

    @router.get("/journal", responses=file("The journal of this replica.", 401, 403, 404, 503))
    async def recorded(request: Request) -> Response:
        """The newest sessions with all that they saw, for `stromboli replay`. Needs `list` on all pods and on nodes."""
        who = await caller(request, reviews)
        # It holds all that sessions look at, wherever it is.
        for resource in ("pods", "nodes"):
            await who.demand("list", "", resource)
        if journal is None:
            raise HTTPException(404, "no journal is kept: --journal-memory is 0")
        content = await asyncio.to_thread(journal)
        if not content:
            raise HTTPException(404, "no session was recorded: this replica has run none")
        return Response(content, media_type="application/octet-stream")

    return router


async def _explain(
    questions: Questions, who: Caller, kind: str, namespace: str, name: str, *, remedies: bool, last: bool
) -> Response:
    await who.demand("get", "", "pods", namespace)

    def question(session: Session, rehearsal: Rehearsal | None) -> Answer | None:
        return explained(session, kind, f"{namespace}/{name}", rehearsal if remedies else None)

    key = f"{namespace}/{name}"
    missing = questions.unreadable("Pod" if kind == "pod" else "PodGroup", key) or f"there is no {kind} {key}"
    if kind == "pod" and missing.startswith("there"):
        missing += ", or it names a scheduler that is not served here"
    found = await questions.ask_session(who, question, last=last)
    if found is not None and found.reason in _NOT_THERE:
        lacking = _NOT_THERE[found.reason]
        problem = questions.unreadable(
            lacking, found.queue if lacking == "Queue" else f"{namespace}/{found.group or name}"
        )
        if problem:
            # Sessions do not know it: what would help is to mend it.
            found = msgspec.structs.replace(found, detail=problem, remedies=[], tried=False)
    return await _answer(found, missing, who)


async def _answer(found: Answer | QueueAnswer | None, missing: str, who: Caller) -> Response:
    """The answer without what he who asks may not know."""
    if found is None:
        raise HTTPException(404, missing)
    if await who.may("list", "", "pods"):
        return as_json(redacted(found, None))
    allowed = {each: await who.may("list", "", "pods", each) for each in namespaces(found)}
    return as_json(redacted(found, frozenset(name for name, may in allowed.items() if may)))


def as_json(answer: object) -> Response:
    """An answer as it is sent."""
    return Response(msgspec.json.encode(answer), media_type="application/json")


# -- who asks --------------------------------------------------------------------------------------------------------


async def caller(request: Request, reviews: Reviews | None) -> Caller:
    """Who asks. Raises HTTPException for a stranger."""
    if not brings_token(request) and on_loopback(request):
        return Caller(request, None, None)
    if reviews is None:
        raise HTTPException(403, "only requests on loopback are answered")
    if request.url.scheme != "https":
        raise HTTPException(403, "tokens are taken by HTTPS only: serve with a certificate, or ask on loopback")
    token = bearer(request)
    try:
        user = await reviews.user(token)
    except (ApiError, msgspec.ValidationError, *CONNECTION_ERRORS):
        raise HTTPException(503, "the API server did not say whose token it is") from None
    if user is None:
        raise HTTPException(401, "the token is not valid", {"WWW-Authenticate": "Bearer"})
    return Caller(request, user, reviews)


def brings_token(request: Request) -> bool:
    """Whether somebody says who he is."""
    return bool(request.headers.get("authorization"))


def bearer(request: Request) -> str:
    """The token that somebody brings. Raises HTTPException when he brings none, or something else."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise HTTPException(401, "a token of the cluster is needed", {"WWW-Authenticate": "Bearer"})
    return token.strip()
