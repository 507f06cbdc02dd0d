"""The dashboard over HTTP: the cluster at a glance, in pages, for those who may read it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from stromboli.api import objects
from stromboli.api.crds import PodGroupCondition
from stromboli.dashboard.decided import DecidedSessions
from stromboli.dashboard.history import History
from stromboli.dashboard.routes import dashboard_routes
from stromboli.engine import Engine
from stromboli.explain.jobs import explain_job
from stromboli.framework.session.session import Session
from stromboli.live.api_server.access import User
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, node, pod, pod_group, queue, state

ASKED = ["overview", "queues", "jobs", "pods", "nodes", "shares", "sessions", "policy"]


class Service:
    """A service that has run a session."""

    def __init__(self, known: ClusterState, policy: str | None = None) -> None:
        self.history = History()
        self.session: Session | None = None
        self.problems: list[str] = []
        self.number = 0
        self._known = known
        self._engine = Engine(policy) if policy else Engine()
        self.tick()

    def tick(self, at: float = NOON) -> None:
        result = self._engine.decide(self._known.snapshot(), now=at)
        self.session = result.session
        self.number += 1
        self.history.began(self.number)
        self.history.session(result.session, at, 0.5)

    def last(self) -> Session | None:
        return self.session

    def missing(self) -> Sequence[str]:
        return self.problems


class Rights:
    """A token is the name of its owner, and that is the namespace that he may read; `admin` may read everything."""

    async def user(self, token: str) -> User | None:
        return User(token, "", (), ())

    async def may(self, user: User, verb: str, group: str, resource: str, namespace: str = "") -> bool:
        return user.name == "admin" or resource == "queues" or namespace == user.name


@cache
def api(service: Service) -> FastAPI:
    """Its routes, which take longer to make than to ask."""
    app = FastAPI()
    app.include_router(dashboard_routes(service, Rights(), "stromboli-system"))
    return app


def asking(service: Service, user: str = "") -> httpx.AsyncClient:
    client, host = ("10.0.0.1", "https://stromboli") if user else ("127.0.0.1", "http://127.0.0.1")
    transport = httpx.ASGITransport(api(service), client=(client, 4711))
    headers = {"Authorization": f"Bearer {user}"} if user else {}
    return httpx.AsyncClient(transport=transport, base_url=f"{host}/api/v1", headers=headers)


async def told(service: Service, path: str, user: str = "") -> Any:
    async with asking(service, user) as http:
        return (await http.get(path)).raise_for_status().json()


def shared() -> ClusterState:
    """A parent with two queues: `train` of one runs, `more` waits for the share, `wide` and `lost` can never run."""
    return state(
        *(node("n0", cpu="4"), node("n1", cpu="4", unschedulable=True)),
        *(
            queue("lab"),
            queue("a", parent="lab", weight=3, guarantee={"resource": {"cpu": "1"}}),
            queue("b", parent="lab"),
        ),
        *(pod_group("train", 2, queue="a", phase="Running"), pod_group("more", queue="a")),
        *(pod(f"train-{i}", "train", cpu="1500m", node="n0") for i in range(2)),
        pod("more-0", "more", cpu="2"),
        *(pod_group("wide", queue="b", namespace="research"), pod("wide-0", "wide", cpu="64", namespace="research")),
        *(pod_group("lost", queue="nowhere"), pod("lost-0", "lost")),
    )


@pytest.fixture(scope="module")
def service() -> Service:
    """A service to look at, which stays as it is."""
    return Service(shared())


async def test_a_job_that_sessions_do_not_know_is_told_by_who_does(service: Service) -> None:
    def asleep(kind: str, key: str) -> str:
        return "it is suspended" if (kind, key) == ("job", "default/night") else ""

    app = FastAPI()
    app.include_router(dashboard_routes(service, None, "default", asleep))
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1") as http:
        for name, says in (("night", "it is suspended"), ("none", "there is no job default/none")):
            answer = await http.get(f"/jobs/default/{name}")
            assert (answer.status_code, answer.json()["detail"]) == (404, says)


async def test_cards_that_no_node_offers_are_told_too() -> None:
    resources = {"nvidia.com/gpu": "2", "example.com/fpga": "1", "hugepages-2Mi": "4Mi"}
    job = (pod_group("train", 2), *(pod(f"train-{i}", "train", resources=resources) for i in range(2)))
    service = Service(state(node("n", resources={"nvidia.com/gpu": "8"}), queue("default"), *job))
    (row,) = (await told(service, "/jobs"))["items"]
    assert row["cards"] == {"nvidia.com/gpu": 4, "example.com/fpga": 2}
    pods = (await told(service, "/pods"))["items"]
    assert [each["cards"] for each in pods] == 2 * [{"nvidia.com/gpu": 2, "example.com/fpga": 1}]


async def test_the_overview_counts_what_is_there_and_what_waits(service: Service) -> None:
    said = await told(service, "/overview")
    assert (said["nodes"], said["queues"], said["at"], said["seconds"]) == (2, 3, NOON, 0.5)
    assert (said["total"]["cpu"], said["used"]["cpu"], said["total"]["memory"]) == (8, 3, 64 * 2**30)
    assert (said["pods"], said["jobs"]["queue not found"]) == ({"Pending": 3, "Running": 2}, 1)
    assert {(each["reason"], each["jobs"], each["pods"], each["who"]) for each in said["pending"]} == {
        ("Unschedulable", 1, 1, "wait"),
        ("NeverFits", 1, 1, "user"),
        ("QueueNotFound", 1, 1, "user"),
    }


async def test_queues_come_as_a_tree_with_their_amounts(service: Service) -> None:
    page = await told(service, "/queues")
    assert [(row["name"], row["depth"]) for row in page["items"]] == [("lab", 0), ("a", 1), ("b", 1)]
    lab, a, _ = page["items"]
    assert (lab["held"]["cpu"], lab["waiting"], lab["jobs"]) == (3, 2, {"Inqueue": 1, "Pending": 1, "Running": 1})
    assert (a["held"]["cpu"], a["requested"]["cpu"], a["guarantee"]["cpu"], a["weight"]) == (3, 5, 1, 3)
    assert a["deserved"]["cpu"] == 5
    second = await told(service, "/queues?offset=1&limit=1")
    assert ([row["name"] for row in second["items"]], second["total"]) == (["a"], 3)
    assert await told(service, "/queues/a") == a


async def test_jobs_that_wait_come_first_and_can_be_looked_for(service: Service) -> None:
    page = await told(service, "/jobs")
    assert [row["name"] for row in page["items"]] == ["lost", "more", "wide", "train"]
    assert "no node is available" in page["items"][1]["message"]
    for query, names in (
        ("limit=2&offset=3", ["train"]),
        ("queue=lab&phase=Running", ["train"]),
        ("reason=NeverFits", ["wide"]),
        ("namespace=research", ["wide"]),
        ("name=default/tr", ["train"]),
        ("queue=nowhere", ["lost"]),
        ("name=none", []),
    ):
        assert [row["name"] for row in (await told(service, f"/jobs?{query}"))["items"]] == names
    assert (await told(service, "/jobs/default/train"))["placed"] == 2


async def test_each_pod_says_where_it_is_or_why_it_waits(service: Service) -> None:
    (runs, _) = (await told(service, "/jobs/default/train/pods"))["items"]
    assert (runs["name"], runs["state"], runs["node"], runs["reason"]) == ("train-0", "Running", "n0", "")
    (waits,) = (await told(service, "/jobs/default/more/pods"))["items"]
    assert (waits["state"], waits["reason"]) == ("Pending", "Unschedulable")
    assert "Insufficient cpu" in waits["message"]
    pages = [await told(service, f"/pods?limit=1&offset={offset}") for offset in range(3)]
    assert {page["items"][0]["reason"] for page in pages} == {"Unschedulable", "NeverFits", "QueueNotFound"}


async def test_nodes_come_in_columns_with_the_pods_of_a_job(service: Service) -> None:
    said = await told(service, "/nodes?resource=cpu&job=default/train")
    assert (said["names"], said["allocatable"], said["used"], said["pods"]) == (["n0", "n1"], [4, 4], [3, 0], [2, 0])
    assert (said["ofJob"], said["cordoned"]) == ([2, 0], [1])
    assert (await told(service, "/nodes?name=n1"))["names"] == ["n1"]
    assert (said["freeCards"], said["fragments"]) == ([], [])


async def test_nodes_tell_what_of_their_free_cards_a_typical_pod_cannot_use() -> None:
    cards = {"nvidia.com/gpu": "4"}
    known = state(
        *(queue("default"), node("a", resources=cards), node("b", resources=cards), node("c")),
        *(pod_group("runs"), pod("runs-0", "runs", node="a", resources={"nvidia.com/gpu": "1"})),
        *(pod_group("waits"), pod("waits-0", "waits", resources={"nvidia.com/gpu": "4"}, nodeSelector={"no": "node"})),
    )
    said = await told(Service(known), "/nodes")
    assert (said["names"], said["freeCards"], said["fragments"]) == (["a", "b", "c"], [3, 4, 0], [1.5, 0, 0])


async def test_shares_and_sessions_are_remembered() -> None:
    service = Service(shared())
    for second in (1, 2, 3, 4):
        service.tick(NOON + second)
    shares = await told(service, "/shares?queue=a")
    assert (shares["at"][-1], shares["held"], shares["requested"]["a"][-1]) == (
        NOON + 4,
        {"a": [3] * len(shares["at"])},
        5,
    )
    assert [at - NOON for at in shares["at"]] == [0, 2, 4]
    top = await told(service, "/shares")
    assert (list(top["held"]), top["inner"], top["queues"]) == (["lab"], ["lab"], 1)
    assert list((await told(service, "/shares?parent=lab"))["held"]) == ["a"]
    sessions = (await told(service, "/sessions?limit=3"))["items"]
    assert [row["at"] - NOON for row in sessions] == [4, 3, 2]
    assert list(sessions[0]["actions"]) == ["enqueue", "allocate", "backfill"]
    service.history.failed(ValueError("broken"), NOON + 5)
    assert (await told(service, "/sessions?limit=1"))["items"][0]["error"] == "ValueError: broken"


@pytest.mark.exhaustive
def test_the_memory_of_shares_is_bounded() -> None:
    history, known = History(), state(node("n"), *(queue(f"q{number}") for number in range(40)))
    session = Engine().decide(known.snapshot(), now=NOON).session
    for number in range(9_000):
        history.session(session, NOON + 10 * number, 0.1)
    end = NOON + 90_000
    assert len(history.shares("cpu", 8, end).at) == 1_441
    assert len(history.sessions(10_000)) == 500


def test_a_chart_shows_the_time_that_is_asked_for() -> None:
    history, known = History(), state(node("n"), queue("q"))
    session = Engine().decide(known.snapshot(), now=NOON).session
    for second in (0, 5, 4_000, 4_002, 4_004):
        history.session(session, NOON + second, 0.1)
    for now, span, begins, shown in (
        # However little is known, an axis has five minutes, and it ends now.
        (4_010, 0, 0, [0, 5, 4_000, 4_002, 4_004]),
        (4_010, 300, 3_710, [5, 4_000, 4_002, 4_004]),
        (9_000, 300, 8_700, [4_004]),
    ):
        told = history.shares("cpu", 8, NOON + now, span=span)
        assert (told.since - NOON, told.until - NOON) == (begins, now)
        assert [at - NOON for at in told.at] == shown
    begun = History()
    begun.session(session, NOON, 0.1)
    assert begun.shares("cpu", 8, NOON + 5).since == NOON + 5 - 300


async def test_the_story_of_a_job_is_told_and_what_each_session_decided() -> None:
    known = state(
        *(node("n0", cpu="4"), queue("q")),
        *(pod_group("first", 2, queue="q", phase="Pending"), *(pod(f"first-{i}", "first", cpu="2") for i in range(2))),
        *(pod_group("second", 1, queue="q", namespace="research"), pod("second-0", "second", namespace="research")),
    )
    service = Service(known)
    (submitted, admitted, bound) = (await told(service, "/jobs/default/first/story"))["items"]
    assert (submitted["what"], submitted["text"]) == ("submitted", "to queue q; 2 of its pods start together")
    assert (admitted["what"], admitted["session"], admitted["at"]) == ("admitted", 1, NOON)
    assert (bound["what"], bound["pods"], bound["text"]) == ("bound", 2, "on n0")
    told_twice = (await told(service, "/jobs/research/second/story"))["items"]
    service.tick(NOON + 1)
    # What is decided again before it took effect is no news.
    assert (await told(service, "/jobs/research/second/story"))["items"] == told_twice
    assert [each["what"] for each in told_twice] == ["submitted", "waits"]
    assert told_twice[1]["text"].startswith("ClusterFull: the cluster is full in cpu")
    page = await told(service, "/sessions/1")
    assert (page["row"]["number"], page["row"]["bound"], page["known"]) == (1, 2, True)
    assert {(each["name"], each["what"]) for each in page["items"]} >= {("first", "bound"), ("second", "waits")}
    async with asking(service, "research") as http:
        assert {each["name"] for each in (await http.get("/sessions/1")).json()["items"]} == {"second"}
        assert (await http.get("/jobs/default/first/story")).status_code == 403
    async with asking(service) as http:
        assert [(await http.get(path)).status_code for path in ("/sessions/99", "/jobs/default/no/story")] == [404, 404]


async def test_an_eviction_is_told_with_its_action_and_its_beneficiary() -> None:
    policy = """
actions: "enqueue, allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: proportion}]
"""
    known = state(
        *(node("n0", cpu="4"), queue("q"), objects.PriorityClass(metadata=objects.Metadata(name="high"), value=100)),
        *(pod_group("old", 0, queue="q", phase="Running"), pod("old-0", "old", cpu="4", node="n0")),
        pod_group("urgent", 1, queue="q", phase="Inqueue", priorityClassName="high"),
        pod("urgent-0", "urgent", cpu="4", priority=100),
    )
    service = Service(known, policy)
    evicted = (await told(service, "/jobs/default/old/story"))["items"][-1]
    assert (evicted["what"], evicted["pods"]) == ("evicted", 1)
    assert "because of preempt for PodGroup default/urgent" in evicted["text"]
    promised = next(
        each for each in (await told(service, "/jobs/default/urgent/story"))["items"] if each["what"] == "promised"
    )
    assert (promised["pods"], promised["text"]) == (1, "on n0")


def test_the_memory_of_decisions_is_bounded() -> None:
    known = state(node("n", cpu="4"), queue("q"), pod_group("g", 2, queue="q"), *(pod(f"g-{i}", "g") for i in range(2)))
    session, decided = Engine().decide(known.snapshot(), now=NOON).session, DecidedSessions()
    size = len(session.decisions)
    for number in range(30_000 // size):
        decided.add(number, NOON + number, session)
    assert decided.of_session(0) is None
    kept = [number for number in range(30_000 // size) if decided.of_session(number)]
    assert len(kept) == 20_000 // size


async def test_causes_lead_to_the_nodes_that_have_them() -> None:
    known = state(
        *(node("n0", cpu="1"), node("n1", cpu="4", unschedulable=True), node("n2", cpu="1"), node("n3", cpu="2")),
        *(queue("q"), pod_group("g", 3, queue="q"), *(pod(f"g-{i}", "g", cpu="2") for i in range(3))),
    )
    service = Service(known)
    assert service.session is not None
    answer = explain_job(service.session, "default/g")
    assert answer is not None
    found = {}
    async with asking(service) as http:
        for each in answer.nodes:
            said = (await http.get("/nodes", params={"job": "default/g", "cause": each.cause})).json()
            assert len(said["names"]) == each.nodes
            found[each.cause.partition(":")[0]] = said["names"]
    assert found == {
        "node(s) were unschedulable": ["n1"],
        "Insufficient cpu": ["n0", "n2"],
        "fits 1 of 3 pods": ["n3"],
    }
    assert (await told(service, "/nodes?job=default/g&cause=none"))["names"] == []


async def test_a_node_says_what_it_has_and_who_may_use_it(service: Service) -> None:
    said = await told(service, "/nodes/n1")
    assert (said["cordoned"], said["allocatable"]["cpu"], said["used"]["cpu"], said["taints"]) == (True, 4, 0, [])
    async with asking(service) as http:
        assert (await http.get("/nodes/none")).status_code == 404
    async with asking(service, "research") as http:
        assert (await http.get("/nodes/n1")).status_code == 403


async def test_reasons_are_counted_and_rows_are_chosen_by_cards_and_priority() -> None:
    known = state(
        *(node("n0", cpu="4", resources={"nvidia.com/gpu": "2"}), queue("q")),
        *(pod_group("cpu", 1, queue="q"), pod("cpu-0", "cpu", cpu="64")),
        *(pod_group("gpu", 1, queue="q"), pod("gpu-0", "gpu", cpu="1", resources={"nvidia.com/gpu": "1"})),
    )
    service = Service(known)
    page = await told(service, "/jobs")
    assert (page["reasons"], page["cards"]) == ({"NeverFits": 1}, ["nvidia.com/gpu"])
    for query, names in (("cards=nvidia.com/gpu", ["gpu"]), ("priority=1", []), ("priority=0", ["cpu", "gpu"])):
        assert [row["name"] for row in (await told(service, f"/jobs?{query}"))["items"]] == names
    assert (await told(service, "/pods?reason=none"))["reasons"] == {"NeverFits": 1}


async def test_it_is_said_when_the_data_may_be_out_of_date(service: Service) -> None:
    assert await told(service, "/freshness", "research") == {"at": NOON, "problems": []}
    behind = Service(shared())
    behind.problems.append("API server: no answer for 42 s")
    assert (await told(behind, "/freshness"))["problems"] == ["API server: no answer for 42 s"]


SECRETIVE = """
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
  - name: extender
    arguments: {extender.urlPrefix: "http://user:hunter2@extender:80/x?key=hunter2"}
metrics: {type: prometheus, address: "https://me:hunter2@prometheus", bearer: hunter2}
"""


async def test_the_policy_is_told_without_its_secrets() -> None:
    service = Service(shared(), SECRETIVE)
    service.history.problem = "line 3: no such plugin"
    said = await told(service, "/policy")
    assert (said["actions"], said["problem"]) == (["enqueue", "allocate"], "line 3: no such plugin")
    assert [plugin["name"] for plugin in said["tiers"][0]] == ["gang", "extender"]
    assert said["metrics"] == {"type": "prometheus", "address": "https://prometheus", "bearer": "(hidden)"}
    assert "http://extender:80/x" in said["tiers"][0][1]["arguments"]["extender.urlPrefix"]
    assert "hunter2" not in str(said)
    assert said["rules"]["veto"] == "strict"


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/overview", 200),
        ("/queues", 200),
        ("/jobs?namespace=research", 200),
        ("/jobs/research/wide", 200),
        ("/pods?namespace=research", 200),
        ("/jobs", 200),
        ("/jobs?namespace=default", 403),
        ("/jobs/default/train", 403),
        ("/jobs/default/train/pods", 403),
        ("/pods", 200),
        ("/nodes", 403),
        ("/policy", 403),
    ],
)
async def test_everybody_sees_what_he_may_read(service: Service, path: str, status: int) -> None:
    async with asking(service, "research") as http:
        assert (await http.get(path)).status_code == status
    async with asking(service, "admin") as http:
        assert (await http.get(path)).status_code == 200


async def test_who_may_read_one_namespace_sees_its_jobs_and_no_others(service: Service) -> None:
    async with asking(service, "research") as http:
        for kind, names in (("jobs", ["wide"]), ("pods", ["wide-0"])):
            page = (await http.get(f"/{kind}")).json()
            assert ([each["name"] for each in page["items"]], page["total"]) == (names, len(names))
    async with asking(service, "nobody") as http:
        answer = await http.get("/jobs")
        assert (answer.status_code, "specify a namespace" in answer.text) == (403, True)


async def test_who_may_read_nodes_sees_no_pods_of_jobs_that_he_may_not_read(service: Service) -> None:
    async with asking(service, "admin") as http:
        assert (await http.get("/nodes?job=default/train")).json()["ofJob"] == [2, 0]
    async with asking(service, "research") as http:
        assert (await http.get("/nodes?job=default/train")).status_code == 403


async def test_a_replica_that_does_not_lead_says_so() -> None:
    standby = Service(shared())
    standby.session = None
    async with asking(standby) as http:
        for asked in ASKED:
            answer = await http.get(f"/{asked}")
            assert (answer.status_code, "ask the leader" in answer.text) == (503, True)


@pytest.mark.parametrize(
    "query",
    [
        "/jobs?limit=1000000",
        "/jobs?offset=-1",
        f"/pods?offset={1 << 64}",
        "/nodes?limit=x",
        "/shares?limit=1000",
    ],
)
async def test_pages_are_bounded(service: Service, query: str) -> None:
    async with asking(service) as http:
        assert (await http.get(query)).status_code == 422


async def test_what_is_not_there_is_not_found(service: Service) -> None:
    async with asking(service) as http:
        for path in ("/queues/none", "/jobs/default/none"):
            assert (await http.get(path)).status_code == 404
        assert (await http.get("/jobs/default/none/pods")).json()["items"] == []


async def test_the_story_of_a_job_that_waits_does_not_end_with_it_going_on() -> None:
    group = pod_group("job", 1, queue="q")
    group.status.conditions = [PodGroupCondition(type="Unschedulable", status="True", reason="NeverFits", message="no")]
    known = state(node("n0", cpu="1"), queue("q"), group)
    service = Service(known)
    # Its pod is seen to be in the group a session later, as after a start of the service.
    known.upsert("Pod", pod("job-0", "job", cpu="4"))
    service.tick(NOON + 1)
    assert "goes on" in [each.what for each in service.history.decided.of_job("default/job")]
    items = (await told(service, "/jobs/default/job/story"))["items"]
    assert items[-1]["what"] != "goes on"


async def test_pods_of_a_job_that_is_named_by_its_workload_wait_for_what_it_waits_for() -> None:
    group = pod_group("podgroup-1", 1, queue="q")
    group.metadata.owner_references = [{"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "u"}]
    service = Service(state(node("n0", cpu="1"), queue("q"), group, pod("a", "podgroup-1", cpu="4")))
    row = await told(service, "/jobs/default/sweep")
    (of_pod,) = (await told(service, "/jobs/default/sweep/pods"))["items"]
    assert (of_pod["reason"], row["reason"]) == ("NeverFits", "NeverFits")


async def test_pods_of_a_job_say_why_they_failed() -> None:
    ended = {"name": "main", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    failed = pod("job-0", "job", node="n0", phase="Failed", status={"containerStatuses": [ended]})
    service = Service(state(node("n0"), queue("q"), pod_group("job", 1, queue="q", phase="Running"), failed))
    (row,) = (await told(service, "/jobs/default/job/pods"))["items"]
    assert (row["reason"], row["message"]) == ("", "container main ended: exit code 1")
