"""The questions over HTTP: who is answered, and what he does not learn."""

from __future__ import annotations

import re

import httpx
import pytest
from fastapi import FastAPI

from stromboli.engine import Engine, Successive
from stromboli.explain.checkup import Finding
from stromboli.explain.past_runs import PastRuns
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.work import AbandonedError, TooManyStepsError
from stromboli.framework.cluster.environment import OFFLINE, Environment
from stromboli.framework.diagnosis.pod_trace import PodTrace
from stromboli.framework.session.session import Session
from stromboli.http.api import api_routes
from stromboli.http.cluster import LiveCluster, Source
from stromboli.live.api_server.access import User
from stromboli.simulation.scripted_extender import ScriptedExtender
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, gang, node, pod, pod_group, queue, state
from tests.live.cluster import SCHEDULING, Cluster
from tests.live.conftest import StartService, bare_cluster, cluster, definitions, options, start, until
from tests.plugins.sessions import policy

__all__ = ["bare_cluster", "cluster", "definitions", "options", "start"]


class Offline:
    """A cluster in memory."""

    def __init__(self, known: ClusterState) -> None:
        self._known = known
        self.engine = Engine
        self.past = PastRuns()
        #: problems of objects that are set aside, by kind and key
        self.aside: dict[tuple[str, str], str] = {}

    def absent(self, kind: str, key: str) -> str:
        return ""

    def served(self) -> list[str]:
        return ["stromboli"]

    def outside_sessions(self) -> list[Finding]:
        return []

    def unreadable(self, kind: str, key: str) -> str:
        return self.aside.get((kind, key), "")

    def rehearsal(self) -> Rehearsal:
        return Rehearsal(Engine(), self._known.fork(), OFFLINE, NOON)

    def last(self) -> Session | None:
        return None


class Extended(Offline):
    """A cluster where an HTTP extender refuses all nodes; it may be asked by sessions that decide, and no others."""

    def __init__(self, known: ClusterState) -> None:
        super().__init__(known)
        verbs = {"extender.urlPrefix": "http://extender", "extender.predicateVerb": "predicate"}
        self._engine = Engine(policy("extender", verbs))
        rules = [{"pods": ".*", "nodes": ["n"], "message": "broken", "code": 2}]
        self._world = Environment(extender=ScriptedExtender.parse({"predicate": rules}))

    def rehearsal(self) -> Rehearsal:
        return Rehearsal(self._engine, self._known.fork(), self._world, NOON)

    def last(self) -> Session:
        return self._engine.decide(self._known.snapshot(), now=NOON, environment=self._world).session


class Book:
    """Tokens with the namespaces that their owners may read."""

    def __init__(self, **readable: str) -> None:
        self._readable = readable

    async def user(self, token: str) -> User | None:
        return User(token, "", (), ()) if token in self._readable else None

    async def may(self, user: User, verb: str, group: str, resource: str, namespace: str = "") -> bool:
        return verb in ("get", "list") and (resource == "queues" or self._readable[user.name] == namespace)


def asking(
    source: Source, client: str = "127.0.0.1", host: str = "127.0.0.1", scheme: str = "http"
) -> httpx.AsyncClient:
    app = FastAPI()
    app.include_router(api_routes(source, Book(ann="research", bob="default")))
    transport = httpx.ASGITransport(app, client=(client, 4711))
    return httpx.AsyncClient(transport=transport, base_url=f"{scheme}://{host}/api/v1")


def two_namespaces() -> ClusterState:
    """A job of research waits for one of default, and both are in one queue."""
    return state(
        *(node("n", cpu="4"), queue("default")),
        *(pod_group("runs", phase="Running"), pod("runs-0", "runs", cpu="4", node="n")),
        *(pod_group("waits", namespace="research"), pod("waits-0", "waits", cpu="2", namespace="research")),
    )


YAML = {"Content-Type": "application/yaml"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_on_loopback_everybody_is_answered_in_full() -> None:
    async with asking(Offline(two_namespaces())) as http:
        job = (await http.get("/explain/job/research/waits")).json()
        assert (job["reason"], job["holders"][0]["name"]) == ("ClusterFull", "runs")
        assert {remedy["change"] for remedy in job["remedies"]} >= {"wait until default/runs ends"}
        pod = (await http.get("/explain/pod/research/waits-0?remedies=false")).json()
        assert (pod["reason"], pod["remedies"]) == ("ClusterFull", [])
        assert (await http.get("/explain/queue/default")).json()["name"] == "default"
        missing = await http.get("/explain/job/research/none")
        assert (missing.status_code, missing.json()["detail"]) == (404, "there is no job research/none")


async def test_sizes_are_answered_without_the_names_of_others() -> None:
    async with asking(Offline(two_namespaces())) as http:
        found = (await http.get("/explain/sizes?size=1,2&asks=cpu=2")).json()
        assert [each["size"] for each in found["sizes"]] == [1, 2]
        assert {tuple(each["start"]["unknown"]) for each in found["sizes"]} == {("default/runs",)}
        assert (await http.get("/explain/sizes?size=9&asks=cpu=1")).json()["sizes"][0]["start"]["unknown"] == []
    async with asking(Offline(two_namespaces()), client="10.0.0.1", scheme="https") as http:
        start = (await http.get("/explain/sizes?size=1&asks=cpu=2", headers=bearer("ann"))).json()["sizes"][0]["start"]
        assert (start["unknown"], start["unknownCount"]) == ([], 1)
        assert (await http.get("/explain/sizes?size=1")).status_code == 401


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("size=8x", "is not a list of numbers"),
        ("size=0", "from 1 to"),
        ("size=1&queue=defalut", "did you mean .default."),
    ],
)
async def test_sizes_that_cannot_be_asked_about_are_named(query: str, says: str) -> None:
    async with asking(Offline(two_namespaces())) as http:
        answer = await http.get(f"/explain/sizes?{query}")
        assert answer.status_code == 400
        assert re.search(says, answer.json()["detail"])


async def test_what_was_set_aside_is_not_said_to_be_missing() -> None:
    known = Offline(state(node("n"), queue("default"), pod_group("job", queue="team"), gang("lost", 2)))
    problem = "spec.weight: not a number"
    known.aside = dict.fromkeys((("Queue", "team"), ("PodGroup", "default/lost")), problem)
    known.aside["Pod", "default/broken"] = problem
    async with asking(known) as http:
        job = (await http.get("/explain/job/default/job")).json()
        assert (job["reason"], job["detail"]) == (
            "QueueNotFound",
            f"Queue team exists, but could not be read: {problem}",
        )
        assert job["remedies"] == []
        pod = (await http.get("/explain/pod/default/lost-0")).json()
        assert pod["detail"] == f"PodGroup default/lost exists, but could not be read: {problem}"
        missing = (await http.get("/explain/pod/default/broken")).json()["detail"]
        assert missing == f"Pod default/broken exists, but could not be read: {problem}"


class Ran(Offline):
    """A cluster on which a session ran, and which must not be asked for another."""

    def last(self) -> Session:
        return Engine().decide(two_namespaces().snapshot(), now=NOON).session

    def rehearsal(self) -> Rehearsal:
        raise AssertionError("a session would be run")


async def test_what_the_last_session_found_costs_no_session() -> None:
    async with asking(Ran(two_namespaces())) as http:
        job = (await http.get("/explain/job/research/waits?last=true")).json()
        assert (job["reason"], job["holders"][0]["name"], job["remedies"]) == ("ClusterFull", "runs", [])
        assert (await http.get("/explain/pod/research/waits-0?last=true")).json()["reason"] == "ClusterFull"
        assert (await http.get("/explain/queue/default?last=true")).json()["waiting"] == {"ClusterFull": 1}


async def test_nobody_learns_of_pods_that_he_may_not_read() -> None:
    async with asking(Offline(two_namespaces()), "10.0.0.1", "stromboli", "https") as http:
        answer = await http.get("/explain/job/research/waits", headers=bearer("ann"))
        assert answer.json()["reason"] == "ClusterFull"
        assert "runs" not in answer.text
        refused = await http.get("/explain/job/default/runs", headers=bearer("ann"))
        assert refused.status_code == 403
        assert refused.json()["detail"] == "you may not get podgroups in namespace default"
        assert (await http.get("/explain/pod/default/none", headers=bearer("ann"))).status_code == 403
        assert "waits" not in (await http.get("/explain/queue/default", headers=bearer("bob"))).text
        assert (await http.post("/whatif", headers=bearer("bob") | YAML)).status_code == 403


@pytest.mark.parametrize(
    ("client", "host", "scheme", "headers", "status"),
    [
        ("10.0.0.1", "stromboli", "https", {}, 401),
        ("10.0.0.1", "stromboli", "https", bearer("eve"), 401),
        ("10.0.0.1", "stromboli", "https", {"Authorization": "Basic YW5uOmFubg=="}, 401),
        ("10.0.0.1", "stromboli", "http", bearer("ann"), 403),
        # A page that names this machine, and a client behind a proxy on it.
        ("127.0.0.1", "evil.example.com", "http", {}, 403),
        ("127.0.0.1", "localhost", "http", {"X-Forwarded-For": "10.0.0.1"}, 403),
        ("::1", "localhost", "http", {}, 200),
    ],
)
async def test_strangers_are_refused(client: str, host: str, scheme: str, headers: dict[str, str], status: int) -> None:
    async with asking(Offline(two_namespaces()), client, host, scheme) as http:
        assert (await http.get("/explain/job/research/waits?remedies=false", headers=headers)).status_code == status


@pytest.mark.exhaustive
async def test_a_change_is_tried_and_not_made() -> None:
    known = two_namespaces()
    async with asking(Offline(known)) as http:
        change = "kind: Pod\nmetadata: {name: runs-0}\n$patch: delete"
        answer = (await http.post("/whatif", content=change, headers=YAML)).json()
        assert [(each["pod"], each["node"]) for each in answer["bound"]] == [("research/waits-0", "n")]
        assert "default/runs-0" in known.pods.by_key
        objects = "---\nkind: Node\nmetadata: {name: n}\n" * 10_001
        listed = "kind: List\nitems:\n" + "- {kind: Node, metadata: {name: n}}\n" * 10_001
        node = "{{kind: Node, metadata: {{name: n{0}}}, status: {{allocatable: {{cpu: 1, pods: 1, e.x/r{0}: 1}}}}}}"
        unlike = "\n---\n".join(node.format(number) for number in range(1_000))
        template = "{spec: {containers: [{name: c}]}}"
        pods = f"kind: Deployment\nmetadata: {{name: d}}\nspec: {{replicas: 10001, template: {template}}}\n"
        for body, problem in (
            (objects, "the request: has more than 10,000 documents"),
            (listed, "the request: changes 10,001 objects, more than 10,000"),
            ("---\n" * (1 << 20), "the request: has more than 10,000 documents"),
            (unlike, "the request: names 1,002 resources, more than 256"),
            (pods, "spec: would be pod number 10,000 and more"),
            ("kind: [", "the request: "),
            ("kind: Queeu\nmetadata: {name: q}", "did you mean 'Queue'"),
        ):
            refused = await http.post("/whatif", content=body, headers=YAML)
            assert refused.status_code == 400
            assert problem in refused.json()["detail"]


async def test_where_an_extender_has_a_say_the_last_session_is_explained() -> None:
    known = state(node("n"), queue("default"), pod_group("job"), pod("job-0", "job"))
    async with asking(Extended(known)) as http:
        job = (await http.get("/explain/job/default/job")).json()
        assert ("broken" in job["message"], job["remedies"]) == (True, [])
        change = "kind: Queue\nmetadata: {name: default}\nspec: {weight: 2}"
        problems = (await http.post("/whatif", content=change, headers=YAML)).json()["problems"]
        assert problems == ["the policy asks an HTTP extender, which is not asked here: jobs that need its answer wait"]


async def test_a_running_service_answers(cluster: Cluster, start: StartService) -> None:
    sessions = Successive(Engine(), Environment())
    service = await start(lambda _: sessions)
    cluster.create(
        f"{SCHEDULING}/queues",
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "small"}}
        | {"spec": {"weight": 1, "capability": {"cpu": "1"}}},
    )
    cluster.group("train", 2, queue="small")
    for number in range(2):
        cluster.pod(f"train-{number}", "train", cpu="1")
    async with asking(LiveCluster(service, sessions, Engine, lambda: None)) as http:
        known = service.state
        await until(lambda: "default/train-1" in known.pods.by_key and known.queues["small"].status.state == "Open")
        job = (await http.get("/explain/job/default/train")).json()
        assert (job["stage"], job["reason"]) == ("QueueShare", "NeverFits")
        assert {remedy["who"]: remedy["change"] for remedy in job["remedies"]} == {
            "user": "set minMember: 1 in PodGroup default/train",
            "admin": "raise capability of queue small to 2 cpu",
        }


def test_a_session_ends_where_nobody_waits_or_its_steps_are_used_up() -> None:
    def rehearsal(most: int | None = None) -> Rehearsal:
        made = [node("n"), queue("default"), *(pod_group(f"g{at}") for at in range(20))]
        known = state(*made, *(pod(f"p{at}", f"g{at}", cpu=f"{at + 1}m") for at in range(20)))
        return Rehearsal(Engine(), known, OFFLINE, NOON, most_steps=most)

    whole = rehearsal()
    assert len(whole.run(cycles=1).bound) == 20
    bounded = rehearsal(whole.steps // 2)
    with pytest.raises(TooManyStepsError, match=f"more than {whole.steps // 2:,} steps"):
        bounded.run()
    assert bounded.sessions == 0
    # Who leaves while a session runs ends it at its next step.
    left = rehearsal()
    counted = left.step

    def step(steps: int) -> None:
        counted(steps)
        left.abandon()

    left.step = step  # type: ignore[method-assign]
    with pytest.raises(AbandonedError):
        left.run()
    assert 0 < left.steps < whole.steps // 2
    # So it is in the session that follows one pod.
    with pytest.raises(AbandonedError):
        left.follow(PodTrace("default/p0"))
    with pytest.raises(TooManyStepsError):
        rehearsal(whole.steps // 2).follow(PodTrace("default/p0"))


def test_a_rehearsal_that_was_abandoned_runs_no_session() -> None:
    rehearsal = Offline(two_namespaces()).rehearsal()
    rehearsal.abandon()
    with pytest.raises(AbandonedError):
        rehearsal.run()
    assert rehearsal.sessions == 0
