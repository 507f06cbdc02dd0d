"""`stromboli queue`: the queues of a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from stromboli.api.resources import told_quantity
from stromboli.cli import clusters
from stromboli.cli.clusters import Known
from stromboli.cli.options import Context, Files, Format, Kubeconfig, Output, PolicyFile, SchedulerNames
from stromboli.cli.output import columns, show
from stromboli.explain.answers import QueueAnswer
from stromboli.explain.queues import explain_queue, in_tree


def list_(
    output: Format = Output.text,
    files: Files = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    policy: PolicyFile = None,
    scheduler_name: SchedulerNames = None,
) -> None:
    """List the queues with what they hold, deserve and may have.

    Example: stromboli queue list -o wide --context production
    """
    found = _queues(clusters.known_here(files, kubeconfig, context, policy, scheduler_name))
    show(found, output, columns(_rows(found, wide=output is Output.wide)))


def tree(
    output: Format = Output.text,
    files: Files = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    policy: PolicyFile = None,
    scheduler_name: SchedulerNames = None,
) -> None:
    """Show the queues as a tree, each below its parent.

    Example: stromboli queue tree -f cluster.yaml
    """
    found = _queues(clusters.known_here(files, kubeconfig, context, policy, scheduler_name))
    show(found, output, columns(_rows(found, wide=output is Output.wide, indented=True)))


def _queues(known: Known) -> list[QueueAnswer]:
    session = known.rehearsal().session()
    answers = (explain_queue(session, name) for name in session.view.queues)
    return [answer for answer in answers if answer is not None]


def _rows(found: list[QueueAnswer], *, wide: bool, indented: bool = False) -> Iterator[tuple[str, ...]]:
    more = ("requested", "guarantee", "limit") if wide else ()
    header = ("queue", "state", "weight", "share", "resource", "held", "deserved", *more, "jobs", "waiting")
    yield tuple(name.upper() for name in header)
    by_name = {answer.name: answer for answer in found}
    tree = in_tree({answer.name: answer.parent for answer in found}) if indented else ((name, 0) for name in by_name)
    for name, depth in tree:
        answer = by_name[name]
        share = "-" if answer.share is None else f"{answer.share:.2f}"
        head = (f"{'  ' * depth}{answer.name}", answer.state or "-", str(answer.weight), share)
        tail = (str(sum(answer.jobs.values())), str(sum(answer.waiting.values())))
        own = [level for level in answer.levels if level.queue == answer.name]
        for level in own:
            amounts = [level.held, level.deserved]
            amounts += [level.requested, level.guarantee, level.limit] if wide else []
            yield (*head, level.resource, *(_told(level.resource, amount) for amount in amounts), *tail)
            head, tail = ("", "", "", ""), ("", "")
        if not own:
            yield (*head, *("-" for _ in range(3 + len(more))), *tail)


def _told(resource: str, amount: str) -> str:
    return told_quantity(resource, amount) if amount else "-"
