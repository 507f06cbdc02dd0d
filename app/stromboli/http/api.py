"""Questions of users and tools over HTTP: why something waits, and what would happen after a change.

Requests on loopback are trusted. All others need HTTPS and a token of the cluster, which the API server reviews;
answers are limited to what the user may read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, HTTPException, Query, Request, Response

from stromboli.api.crds import SCHEDULING
from stromboli.api.errors import StromboliError
from stromboli.api.validation import did_you_mean
from stromboli.explain.answers import Answer, QueueAnswer, Starts
from stromboli.explain.checkup import Findings, findings
from stromboli.explain.foreign import with_absent
from stromboli.explain.history import with_history
from stromboli.explain.named import jobs_meant, keys_in, near_key
from stromboli.explain.past_runs import PastRuns
from stromboli.explain.queues import explain_queue
from stromboli.explain.redaction import namespaces, redacted
from stromboli.explain.rehearsal import NO_JOB, Rehearsal
from stromboli.explain.remedies import explained
from stromboli.explain.whatif import WhatIf
from stromboli.explain.work import TooManyStepsError
from stromboli.framework.session.session import Session
from stromboli.http.cluster import Source
from stromboli.http.origin import demand_media_type, on_loopback
from stromboli.http.schema import answers, file
from stromboli.http.turns import Turns, while_asked
from stromboli.lab.forecast import with_start
from stromboli.lab.sizes import Gangs, requested, sized, starts_of
from stromboli.live.api_server.access import User
from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError
from stromboli.simulation.changes import try_changes

T = TypeVar("T")

#: API group of queues and PodGroups
GROUP = SCHEDULING.partition("/")[0]
#: limit on the size of a change in bytes
_LARGEST_CHANGE = 4 << 20
#: reasons of a missing object, and its kind
_NOT_THERE = {"QueueNotFound": "Queue", "PodGroupNotFound": "PodGroup"}
_CHANGE = {
    "requestBody": {
        "required": True,
        "description": "Objects to add, change or remove, or a policy, as `stromboli whatif -f` takes them.",
        "content": {kind: {"schema": {"type": "string"}} for kind in ("application/yaml", "application/json")},
    }
}


class Reviews(Protocol):
    """Authenticates and authorizes callers, as `AccessReviews` does."""

    async def user(self, token: str) -> User | None: ...

    async def may(self, user: User, verb: str, group: str, resource: str, namespace: str = "") -> bool: ...


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request; `user` is None on loopback, where everything may be read."""

    request: Request
    user: User | None
    reviews: Reviews | None

    @property
    def name(self) -> str:
        """The user's name, empty on loopback."""
        return "" if self.user is None else self.user.name

    async def may(self, verb: str, group: str, resource: str, namespace: str = "") -> bool:
        """Whether the caller has a permission."""
        if self.user is None or self.reviews is None:
            return True
        try:
            return await self.reviews.may(self.user, verb, group, resource, namespace)
        except (ApiError, *CONNECTION_ERRORS):
            raise HTTPException(503, "the API server did not answer whether you may read this") from None

    async def demand(self, verb: str, group: str, resource: str, namespace: str = "") -> None:
        """Raises HTTPException without the permission."""
        if not await self.may(verb, group, resource, namespace):
            where = f" in namespace {namespace}" if namespace else ""
            raise HTTPException(403, f"you may not {verb} {resource}{where}")


class Questions:
    """Answers one question at a time, since each may cost dozens of sessions; users take turns."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._turns = Turns()

    async def ask(self, who: Caller, question: Callable[[Rehearsal], T]) -> T:
        """An answer, computed in a thread until the client disconnects. Raises HTTPException while the state is
        unknown."""
        async with self._turns.turn(who.name):
            rehearsal = self._source.rehearsal()
            if rehearsal is None:
                raise HTTPException(503, "the initial lists have not been applied yet")
            return await while_asked(who.request, partial(question, rehearsal), rehearsal.abandon)

    async def ask_session(
        self,
        who: Caller,
        question: Callable[[Session, Rehearsal | None], T],
        *,
        last: bool,
        about: tuple[str, str],
    ) -> T:
        """An answer from a session on the current state, on which changes can be tried; it is `about` an object, a
        kind and a key.

        With `last` the answer is that of the service's last session, if this replica runs any, which costs no session.
        """
        ran = self._source.last() if last else None
        if ran is None:
            try:
                return await self.ask(who, lambda rehearsal: question(*self._session(rehearsal, *about)))
            except TooManyStepsError as error:
                raise HTTPException(503, str(error)) from None
        async with self._turns.turn(who.name):
            return await asyncio.to_thread(question, ran, None)

    @property
    def past(self) -> PastRuns:
        """Run times of finished jobs."""
        return self._source.past

    def unreadable(self, kind: str, key: str) -> str:
        """`KIND KEY exists, but could not be read: ...`, empty if that is not the case."""
        problem = self._source.unreadable(kind, key)
        return f"{kind} {key} exists, but could not be read: {problem}" if problem else ""

    def absent(self, kind: str, key: str) -> str:
        """Why a pod of another scheduler, or a job that is suspended, is not known; empty for others."""
        return self._source.absent(kind, key)

    def _session(self, rehearsal: Rehearsal, kind: str, key: str) -> tuple[Session, Rehearsal | None]:
        """A session; if it would need an HTTP extender, the last session that asked it, on which nothing can be
        tried."""
        session = rehearsal.session(jobs_meant(rehearsal.state, kind, key))
        if rehearsal.misses_extender:
            return self._source.last() or session, None
        return session, rehearsal


def api_routes(source: Source, reviews: Reviews | None, journal: Callable[[], bytes] | None = None) -> APIRouter:
    """`/api/v1`; without `reviews` only loopback is answered. `journal` returns the recent sessions, if they are
    recorded."""
    router = APIRouter(prefix="/api/v1", tags=["explain"])
    # Trying changes may take long and must not delay explanations.
    questions, changes = Questions(source), Questions(source)

    @router.get("/explain/job/{namespace}/{name}", responses=answers(Answer, 401, 403, 404, 429, 503))
    async def explain_job(
        request: Request, namespace: str, name: str, remedies: bool = True, last: bool = False
    ) -> Response:
        """Why a job waits. Needs `get` on pods and PodGroups of its namespace.

        `remedies=false` omits what would help, which takes most of the time; `last=true` answers from the last session,
        which costs no session.
        """
        who = await caller(request, reviews)
        await who.demand("get", GROUP, "podgroups", namespace)
        return await _explain(questions, who, "job", f"{namespace}/{name}", remedies=remedies, last=last)

    @router.get("/explain/pod/{namespace}/{name}", responses=answers(Answer, 401, 403, 404, 429, 503))
    async def explain_pod(
        request: Request,
        namespace: str,
        name: str,
        remedies: bool = True,
        last: bool = False,
        history: bool = False,
        node: Annotated[list[str] | None, Query()] = None,
    ) -> Response:
        """Why a pod waits. Needs `get` on pods of its namespace. `remedies` and `last` as for a job.

        With `history=true`, which takes a session, it also says what happened to the pod in order, with each plugin's
        answer about nodes; of many nodes only the chosen one, each `node`, and those that came closest.
        """
        who = await caller(request, reviews)
        nodes = (node or []) if history else None
        return await _explain(
            questions, who, "pod", f"{namespace}/{name}", remedies=remedies, last=last and not history, nodes=nodes
        )

    @router.get("/explain/queue/{name}", responses=answers(QueueAnswer, 401, 403, 404, 429, 503))
    async def explain_the_queue(request: Request, name: str, last: bool = False) -> Response:
        """The state of a queue. Needs `get` on queues. `last` as for a job."""
        who = await caller(request, reviews)
        await who.demand("get", GROUP, "queues")
        # Callers who may not list queues only learn of the one that they asked for.
        may_list = await who.may("list", GROUP, "queues")

        def question(session: Session, _: Rehearsal | None) -> QueueAnswer | str:
            known = session.view.queues if may_list else ()
            return explain_queue(session, name) or f"there is no queue {name}{did_you_mean(name, known)}"

        return await _answer(await questions.ask_session(who, question, last=last, about=("queue", name)), who)

    @router.get("/explain/sizes", responses=answers(Starts, 400, 401, 403, 429, 503))
    async def explain_sizes(
        request: Request,
        size: str,
        queue: str = "default",
        namespace: str = "default",
        asks: Annotated[list[str] | None, Query()] = None,
    ) -> Response:
        """Starts of gangs of some sizes if submitted now, each without the others. Needs `list` on queues.

        `size` is such as `8,16,32`; each pod asks for `asks`, such as `cpu=4,memory=8Gi`, by default for one card.
        """
        who = await caller(request, reviews)
        # A name that is misspelt is answered with that of another queue.
        await who.demand("list", GROUP, "queues")
        try:
            gangs = Gangs(sized(size), queue, namespace, requested(asks or ()))
            found = await changes.ask(who, lambda rehearsal: starts_of(gangs, rehearsal, changes.past))
        except StromboliError as error:
            raise HTTPException(400, str(error)) from None
        return await _answer(found, who)

    @router.get("/findings", responses=answers(Findings, 401, 403, 429, 503))
    async def found(request: Request) -> Response:
        """Probable mistakes in the policy and the cluster, as in `stromboli doctor`. Needs `list` on queues, and on
        PodGroups and pods of all namespaces."""
        who = await caller(request, reviews)
        for group, resource in ((GROUP, "queues"), (GROUP, "podgroups"), ("", "pods")):
            await who.demand("list", group, resource)
        in_session = await questions.ask(who, lambda rehearsal: findings(rehearsal.engine, rehearsal.session(NO_JOB)))
        return as_json(Findings(in_session + source.outside_sessions(), list(source.served())))

    @router.post("/whatif", responses=answers(WhatIf, 400, 401, 403, 413, 415, 429, 503), openapi_extra=_CHANGE)
    async def whatif(request: Request) -> Response:
        """Effects of the change in the body; nothing is written. Needs `list` on all pods."""
        who = await caller(request, reviews)
        # It reports pods of any namespace.
        await who.demand("list", "", "pods")
        demand_media_type(request)
        body = await request.body()
        if len(body) > _LARGEST_CHANGE:
            raise HTTPException(413, f"a change must not exceed {_LARGEST_CHANGE} bytes")
        try:
            text = body.decode()
            return as_json(
                await changes.ask(who, lambda rehearsal: try_changes({"the request": text}, rehearsal, source.engine))
            )
        except (UnicodeDecodeError, StromboliError) as error:
            raise HTTPException(400, str(error)) from None

    @router.get("/journal", responses=file("The journal of this replica.", 401, 403, 404, 503))
    async def recorded(request: Request) -> Response:
        """The recent sessions with all their input, for `stromboli replay`. Needs `list` on all pods and on nodes."""
        who = await caller(request, reviews)
        # It contains all objects that sessions read, of any namespace.
        for resource in ("pods", "nodes"):
            await who.demand("list", "", resource)
        if journal is None:
            raise HTTPException(404, "sessions are not recorded: --journal-memory is 0")
        content = await asyncio.to_thread(journal)
        if not content:
            raise HTTPException(404, "no session has been recorded: this replica has run none")
        return Response(content, media_type="application/octet-stream")

    return router


async def _explain(
    questions: Questions,
    who: Caller,
    kind: str,
    key: str,
    *,
    remedies: bool,
    last: bool,
    nodes: list[str] | None = None,
) -> Response:
    namespace, _, name = key.partition("/")
    await who.demand("get", "", "pods", namespace)

    def why_absent(key: str) -> str:
        return questions.unreadable("Pod" if kind == "pod" else "PodGroup", key) or questions.absent(kind, key)

    missing = why_absent(key)
    # Callers who may not list pods elsewhere learn no names there.
    may_list = await who.may("list", "", "pods")

    def question(session: Session, rehearsal: Rehearsal | None) -> Answer | str:
        found = explained(session, kind, key, rehearsal if remedies else None)
        if found is None and missing:
            return missing if key in missing else f"{kind} {key}: {missing}"
        if found is None:
            near = near_key(key, keys_in(session, kind, None if may_list else namespace))
            meant = f", did you mean {near.removeprefix(f'{namespace}/')!r}?" if near else ""
            return f"there is no {kind} {key}{meant}"
        if rehearsal is None:
            return found
        found = with_start(found, rehearsal, questions.past) if remedies else found
        return found if nodes is None else with_history(found, rehearsal, nodes)

    found = await questions.ask_session(who, question, last=last, about=(kind, key))
    if isinstance(found, Answer):
        # The name may be that of the workload.
        found = with_absent(found, missing or why_absent(f"{found.namespace}/{found.name}"))
    if isinstance(found, Answer) and found.reason in _NOT_THERE:
        lacking = _NOT_THERE[found.reason]
        problem = questions.unreadable(
            lacking, found.queue if lacking == "Queue" else f"{namespace}/{found.group or name}"
        )
        if problem:
            # Sessions do not know the object: repairing it is what would help.
            found = msgspec.structs.replace(found, detail=problem, remedies=[], tried=False)
    return await _answer(found, who)


async def _answer(found: Answer | QueueAnswer | Starts | str, who: Caller) -> Response:
    """The answer without parts that the caller may not read. Raises HTTPException for words on what is not there."""
    if isinstance(found, str):
        raise HTTPException(404, found)
    if await who.may("list", "", "pods"):
        return as_json(redacted(found, None))
    allowed = {each: await who.may("list", "", "pods", each) for each in namespaces(found)}
    return as_json(redacted(found, frozenset(name for name, may in allowed.items() if may)))


def as_json(answer: object) -> Response:
    """An encoded answer."""
    return Response(msgspec.json.encode(answer), media_type="application/json")


# -- callers ---------------------------------------------------------------------------------------------------------


async def caller(request: Request, reviews: Reviews | None) -> Caller:
    """The caller. Raises HTTPException if it cannot be authenticated."""
    if not brings_token(request) and on_loopback(request):
        return Caller(request, None, None)
    if reviews is None:
        raise HTTPException(403, "only requests from loopback are answered")
    if request.url.scheme != "https":
        raise HTTPException(
            403, "tokens are accepted over HTTPS only: serve with a certificate, or connect through loopback"
        )
    token = bearer(request)
    try:
        user = await reviews.user(token)
    except (ApiError, msgspec.ValidationError, *CONNECTION_ERRORS):
        raise HTTPException(503, "the API server did not answer the token review") from None
    if user is None:
        raise HTTPException(401, "the token is not valid", {"WWW-Authenticate": "Bearer"})
    return Caller(request, user, reviews)


def brings_token(request: Request) -> bool:
    """Whether a request has credentials."""
    return bool(request.headers.get("authorization"))


def bearer(request: Request) -> str:
    """The bearer token of a request. Raises HTTPException without one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise HTTPException(401, "a bearer token of the cluster is required", {"WWW-Authenticate": "Bearer"})
    return token.strip()
