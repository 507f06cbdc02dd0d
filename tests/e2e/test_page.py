"""The page before a service on a cluster, in Chromium, for who may read everything and for who may read a namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.controlplane.cluster import Cluster, Program, eventually, free_port
from tests.e2e.conftest import Start
from tests.e2e.service import STROMBOLI, Certificate, Service
from tests.e2e.world import World
from tests.ui.conftest import browser

__all__ = ["browser"]

pytestmark = pytest.mark.e2e

SCHEDULING_GROUP = "scheduling.volcano.sh"


@pytest.fixture
def elsewhere(plane: Cluster, world: World) -> Iterator[str]:
    """A job that waits in another tenant's namespace."""
    other = World(plane, f"{world.namespace}-other")
    other.begin()
    other.gang("secret", 1, cpu="64")
    yield f"{other.namespace}/secret"
    other.clear()


@contextmanager
def page_before(service: Service, certificate: Certificate, log: Path) -> Iterator[str]:
    """The address of `stromboli ui`, a process of its own."""
    address = f"127.0.0.1:{free_port()}"
    asks = ("--url", service.url, "--certificate-authority", str(certificate.authority))
    program = Program([str(STROMBOLI), "ui", "--listen", address, *asks, *certificate.options], log)
    try:
        program.wait_until(lambda: httpx.get(f"https://{address}/healthz", verify=False).is_success)
        yield f"https://{address}"
    finally:
        program.stop()


def test_from_the_overview_to_the_cause_in_two_clicks_for_whom_may_read_it(
    browser: Browser, world: World, elsewhere: str, start: Start, tmp_path: Path
) -> None:
    world.nodes(2, cpu="4")
    world.gang("runs", 2, cpu="2")
    world.gang("train", 3, cpu="2")
    certificate = Certificate.issue(tmp_path)
    service = start(certificate=certificate)
    eventually(lambda: "train-0" in world.refused() and len(world.placed()) == 2)

    own = {"": ["pods"], SCHEDULING_GROUP: ["podgroups"]}
    tenant = world.reader("tenant", own)
    member = world.reader("member", own, everywhere={SCHEDULING_GROUP: ["queues"]})
    with page_before(service, certificate, tmp_path / "ui.log") as address:

        def shown(token: str, walk: Callable[[Page], None]) -> None:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            with browser.new_context(
                base_url=address,
                ignore_https_errors=True,
                extra_http_headers=headers,
                viewport={"width": 1200, "height": 900},
            ) as context:
                tab = context.new_page()
                tab.goto("/")
                walk(tab)

        def cause(tab: Page) -> None:
            tab.get_by_role("link", name=f"{world.namespace}/train").click()
            expect(tab.locator(".cause")).to_contain_text("Waits at Placement: ClusterFull")
            expect(tab.locator(".cause")).to_contain_text("the cluster has 8, queue default holds 4")

        def by_reason(tab: Page) -> None:
            tab.get_by_role("link", name="ClusterFull").click()
            cause(tab)

        def as_admin(tab: Page) -> None:
            by_reason(tab)
            # Where sessions are long, as on a busy machine, remedies are tried only when asked for.
            tab.goto(f"/jobs/{world.namespace}/train?tried=true")
            expect(tab.locator(".remedies")).to_contain_text("PodGroup")
            tab.goto("/jobs")
            expect(tab.get_by_role("link", name=elsewhere)).to_be_visible()

        def as_tenant(tab: Page) -> None:
            expect(tab.get_by_role("alert")).to_contain_text("you may not list queues")
            tab.get_by_role("link", name="Jobs that you may read").click()
            expect(tab.get_by_role("link", name="secret")).to_have_count(0)
            cause(tab)
            tab.goto(f"/jobs/{elsewhere}")
            expect(tab.get_by_role("alert")).to_contain_text("podgroups in namespace")

        shown("", as_admin)
        shown(world.cluster.token(), as_admin)
        shown(member, by_reason)
        shown(tenant, as_tenant)
        shown("nobody", lambda tab: expect(tab.get_by_role("alert")).to_contain_text("the token is not valid"))
