"""Lines in a plot with two logarithmic axes, as an SVG that follows the reader's light or dark mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 508, 56, 352
#: between the names of two lines, in pixels
_LINE_HEIGHT = 17
#: for each line the colour in light and in dark mode
_COLOURS = (("#0969da", "#58a6ff"), ("#bc4c00", "#f0883e"), ("#1a7f37", "#3fb950"), ("#8250df", "#bc8cff"))


@dataclass(frozen=True, slots=True)
class Line:
    """What is drawn and how it is called."""

    name: str
    values: Sequence[float]


def log_log(title: str, x_label: str, unit: str, xs: Sequence[float], lines: Sequence[Line]) -> str:
    """The plot, with a dashed line that grows in proportion to x."""
    ys = [y for line in lines for y in line.values]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def x_at(x: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * math.log(x / xs[0]) / math.log(xs[-1] / xs[0])

    def y_at(y: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (math.log10(y) - low) / (high - low)

    body = [f'<text class="title" x="{_LEFT}" y="30">{escape(title)}</text>']
    for exponent in range(low, high + 1):
        y = y_at(10.0**exponent)
        body.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_RIGHT}"/>')
        body.append(f'<text class="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{10.0**exponent:,g} {escape(unit)}</text>')
    for x in xs:
        body.append(f'<path class="grid" d="M{x_at(x):.1f} {_TOP}V{_BOTTOM}"/>')
        body.append(f'<text class="middle" x="{x_at(x):.1f}" y="{_BOTTOM + 18}">{x:g}×</text>')
    body.append(f'<text class="middle" x="{(_LEFT + _RIGHT) / 2}" y="{_BOTTOM + 36}">{escape(x_label)}</text>')
    reach = min(xs[-1] / xs[0], 10.0 ** (high - low))
    x, y = x_at(xs[0] * reach), y_at(reach * 10.0**low)
    body.append(f'<path class="proportional" d="M{_LEFT} {_BOTTOM}L{x:.1f} {y:.1f}"/>')
    body.append(f'<text class="end" x="{x - 12:.1f}" y="{y - 6:.1f}">in proportion</text>')
    below = -math.inf
    for number, line in sorted(enumerate(lines), key=lambda each: -each[1].values[-1]):
        points = [(x_at(x), y_at(y)) for x, y in zip(xs, line.values, strict=True)]
        below = max(below + _LINE_HEIGHT, points[-1][1] + 4)
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in points)
        name = f'<text x="{_RIGHT + 14}" y="{below:.1f}">{escape(line.name)}</text>'
        body.append(f'<g class="line c{number}"><path d="M{path}"/>{dots}{name}</g>')
    return _page(title, body)


def _page(title: str, body: Sequence[str]) -> str:
    light = "".join(f".c{n}{{color:{colour}}}" for n, (colour, _) in enumerate(_COLOURS))
    dark = "".join(f".c{n}{{color:{colour}}}" for n, (_, colour) in enumerate(_COLOURS))
    style = f"""
text{{font:13px system-ui,sans-serif;fill:#59636e}} .title{{font-weight:600;font-size:15px;fill:#1f2328}}
.end{{text-anchor:end}} .middle{{text-anchor:middle}} .back{{fill:#fff}}
.grid{{stroke:#d1d9e0;fill:none}} .proportional{{stroke:#59636e;stroke-dasharray:4 4;fill:none}}
.line path{{stroke:currentColor;stroke-width:2;fill:none}} .line circle,.line text{{fill:currentColor}} {light}
@media (prefers-color-scheme:dark){{text{{fill:#9198a1}} .title{{fill:#f0f6fc}} .back{{fill:#0d1117}}
.grid{{stroke:#3d444d}} .proportional{{stroke:#9198a1}} .line text{{fill:currentColor}} {dark}}}"""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
            f"<title>{escape(title)}</title><style>{style}</style>",
            f'<rect class="back" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>',
            *body,
            "</svg>\n",
        ]
    )
