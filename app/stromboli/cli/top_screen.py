"""Screen of `stromboli top`, drawn from the dashboard's report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Literal, TypeVar

from msgspec import Struct
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stromboli.api.validation import readable
from stromboli.api.words import counted
from stromboli.explain.overview import JobRow, Nodes, Overview, Pending, QueueRow
from stromboli.explain.words import amount, who

T = TypeVar("T", str, list[float])

#: lines of jobs, of resources and of the map of nodes, at most
_JOB_LINES, _RESOURCES, _MAP_LINES = 10, 4, 2
_BAR = 8
#: columns of a terminal: how wide it gets, and from when on bars and all amounts of queues are shown
_WIDEST, _FOR_BARS, _FOR_ALL = 100, 70, 96
#: fill level of some nodes, from empty to full
_LEVELS = " ▁▂▃▄▅▆▇█"


class Glance(Struct, frozen=True, kw_only=True):
    """A cluster at one moment."""

    #: the service, files or the cluster that was looked at
    source: str
    overview: Overview
    queues: list[QueueRow]
    #: jobs, those that wait first
    jobs: list[JobRow]
    nodes: Nodes


def resources(glance: Glance) -> list[str]:
    """The resources that can be shown: those of nodes."""
    return list(glance.overview.total) or ["cpu"]


def screen(glance: Glance, resource: str, problem: str = "", width: int = _WIDEST, height: int = 0) -> RenderableType:
    """Everything in a terminal of that size; a `height` of 0 takes as many lines as are needed.

    A problem is told in the place of the keys.
    """
    header, nodes = list(_header(glance)), list(_nodes(glance.nodes, min(width, _WIDEST) - 2))
    pending, jobs = glance.overview.pending, [job for job in glance.jobs if job.reason][:_JOB_LINES]
    queues = glance.queues
    if height:
        # Beside the rows: an empty line before each part, a heading of two lines in each table, and two at the end.
        lines = height - len(header) - len(nodes) - 6
        pending = pending[: max(0, lines // 3 - 3)]
        jobs = jobs[: max(0, lines // 3 - 3)]
        taken = sum(3 + len(rows) for rows in (pending, jobs) if rows)
        queues = queues[: max(1, lines - taken)]
    parts: list[RenderableType] = [*header, Text(), _queues(queues, resource, width)]
    if len(queues) < len(glance.queues):
        parts.append(Text(f"and {counted(len(glance.queues) - len(queues), 'more queue')}", style="dim"))
    if pending:
        parts += [Text(), _pending(pending)]
    if jobs:
        parts += [Text(), _jobs(jobs)]
    parts += [Text(), *nodes]
    if height:
        keys = Text("q quits, r shows the next resource", style="dim")
        parts.append(Text(problem, style="bold red") if problem else keys)
    for part in parts:
        if isinstance(part, Text):
            part.no_wrap, part.overflow = True, "ellipsis"
    return Group(*parts)


def _header(glance: Glance) -> Iterator[Text]:
    overview = glance.overview
    when = datetime.fromtimestamp(overview.at).strftime("%H:%M:%S") if overview.at else "-"
    session = f"session at {when}, {1e3 * overview.seconds:.3g} ms" if overview.seconds else f"session at {when}"
    yield Text.assemble(("stromboli ", "bold"), f"{glance.source}   {session}")
    phases = ", ".join(f"{count} {phase}" for phase, count in overview.jobs.items() if count) or "none"
    states = ", ".join(f"{count} {state}" for state, count in overview.pods.items() if count) or "none"
    yield Text(
        f"{counted(overview.nodes, 'node')}, {counted(overview.queues, 'queue')}; jobs: {phases}; pods: {states}"
    )
    for name, total in islice(overview.total.items(), _RESOURCES):
        used = overview.used.get(name, 0.0)
        part = used / total if total else 0.0
        yield Text.assemble(f"{name:<16}", _bar(part), f" {amount(used, name)} of {amount(total, name)}")


def _table(*columns: str, right: Sequence[str] = (), names: Sequence[str] = ()) -> Table:
    """A table whose `names` are cut short where the terminal is too narrow, and nothing else if that is enough."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for each in columns:
        justify: Literal["right", "left"] = "right" if each in right else "left"
        table.add_column(_name(each), justify=justify, no_wrap=each not in names, overflow="ellipsis")
    return table


def _name(text: str) -> Text:
    """A name in a line of its own, whatever it holds."""
    return Text(readable(text), no_wrap=True, overflow="ellipsis")


def _queues(queues: Iterable[QueueRow], resource: str, width: int) -> Table:
    """The queues as a tree; a narrow terminal shows less of each."""
    shows = {"SHARE": True, "": width >= _FOR_BARS, "HELD": True, "DESERVED": True}
    shows |= {"REQUESTED": width >= _FOR_ALL, "LIMIT": width >= _FOR_ALL, "JOBS": True, "WAIT": True}
    title, right = f"QUEUE ({resource})", [name for name in shows if name]
    table = _table(title, *(name for name in shows if shows[name]), right=right, names=(title,))
    for queue in queues:
        amounts = (each.get(resource) for each in (queue.held, queue.deserved, queue.requested, queue.limit))
        held, deserved, requested, limit = (amount(each, resource) for each in amounts)
        state = "" if queue.state in ("Open", "") else f" ({queue.state})"
        cells: dict[str, RenderableType] = {
            "SHARE": "-" if queue.share is None else f"{queue.share:.2f}",
            "": Text() if queue.share is None else _bar(queue.share),
            "HELD": held,
            "DESERVED": deserved,
            "REQUESTED": requested,
            "LIMIT": limit,
            "JOBS": str(sum(queue.jobs.values())),
            "WAIT": Text(str(queue.waiting), style="yellow" if queue.waiting else ""),
        }
        name = Text("  " * queue.depth, no_wrap=True, overflow="ellipsis") + _name(f"{queue.name}{state}")
        table.add_row(name, *(cell for title, cell in cells.items() if shows[title]))
    return table


def _pending(pending: Iterable[Pending]) -> Table:
    table = _table("WAITING FOR", "STAGE", "JOBS", "PODS", "WHO CAN CHANGE IT", right=("JOBS", "PODS"))
    for each in pending:
        table.add_row(each.reason, each.stage, str(each.jobs), str(each.pods), who(each.who) or "-")
    return table


def _jobs(jobs: Iterable[JobRow]) -> Table:
    header = ("JOB THAT WAITS", "QUEUE", "PODS", "MIN", "REASON")
    table = _table(*header, right=header[2:4], names=header[:2])
    for job in jobs:
        pods = f"{job.placed}/{job.pods}"
        table.add_row(
            _name(f"{job.namespace}/{job.called or job.name}"), _name(job.queue), pods, str(job.min_member), job.reason
        )
    return table


def _nodes(nodes: Nodes, width: int) -> Iterator[Text]:
    """Fill level of nodes: a character for each node or group of nodes, and the number of each kind."""
    both = zip(nodes.used, nodes.allocatable, strict=True)
    parts = [used / whole if whole else 0.0 for used, whole in both]
    full, empty = sum(part >= 1 for part in parts), sum(part <= 0 for part in parts)
    cordoned = f", {len(nodes.cordoned)} closed" if nodes.cordoned else ""
    yield Text(f"NODES by {nodes.resource}: {full} full, {len(parts) - full - empty} in use, {empty} empty{cordoned}")
    if parts:
        each = -(-len(parts) // (width * _MAP_LINES))
        cells = "".join(_LEVELS[_level(sum(some) / len(some))] for some in _pieces(parts, each))
        for line in _pieces(cells, width):
            yield Text.assemble("|", (line, "cyan"), "|")
        if each > 1:
            yield Text(f"a character stands for {counted(each, 'node')}", style="dim")


def _pieces(whole: T, length: int) -> Iterator[T]:
    """A prefix of that length, and the rest."""
    return (whole[at : at + length] for at in range(0, len(whole), length))


def _level(part: float) -> int:
    """A character of `_LEVELS`; only an empty or full node looks empty or full."""
    last = len(_LEVELS) - 1
    if part <= 0 or part >= 1:
        return 0 if part <= 0 else last
    return min(last - 1, max(1, round(part * last)))


def _bar(part: float) -> Text:
    filled = min(_BAR, round(min(max(part, 0.0), 1.0) * _BAR))
    return Text.assemble(("█" * filled, "red" if part > 1 else "green"), ("·" * (_BAR - filled), "dim"))
