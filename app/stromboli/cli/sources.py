"""Sources of answers: a service, or sessions that run here. Both give the same answers."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from stromboli.api.documents import read_either
from stromboli.api.errors import DocumentError, StromboliError
from stromboli.cli import clusters
from stromboli.cli.clusters import Address, RemoteError, note
from stromboli.cli.forwarding import Forward, ForwardError
from stromboli.cli.located import Located, locate
from stromboli.cli.options import DEFAULT_URL
from stromboli.cli.question import Question
from stromboli.cli.which import Which
from stromboli.explain.answers import Answer, QueueAnswer, Starts
from stromboli.explain.overview import JobPage, JobRow, Nodes, Overview, Page, PodPage, PodRow, QueuePage, QueueRow

# A command that asks a service has its answer before the engine would be imported.
if TYPE_CHECKING:
    from stromboli.cli.here import Here
    from stromboli.dashboard.filters import JobFilter
    from stromboli.explain.checkup import Findings
    from stromboli.explain.whatif import WhatIf
    from stromboli.lab.sizes import Gangs
    from stromboli.simulation.changes import Texts

T = TypeVar("T")
P = TypeVar("P", bound=Page)

#: rows that are asked for at once
_AT_ONCE = 1_000


class Source(Protocol):
    """The cluster that a command is about. Methods raise StromboliError, and NotFoundError for missing objects."""

    #: the source, in words
    told: str
    #: whether each answer is about the current state, not that at the time of opening
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
        from stromboli.cli.here import Here
        from stromboli.cli.known import known_in

        return Here(known_in(which, which.filename), ", ".join(which.filename))
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
    from stromboli.cli.here import Here
    from stromboli.cli.known import known_of

    return Here(known_of(which, refused, told), str(which.context or which.kubeconfig or "the current context"))


async def _located(which: Which) -> Located | None:
    async with clusters.connected(which.kubeconfig, which.context) as kube:
        return await locate(kube)


def _answers(address: Address) -> bool:
    """Whether a service answers there, even with a refusal."""
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
        from stromboli.explain.whatif import WhatIf

        return self._ask("whatif", WhatIf, body=joined(changes))

    def findings(self) -> Findings:
        from stromboli.explain.checkup import Findings

        return self._ask("findings", Findings)


def joined(texts: Texts) -> bytes:
    """Several texts as one. Raises StromboliError, with the place of an error."""
    documents: list[Any] = []
    for source, text in texts.items():
        try:
            documents += read_either(text, json=source.endswith(".json"))
        except DocumentError as error:
            raise StromboliError(f"{source}: {error}") from None
    return b"\n---\n".join(msgspec.json.encode(each) for each in documents if each is not None)
