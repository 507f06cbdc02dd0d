"""What the page says, whom it answers, and what it does with names that are not meant well."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from stromboli.dashboard.routes import dashboard_routes
from stromboli.http.api import api_routes
from stromboli.live.api_server.access import User
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.ui import Service, make_ui
from tests.builders import node, queue, state
from tests.plugins import pools
from tests.ui.cluster import HOSTILE, Ran, cluster, page, served

PAGES = ["/", "/queues/a", "/jobs", "/jobs/default/grow", "/pods", "/pods/default/grow-3", "/nodes", "/shares"]
PAGES += ["/sessions", "/sessions/1", "/nodes/n0", "/pods/default/grow-3?scores=true", "/policy", "/whatif"]


@pytest.fixture(scope="module")
def ran() -> Ran:
    return Ran(cluster())


@pytest.fixture(scope="module")
def http(ran: Ran) -> Iterator[httpx.Client]:
    with page(ran) as address, httpx.Client(base_url=address) as client:
        yield client


@pytest.mark.one_in(4)
@pytest.mark.parametrize("path", PAGES)
def test_pages_hold_no_script_and_names_are_text(http: httpx.Client, path: str) -> None:
    answer = http.get(path).raise_for_status()
    assert "<img src=x" not in answer.text
    assert "{{" not in answer.text.replace("{{7*7}}", "")
    assert "alert(1)&gt;49" not in answer.text
    rest = answer.text.replace('<script src="/static/live.js" defer></script>', "")
    assert not any(mark in rest for mark in ("<script", "style=", "javascript:", "<!--later-->", "onclick="))
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"


def test_a_hostile_name_can_be_asked_about(http: httpx.Client) -> None:
    key = httpx.URL(path=f"/jobs/default/{HOSTILE}").raw_path.decode()
    assert "NeverFits" in http.get(key).text
    for kind in ("queues", "pods/default"):
        assert "&lt;img" in http.get(httpx.URL(path=f"/{kind}/{HOSTILE}").raw_path.decode()).text
    assert "&lt;img" in http.get("/jobs", params={"queue": HOSTILE, "name": HOSTILE}).text


def test_a_job_whose_queue_is_missing_says_which_and_what_would_help(http: httpx.Client) -> None:
    text = http.get("/jobs/default/lost").text
    assert "onerror=alert(1)&gt;{{7*7}}?" in text
    assert "0 of 1 pod has a place." in text
    assert "set queue: " in text


def test_from_the_overview_to_a_cause_are_two_steps(http: httpx.Client) -> None:
    overview = http.get("/").text
    assert 'href="/jobs?reason=QueueNotOpen"' in overview
    jobs = http.get("/jobs?reason=QueueNotOpen").text
    assert 'href="/jobs/default/late"' in jobs
    job = http.get("/jobs/default/late").text
    assert "Waits at Admission: QueueNotOpen" in job
    assert "queue old takes no new work" in job
    assert "open queue old" in job


def test_a_queue_shows_how_it_stands_in_each_node_pool(http: httpx.Client) -> None:
    team = pools.shares("team", a={"deserved": "2", "capability": "3"})
    objects = [pools.in_pool("a"), pools.in_pool("b"), team, pools.running("old", "a", "b")]
    with page(Ran(state(*objects), policy=pools.policy())) as address:
        text = httpx.get(f"{address}/queues/team").raise_for_status().text
    shown = text.partition("In node pools")[2].partition("</section>")[0]
    row = shown.partition('<th scope="row">a</th>')[2].partition("</tr>")[0]
    assert re.findall(r">([^<>]+)</td>", row) == ["cpu", "1", "0", "2", "–", "3"]
    assert "In node pools" not in http.get("/queues/a").text


def test_a_job_says_what_would_help_and_where_its_pods_are(http: httpx.Client) -> None:
    job = http.get("/jobs/default/grow").text
    assert re.search("<b>[23] of its pods wait at Placement: Unschedulable</b>", job)
    # Pods that wait for the same say it once.
    assert job.count('<b class="reason">Unschedulable</b> <span class="message">as above</span>') >= 1
    assert "What would help" in job
    assert "Tried on a copy of the cluster" in job
    assert "of this job" in job
    assert http.get("/pods/default/grow-0").text.count("n1") > 0


def test_the_page_of_a_pod_shows_the_state_of_the_pod(http: httpx.Client) -> None:
    text = http.get("/pods/default/grow-3").text
    assert '<h1>Pod default/grow-3 <span class="state calm">Pending</span></h1>' in text
    assert "Waits at Placement: Unschedulable" in text
    assert '<a href="/jobs" aria-current="page">Jobs</a>' in text


def test_a_queue_that_shares_nothing_says_so_without_contradiction(http: httpx.Client) -> None:
    above = http.get("/queues/lab").text
    assert "has no jobs of its own, so it gets no share" in above
    idle = Ran(state(node("n0"), queue("idle")))
    with page(idle) as address:
        text = httpx.get(f"{address}/queues/idle").raise_for_status().text
    assert "has no jobs, so it gets no share" in text
    assert "It holds, asks for and deserves nothing." in text
    assert "<caption" not in text


def test_the_policy_says_which_rules_hold_once(http: httpx.Client) -> None:
    text = http.get("/policy").text
    assert len(re.findall(r"<summary>\d+ rules strict</summary>", text)) == 1
    with page(Ran(cluster(), policy="compatibility: volcano\n" + DEFAULT_POLICY)) as address:
        assert "rules volcano</summary>" in httpx.get(f"{address}/policy").text


def test_what_is_costly_is_not_tried_unasked() -> None:
    ran = Ran(cluster())
    assert ran.session is not None
    ran.history.session(ran.session, 1.0, 2.5)
    with page(ran) as address:
        asked = httpx.get(f"{address}/jobs/default/late").text
        assert "Try changes on a copy" in asked
        assert "open queue old" not in asked
        assert "open queue old" in httpx.get(f"{address}/jobs/default/late?tried=true").text


def test_a_change_is_tried_by_a_form(http: httpx.Client) -> None:
    change = "kind: Queue\r\nmetadata: {name: old}\r\nspec: {capability: {memory: 10}}\r\nstatus: {state: Open}\r\n"
    own = {"Origin": str(http.base_url).rstrip("/")}
    answer = http.post("/whatif", data={"change": change}, headers=own).text
    assert "What would be different" in answer
    assert "queue old: spec.capability has 10 bytes of memory: give it a unit" in answer
    wrong = http.post("/whatif", data={"change": f"kind: Queeu\nmetadata: {{name: '{HOSTILE}'}}"}, headers=own).text
    assert "did you mean" in wrong
    assert "<img src=x" not in wrong
    for foreign in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
        assert http.post("/whatif", data={"change": change}, headers=foreign).status_code == 403
    assert http.post("/whatif", content=b"\xff\xfe", headers=own).status_code == 400


def test_what_is_not_there_is_said_on_a_page(http: httpx.Client) -> None:
    says = {"/queues/none": "there is no queue none", "/nothing": "There is no page /nothing", "/jobs/x/y": "x/y"}
    for path, problem in says.items():
        answer = http.get(path)
        assert (answer.status_code, problem in answer.text, "<h1>Not found</h1>" in answer.text) == (404, True, True)
        assert "content-security-policy" in answer.headers
    wrong = http.get("/jobs?offset=<b>")
    assert (wrong.status_code, "offset: Input should be a valid integer" in wrong.text) == (422, True)


def test_a_service_that_does_not_answer_is_told_of() -> None:
    service = Service("http://127.0.0.1:9")
    with served(make_ui(service), service=service) as address:
        answer = httpx.get(address)
        assert (answer.status_code, "does not answer" in answer.text) == (503, True)
        assert httpx.get(f"{address}/healthz").text == "ok\n"


# -- whose page it is --------------------------------------------------------------------------------------------------


class Names:
    """A token is its owner's name, and `ann` may read everything."""

    async def user(self, token: str) -> User | None:
        return User(token, "", (), ()) if token in ("ann", "bob") else None

    async def may(self, user: User, verb: str, group: str, resource: str, namespace: str = "") -> bool:
        return user.name == "ann" or resource == "queues"


@pytest.fixture
def remote(ran: Ran) -> ASGIApp:
    """The API for those who bring tokens. It stands for one that is reached by HTTPS."""
    app = FastAPI()
    app.include_router(api_routes(ran, Names()))
    app.include_router(dashboard_routes(ran, Names(), "default"))

    async def secure(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope | {"scheme": "https", "client": ("10.0.0.1", 1)}, receive, send)

    return secure


async def status(app: FastAPI, path: str, client: str, url: str, token: str = "", **headers: str) -> tuple[int, str]:
    transport = httpx.ASGITransport(app, client=(client, 1))
    told = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(transport=transport, base_url=url, headers=told | headers) as http:
        answer = await http.get(path)
        return answer.status_code, answer.text


@pytest.mark.parametrize(
    ("client", "url", "token", "expected"),
    [
        ("127.0.0.1", "http://localhost", "", 200),
        # A page that was led here, and a client elsewhere, which must not have what loopback has.
        ("127.0.0.1", "http://evil.example.com", "", 403),
        ("10.0.0.9", "https://page.example.com", "", 401),
        ("10.0.0.9", "https://evil.example.com", "ann", 403),
        ("10.0.0.9", "http://page.example.com", "ann", 403),
    ],
)
async def test_the_page_gives_nobody_the_rights_of_loopback(
    ran: Ran, client: str, url: str, token: str, expected: int
) -> None:
    with served(ran.app()) as address:
        service = Service(address)
        app = make_ui(service, hosts=["page.example.com"])
        for path in ("/", "/whatif"):
            assert (await status(app, path, client, url, token))[0] == expected
        await service.close()


async def test_a_reader_sees_what_his_token_may_read(remote: ASGIApp) -> None:
    with served(remote) as address:
        service = Service(address)
        app = make_ui(service, hosts=["page.example.com"])
        url = "https://page.example.com"
        assert (await status(app, "/jobs", "10.0.0.9", url, "ann"))[0] == 200
        refused, text = await status(app, "/jobs", "10.0.0.9", url, "bob")
        assert (refused, "you may not list podgroups" in text) == (403, True)
        assert (await status(app, "/", "10.0.0.9", url, "bob"))[0] == 200
        assert (await status(app, "/", "10.0.0.9", url, "eve"))[0] == 401
        await service.close()


async def test_with_an_account_of_its_own_the_page_answers_by_its_names(remote: ASGIApp, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("bob\n")
    with served(remote) as address:
        service = Service(address, token_file=token)
        app = make_ui(service, hosts=["page.example.com"])
        assert (await status(app, "/jobs", "10.0.0.9", "http://page.example.com"))[0] == 403
        token.write_text("ann\n")
        assert (await status(app, "/jobs", "10.0.0.9", "http://page.example.com"))[0] == 200
        assert (await status(app, "/jobs", "127.0.0.1", "http://evil.example.com"))[0] == 403
        await service.close()


async def test_the_service_is_asked_by_https_with_the_certificate_of_its_name(ran: Ran, tmp_path: Path) -> None:
    authority, pem, trusted = trustme.CA(), tmp_path / "server.pem", tmp_path / "ca.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(pem))
    authority.cert_pem.write_to_path(str(trusted))
    app = FastAPI()
    app.include_router(dashboard_routes(ran, Names(), "default"))
    with served(app, certificate=pem) as address:
        port = httpx.URL(address).port
        for name, token, expected in (("localhost", "ann", 200), ("localhost", "eve", 401), ("127.0.0.1", "ann", 503)):
            service = Service(f"https://{name}:{port}", ca_file=trusted)
            answer = await status(make_ui(service), "/nodes", "127.0.0.1", "http://localhost", token)
            assert (answer[0], "CERTIFICATE_VERIFY_FAILED" in answer[1]) == (expected, expected == 503)
            await service.close()


async def test_certificates_that_vouch_for_the_service_may_be_replaced(ran: Ran, tmp_path: Path) -> None:
    """As those of an issuer that signs itself are with each renewal; what cannot be read changes nothing."""
    app, trusted = FastAPI(), tmp_path / "ca.pem"
    app.include_router(dashboard_routes(ran, Names(), "default"))
    authorities = [trustme.CA(), trustme.CA()]
    authorities[0].cert_pem.write_to_path(str(trusted))
    service = Service("https://localhost", ca_file=trusted)
    for number, authority in enumerate(authorities):
        pem = tmp_path / f"server-{number}.pem"
        authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(pem))
        with served(app, certificate=pem) as address:
            service.url = service.url.with_port(httpx.URL(address).port)
            page = make_ui(service)
            if number:
                for broken in ("", "no certificate"):
                    trusted.write_text(broken)
                    assert (await status(page, "/nodes", "127.0.0.1", "http://localhost", "ann"))[0] == 503
                authority.cert_pem.write_to_path(str(trusted))
            assert (await status(page, "/nodes", "127.0.0.1", "http://localhost", "ann"))[0] == 200
    await service.close()


async def test_of_several_replicas_the_one_that_leads_is_asked(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    standby = Ran(cluster())
    standby.session = None
    with served(standby.app()) as idle, served(ran.app(), f"127.0.0.2:{httpx.URL(idle).port}"):
        service = Service(f"http://localhost:{httpx.URL(idle).port}")
        app = make_ui(service)
        for addresses, expected in ((["127.0.0.1"], 503), (["127.0.0.1", "127.0.0.2"], 200)):
            answers = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, found=answers, **__: found)
            assert (await status(app, "/", "127.0.0.1", "http://localhost"))[0] == expected
        await service.close()


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:8080", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        Service(url)


def test_a_cluster_without_anything_has_no_table_without_rows() -> None:
    with page(Ran(state())) as address:
        for path in ("/", "/jobs", "/pods", "/nodes", "/shares"):
            text = httpx.get(address + path).raise_for_status().text
            assert all("<tr" in body for body in re.findall("<tbody>(.*?)</tbody>", text, re.DOTALL)), path
        assert "There is no queue." in httpx.get(f"{address}/").text
