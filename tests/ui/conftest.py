"""A real browser, where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

#: milliseconds that something may take to show, which is long on a machine that is busy
_PATIENCE = 60_000
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def browser_path() -> str:
    """Where a browser is, empty where there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), "")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window; the tests that ask for it are skipped without.

    Its loop runs in this thread until the module ends, so the module has no asynchronous tests.
    """
    path = browser_path()
    if not path:
        pytest.skip(f"there is no browser: none of {', '.join(_NAMES)} (apt-get install chromium)")
    expect.set_options(timeout=_PATIENCE)
    # The sandbox needs rights that containers seldom have, and the pages are our own.
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=path, args=["--no-sandbox"]) as started,
    ):
        yield started
