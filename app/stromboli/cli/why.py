"""`stromboli why`: what keeps a pod, a job or a queue from going on, and what would help."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from stromboli.api.errors import StromboliError
from stromboli.cli import clusters
from stromboli.cli.completion import of_kind
from stromboli.cli.options import Format, Namespace, Output
from stromboli.cli.output import show
from stromboli.cli.problems import NotFoundError, quit_with
from stromboli.cli.question import Question
from stromboli.cli.sources import opened
from stromboli.cli.which import Which, about_a_cluster
from stromboli.explain.words import lines

#: the exit code for a command line that is not understood
_MISTYPED = 2


class Kind(StrEnum):
    """Kinds of objects that can be asked about."""

    pod = "pod"
    job = "job"
    queue = "queue"


@about_a_cluster
def why(
    which: Which,
    kind: Annotated[
        Kind | None, typer.Argument(help="pod, job (a PodGroup) or queue.", metavar="pod|job|queue", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="Its name, or NAMESPACE/NAME.", autocompletion=of_kind, show_default=False)
    ] = None,
    namespace: Namespace = "",
    output: Format = Output.text,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="For a pod, show what happened to it, and how plugins scored each node.")
    ] = False,
    node: Annotated[list[str] | None, typer.Option(help="With --nodes, a node to show in any case.")] = None,
    try_changes: Annotated[bool, typer.Option("--try/--no-try", help="Try what would help.")] = True,
    size: Annotated[str, typer.Option(help="Say when gangs of these sizes would start, such as 8,16,32.")] = "",
    asks: Annotated[
        list[str] | None,
        typer.Option("--request", help="With --size, what a pod asks for, such as cpu=4; may be repeated."),
    ] = None,
    to_queue: Annotated[str, typer.Option("--queue", help="With --size, their queue.")] = "default",
) -> None:
    """Say why a pod or a job waits, or how a queue stands: the stage that blocks, who is in the way, what would help.

    Asks the service at --url, on this machine or in the cluster; with -f or --policy it runs a session here instead.
    Nothing is written.

    With --nodes it also says what happened to a pod in order, and why it got one node and not another.

    With --size it says instead which gangs could start now, and when gangs of these sizes would start if submitted now.

    Example: stromboli why job train -n research
    """
    if size:
        from stromboli.lab.sizes import Gangs, requested, sized

        if kind is not None:
            raise StromboliError(f"--size: asks about gangs that do not exist yet, not about a {kind}")
        namespace = clusters.namespace_of(namespace, which.filename, which.kubeconfig, which.context)
        starts = opened(which).starts(Gangs(sized(size), to_queue, namespace, requested(asks or [])))
        show(starts, output, lines(starts))
        return
    if kind is None or name is None:
        missing = "pod|job|queue" if kind is None else "name"
        quit_with([f"stromboli why: missing argument '{missing}' (see stromboli why --help)"], _MISTYPED)
    if (nodes or node) and kind is not Kind.pod:
        raise StromboliError(f"--nodes: only pods are placed on nodes, not a {kind}")
    if kind is Kind.queue and "/" in name:
        raise NotFoundError(f"there is no queue {name}: queues are in no namespace, and named alone")
    if "/" in name:
        namespace, _, name = name.partition("/")
    if "/" in name:
        raise NotFoundError(f"there is no {kind} {namespace}/{name}: it is NAME or NAMESPACE/NAME")
    namespace = clusters.namespace_of(namespace, which.filename, which.kubeconfig, which.context)
    asked = Question(str(kind), namespace, name, try_changes, (node or []) if nodes or node else None)
    found = opened(which).explain(asked)
    show(found, output, lines(found))
