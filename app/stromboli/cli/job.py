"""`stromboli job`: the jobs (PodGroups) of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from stromboli.cli import clusters
from stromboli.cli.options import Context, Files, Format, Kubeconfig, Namespace, Output, PolicyFile, SchedulerNames
from stromboli.cli.output import columns, show
from stromboli.explain.answers import Answer
from stromboli.explain.jobs import outline
from stromboli.explain.redaction import redacted

_NO_QUEUE = ""


def list_(
    namespace: Namespace = "",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Jobs of all.")] = False,
    queue: Annotated[str, typer.Option(help="Jobs of this queue.")] = _NO_QUEUE,
    output: Format = Output.text,
    files: Files = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    policy: PolicyFile = None,
    scheduler_name: SchedulerNames = None,
) -> None:
    """List the jobs with the pods that have a place, and in one word why the others have none.

    Example: stromboli job list -A --queue research
    """
    namespace = clusters.namespace_of(namespace, files, kubeconfig, context)
    session = clusters.known_here(files, kubeconfig, context, policy, scheduler_name).rehearsal().session()
    keys = [group.key for group in session.view.snapshot.pod_groups if group is not None]
    keys = [key for key in keys if all_namespaces or key.partition("/")[0] == namespace]
    answers = (outline(session, key) for key in sorted(keys))
    found = [redacted(answer, None) for answer in answers if answer is not None and queue in (_NO_QUEUE, answer.queue)]
    show(found, output, columns(_rows(found, wide=output is Output.wide)))


def _rows(found: list[Answer], *, wide: bool) -> Iterator[tuple[str, ...]]:
    more = ("WHO", "MESSAGE") if wide else ()
    yield ("NAMESPACE", "NAME", "QUEUE", "PHASE", "PODS", "MIN", "STAGE", "REASON", *more)
    for each in found:
        pods = (f"{each.placed}/{each.pods}", str(each.min_member))
        rest = (each.who or "-", each.message) if wide else ()
        names = (each.namespace, each.name, each.queue or "-", each.phase or "-")
        yield (*names, *pods, each.stage or "-", each.reason or "-", *rest)
