"""`stromboli queue list` and `stromboli queue tree`: the queues of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stromboli.cli.options import Format, Output
from stromboli.cli.output import columns, show
from stromboli.cli.sources import opened
from stromboli.cli.which import Which, about_a_cluster
from stromboli.explain.overview import QueueRow
from stromboli.explain.words import amount


@about_a_cluster
def list_(which: Which, output: Format = Output.text) -> None:
    """List the queues with what they hold, deserve and may have.

    Example: stromboli queue list -o wide --context production
    """
    found = sorted(opened(which).queues(), key=lambda queue: queue.name)
    show(found, output, columns(rows(found, wide=output is Output.wide)))


@about_a_cluster
def tree(which: Which, output: Format = Output.text) -> None:
    """Show the queues as a tree, each below its parent.

    Example: stromboli queue tree -f cluster.yaml
    """
    found = opened(which).queues()
    show(found, output, columns(rows(found, wide=output is Output.wide, indented=True)))


def rows(found: list[QueueRow], *, wide: bool, indented: bool = False) -> Iterator[tuple[str, ...]]:
    """A table of queues with its header, one row for each resource."""
    more = ("requested", "guarantee", "limit") if wide else ()
    header = ("queue", "state", "weight", "share", "resource", "held", "deserved", *more, "jobs", "waiting")
    yield tuple(name.upper() for name in header)
    for queue in found:
        share = "-" if queue.share is None else f"{queue.share:.2f}"
        name = f"{'  ' * queue.depth if indented else ''}{queue.name}"
        head = (name, queue.state or "-", str(queue.weight), share)
        tail = (str(sum(queue.jobs.values())), str(queue.waiting))
        concerned = (queue.held, queue.requested, queue.deserved, queue.guarantee)
        own = [
            each for each in dict.fromkeys(k for some in concerned for k in some) if any(k.get(each) for k in concerned)
        ]
        for resource in own:
            shown = [queue.held, queue.deserved, *((queue.requested, queue.guarantee, queue.limit) if wide else ())]
            yield (*head, resource, *(_told(resource, amounts) for amounts in shown), *tail)
            head, tail = ("", "", "", ""), ("", "")
        if not own:
            yield (*head, *("-" for _ in range(3 + len(more))), *tail)


def _told(resource: str, amounts: Mapping[str, float]) -> str:
    return amount(amounts[resource], resource) if resource in amounts else "-"
