"""Which pages are generated, and by which module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from stromboli.cli.plugins import markdown as plugins
from stromboli.cli.references import alerts, chart, commands, crds, http, metrics, policy, workloads
from stromboli.discovery import discover

#: pages as a whole
PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands.markdown,
    "crds.md": crds.markdown,
    "http.md": http.markdown,
    "metrics.md": metrics.markdown,
    "plugins.md": lambda: plugins(discover()),
}
#: where the chart is, from the folder of the pages
_CHART = Path("../charts/stromboli")


def tables(folder: Path) -> Mapping[str, Mapping[str, Callable[[], str]]]:
    """Tables within pages, by the name in the comments around them."""
    return {
        "policy.md": policy.TABLES,
        "chart.md": {"values": lambda: chart.markdown(folder / _CHART)},
        "operations.md": {"alerts": lambda: alerts.markdown(folder / _CHART / "files" / "alerts.yaml")},
        "workloads.md": workloads.TABLES,
    }


def written(folder: Path) -> dict[str, str]:
    """The text of every page by its name; text around generated tables stays. Raises ValueError."""
    texts = {name: page() for name, page in PAGES.items()}
    for name, of_page in tables(folder).items():
        text = (folder / name).read_text(encoding="utf-8")
        for title, table in of_page.items():
            text = _put(text, title, table())
        texts[name] = text
    return texts


def _put(text: str, title: str, table: str) -> str:
    """A page with a table between its comments. Raises ValueError when they are not there."""
    begin, end = f"<!-- {title}: written by `make references` -->\n", f"<!-- end of {title} -->\n"
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"there is no place for the table {title!r}: {begin.strip()} ... {end.strip()}")
    return f"{before}{begin}{table}{end}{after}"
