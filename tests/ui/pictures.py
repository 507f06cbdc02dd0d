"""Takes the pictures of the page that the docs show, of the demo: `python -m tests.ui.pictures docs`."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.ui.conftest import browser_path
from tests.ui.demo import demo

#: by name the path, how it looks, and width and height
PICTURES = {
    "page-overview": ("/", "light", 1120, 930),
    "page-job": ("/jobs/default/train-a-3?tried=true", "light", 1000, 860),
    "page-scores": ("/pods/default/train-a-0-0?scores=true", "light", 1000, 700),
    "page-shares": ("/shares", "dark", 1000, 600),
    "page-narrow": ("/jobs/default/wants-ssd?tried=true", "dark", 380, 700),
}
#: sessions that a chart shows need some time, in milliseconds
_A_WHILE = 20_000


def take(folder: Path) -> None:
    """Write all of them."""
    with demo() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        for name, (path, scheme, width, height) in PICTURES.items():
            tab = browser.new_page(
                color_scheme=scheme,  # type: ignore[arg-type]
                viewport={"width": width, "height": height},
            )
            tab.goto(f"{address}/")
            tab.wait_for_timeout(_A_WHILE if name == "page-overview" else 0)
            tab.goto(address + path)
            tab.screenshot(path=folder / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
