"""The page: for each workload curves, the front, what it costs whom, and a table of means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from stromboli.lab.comparison import Comparison, Interval, Line
from stromboli.lab.report import figures

#: series that are drawn: the name, from which point on, and what the axes say
_SERIES = (("allocation", 80, "cards asked for, % of all", "cards allocated, %"),)
#: figures of queues that are drawn, and what the axis says
_OF_QUEUES = (("waiting_mean", "mean waiting, s"), ("placed", "pods placed, %"))
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --line: #d0d0d0; --soft: #5a5a5a; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececec; --paper: #161616; --line: #3c3c3c; --soft: #a8a8a8; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 68rem;
  margin: 2rem auto; padding: 0 1rem; }
section { border-top: 1px solid var(--line); margin-top: 2rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); gap: 1.5rem; }
figure { margin: 0; } figcaption { font-weight: 600; }
svg { max-width: 100%; height: auto; } svg text { font-size: 13px; fill: var(--ink); }
.grid { stroke: var(--line); stroke-width: 1; } .axis { stroke: var(--soft); stroke-width: 1; }
.front { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 4 4; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0; margin: .25rem 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } .soft { color: var(--soft); }
"""


def page(title: str, comparisons: Sequence[Comparison], known: int, planned: int) -> str:
    """The report of a sweep with the outcomes of some of its planned trials."""
    state = f"{known:,} trials" if known == planned else f"{known:,} of {planned:,} trials: the sweep is not done"
    body = "".join(map(_section, comparisons)) or "<p>No trial is done.</p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f'<body><h1>{escape(title)}</h1><p class="soft">{state}. Intervals are of 95 %.</p>{body}</body></html>\n'
    )


def _section(comparison: Comparison) -> str:
    charts = "".join(
        f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>" for title, svg in _charts(comparison)
    )
    return (
        f"<section><h2>{escape(comparison.workload)}</h2>"
        f'<div class="charts">{charts}</div><div class="scroll">{_table(comparison)}</div></section>\n'
    )


def _charts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    lines = comparison.lines
    for name, start, across, up in _SERIES:
        series = {line.policy: line.series[name] for line in lines if name in line.series}
        if series:
            yield "Allocation over arrival", figures.lines(series, start, across, up)
    one, other = comparison.objectives
    points = {
        line.policy: (line.figures[one.figure].mean, line.figures[other.figure].mean)
        for line in lines
        if one.figure in line.figures and other.figure in line.figures
    }
    if points:
        front = [line.policy for line in comparison.front if line.policy in points]
        yield "What no other policy outdoes (filled)", figures.plane(points, front, one.words, other.words)
    for name, words in _OF_QUEUES:
        groups = _by_queue(lines, name)
        if groups:
            title = "Waiting by queue" if name == "waiting_mean" else "Placed by kind of pod"
            yield title, figures.bars(groups, [line.policy for line in lines], words)


def _by_queue(lines: Sequence[Line], name: str) -> Mapping[str, Mapping[str, float]]:
    groups: dict[str, dict[str, float]] = {}
    for line in lines:
        for queue, of_queue in line.queues.items():
            if name in of_queue:
                groups.setdefault(queue, {})[line.policy] = of_queue[name].mean
    return groups


def _table(comparison: Comparison) -> str:
    names = dict.fromkeys(name for line in comparison.lines for name in line.figures)
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    rows = "".join(_row(line, list(names)) for line in comparison.lines)
    head = f"<tr><th>policy</th><th>seeds</th>{head}<th>outdone by</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _row(line: Line, names: Sequence[str]) -> str:
    seeds = max((interval.number for interval in line.figures.values()), default=0)
    cells = "".join(f"<td>{escape(_cell(line.figures.get(name)))}</td>" for name in names)
    others = escape(", ".join(line.outdone_by)) or "none"
    return f"<tr><td>{escape(line.policy)}</td><td>{seeds}</td>{cells}<td>{others}</td></tr>"


def _cell(interval: Interval | None) -> str:
    return "" if interval is None else str(interval)
