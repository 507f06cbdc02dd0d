"""Charts as inline SVG: lines over a scale, points in a plane, bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import floor, log10

_WIDTH, _HEIGHT = 640, 320
#: room for axes
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 12, 12, 40
#: colours of policies, distinguishable with colour blindness and on either background
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a00", "#888888")
#: dashes, for more policies than colours and for those who see none
_DASHES = ("", "6 3", "2 3", "8 3 2 3")


class Scale:
    """Where values lie between two edges of a picture."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        if high <= low:
            low, high = low - 0.5, high + 0.5
        self.low, self.high = low, high
        self._start, self._per = start, (end - start) / (high - low)

    def at(self, value: float) -> float:
        """The place of a value."""
        return self._start + (value - self.low) * self._per

    def ticks(self) -> list[float]:
        """Round values, about five."""
        step = 10 ** floor(log10((self.high - self.low) / 4))
        step *= next(each for each in (1, 2, 5, 10) if (self.high - self.low) / (step * each) <= 6)
        first = int(self.low // step) + (self.low % step > 0)
        return [number * step for number in range(first, int(self.high // step) + 1)]


def lines(series: Mapping[str, Sequence[float | None]], start: int, across: str, up: str) -> str:
    """A chart of lines from a point of theirs on; gaps are left open."""
    shown = {name: [(at, each) for at, each in enumerate(values) if at >= start] for name, values in series.items()}
    points = [(at, each) for values in shown.values() for at, each in values if each is not None]
    if not points:
        return "<p>Nothing was measured.</p>"
    x = Scale(start, max(at for at, _ in points), _LEFT, _WIDTH - _RIGHT)
    y = Scale(min(each for _, each in points), max(each for _, each in points), _HEIGHT - _BOTTOM, _TOP)
    parts = [*_axes(x, y, across, up)]
    for number, (name, values) in enumerate(shown.items()):
        for piece in _pieces(values):
            path = " ".join(f"{x.at(at):.1f},{y.at(each):.1f}" for at, each in piece)
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour(number)}" stroke-width="2" '
                f'stroke-dasharray="{_dash(number)}"><title>{escape(name)}</title></polyline>'
            )
    return _picture(parts, f"{up} by {across}: {', '.join(shown)}") + legend(list(series))


def plane(points: Mapping[str, tuple[float, float]], front: Sequence[str], across: str, up: str) -> str:
    """Points with their names; those of the front are filled, and joined."""
    x = _with_room([each for each, _ in points.values()], _LEFT, _WIDTH - _RIGHT)
    y = _with_room([each for _, each in points.values()], _HEIGHT - _BOTTOM, _TOP)
    parts = [*_axes(x, y, across, up)]
    path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in sorted(points[name] for name in front))
    parts.append(f'<polyline points="{path}" class="front"/>')
    for number, (name, (a, b)) in enumerate(points.items()):
        fill = colour(number) if name in front else "none"
        parts.append(
            f'<circle cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="6" fill="{fill}" stroke="{colour(number)}" '
            f'stroke-width="2"><title>{escape(name)}: {a:,.2f}, {b:,.2f}</title></circle>'
        )
    names = legend(list(points))
    return _picture(parts, f"{up} by {across}: {', '.join(points)}; on the front {', '.join(front)}") + names


def bars(groups: Mapping[str, Mapping[str, float]], policies: Sequence[str], up: str) -> str:
    """A group of bars for each queue, a bar for each policy."""
    highest = max((value for bars in groups.values() for value in bars.values()), default=0.0)
    y = Scale(0.0, highest or 1.0, _HEIGHT - _BOTTOM, _TOP)
    width = (_WIDTH - _LEFT - _RIGHT) / max(1, len(groups))
    each = 0.8 * width / max(1, len(policies))
    parts = [*_axes(None, y, "", up)]
    for place, (group, values) in enumerate(groups.items()):
        left = _LEFT + place * width + 0.1 * width
        for number, policy in enumerate(policies):
            if policy in values:
                top = y.at(values[policy])
                parts.append(
                    f'<rect x="{left + number * each:.1f}" y="{top:.1f}" width="{each:.1f}" '
                    f'height="{_HEIGHT - _BOTTOM - top:.1f}" fill="{colour(number)}">'
                    f"<title>{escape(policy)}, {escape(group)}: {values[policy]:,.2f}</title></rect>"
                )
        middle = left + 0.4 * width
        parts.append(f'<text x="{middle:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{escape(group)}</text>')
    return _picture(parts, f"{up} of {', '.join(groups)}, by policy") + legend(policies)


def colour(number: int) -> str:
    """The colour of a policy by its number."""
    return COLOURS[number % len(COLOURS)]


def legend(names: Sequence[str]) -> str:
    """Legend of the policies' colours."""
    keys = (
        f'<li><svg width="28" height="12" aria-hidden="true"><line x1="0" x2="28" y1="6" y2="6" stroke-width="3" '
        f'stroke="{colour(number)}" stroke-dasharray="{_dash(number)}"/></svg> {escape(name)}</li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{"".join(keys)}</ul>'


def _dash(number: int) -> str:
    return _DASHES[number // len(COLOURS) % len(_DASHES)]


def _with_room(values: Sequence[float], start: float, end: float) -> Scale:
    low, high = min(values), max(values)
    room = 0.1 * (high - low) or 0.5
    return Scale(low - room, high + room, start, end)


def _pieces(values: Sequence[tuple[int, float | None]]) -> Iterator[list[tuple[int, float]]]:
    """The parts of a line between points that are missing."""
    piece: list[tuple[int, float]] = []
    for at, value in values:
        if value is not None:
            piece.append((at, value))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _axes(x: Scale | None, y: Scale, across: str, up: str) -> Iterator[str]:
    floor_, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for value in y.ticks():
        yield f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y.at(value):.1f}" y2="{y.at(value):.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y.at(value) + 4:.1f}" text-anchor="end">{value:,g}</text>'
    for value in x.ticks() if x is not None else ():
        yield f'<text x="{x.at(value):.1f}" y="{floor_ + 16}" text-anchor="middle">{value:,g}</text>' if x else ""
    yield f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{floor_}" y2="{floor_}"/>'
    yield f'<text x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(across)}</text>'
    turned = f'transform="translate(12,{(_TOP + floor_) / 2:.0f}) rotate(-90)"'
    yield f'<text {turned} text-anchor="middle">{escape(up)}</text>'


def _picture(parts: Sequence[str], words: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(words)}">{"".join(parts)}</svg>'
