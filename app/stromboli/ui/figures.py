"""Geometry of the figures. The templates draw them as SVG, so a page needs no script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from stromboli.api.resources import in_bytes, is_device
from stromboli.api.words import counted
from stromboli.explain.overview import Amounts, Moment, Nodes, Overview, QueueRow, SessionRow, Shares
from stromboli.explain.words import amount
from stromboli.ui.words import moment, stamp

#: colours of the style sheet
COLOURS = 8
#: steps of a node's utilization
_STEPS = 5
#: limits up to this many times all other amounts fit on the scale of a bar
_NEAR = 2
#: times that a chart can show, in seconds; 0 for the whole record
SPANS = {300: "5 min", 1_800: "30 min", 21_600: "6 h", 86_400: "24 h", 0: "all"}
#: seconds between two times below a chart, and how many there are at most
_TIME_STEPS = (60, 300, 600, 1_800, 3_600, 14_400)
_DAY = 86_400
_MOST_TIMES = 7
#: activity of a job after each kind of moment in its story
_AFTER = {
    "submitted": "waits to be admitted",
    "admitted": "waits for places",
    "waits": "waits for places",
    "goes on": "waits for places",
    "promised": "waits for pods to terminate",
    "bound": "starts",
    "runs": "runs",
    "evicted": "loses pods",
    "stopped": "lacks pods",
    "completed": "",
}
_COLOUR_OF = {each: number % COLOURS for number, each in enumerate(dict.fromkeys(_AFTER.values()))}


# -- bars ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """A queue in one resource, in percent of the width; None is not drawn."""

    held: float
    requested: float
    deserved: float | None
    guarantee: float | None
    limit: float | None
    #: a text alternative for screen readers
    words: str


def scale(rows: Iterable[QueueRow], resource: str, total: Amounts) -> float:
    """The amount of the full width: the largest of any queue, at most the cluster.

    Limits far beyond all other amounts are left out: next to them nothing else could be told apart.
    """
    whole, most, limits = total.get(resource, 0.0), 0.0, []
    for row in rows:
        told = (row.held, row.requested, row.deserved, row.guarantee)
        most = max(most, *(min(amounts.get(resource, 0.0), whole) for amounts in told), row.held.get(resource, 0.0))
        limits.append(min(row.limit.get(resource, 0.0), whole))
    most = max([most, *(limit for limit in limits if not most or limit <= _NEAR * most)])
    # A mark at the end of a bar must stay visible.
    return 1.01 * (most or whole or 1.0)


def scarcest(cluster: Overview) -> str:
    """The resource with the highest utilization; of equals, one of devices."""
    parts = {
        name: cluster.used.get(name, 0.0) / have for name, have in cluster.total.items() if have and name != "pods"
    }
    return max(parts, key=lambda name: (parts[name], is_device(name)), default="cpu")


def bars(rows: Sequence[QueueRow], resource: str, total: Amounts) -> list[Bar]:
    """The bars of queues in a tree; siblings have one scale."""
    siblings: dict[str, list[QueueRow]] = {}
    for row in rows:
        siblings.setdefault(row.parent, []).append(row)
    scales = {parent: scale(group, resource, total) for parent, group in siblings.items()}
    return [bar(row, resource, scales[row.parent]) for row in rows]


def bar(row: QueueRow, resource: str, whole: float) -> Bar:
    """The bar of a queue, scaled to `whole`."""

    def part(amounts: Amounts) -> float | None:
        value = amounts.get(resource)
        return None if value is None or value > 1.0001 * whole else round(100 * value / whole, 2)

    said = {
        "holds": row.held,
        "deserves": row.deserved,
        "asks for": row.requested,
        "is guaranteed": row.guarantee,
        "may have": row.limit,
    }
    words = ", ".join(f"{word} {amount(of[resource], resource)}" for word, of in said.items() if resource in of)
    return Bar(
        held=part(row.held) or 0.0,
        requested=min(100.0, 100 * row.requested.get(resource, 0.0) / whole),
        deserved=part(row.deserved),
        guarantee=part(row.guarantee),
        limit=part(row.limit),
        words=f"queue {row.name} {words or 'holds nothing'}",
    )


# -- nodes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Square:
    """A node on the map."""

    x: int
    y: int
    #: utilization, from 0 to 4
    step: int
    cordoned: bool
    #: pods of the selected job
    of_job: int
    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Map:
    """Nodes side by side."""

    width: int
    height: int
    size: int
    squares: list[Square]


def node_map(nodes: Nodes) -> Map:
    """All nodes as squares, in rows of a pleasant aspect ratio."""
    count = len(nodes.names)
    size = 34 if count <= 40 else 22 if count <= 300 else 14 if count <= 1_500 else 9
    columns = max(1, min(count, 880 // (size + 2)))
    cordoned = set(nodes.cordoned)
    squares = []
    for at, name in enumerate(nodes.names):
        have, used, pods = nodes.allocatable[at], nodes.used[at], nodes.pods[at]
        mine = nodes.of_job[at] if nodes.of_job else 0
        filled = used / have if have else 0.0
        title = f"{name}: {amount(used, nodes.resource)} of {amount(have, nodes.resource)} {nodes.resource}"
        title += f", {counted(pods, 'pod')}"
        title += f", {mine} of this job" if mine else ""
        title += ", cordoned" if at in cordoned else ""
        y, x = divmod(at, columns)
        step = min(_STEPS - 1, math.ceil(filled * (_STEPS - 1) - 1e-9))
        squares.append(Square(x * (size + 2), y * (size + 2), step, at in cordoned, mine, name, title))
    rows = -(-count // columns)
    return Map(columns * (size + 2), rows * (size + 2), size, squares)


def in_order(nodes: Nodes, sort: str) -> list[int]:
    """The places of nodes in its columns, sorted by name, held, free, pods or fragments; by default as they came."""
    keys: dict[str, Callable[[int], tuple[float, str]]] = {
        "name": lambda at: (0, nodes.names[at]),
        "held": lambda at: (-nodes.used[at] / (nodes.allocatable[at] or math.inf), nodes.names[at]),
        "free": lambda at: (nodes.used[at] - nodes.allocatable[at], nodes.names[at]),
        "pods": lambda at: (-nodes.pods[at], nodes.names[at]),
    }
    if nodes.fragments:
        keys["fragments"] = lambda at: (-nodes.fragments[at], nodes.names[at])
    rows = range(len(nodes.names))
    return sorted(rows, key=keys[sort]) if sort in keys else list(rows)


# -- lines -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """Used and deserved amounts of a queue over time, as paths."""

    name: str
    colour: int
    held: str
    deserved: str
    requested: str
    #: the latest value of each
    now: tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class Tick:
    """A grid line with its label."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time in a frame."""

    #: unit of the amounts
    unit: str
    width: int = 880
    height: int = 280
    left: int = 64
    bottom: int = 28
    top: int = 36
    lines: list[Line] = field(default_factory=list)
    marks: list[Tick] = field(default_factory=list)
    times: list[Tick] = field(default_factory=list)


def chart(shares: Shares, *, requested: bool = False) -> Chart:
    """Shares over time; a sample holds until the next one."""
    frame = Chart(unit(shares.resource))
    if not shares.at:
        return frame
    begin, end = shares.since, shares.until
    told = [shares.held, shares.deserved, *([shares.requested] if requested else [])]
    peak = max((value or 0.0 for kind in told for values in kind.values() for value in values), default=0.0)
    step = _round_step(peak or 1.0)
    most = step * max(1, math.ceil((peak or 1.0) / step - 1e-9))
    inner, floor = frame.width - frame.left - 12, frame.height - frame.bottom

    def x(at: float) -> float:
        return round(frame.left + inner * min(1.0, max(0.0, at - begin) / (end - begin)), 1)

    def y(value: float) -> float:
        return round(floor - (floor - frame.top) * value / most, 1)

    def steps(values: Sequence[float | None]) -> str:
        out, down = [], False
        for at, value in zip(shares.at, values, strict=True):
            if value is None:
                down = False
            elif down:
                out.append(f"H{x(at)}V{y(value)}")
            else:
                out.append(f"M{x(at)} {y(value)}")
                down = True
        return "".join([*out, f"H{x(end)}"] if down else out)

    for number, (name, held) in enumerate(shares.held.items()):
        deserved, asked = shares.deserved.get(name, []), shares.requested.get(name, [])
        frame.lines.append(
            Line(
                name=name,
                colour=number % COLOURS,
                held=steps(held),
                deserved=steps(deserved),
                requested=steps(asked) if requested else "",
                now=(held[-1], deserved[-1], asked[-1]),
            )
        )
    marks = range(round(most / step) + 1)
    frame.marks.extend(Tick(y(step * mark), amount(step * mark, shares.resource)) for mark in marks)
    days = _DAY * math.ceil((end - begin) / _DAY / _MOST_TIMES)
    between = next((each for each in _TIME_STEPS if (end - begin) / each <= _MOST_TIMES), days)
    times = [between * at for at in range(math.ceil(begin / between), math.floor(end / between) + 1)]
    frame.times.extend(Tick(x(at), stamp(at)[5:10] if between >= _DAY else moment(at)[:5]) for at in times)
    return frame


def unit(resource: str) -> str:
    """The unit that amounts of a resource are counted in."""
    return "cores" if resource == "cpu" else "bytes" if in_bytes(resource) else resource.rpartition("/")[2]


def _round_step(most: float) -> float:
    """A round step that divides an amount into about four; for bytes a power of two."""
    if most > 1 << 20:
        return 2.0 ** math.ceil(math.log2(most / 4))
    power = 10.0 ** math.floor(math.log10(most / 4))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= most / 4)


# -- sessions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a session, in percent of the longest one shown."""

    name: str
    colour: int
    left: float
    width: float
    seconds: float


def slices(rows: Sequence[SessionRow]) -> tuple[list[str], list[list[Slice]]]:
    """The kinds of parts, and the parts of each session: its snapshot, its actions, and the rest."""
    names = list(dict.fromkeys(action for row in rows for action in row.actions))
    parts = ["snapshot", *names, "plugins and the rest"]
    longest = max((row.snapshot + row.seconds for row in rows), default=0.0) or 1.0
    out = []
    for row in rows:
        rest = max(0.0, row.seconds - sum(row.actions.values()))
        spent = [row.snapshot, *(row.actions.get(name, 0.0) for name in names), rest]
        at, line = 0.0, []
        for number, (name, took) in enumerate(zip(parts, spent, strict=True)):
            width = 100 * took / longest
            line.append(Slice(name, number % COLOURS, round(at, 2), round(width, 2), took))
            at += width
        out.append(line)
    return parts, out


def story(moments: Sequence[Moment], now: float) -> list[Slice]:
    """Phases of a job between the moments of its story, in percent of the time since it was submitted."""
    begin = moments[0].at
    whole = max(now - begin, 1e-9)
    out: list[Slice] = []
    steps = [each.what for each in moments if each.what not in ("submitted", "waits", "goes on")]
    # It ran before the service was started, and nothing is known of that time.
    forgotten = bool(steps) and steps[0] in ("evicted", "stopped", "completed")
    for each, until in zip(moments, [*(each.at for each in moments[1:]), now], strict=True):
        # A reason to wait changes nothing before a job is admitted.
        admitted = forgotten or any(before.what == "admitted" for before in moments if before.at <= each.at)
        waits = each.what in ("waits", "goes on") and not admitted
        does = _AFTER["submitted"] if waits else _AFTER.get(each.what, "")
        does = "" if forgotten and each.what == "submitted" else does
        left, took = 100 * max(0.0, each.at - begin) / whole, max(0.0, until - each.at)
        colour = _COLOUR_OF[does] if does else 0
        if out and out[-1].name == does:
            took += out[-1].seconds
            left = out.pop().left
        if does:
            out.append(Slice(does, colour, round(left, 2), round(100 * took / whole, 2), took))
    return out
