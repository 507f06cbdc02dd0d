"""What a person who has just installed it does: start the demo, open its page, find out why a pod waits."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.ui.demo import demo


@pytest.mark.e2e
def test_the_demo_prints_its_page_and_the_page_names_causes(browser: Browser) -> None:
    with demo() as address:
        tab = browser.new_page()
        for reason, job, cause in (
            ("NoMatchingNode", "default/wants-ssd", "didn't match Pod's node affinity/selector"),
            ("NeverFits", "default/needs-gpu", "no node is large enough in nvidia.com/gpu"),
            ("QueueNotFound", "default/misspelt", "there is no queue cc"),
        ):
            tab.goto(address)
            tab.get_by_role("link", name=reason).click()
            tab.get_by_role("link", name=job, exact=True).click()
            expect(tab.locator(".cause")).to_contain_text(cause)
