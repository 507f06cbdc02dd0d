"""How fresh a page is, what it opens on, and how its tables are sorted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from stromboli.ui import Service, make_ui
from tests.builders import gang, node, pod, pod_group, queue, state
from tests.ui.cluster import Ran, page, served
from tests.ui.conftest import browser

__all__ = ["browser"]

CARDS, SIX = {"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "6"}


def scarce() -> Ran:
    """Cards are held to three quarters, cpu to a quarter; two jobs wait for room, the younger one more important."""
    return Ran(
        state(
            *(node("n0", cpu="32", resources=CARDS), queue("a")),
            *(
                pod_group("runs", queue="a", phase="Running"),
                pod("runs-0", "runs", cpu="8", node="n0", resources={"nvidia.com/gpu": "6"}),
            ),
            *(pod_group("first", 2, "a"), *gang("first", 2, cpu="20")),
            *(pod_group("second", 1, "a", created=60), *gang("second", 1, cpu="1", resources={"nvidia.com/gpu": "4"})),
        )
    )


@pytest.fixture(scope="module")
def pages() -> Iterator[httpx.Client]:
    with page(scarce()) as address, httpx.Client(base_url=address) as client:
        yield client


@pytest.mark.parametrize("at", ["/", "/nodes", "/shares", "/queues/a"])
def test_pages_open_on_the_scarcest_resource(pages: httpx.Client, at: str) -> None:
    text = pages.get(at).raise_for_status().text
    assert 'resource=nvidia.com%2Fgpu" aria-current="true"' in text


@pytest.mark.parametrize(
    ("sort", "order"), [("", ["first", "second"]), ("cards", ["second", "first"]), ("age", ["first", "second"])]
)
def test_jobs_are_sorted(pages: httpx.Client, sort: str, order: list[str]) -> None:
    text = pages.get(f"/jobs?sort={sort}").raise_for_status().text
    at = {name: text.index(f"default/{name}<") for name in order}
    assert sorted(at, key=at.__getitem__) == order
    assert '<span title="nvidia.com/gpu">4 gpu</span>' in text


def test_nodes_lead_to_their_pods(pages: httpx.Client) -> None:
    assert 'href="/nodes/n0"' in pages.get("/nodes").text
    for path, title in (("/nodes/n0", "Node n0"), ("/pods?node=n0", "Pods on node n0")):
        text = pages.get(path).raise_for_status().text
        assert title in text
        assert "runs-0" in text
        assert "first-0" not in text
    assert pages.get("/nodes/none").status_code == 404


def test_causes_and_reasons_lead_to_what_has_them(pages: httpx.Client) -> None:
    text = pages.get("/jobs/default/second").text
    (cause,) = re.findall(r'href="(/nodes[?]job=[^"]*cause=[^"]*)"', text)
    there = pages.get(unescape(cause)).raise_for_status().text
    assert "Nodes with the cause <b>Insufficient nvidia.com/gpu: 2 nvidia.com/gpu short</b>" in there
    assert 'href="/nodes/n0"' in there
    both = pages.get("/jobs").text
    (reason,) = re.findall(r'href="([^"]*reason=NeverFits[^"]*)"', both)
    assert "default/second" not in pages.get(unescape(reason)).text
    assert "default/first" not in pages.get("/jobs?cards=nvidia.com/gpu").text
    assert "default/runs" not in pages.get("/pods?sort=age").text


def test_a_gang_has_a_story_that_leads_to_sessions(pages: httpx.Client) -> None:
    text = pages.get("/jobs/default/second").text
    assert "<b>submitted</b> <span>to queue a</span>" in text
    (number,) = re.findall(r'href="/sessions/(\d+)"', text)
    there = pages.get(f"/sessions/{number}").raise_for_status().text
    assert f"<h1>Session {number}</h1>" in there
    assert "default/second" in there
    assert f'href="/sessions/{number}"' in pages.get("/sessions").text
    assert pages.get("/sessions/4711").status_code == 404


def test_a_pod_says_why_one_node_and_not_another() -> None:
    ran = Ran(
        state(
            *(node("n0", cpu="4"), node("n1", cpu="16"), node("n2", unschedulable=True), queue("a")),
            *(pod_group("g", 1, "a"), pod("g-0", "g", cpu="2")),
        )
    )
    with page(ran) as address, httpx.Client(base_url=address) as client:
        assert "Scores of nodes" not in client.get("/pods/default/g-0").text
        text = client.get("/pods/default/g-0?scores=true&node=n2").raise_for_status().text
        # A page that renews itself runs no session for scores that it shows already.
        renewed = client.get("/pods/default/g-0?scores=true&node=n2&renew=1").text
    assert "1. allocate: assumed" in text
    rows = re.findall(r"<tr[^>]*><th scope=\"row\">.*?</tr>", text, re.DOTALL)
    chosen = next(row for row in rows if "chosen" in row)
    others = [row for row in rows if row is not chosen]
    assert len(rows) == 3
    assert "nodeorder" in text
    assert any(" less</td>" in row for row in others)
    assert any("node(s) were unschedulable" in row for row in others)
    assert "Scores of nodes" not in renewed
    assert re.findall('data-keep="[^"]*"', renewed) == re.findall('data-keep="[^"]*"', text)


@pytest.mark.parametrize("span", [0, 300, 1800, 21600, 86400])
def test_charts_have_times_and_units(pages: httpx.Client, span: int) -> None:
    for path in ("/shares?resource=memory", "/queues/a?resource=memory"):
        text = pages.get(f"{path}&span={span}").raise_for_status().text
        assert f'span={span}" aria-current="true"' in text or (not span and ">all</a>" in text)
        assert ">bytes</text>" in text
    assert pages.get("/shares?span=1e9").status_code == 422


@pytest.mark.e2e
def test_a_service_that_lost_the_cluster_is_not_live(browser: Browser) -> None:
    ran = scarce()
    with page(ran, refresh=0.3) as address:
        shown = browser.new_page(base_url=address)
        shown.goto("/jobs")
        expect(shown.locator("#live")).to_have_attribute("data-state", "live")
        ran.problems.append("API server: no answer for 42 s")
        expect(shown.get_by_role("button", name="Behind")).to_have_attribute("data-state", "old")
        expect(shown.get_by_role("alert")).to_contain_text("The service does not see the cluster as it is now")
        ran.problems.clear()
        expect(shown.locator("#live")).to_have_attribute("data-state", "live")
        shown.close()


@pytest.mark.exhaustive
def test_what_was_said_last_stays_when_the_service_is_gone(browser: Browser) -> None:
    with served(scarce().app()) as url:
        service = Service(url)
        with served(make_ui(service, refresh=0.3), service=service) as address:
            shown = browser.new_page(base_url=address)
            shown.goto("/jobs/default/first")
            expect(shown.locator("#live")).to_have_attribute("data-state", "live")
            expect(shown.locator("#age")).to_contain_text("s old")
            # Afterwards nothing answers at the address of the service.
            service.url = service.url.with_port(1)
            expect(shown.get_by_role("button", name="No answer")).to_be_visible()
            expect(shown.locator("#gone")).to_contain_text("The service does not answer. What is shown is the last")
            expect(shown.get_by_role("heading", name="Job default/first")).to_be_visible()
            found = Axe().run(shown)
            assert found.violations_count == 0, found.generate_report()
            told = httpx.get(f"{address}/jobs")
            assert told.status_code == 503
            assert "does not answer: Connection refused" in told.text
            assert "ssl:" not in told.text
            shown.close()


@pytest.mark.exhaustive
def test_a_page_that_is_opened_while_the_service_is_gone_is_not_live_until_it_is_back(browser: Browser) -> None:
    with served(scarce().app()) as url:
        service = Service(url)
        there, service.url = service.url, service.url.with_port(1)
        # It renews itself late enough that what it says first is seen.
        with served(make_ui(service, refresh=2), service=service) as address:
            shown = browser.new_page(base_url=address)
            shown.goto("/jobs/default/first")
            assert (shown.locator("#live").get_attribute("data-state"), shown.inner_text("#live")) == (
                "gone",
                "No answer",
            )
            expect(shown.get_by_role("heading", name="No answer")).to_be_visible()
            expect(shown).to_have_title("No answer · Stromboli")
            assert shown.locator("#gone").is_hidden(), "nothing is shown that it said"
            assert shown.inner_text("#age") == ""
            assert shown.locator("#main").evaluate("main => getComputedStyle(main).filter") == "none"
            service.url = there
            expect(shown.get_by_role("heading", name="Job default/first")).to_be_visible()
            expect(shown).to_have_title("Job default/first · Stromboli")
            expect(shown.locator("#live")).to_have_attribute("data-state", "live")
            expect(shown.locator("#age")).to_contain_text("s old")
            shown.close()
