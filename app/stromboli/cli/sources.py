"""Where answers come from: a service, which has them, or sessions that are run here. Both give the same ones."""

from __future__ import annotations

import asyncio
import atexit
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from stromboli.api.documents import read_either
from stromboli.api.errors import DocumentError, StromboliError
from stromboli.api.validation import did_you_mean
from stromboli.cli import clusters
from stromboli.cli.clusters import Address, Known, RemoteError, note
from stromboli.cli.forwarding import Forward, ForwardError
from stromboli.cli.located import Located, locate
from stromboli.cli.options import DEFAULT_URL
from stromboli.cli.problems import NotFoundError
from stromboli.cli.which import Which
from stromboli.dashboard.filters import JobFilter
from stromboli.dashboard.report import SessionReport
from stromboli.engine import Engine
from stromboli.explain.absent import refused_to
from stromboli.explain.answers import Answer, QueueAnswer, Starts
from stromboli.explain.checkup import Findings, findings, scheduler_findings
from stromboli.explain.foreign import elsewhere, served_here, with_absent, with_later
from stromboli.explain.history import with_history
from stromboli.explain.named import jobs_meant, keys_in, near_key
from stromboli.explain.overview import JobPage, JobRow, Nodes, Overview, Page, PodPage, PodRow, QueuePage, QueueRow
from stromboli.explain.queues import explain_queue
from stromboli.explain.redaction import redacted
from stromboli.explain.remedies import explained
from stromboli.explain.whatif import WhatIf
from stromboli.lab.forecast import with_start
from stromboli.lab.sizes import Gangs, starts_of
from stromboli.simulation.changes import Texts, try_changes
from stromboli.state.pods import group_of

T = TypeVar("T")
P = TypeVar("P", bound=Page)

#: rows that are asked for at once
_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about a pod, a job or a queue."""

    kind: str
    namespace: str
    name: str
    #: whether changes are tried
    tries: bool = True
    #: of a pod, the nodes to tell of in any case; None without what happened to it
    nodes: list[str] | None = None


class Source(Protocol):
    """The cluster that a command is about. Methods raise StromboliError, and NotFoundError for what is not there."""

    #: what it is, for people
    told: str
    #: whether it says at each question what is then, and not what was when it was opened
    follows: bool

    def overview(self) -> Overview: ...

    def queues(self) -> list[QueueRow]: ...

    def jobs(self, only: JobFilter, limit: int | None = None) -> list[JobRow]: ...

    def pods(self, job: str) -> list[PodRow]: ...

    def nodes(self, resource: str, limit: int) -> Nodes: ...

    def explain(self, question: Question) -> Answer | QueueAnswer: ...

    def starts(self, gangs: Gangs) -> Starts: ...

    def whatif(self, changes: Texts) -> WhatIf: ...

    def findings(self) -> Findings: ...


def opened(
    which: Which, told: Callable[[str], None] = note, refused: Callable[[str, int], None] | None = None
) -> Source:
    """The service, wherever it is found, else what is decided here; what was found is `told` where it is not obvious.

    `refused` is for `known_of`. Raises StromboliError.
    """
    if which.filename:
        return Here(clusters.known_in(which, which.filename), ", ".join(which.filename))
    if which.url and which.decides_here:
        given = {"--policy": which.policy, "--scheduler-name": which.scheduler_name, "--plugins-dir": which.plugins_dir}
        here = next(option for option, value in given.items() if value)
        raise StromboliError(f"{here}: the service at --url decides by what it was started with: leave one of them out")
    if which.url:
        return OfService(Address(which.url, which.token, which.certificate_authority))
    if which.decides_here:
        return _here(which, told, refused)
    return _found(which, told) or _here(which, told, refused)


def _found(which: Which, told: Callable[[str], None]) -> OfService | None:
    """The service of the cluster that is named, or one on this machine where none is; None where none answers."""
    is_named = which.kubeconfig is not None or which.context is not None
    local = Address(DEFAULT_URL, which.token, which.certificate_authority)
    if not is_named and _answers(local):
        return OfService(local)
    try:
        service = asyncio.run(_located(which))
    except StromboliError as error:
        if is_named:
            raise
        raise StromboliError(
            f"{DEFAULT_URL}: no service answers, and {error} (--url names a service, --context a cluster)"
        ) from None
    if service is not None and service.pod:
        try:
            forward = Forward(which.kubeconfig, which.context, service)
            # It is open until the command ends, and no longer.
            atexit.register(forward.close)
            address = Address(forward.url, which.token, which.certificate_authority, forwarded=True)
            if _answers(address):
                return OfService(address, f"service {service.found_as}")
            told(f"service {service.found_as} cannot be asked: its port does not answer")
        except ForwardError as error:
            told(f"service {service.found_as} cannot be asked: {error}")
    return None


def _here(which: Which, told: Callable[[str], None], refused: Callable[[str, int], None] | None) -> Here:
    return Here(
        clusters.known_of(which, refused, told), str(which.context or which.kubeconfig or "the current context")
    )


async def _located(which: Which) -> Located | None:
    async with clusters.connected(which.kubeconfig, which.context) as kube:
        return await locate(kube)


def _answers(address: Address) -> bool:
    """Whether a service answers there, be it that it refuses."""
    try:
        clusters.ask(address, "queues?limit=0")
    except RemoteError as error:
        return error.status in (401, 403, 429, 503)
    return True


class OfService:
    """A service's answers."""

    follows = True

    def __init__(self, address: Address, told: str = "") -> None:
        self.address = address
        self.told = told or address.url

    def _ask(self, path: str, kind: type[T], *, body: bytes | None = None) -> T:
        try:
            return msgspec.convert(clusters.ask(self.address, path, body=body), kind)
        except msgspec.ValidationError as error:
            raise RemoteError(f"{self.told}: the service has another version than this command: {error}") from None

    def overview(self) -> Overview:
        return self._ask("overview", Overview)

    def queues(self) -> list[QueueRow]:
        rows: list[QueueRow] = self._all("queues", {}, QueuePage)
        return rows

    def jobs(self, only: JobFilter, limit: int | None = None) -> list[JobRow]:
        asked = {name: value for name, value in asdict(only).items() if value}
        rows: list[JobRow] = self._all("jobs", asked, JobPage, limit)
        return rows

    def pods(self, job: str) -> list[PodRow]:
        rows: list[PodRow] = self._all(clusters.quoted("jobs", *job.split("/"), "pods"), {}, PodPage)
        return rows

    def _all(self, path: str, asked: dict[str, str], kind: type[P], limit: int | None = None) -> Any:
        """The rows of all pages."""
        rows: list[Any] = []
        while True:
            number = _AT_ONCE if limit is None else min(_AT_ONCE, limit - len(rows))
            query = urlencode({**asked, "offset": len(rows), "limit": number})
            page: Any = self._ask(f"{path}?{query}", kind)
            rows += page.items
            if not page.items or len(rows) >= (page.total if limit is None else limit):
                return rows

    def nodes(self, resource: str, limit: int) -> Nodes:
        return self._ask(f"nodes?{urlencode({'limit': limit, 'resource': resource})}", Nodes)

    def explain(self, question: Question) -> Answer | QueueAnswer:
        is_queue = question.kind == "queue"
        parts = ("explain", question.kind, *(() if is_queue else (question.namespace,)), question.name)
        asked = [] if question.tries or is_queue else [("remedies", "false")]
        if question.nodes is not None:
            asked += [("history", "true"), *(("node", name) for name in question.nodes)]
        path = clusters.quoted(*parts) + (f"?{urlencode(asked)}" if asked else "")
        with clusters.looking_for():
            return self._ask(path, QueueAnswer) if is_queue else self._ask(path, Answer)

    def starts(self, gangs: Gangs) -> Starts:
        asked = {"size": ",".join(map(str, gangs.sizes)), "queue": gangs.queue, "namespace": gangs.namespace}
        asks = [("asks", f"{name}={amount}") for name, amount in gangs.request.items()]
        return self._ask(f"explain/sizes?{urlencode([*asked.items(), *asks])}", Starts)

    def whatif(self, changes: Texts) -> WhatIf:
        return self._ask("whatif", WhatIf, body=joined(changes))

    def findings(self) -> Findings:
        return self._ask("findings", Findings)


def joined(texts: Texts) -> bytes:
    """What is in several texts as one. Raises StromboliError for what cannot be read, while it is known where it is."""
    documents: list[Any] = []
    for source, text in texts.items():
        try:
            documents += read_either(text, json=source.endswith(".json"))
        except DocumentError as error:
            raise StromboliError(f"{source}: {error}") from None
    return b"\n---\n".join(msgspec.json.encode(each) for each in documents if each is not None)


class Here:
    """The answers of sessions that are run here."""

    follows = False

    def __init__(self, known: Known, told: str) -> None:
        self.known = known
        self.told = told
        self._rehearsal = known.rehearsal()

    @cached_property
    def session(self) -> Any:
        """A session on the cluster as it is."""
        return self._rehearsal.session()

    @cached_property
    def _report(self) -> SessionReport:
        seconds = sum(self.session.timings.actions.values())
        return SessionReport(self.session, self.known.now or time.time(), seconds)

    def overview(self) -> Overview:
        return self._report.overview()

    def queues(self) -> list[QueueRow]:
        return self._report.queues(0, len(self.session.view.queues)).items

    def jobs(self, only: JobFilter, limit: int | None = None) -> list[JobRow]:
        everything = self._report.jobs(0, 0).total
        return self._report.jobs(0, everything if limit is None else limit, only).items

    def pods(self, job: str) -> list[PodRow]:
        return self._report.pods(0, len(self.session.view.pods.records), job=job).items

    def nodes(self, resource: str, limit: int) -> Nodes:
        return self._report.nodes(0, limit, resource=resource)

    def explain(self, question: Question) -> Answer | QueueAnswer:
        kind, name = question.kind, question.name
        if kind == "queue":
            of_queue = explain_queue(self._rehearsal.session(jobs_meant(self.known.state, kind, name)), name)
            if of_queue is None:
                raise NotFoundError(f"there is no queue {name}{did_you_mean(name, self.session.view.queues)}")
            return of_queue
        key = f"{question.namespace}/{name}"
        session = self._rehearsal.session(jobs_meant(self.known.state, kind, key))
        found = explained(session, kind, key, self._rehearsal if question.tries else None)
        if found is None:
            raise NotFoundError(self._missing(question, key))
        if kind == "job":
            not_made = self.known.loaded.empty.get(f"{question.namespace}/{found.workload.rpartition('/')[2]}", "")
            # The session tells of the quotas that it sees.
            not_made = "" if "ResourceQuota" in found.detail else not_made
            absent = (not_made, elsewhere(self._foreign_of(key), self.known.state.scheduler_names))
            made = found.workload.replace("/", f" {question.namespace}/")
            later = {why for why in self.known.loaded.later.values() if why.startswith(f"{made} ")}
            found = with_absent(found, "; ".join(filter(None, (*absent, *sorted(later)))))
        elif key in self.known.loaded.later:
            found = with_later(found, self.known.loaded.later[key])
        if question.tries:
            found = with_start(found, self._rehearsal, self.known.past())
        if question.nodes is not None:
            found = with_history(found, self._rehearsal, question.nodes)
        return redacted(found, None)

    def _missing(self, question: Question, key: str) -> str:
        """Why there is no answer, with what may have been meant."""
        if question.kind == "pod" and (forbidden := self.known.loaded.forbidden.get(key)):
            return f"pod {key} is not made: {forbidden}"
        if question.kind == "pod" and (later := self.known.loaded.later.get(key)):
            return f"pod {key} is not made yet: {later}"
        if question.kind == "pod" and (scheduler := self._foreign(key)) is not None:
            served = self.known.state.scheduler_names
            near = did_you_mean(scheduler, served)
            return f"pod {key} names scheduler {scheduler}, and only {served_here(served)}{near}"
        if question.kind == "job" and (paused := self.known.loaded.without_pods().get(key)):
            return paused
        if question.kind == "job" and (bare := self._without_pods(key)):
            return bare
        keys = self.known.state.pods.by_key if question.kind == "pod" else keys_in(self.session, "job")
        near = near_key(key, keys)
        return f"there is no {question.kind} {key}{f', did you mean {near!r}?' if near else ''}"

    def _without_pods(self, key: str) -> str:
        """Of a workload that a cluster has and of which there are no pods, where it says why; empty for none such."""
        known = self.known.loaded
        for owner in known.owners.values():
            meta, kind = owner["metadata"], known.kinds.of(owner)
            namespace = meta.get("namespace") or clusters.DEFAULT_NAMESPACE
            if kind is not None and f"{namespace}/{meta.get('name')}" == key:
                if other := elsewhere(self._foreign_to(namespace, str(meta["name"])), self.known.state.scheduler_names):
                    return f"{kind.row.kind} {key}: {other}"
                said = refused_to(str(owner.get("apiVersion", "")), kind.row.kind, str(meta["name"]), namespace)
                return f"{kind.row.kind} {key} has no pods: {said}"
        return ""

    def _foreign(self, key: str) -> str | None:
        """The scheduler that a pod names which is there and not ours."""
        pods = (obj for kind, obj in self.known.loaded.objects if kind == "Pod" and obj.metadata.key == key)
        return next((pod.spec.scheduler_name or "" for pod in pods), None)

    def _foreign_to(self, namespace: str, owner: str) -> Iterator[str]:
        """The schedulers of the pods of a workload that are not ours."""
        pods = (obj for kind, obj in self.known.loaded.objects if kind == "Pod" and not self.known.state.is_ours(obj))
        for pod in pods:
            owners = {reference.name for reference in pod.metadata.owner_references or ()}
            if pod.metadata.namespace == namespace and owner in owners:
                yield pod.spec.scheduler_name or ""

    def _foreign_of(self, key: str) -> Iterator[str]:
        """The schedulers of the pods of a PodGroup that are not ours."""
        for kind, obj in self.known.loaded.objects:
            if (
                kind == "Pod"
                and not obj.spec.node_name
                and group_of(obj.metadata) == key
                and not self.known.state.is_ours(obj)
            ):
                yield obj.spec.scheduler_name or ""

    def starts(self, gangs: Gangs) -> Starts:
        return starts_of(gangs, self._rehearsal, self.known.past())

    def whatif(self, changes: Texts) -> WhatIf:
        engine_of = partial(Engine, registry=self.known.engine.registry, source=", ".join(changes))
        return try_changes(changes, self._rehearsal, engine_of)

    def findings(self) -> Findings:
        pods = [
            (obj.metadata.key, obj.spec.scheduler_name or "", not obj.spec.node_name)
            for kind, obj in self.known.loaded.objects
            if kind == "Pod"
        ]
        served = sorted(self.known.state.scheduler_names)
        return Findings([*findings(self.known.engine, self.session), *scheduler_findings(pods, served)], served)
