"""`stromboli job list`: the jobs (PodGroups) of a cluster, in the order in which they are served."""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import typer

from stromboli.api.errors import StromboliError
from stromboli.api.validation import did_you_mean, nearest
from stromboli.api.words import counted
from stromboli.cli import clusters
from stromboli.cli.completion import queue_names
from stromboli.cli.options import Format, Namespace, Output
from stromboli.cli.output import columns, show
from stromboli.cli.problems import NotFoundError
from stromboli.cli.sources import Source, opened
from stromboli.cli.which import Which, about_a_cluster
from stromboli.dashboard.filters import JobFilter
from stromboli.explain.overview import JobRow
from stromboli.explain.words import amount, lasting


class Order(StrEnum):
    """Sort key of jobs."""

    name = "name"
    position = "position"
    age = "age"
    waiting = "waiting"
    priority = "priority"


@about_a_cluster
def list_(
    which: Which,
    namespace: Namespace = "",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Jobs of all.")] = False,
    queue: Annotated[
        str, typer.Option(help="Jobs of this queue, and of those below it.", autocompletion=queue_names)
    ] = "",
    reason: Annotated[str, typer.Option(help="Jobs that wait for this reason.")] = "",
    sort: Annotated[Order, typer.Option(help="What they are sorted by.")] = Order.name,
    output: Format = Output.text,
) -> None:
    """List the jobs with the number of placed pods, and in one word why the others are not placed.

    NAME is that of the workload if the PodGroup's own name is generated; -o wide shows both. POSITION is the job's
    place among the waiting jobs of its queue, in the order in which they are served; SINCE is how long it has waited,
    CARDS what its pods request besides cpu and memory.

    Example: stromboli job list -A --queue research --sort position
    """
    namespace = clusters.namespace_of(namespace, which.filename, which.kubeconfig, which.context)
    only = JobFilter(namespace="" if all_namespaces else namespace, queue=queue, reason=reason)
    source = opened(which)
    found = sorted(source.jobs(only), key=_KEYS[sort])
    if not found:
        if queue and queue not in (names := [each.name for each in source.queues()]):
            raise NotFoundError(f"there is no queue {queue}{did_you_mean(queue, names)}")
        clusters.note(_none(source, only))
    show(found, output, columns(_rows(found, time.time(), wide=output is Output.wide)))


def _none(source: Source, only: JobFilter) -> str:
    """An error for a job that does not exist, with similar names."""
    asked = {"namespace": only.namespace, "queue": only.queue, "reason": only.reason}
    what = " and ".join(f"{name} {value}" for name, value in asked.items() if value)
    if not what:
        return "there are no jobs"
    try:
        others = source.jobs(JobFilter())
    except StromboliError:  # one may not list those of all namespaces
        others = []
    known = {
        "namespace": {each.namespace for each in others},
        "reason": {each.reason for each in others if each.reason},
    }
    near = (
        (name, nearest(asked[name], known[name] - {asked[name]})) for name in known if asked[name] not in known[name]
    )
    meant = ", ".join(f"{name} {each!r}" for name, each in near if each)
    elsewhere = sum(each.namespace != only.namespace for each in others) if only.namespace else 0
    more = f"; other namespaces have {counted(elsewhere, 'job')} (-A)" if elsewhere else ""
    return f"there are no jobs of {what}{f', did you mean {meant}?' if meant else ''}{more}"


_KEYS = {
    Order.name: lambda job: (job.namespace, job.called or job.name, job.name),
    Order.position: lambda job: (job.queue, not job.position, job.position, job.namespace, job.name),
    Order.age: lambda job: (job.created, job.namespace, job.name),
    Order.waiting: lambda job: (not job.since, job.since, job.namespace, job.name),
    Order.priority: lambda job: (-job.priority, job.created, job.namespace, job.name),
}


def _rows(found: list[JobRow], now: float, *, wide: bool) -> Iterator[tuple[str, ...]]:
    more = ("WORKLOAD", "PODGROUP", "WHO", "MESSAGE") if wide else ()
    timed = ("AGE", "SINCE", "PRIORITY", "POSITION", "CARDS")
    yield ("NAMESPACE", "NAME", "QUEUE", "PHASE", "PODS", "MIN", *timed, "STAGE", "REASON", *more)
    for each in found:
        pods = (f"{each.placed}/{each.pods}", str(each.min_member))
        times = (_ago(each.created, now), _ago(each.since, now))
        cards = ", ".join(f"{amount(number, name)} {name}" for name, number in each.cards.items())
        place = (str(each.priority), str(each.position or "-"), cards or "-")
        rest = (each.workload or "-", each.name, each.who or "-", each.message) if wide else ()
        names = (each.namespace, each.called or each.name, each.queue or "-", each.phase or "-")
        yield (*names, *pods, *times, *place, each.stage or "-", each.reason or "-", *rest)


def _ago(moment: float, now: float) -> str:
    return lasting(now - moment) if moment else "-"
