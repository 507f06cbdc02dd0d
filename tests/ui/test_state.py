"""How fresh a page is, what it opens on, and how its tables are sorted."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
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
    assert 'href="/pods?node=n0"' in pages.get("/nodes").text
    text = pages.get("/pods?node=n0").raise_for_status().text
    assert "Pods on node n0" in text
    assert "runs-0" in text
    assert "first-0" not in text


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
            told = httpx.get(f"{address}/jobs")
            assert told.status_code == 503
            assert "does not answer: Connection refused" in told.text
            assert "ssl:" not in told.text
            shown.close()
