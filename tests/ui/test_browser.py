"""The page in Chromium: what a person does, by mouse and by keyboard, on wide and narrow screens, in light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.builders import NOON
from tests.ui.cluster import HOSTILE, Ran, cluster, page

pytestmark = pytest.mark.e2e

PAGES = [
    "/",
    "/queues/a",
    "/jobs",
    "/jobs/default/grow",
    "/pods",
    "/pods/default/grow-3?scores=true",
    "/nodes",
    "/nodes/n0",
    "/sessions/1",
    "/shares",
    "/sessions",
    "/policy",
    "/whatif",
]


@pytest.fixture(scope="module")
def ran() -> Ran:
    return Ran(cluster())


@pytest.fixture(scope="module")
def address(ran: Ran) -> Iterator[str]:
    with page(ran) as found:
        yield found


@pytest.fixture
def tab(browser: Browser, address: str) -> Iterator[Page]:
    """A tab in which nothing goes wrong, and that asks no other host."""
    with opened_tab(browser, address) as tab:
        yield tab


@contextmanager
def opened_tab(browser: Browser, address: str) -> Iterator[Page]:
    with browser.new_context(base_url=address, viewport={"width": 1200, "height": 900}) as context:
        opened, wrong = context.new_page(), list[str]()
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        opened.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
        opened.on("request", lambda asked: None if asked.url.startswith(address) else wrong.append(asked.url))
        yield opened
        assert wrong == []


def test_from_the_overview_to_the_cause_of_a_pending_pod_in_two_clicks(tab: Page) -> None:
    tab.goto("/")
    tab.get_by_role("link", name="QueueNotOpen").click()
    tab.get_by_role("link", name="default/late").click()
    expect(tab.locator(".cause")).to_contain_text("queue old takes no new work: its state is Closed")
    expect(tab.locator(".remedies")).to_contain_text("open queue old")


def test_reasons_are_not_broken_within_a_word(tab: Page) -> None:
    tab.goto("/")
    link = tab.get_by_role("link", name="QueueNotOpen")
    rename = "each.textContent = 'AReasonThatIsFarLongerThanAllThatThereAreWhichFitsOnNoPhone'"
    assert link.evaluate(f"each => {{ {rename}; return each.getClientRects().length }}") == 1


def test_queues_are_found_by_their_bars_and_resources_can_be_chosen(tab: Page) -> None:
    tab.goto("/")
    expect(tab.get_by_role("img", name="queue a holds 3, deserves 3")).to_be_visible()
    tab.get_by_role("link", name="memory").click()
    expect(tab.get_by_role("img", name="queue a holds 3Gi")).to_be_visible()
    tab.get_by_role("link", name="a", exact=True).click()
    expect(tab.get_by_role("heading", name="Queue a")).to_be_visible()
    expect(tab.get_by_role("img", name="What queue a held")).to_be_visible()


def test_a_change_is_tried_in_a_form(tab: Page) -> None:
    tab.goto("/whatif")
    tab.get_by_label("Objects to add").fill("kind: Pod\nmetadata: {name: train-0}\n$patch: delete")
    tab.get_by_role("button", name="Try it").click()
    expect(tab.get_by_role("heading", name="What would be different")).to_be_visible()
    expect(tab.get_by_role("table", name="Shares of queues")).to_contain_text("held cpu")


def test_an_open_page_renews_itself_unless_it_is_held(browser: Browser, ran: Ran) -> None:
    with page(ran, refresh=0.2) as address, opened_tab(browser, address) as tab:
        renews(tab, ran)


def renews(tab: Page, ran: Ran) -> None:
    tab.goto("/sessions")
    assert ran.session is not None
    failed = tab.get_by_text("failed: ValueError: broken")
    expect(failed).to_have_count(0)
    tab.get_by_role("link", name="Jobs").focus()
    ran.history.failed(ValueError("broken"), NOON + 9)
    expect(failed).to_have_count(1)
    expect(tab.get_by_role("link", name="Jobs")).to_be_focused()
    # Who marks a text to copy it keeps it.
    tab.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
    ran.history.session(ran.session, NOON + 11, 0.004)
    with pytest.raises(AssertionError):
        expect(tab.locator("tbody tr")).to_have_count(5, timeout=600)
    tab.evaluate("getSelection().empty()")
    expect(tab.locator("tbody tr")).to_have_count(5)
    tab.get_by_role("button", name="Live").click()
    ran.history.session(ran.session, NOON + 12, 0.004)
    with pytest.raises(AssertionError):
        expect(tab.locator("tbody tr")).to_have_count(6, timeout=600)
    tab.get_by_role("button", name="Paused").press("Enter")
    expect(tab.locator("tbody tr")).to_have_count(6)


def test_everything_is_reached_by_keyboard(tab: Page) -> None:
    tab.goto("/")
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="Skip to content")).to_be_focused()
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="nodes", exact=True)).to_be_focused()
    reached = set()
    for _ in range(60):
        reached.add(tab.evaluate("document.activeElement.getAttribute('href')"))
        tab.keyboard.press("Tab")
    links = tab.locator("main a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert set(links) <= reached


def test_names_are_text_whatever_they_say(tab: Page) -> None:
    tab.goto("/jobs")
    tab.get_by_role("link", name=f"default/{HOSTILE}").click()
    expect(tab.get_by_role("heading", name=f"Job default/{HOSTILE}")).to_be_visible()
    tab.get_by_role("link", name=HOSTILE, exact=True).first.click()
    expect(tab.get_by_role("heading", name=f"Queue {HOSTILE}")).to_be_visible()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 320)])
def test_axe_finds_nothing_and_no_page_is_wider_than_the_screen(
    browser: Browser, address: str, scheme: str, width: int
) -> None:
    with browser.new_context(
        base_url=address,
        color_scheme=scheme,
        viewport={"width": width, "height": 800},  # type: ignore[arg-type]
    ) as context:
        tab = context.new_page()
        for path in PAGES:
            tab.goto(path)
            found = Axe().run(tab)
            assert found.violations_count == 0, (path, found.generate_report())
            beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert tab.evaluate(beyond) <= 0, path


def test_without_scripts_all_pages_say_the_same(browser: Browser, address: str) -> None:
    with browser.new_context(base_url=address, java_script_enabled=False) as context:
        tab = context.new_page()
        tab.goto("/")
        tab.get_by_role("link", name="QueueNotOpen").click()
        tab.get_by_role("link", name="default/late").click()
        expect(tab.locator(".remedies")).to_contain_text("open queue old")
        expect(tab.get_by_role("button", name="Live")).to_be_hidden()
