"""`stromboli why`: what keeps a pod, a job or a queue from going on, and what would help."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlencode

import msgspec
import typer

from stromboli.api.errors import StromboliError
from stromboli.api.validation import did_you_mean, nearest
from stromboli.cli import clusters
from stromboli.cli.clusters import Known
from stromboli.cli.options import (
    DEFAULT_URL,
    CaFile,
    Context,
    Files,
    Format,
    Kubeconfig,
    Namespace,
    Output,
    PolicyFile,
    SchedulerNames,
    Token,
    Url,
)
from stromboli.cli.output import show
from stromboli.cli.problems import NotFoundError
from stromboli.explain.answers import Answer, QueueAnswer
from stromboli.explain.history import with_history
from stromboli.explain.queues import explain_queue
from stromboli.explain.redaction import redacted
from stromboli.explain.remedies import explained
from stromboli.explain.words import lines


class Kind(StrEnum):
    """What can be asked about."""

    pod = "pod"
    job = "job"
    queue = "queue"


def why(
    kind: Annotated[Kind, typer.Argument(help="pod, job (a PodGroup) or queue.", metavar="pod|job|queue")],
    name: Annotated[str, typer.Argument(help="Its name, or NAMESPACE/NAME.")],
    namespace: Namespace = "",
    output: Format = Output.text,
    files: Files = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    certificate_authority: CaFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    policy: PolicyFile = None,
    scheduler_name: SchedulerNames = None,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="Of a pod, say what happened to it, and how plugins scored each node.")
    ] = False,
    node: Annotated[list[str] | None, typer.Option(help="With --nodes, a node to tell of in any case.")] = None,
    try_changes: Annotated[bool, typer.Option("--try/--no-try", help="Try what would help.")] = True,
) -> None:
    """Say why a pod or a job waits, or how a queue stands: the stage that blocks, who is in the way, what would help.

    The service is asked, or with -f or --context a session is run here. Nothing is written.

    With --nodes it also says what happened to a pod in order, and why it was one node and not another.

    Example: stromboli why job train -n research
    """
    if (nodes or node) and kind is not Kind.pod:
        raise StromboliError(f"--nodes: only pods are placed on nodes, not a {kind}")
    if "/" in name and kind is not Kind.queue:
        namespace, _, name = name.partition("/")
    namespace = clusters.namespace_of(namespace, files, kubeconfig, context)
    known = clusters.known_from(files, kubeconfig, context, policy, scheduler_name)
    if known is not None:
        found = _here(known, kind, namespace, name, try_changes, node or [] if nodes or node else None)
    else:
        parts = ("explain", str(kind), *((name,) if kind is Kind.queue else (namespace, name)))
        path = clusters.quoted(*parts) + _query(kind, try_changes, node or [] if nodes or node else None)
        with clusters.looking_for():
            told = clusters.ask(url, path, token=token, ca_file=certificate_authority)
        found = msgspec.convert(told, QueueAnswer) if kind is Kind.queue else msgspec.convert(told, Answer)
    show(found, output, lines(found))


def _foreign(known: Known, key: str) -> str | None:
    """The scheduler that a pod names which is there and not ours."""
    pods = (obj for kind, obj in known.loaded.objects if kind == "Pod" and obj.metadata.key == key)
    return next((pod.spec.scheduler_name or "" for pod in pods), None)


def _query(kind: Kind, try_changes: bool, nodes: list[str] | None) -> str:
    """The query of a question to the service; `nodes` are those to tell of in any case, None without history."""
    if kind is Kind.queue:
        return ""
    asked = [] if try_changes else [("remedies", "false")]
    if nodes is not None:
        asked += [("history", "true"), *(("node", name) for name in nodes)]
    return f"?{urlencode(asked)}" if asked else ""


def _here(
    known: Known, kind: Kind, namespace: str, name: str, try_changes: bool, nodes: list[str] | None
) -> Answer | QueueAnswer:
    rehearsal = known.rehearsal()
    session = rehearsal.session()
    if kind is Kind.queue:
        answer = explain_queue(session, name)
        names = list(session.view.queues)
        if answer is None:
            raise NotFoundError(f"there is no queue {name}{did_you_mean(name, names)}")
        return answer
    key = f"{namespace}/{name}"
    found = explained(session, str(kind), key, rehearsal if try_changes else None)
    if found is None:
        if kind is Kind.pod and (scheduler := _foreign(known, key)) is not None:
            served = ", ".join(sorted(known.state.scheduler_names))
            raise NotFoundError(f"pod {key} names scheduler {scheduler}, and only {served} is served here")
        keys = known.state.pods.by_key if kind is Kind.pod else session.view.jobs
        raise NotFoundError(f"there is no {kind} {key}{_near(namespace, name, keys)}")
    if nodes is not None:
        found = with_history(found, rehearsal, nodes)
    return redacted(found, None)


def _near(namespace: str, name: str, keys: Iterable[str]) -> str:
    """`, did you mean 'default/train'?`, by names alone: what is in one namespace, or in another, is no likeness."""
    by_name: dict[str, str] = {}
    for key in sorted(keys, key=lambda key: key.partition("/")[0] == namespace):
        by_name[key.partition("/")[2]] = key
    near = nearest(name, by_name)
    return f", did you mean {by_name[near]!r}?" if near else ""
