"""Draws what `make demo` shows at its end, for the README: `python -m tests.picture > docs/demo.svg`.

Renderers have different fonts and not all of them stretch text, so each word is placed by itself, and lines are lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from xml.sax.saxutils import escape

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME

from stromboli.cli.demo import QUEUES, queue_table

_WIDTH, _HEIGHT, _MARGIN, _TOP = 10, 20, 16, 44
_COLUMNS = 80
_INK, _PAPER = "#c5c8c6", "#292929"
#: how heavy the arms of a box character are: left, right, up, down
_ARMS = {
    "━": "2200",
    "┃": "0022",
    "┏": "0202",
    "┳": "2202",
    "┓": "2002",
    "┡": "0221",
    "╇": "2221",
    "┩": "2021",
    "╸": "2000",
    "╺": "0200",
    "│": "0011",
    "└": "0110",
    "┴": "1110",
    "┘": "1010",
    "─": "1100",
}
_BUTTONS = ((22, "#ff5f57"), (42, "#febc2e"), (62, "#28c840"))


def demo() -> str:
    """The picture of the demo's end, as SVG."""
    expected = {queue.name: queue.expected for queue in QUEUES}
    end = "every queue has what it deserves"
    return drawn("make demo", queue_table(expected, {name: float(cpus) for name, cpus in expected.items()}), "", end)


def drawn(title: str, *shown: RenderableType) -> str:
    """A terminal in which a command has shown something, as SVG."""
    console = Console(width=_COLUMNS, force_terminal=True, color_system="truecolor", legacy_windows=False)
    lines = [row for each in (f"[bold]$ {title}", "", *shown) for row in console.render_lines(each)]
    width, height = _COLUMNS * _WIDTH + 2 * _MARGIN, len(lines) * _HEIGHT + _TOP + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"',
        f'  role="img" font-family="monospace" font-size="16" fill="{_INK}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{_PAPER}"/>',
        *(f'<circle cx="{x}" cy="20" r="6" fill="{c}"/>' for x, c in _BUTTONS),
        *(part for number, line in enumerate(lines) for part in _line(line, _TOP + number * _HEIGHT)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _line(line: list[Segment], top: int) -> Iterator[str]:
    left, paths = _MARGIN, defaultdict(list)
    for text, style, _ in line:
        ink, weight = _look(style)
        for place, character in enumerate(text):
            for heavy, path in _arms(character, left + place * _WIDTH, top):
                paths[ink, heavy].append(path)
        for word in re.finditer(rf"[^\s{''.join(_ARMS)}]+", text):
            x = left + word.start() * _WIDTH
            yield f'<text x="{x}" y="{top + 15}" fill="{ink}"{weight}>{escape(word[0])}</text>'
        left += len(text) * _WIDTH
    for (ink, heavy), steps in paths.items():
        yield f'<path d="{"".join(steps)}" stroke="{ink}" stroke-width="{heavy}" fill="none"/>'


def _arms(character: str, x: int, y: int) -> Iterator[tuple[str, str]]:
    middle = f"M{x + _WIDTH // 2} {y + _HEIGHT // 2}"
    ends = (f"h-{_WIDTH // 2}", f"h{_WIDTH // 2}", f"v-{_HEIGHT // 2}", f"v{_HEIGHT // 2}")
    for heavy, end in zip(_ARMS.get(character, ""), ends, strict=False):
        if heavy != "0":
            yield heavy, middle + end


def _look(style: Style | None) -> tuple[str, str]:
    """Colour and weight."""
    if style is None:
        return _INK, ""
    ink = style.color.get_truecolor(SVG_EXPORT_THEME).hex if style.color and not style.color.is_default else _INK
    return ink, ' font-weight="bold"' if style.bold else ""


if __name__ == "__main__":
    print(demo(), end="")
