"""What tenants learn of each other: nothing that is another's is in any text that a tenant may read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

import httpx
import pytest
from fastapi import FastAPI

from stromboli.api import objects
from stromboli.api.decisions import Decision, EmitEvent, SetPodGroupStatus, SetPodUnscheduled
from stromboli.api.reasons import Actionable, Passage, Reason, Stage
from stromboli.dashboard.history import History
from stromboli.dashboard.routes import dashboard_routes
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.explain.checkup import Finding
from stromboli.explain.past_runs import PastRuns
from stromboli.explain.rehearsal import Rehearsal
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.diagnosis.explain import pending_reasons
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.plugin.causes import Filters
from stromboli.framework.reasons import plugin_failed
from stromboli.framework.registry import Registry
from stromboli.framework.session.session import Session
from stromboli.http.api import api_routes
from stromboli.live.api_server.access import User
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord
from stromboli.state.refusals import Refusal
from tests.builders import NOON, node, pod, pod_group, policy, queue, state

#: each has its name in the names and labels of all that is its own, and its numbers are its own
TENANTS = ("alder", "birch", "cedar")
POLICY = DEFAULT_POLICY.replace("allocate, backfill", "allocate, preempt, reclaim, consolidation, backfill")


@dataclass(frozen=True)
class Job:
    """A PodGroup of a tenant with pods that are alike."""

    tenant: int
    number: int
    queue: str
    priority: int
    pods: int
    least: int
    cpu: int
    #: of its pods, how many run, and whether the API server refused to evict those that do
    running: int
    refused: bool

    @property
    def namespace(self) -> str:
        return TENANTS[self.tenant]

    @property
    def name(self) -> str:
        return f"{self.namespace}-{self.number}"


def some_jobs(seed: int) -> list[Job]:
    """Jobs of all tenants: those that run fill two nodes of 6 CPUs, as one pod has 1 or 2, and the others wait."""
    chance = Random(seed)

    def job(number: int, *, running: bool) -> Job:
        pods = chance.randint(2, 3)
        return Job(
            tenant=number % len(TENANTS),
            number=number,
            queue=chance.choice(["shared", "other"]),
            priority=0 if running else chance.randint(0, 2),
            pods=pods,
            least=chance.randint(1, pods),
            cpu=2 if running else chance.randint(2, 4),
            running=pods if running else 0,
            refused=running and chance.random() < 0.7,
        )

    return [job(number, running=number < 3) for number in range(chance.randint(5, 6))]


def built(found: list[Job]) -> ClusterState:
    """The cluster that has some jobs."""
    classes = [
        objects.PriorityClass(
            metadata=objects.Metadata(name=f"class-{tenant}-{level}"), value=70_013 + 1_000 * level + tenant
        )
        for tenant in range(len(TENANTS))
        for level in range(3)
    ]
    cluster = state(
        *classes, node("n1", cpu="6"), node("n2", cpu="6"), queue("shared"), queue("other", reclaimable=True)
    )
    for job in found:
        running = min(job.pods, job.running)
        of = f"class-{job.tenant}-{job.priority}"
        phase = "Running" if running >= job.least else ""
        spec = {"namespace": job.namespace, "queue": job.queue, "priorityClassName": of}
        cluster.upsert("PodGroup", pod_group(job.name, job.least, phase=phase, **spec))
        for at in range(job.pods):
            on = f"n{1 + (job.number + at) % 2}" if at < running else ""
            labels = {f"{job.namespace}-label": f"{job.namespace}-value"}
            more = {"namespace": job.namespace, "labels": labels, "priorityClassName": of}
            cluster.upsert("Pod", pod(f"{job.name}-{at}", job.name, cpu=str(job.cpu), memory="", node=on, **more))
            if on and job.refused:
                for other in found:
                    if other is not job:
                        why = f"the disruption budget {job.namespace}-budget needs {9_001 + job.tenant} healthy pods"
                        key = f"{job.namespace}/{job.name}"
                        cluster.refused[f"uid-{job.name}-{at}"] = Refusal(key, f"{other.namespace}/{other.name}", why)
    return cluster


def leaks(tenant: int, text: str) -> list[str]:
    """What of other tenants is in a text."""
    others = [at for at in range(len(TENANTS)) if at != tenant]
    marks = [TENANTS[at] for at in others] + [str(9_001 + at) for at in others]
    marks += [str(70_013 + 1_000 * level + at) for at in others for level in range(3)]
    # A time may have the same digits among others.
    return re.findall(rf"(?<![\d.])(?:{'|'.join(marks)})(?!\d)", text)


def told(decisions: list[Decision]) -> Iterator[tuple[str, str]]:
    """The namespace and the words of what is written on objects."""
    for each in decisions:
        match each:
            case SetPodGroupStatus():
                yield each.namespace, " ".join(condition.message for condition in each.status.conditions)
            case EmitEvent() | SetPodUnscheduled():
                yield each.namespace, each.message


class Service:
    """A service that has run a session."""

    engine = staticmethod(Engine)
    past = PastRuns()

    def __init__(self, known: ClusterState) -> None:
        self.history = History()
        self._known = known
        result = Engine(POLICY).decide(known.fork().snapshot(), now=NOON)
        self.decisions = result.decisions
        self._session = result.session
        self.history.session(result.session, NOON, 0.5)

    def absent(self, kind: str, key: str) -> str:
        return ""

    def served(self) -> list[str]:
        return ["stromboli"]

    def outside_sessions(self) -> list[Finding]:
        return []

    def unreadable(self, kind: str, key: str) -> str:
        return ""

    def last(self) -> Session:
        return self._session

    def rehearsal(self) -> Rehearsal:
        return Rehearsal(Engine(POLICY), self._known.fork(), OFFLINE, NOON)


class Rights:
    """A token is the namespace that its owner may read, or `admin`; all may read queues and nodes."""

    async def user(self, token: str) -> User | None:
        return User(token, "", (), ())

    async def may(self, user: User, verb: str, group: str, resource: str, namespace: str = "") -> bool:
        return user.name in ("admin", namespace) or resource in ("queues", "nodes")


@cache
def api(service: Service) -> FastAPI:
    app = FastAPI()
    app.include_router(api_routes(service, Rights()))
    app.include_router(dashboard_routes(service, Rights(), "stromboli-system"))
    return app


def asking(service: Service, who: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(api(service), client=("10.0.0.1", 4711))
    headers = {"Authorization": f"Bearer {who}", "Content-Type": "application/yaml"}
    return httpx.AsyncClient(transport=transport, base_url="https://stromboli/api/v1", headers=headers)


def paths(tenant: str, found: list[Job]) -> Iterator[str]:
    """All that a tenant may ask for, and what he may not without names in it that are his to guess."""
    for job in found:
        if job.namespace == tenant:
            yield from (
                f"/explain/job/{tenant}/{job.name}?remedies={str(job.number == 3).lower()}",
                f"/explain/pod/{tenant}/{job.name}-0?last=true",
                f"/explain/pod/{tenant}/{job.name}-0?remedies=false&history=true&node=n1",
            )
            yield from (
                f"/jobs/{tenant}/{job.name}",
                f"/jobs/{tenant}/{job.name}/pods",
                f"/nodes?job={tenant}/{job.name}",
            )
    yield from (f"/explain/queue/{name}" for name in ("shared", "other", "none"))
    yield from ("/overview", "/queues", "/queues/none", "/shares", "/sessions", "/nodes", "/policy", "/journal")
    yield from ("/jobs", "/pods", "/jobs?offset=-1", "/jobs?limit=x", f"/jobs?namespace={tenant}", "/jobs?queue=shared")
    yield from (f"/explain/job/{tenant}/none", f"/explain/pod/{tenant}/none", f"/jobs/{tenant}/none")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 5))])
def test_no_tenant_learns_of_another(seed: int) -> None:
    named = some_jobs(seed)
    service = Service(built(named))
    for namespace, words in told(list(service.decisions)):
        if namespace:
            assert leaks(TENANTS.index(namespace), words) == [], words

    async def ask_all() -> None:
        for at, tenant in enumerate(TENANTS):
            async with asking(service, tenant) as http:
                for path in paths(tenant, named):
                    text = (await http.get(path)).text
                    assert leaks(at, text) == [], (tenant, path, text)
                assert leaks(at, (await http.post("/whatif", content="kind: Pod")).text) == []
                # Whether something of another is there makes no difference.
                for other in TENANTS[:at] + TENANTS[at + 1 :]:
                    mine = [job for job in named if job.namespace == other]
                    for path in ("/explain/job/{}/{}", "/explain/pod/{}/{}-0", "/jobs/{}/{}", "/jobs/{}/{}/pods"):
                        answers = [
                            await http.get(path.format(other, name)) for name in (*(j.name for j in mine[:1]), "x")
                        ]
                        assert {(each.status_code, each.text) for each in answers} == {(403, answers[0].text)}
                    page = (await http.get(f"/jobs?name={other}")).json()
                    assert page.get("total", 0) == 0

    asyncio.run(ask_all())


def test_an_operator_is_told_the_names() -> None:
    waits = Job(0, 0, "shared", 2, 1, 1, 4, 0, refused=False)
    runs = Job(1, 1, "shared", 0, 3, 1, 4, 3, refused=True)
    service = Service(built([waits, runs]))

    async def details() -> list[str]:
        found = []
        for who in ("admin", TENANTS[0]):
            async with asking(service, who) as http:
                found.append((await http.get("/explain/job/alder/alder-0?remedies=false")).json()["detail"])
        return found

    full, redacted = asyncio.run(details())
    budget = "pods of PodGroup birch/birch-1 were not evicted for it: the disruption budget birch-budget needs 9002"
    assert budget in full
    assert redacted.endswith("pods of another namespace were not evicted for it")


def test_a_passage_is_for_readers_of_all_that_it_names() -> None:
    passages = [Passage(("a",), "1 of a/x", "some"), Passage(("a", "b"), "2 of a/x and b/y", "some")]
    passages.append(Passage(("",), "1 of (none)", "some"))
    bare = Reason(Stage.Preemption, "NoVictims", "none goes", Actionable.Wait, "0 nodes")
    of_a = bare.saying("a", passages)
    assert of_a.detail == "0 nodes; 1 of a/x"
    assert of_a.numbered == "none goes (0 nodes; 1 of a/x; some)"
    assert of_a.in_full.numbered == "none goes (0 nodes; 1 of a/x; 2 of a/x and b/y; 1 of (none))"
    assert passages[1].to(("a", "b")) == "2 of a/x and b/y"
    assert bare.saying("c", passages).numbered == "none goes (0 nodes; some)"


class Telling(Plugin):
    """telling: says in its errors what it saw of others."""

    name = "telling"

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        raise LookupError("birch/birch-1, of 9002, stands in the way")


def test_what_a_plugin_says_in_an_error_is_for_readers_of_everything() -> None:
    known = discover()
    registry = Registry(known.actions, {**known.plugins, "telling": Telling})
    engine = Engine(policy("gang telling"), registry=registry)
    result = engine.decide(state(node("n"), queue("default"), pod_group("g"), pod("p", "g")).snapshot(), now=NOON)
    words = " ".join(words for _, words in told(list(result.decisions)))
    words += " ".join(reason.told for reason in pending_reasons(result.session).values())
    assert "plugin telling failed: LookupError" in words
    assert not leaks(0, words)
    # A reader of everything is told by the failures, which the log has.
    assert "birch-1" in str(result.session.failures[0].error)
    failed = plugin_failed("telling", LookupError("birch-1"))
    assert "birch" not in failed.told
    assert "LookupError: birch-1" in failed.in_full.told
