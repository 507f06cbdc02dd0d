"""All surfaces tell the same of a situation: conditions, Events, answers, `simulate --explain`, lists and the page."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import httpx
import msgspec
import pytest

from stromboli.api.crds import KubeModel, PodGroup, Queue
from stromboli.api.decisions import Decision, EmitEvent, SetPodGroupStatus, SetPodUnscheduled, SetQueueStatus
from stromboli.api.objects import Metadata, Pod, PriorityClass
from stromboli.api.reasons import Actionable, next_step
from stromboli.dashboard import routes
from stromboli.dashboard.history import History
from stromboli.engine import Engine
from stromboli.explain.answers import Answer, Eviction
from stromboli.explain.words import lines, who
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.simulation import summary
from stromboli.simulation.outcome import explanation
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import GROUP_ANNOTATION
from stromboli.state.refusals import Refusal
from tests.builders import NOON, gang, node, pod, pod_group, policy, queue, racks, state
from tests.explain import asking
from tests.ui.cluster import Ran, page

TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}
EVICTING = policy("priority gang conformance", "predicates", actions="allocate, preempt")
RECLAIMING = policy("gang conformance", "predicates proportion", actions="allocate, reclaim")
SHARING = policy("gang", "predicates proportion")
TREE = policy("gang", "predicates capacity").replace("- name: capacity", "- name: capacity\n    enableHierarchy: true")
HIGH = PriorityClass(metadata=Metadata(name="high"), value=10)
PORT = {"containers": [{"name": "main", "image": "x", "ports": [{"hostPort": 80, "containerPort": 80}]}]}
STAYS = {"volcano.sh/preemptable": "false"}
QUOTA = {
    "kind": "ResourceQuota",
    "metadata": {"name": "small", "namespace": "default"},
    "status": {"hard": {"cpu": "4"}, "used": {"cpu": "2"}},
}


def apart(label: str) -> dict[str, Any]:
    """Away from pods with a label."""
    term = {"labelSelector": {"matchLabels": {"app": label}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def together(label: str) -> dict[str, Any]:
    """Beside pods with a label."""
    affinity = apart(label)["affinity"]
    return {"affinity": {"podAffinity": affinity["podAntiAffinity"]}}


def named(name: str, **annotations: str) -> Queue:
    """A queue with annotations that begin with stromboli.io."""
    said = {f"stromboli.io/{key}": value for key, value in annotations.items()}
    return Queue.parse({"metadata": {"name": name, "annotations": said}, "spec": {}, "status": {"state": "Open"}})


def waits(count: int = 1, in_queue: str = "default", spec: dict[str, Any] | None = None, **pods: Any) -> list[Any]:
    """The job that waits, default/job."""
    return [pod_group("job", count, in_queue, **spec or {}), *gang("job", count, **pods)]


def runs(count: int, in_queue: str = "default", least: int | None = None, **pods: Any) -> list[Any]:
    """A job that holds places on node n."""
    group = pod_group("runs", count if least is None else least, in_queue, phase="Running")
    return [group, *gang("runs", count, memory="", node="n", **pods)]


def one(*objs: Any) -> ClusterState:
    """Node n with 8 CPUs, queue default, and more."""
    return state(HIGH, node("n"), queue("default"), *objs)


def with_quota() -> ClusterState:
    cluster = one(*waits(3, spec={"phase": "Pending", "minResources": {"cpu": "3"}}))
    cluster.upsert("ResourceQuota", QUOTA)
    return cluster


def refused() -> ClusterState:
    cluster = one(*runs(2, least=0, cpu="4"), *waits(cpu="4", spec={"priorityClassName": "high"}))
    for number in range(2):
        cluster.refused[f"uid-runs-{number}"] = Refusal("default/runs", "default/job", "the budget needs both")
    return cluster


def overcommitted() -> ClusterState:
    more = {"minResources": {"cpu": "8"}}
    first = pod("first-0", "first", cpu="8", scheduling_gates=None)
    return state(
        *(node("n"), queue("default"), queue("b"), pod_group("first", queue="b", **more), first),
        *waits(cpu="8", spec={"phase": "Pending", **more}),
    )


@dataclass(frozen=True)
class Situation:
    """A cluster in which default/job waits, and what is to be told of it."""

    cluster: Callable[[], ClusterState]
    reason: str
    who: str
    policy: str = DEFAULT_POLICY
    #: the reason for each action that evicts
    evictions: tuple[tuple[str, str], ...] = ()
    #: a number, or a name with one, that all have to tell
    number: str = ""


def placing(action: str) -> str:
    return policy("gang", "predicates proportion", actions=action)


SITUATIONS = {
    "queue missing": Situation(lambda: one(*waits(in_queue="gone")), "QueueNotFound", "user"),
    "queue closed": Situation(
        lambda: state(node("n"), queue("default", state="Closed"), *waits()), "QueueNotOpen", "admin"
    ),
    "queue of other namespaces": Situation(
        lambda: state(node("n"), named("default", namespaces="other"), *waits()),
        *("NamespaceNotAllowed", "user"),
    ),
    "queue outside the tree": Situation(
        lambda: state(node("n"), queue("root"), queue("default", parent="gone"), *waits()),
        *("QueueMisconfigured", "admin", TREE),
    ),
    "scheduling gate": Situation(
        lambda: one(*waits(schedulingGates=[{"name": "example.com/wait"}])), "SchedulingGated", "user"
    ),
    "gang incomplete": Situation(lambda: one(pod_group("job", 4), *gang("job", 3)), "NotEnoughPods", "user"),
    "ResourceQuota": Situation(
        with_quota, "ResourceQuotaExceeded", "admin", policy("gang resourcequota", "predicates", actions="enqueue")
    ),
    "enqueue gate": Situation(
        overcommitted, "ClusterOvercommitted", "wait", policy("gang overcommit", "predicates", actions="enqueue")
    ),
    "limit of the queue": Situation(
        lambda: state(
            *(node("n"), queue("default", capability={"cpu": "4"}), *runs(3)),
            *waits(cpu="2", spec={"phase": "Pending", "minResources": {"cpu": "2"}}),
        ),
        *("QueueShareExceeded", "wait", placing("enqueue, allocate")),
        number="cpu: holds 3, may have 4, 2 more requested",
    ),
    "share": Situation(
        lambda: state(
            *(node("n"), queue("default"), queue("b"), *runs(4, cpu="1")),
            *(pod_group("other", 4, "b"), *gang("other", 4, cpu="1", memory="")),
            *waits(memory=""),
        ),
        *("QueueShareExceeded", "wait", SHARING),
    ),
    "strict order": Situation(
        lambda: state(
            *(node("n"), queue("default", dequeueStrategy="fifo")),
            *(*runs(4), pod_group("first", 5), *gang("first", 5), *waits(spec={"created": 9})),
        ),
        *("BehindInQueue", "wait", policy("gang", "predicates")),
    ),
    "no nodes": Situation(lambda: state(queue("default"), *waits()), "NoNodes", "admin"),
    "no allocate": Situation(lambda: one(*waits()), "NoAction", "admin", placing("enqueue")),
    "taint": Situation(
        lambda: state(node("n", taints=[TAINT]), queue("default"), *waits()), "NoMatchingNode", "user", number="1"
    ),
    "node affinity": Situation(lambda: one(*waits(nodeSelector={"zone": "a"})), "NoMatchingNode", "user"),
    "host port": Situation(lambda: one(*runs(1, **PORT), *waits(**PORT)), "NoMatchingNode", "wait"),
    "anti-affinity": Situation(
        lambda: one(*runs(1, labels={"app": "x"}), *waits(**apart("x"))), "NoMatchingNode", "wait"
    ),
    "affinity to a pod where it cannot be": Situation(
        lambda: one(
            node("m", labels={"disk": "ssd"}),
            *runs(1, labels={"app": "x"}),
            *waits(labels={"app": "x"}, nodeSelector={"disk": "ssd"}, **together("x")),
        ),
        *("NoMatchingNode", "wait"),
        number="it joins pods such as default/runs-0 on n; when these are gone it may go elsewhere",
    ),
    "affinity to no pod": Situation(
        lambda: one(*runs(1, labels={"app": "x"}), *waits(labels={"app": "x"}, **together("y"))),
        *("NoMatchingNode", "user"),
    ),
    "claim missing": Situation(
        lambda: one(*waits(resourceClaims=[{"name": "cards", "resourceClaimName": "cards"}])),
        *("NoMatchingNode", "user"),
    ),
    "volume missing": Situation(
        lambda: one(*waits(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])),
        *("NoMatchingNode", "user"),
    ),
    "too large": Situation(lambda: one(*waits(cpu="9")), "NeverFits", "user", policy("gang", "predicates")),
    "no room": Situation(
        lambda: state(node("n"), node("gpu", taints=[TAINT]), queue("default"), *runs(5), *waits(2, cpu="4")),
        *("Unschedulable", "wait", policy("gang", "predicates")),
    ),
    "topology": Situation(
        lambda: state(
            *racks(2, 2),
            queue("default"),
            *waits(4, cpu="2", spec={"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}),
        ),
        *("NoHyperNodeFits", "user", policy("gang", "predicates network-topology-aware proportion")),
    ),
    "terminating pod": Situation(
        lambda: one(pod("old", cpu="8", node="n", deleted=True), *waits(cpu="4")),
        *("WaitingForRelease", "wait", policy("gang", "predicates")),
    ),
    "victims forbid it": Situation(
        lambda: one(
            *runs(2, cpu="4", annotations=STAYS),
            *waits(cpu="4", spec={"priorityClassName": "high"}),
        ),
        *("Unschedulable", "wait", EVICTING, (("preempt", "NoVictims"),)),
    ),
    "victims of the same priority": Situation(
        lambda: one(*runs(2, cpu="4"), *waits(cpu="4")),
        *("Unschedulable", "wait", EVICTING, (("preempt", "NoVictims"),)),
        number="of 2 that run",
    ),
    "victims elsewhere": Situation(
        lambda: state(
            *(HIGH, node("n"), node("m", cpu="4"), queue("default"), *runs(2, least=0, cpu="4")),
            *(pod_group("stays", 1, phase="Running"), pod("stays-0", "stays", cpu="4", node="m", annotations=STAYS)),
            *waits(cpu="4", nodeSelector={"kubernetes.io/hostname": "m"}, spec={"priorityClassName": "high"}),
        ),
        *("Unschedulable", "wait", EVICTING, (("preempt", "NoVictims"),)),
    ),
    "shares of other queues": Situation(
        lambda: state(
            *(node("n"), queue("default"), queue("b"), *runs(4, "b")),
            *(pod_group("mine", 4, phase="Running"), *gang("mine", 4, memory="", node="n"), *waits()),
        ),
        *("QueueShareExceeded", "wait", RECLAIMING, (("reclaim", "MayNotReclaim"),)),
    ),
    "budget": Situation(
        refused,
        *("Unschedulable", "wait", EVICTING, (("preempt", "EvictionRefused"),)),
    ),
    "too few victims": Situation(
        lambda: one(
            *runs(1, least=0, cpu="4"),
            *(pod_group("stays", 1, phase="Running"), pod("stays-0", "stays", cpu="4", node="n", annotations=STAYS)),
            *waits(2, cpu="4", spec={"priorityClassName": "high"}),
        ),
        *("Unschedulable", "wait", EVICTING, (("preempt", "VictimsDoNotSuffice"),)),
        number="1 of 2 pods fit",
    ),
    "preemptionPolicy": Situation(
        lambda: one(
            *runs(2, least=0, cpu="4"),
            *waits(cpu="4", preemptionPolicy="Never", spec={"priorityClassName": "high"}),
        ),
        *("Unschedulable", "wait", EVICTING, (("preempt", "NeverPreempts"),)),
    ),
    "ignored fields": Situation(
        lambda: state(
            *(node("n"), queue("default", deserved={"cpu": "1"}, reclaimable=False)),
            *waits(cpu="9", spec={"networkTopology": {"mode": "soft"}}),
        ),
        *("NeverFits", "user"),
    ),
    "priority class missing": Situation(
        lambda: one(*runs(8), *waits(spec={"priorityClassName": "gone"})),
        "ClusterFull",
        "wait",
        placing("allocate"),
    ),
}


class Asked(Ran):
    """A service of which the cluster is another one for each situation."""

    def __post_init__(self) -> None:
        pass

    def show(self, situation: Situation) -> list[Decision]:
        """Have the session run, and return what it decided."""
        self.known, self.history = situation.cluster(), History()
        result = Engine(situation.policy).decide(self.known.snapshot(), now=NOON)
        self.session = result.session
        self.history.session(result.session, NOON, 0.004)
        return list(result.decisions)


@pytest.fixture(scope="module")
def service() -> Asked:
    return Asked(state())


@pytest.fixture(scope="module")
def pages(service: Asked) -> Iterator[httpx.Client]:
    with pytest.MonkeyPatch.context() as patch, page(service) as address, httpx.Client(base_url=address) as client:
        # A page shows a session for as long as its report was dear, also when another one has run.
        patch.setattr(routes, "_THRIFT", 0.0)
        yield client


@pytest.fixture
def api(service: Asked) -> Callable[[str], Any]:
    transport = httpx.ASGITransport(service.app(), client=("127.0.0.1", 4711))

    def get(path: str) -> Any:
        async def ask() -> Any:
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1") as http:
                return (await http.get(path)).raise_for_status().json()

        return asyncio.run(ask())

    return get


def texts(*answers: Answer) -> str:
    return "\n".join(line for answer in answers for line in lines(answer))


def shown(page_text: str) -> str:
    """What a page says, without its tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page_text)))


def numbered(said: Answer | Eviction) -> str:
    return f"{said.message} ({said.detail})" if said.detail else said.message


@pytest.mark.one_in(19)
@pytest.mark.parametrize("name", SITUATIONS)
def test_all_surfaces_tell_the_same(name: str, service: Asked, pages: httpx.Client, api: Callable[[str], Any]) -> None:
    situation = SITUATIONS[name]
    decisions = service.show(situation)
    assert service.session is not None
    explained = explanation(service.session)
    paragraphs = "\n".join([*summary.explanations(service.session), *summary.told_warnings(service.session)])
    job, one_pod = (
        msgspec.convert(api(f"/explain/{kind}?last=true&remedies=false"), Answer)
        for kind in ("job/default/job", "pod/default/job-0")
    )
    web = shown(pages.get("/jobs/default/job").raise_for_status().text)

    # The job: cause, number and who.
    assert (job.reason, job.who) == (situation.reason, situation.who), texts(job)
    sentence = next_step(job.reason, Actionable(job.who))
    row = api("/jobs/default/job")
    assert (row["stage"], row["reason"], row["who"], row["message"]) == (
        job.stage,
        job.reason,
        job.who,
        numbered(job),
    )
    conditions = {
        c.type: c
        for each in decisions
        if isinstance(each, SetPodGroupStatus) and each.name == "job"
        for c in each.status.conditions
        if c.status == "True"
    }
    told = conditions["Unschedulable"]
    assert told.reason == job.reason
    assert told.message.startswith(f"{job.reason}: ")
    assert job.message.partition(":")[0] in told.message
    assert job.detail in told.message
    assert told.message.endswith(sentence)
    events = [each.message for each in decisions if isinstance(each, EmitEvent) and each.name == "job"]
    assert events == [told.message, *(c.message for kind, c in conditions.items() if kind == "FieldIgnored")]
    assert f"Waits at {job.stage}: {job.reason} {job.message}" in web
    assert f"{job.detail} Who can change it: {who(job.who, job.reason)}" in web

    # The pod: the same as its own condition, and as `simulate --explain` in both forms.
    said = explained["pods"]["default/job-0"]
    assert (said["reason"], said["message"], said["actionable"]) == (one_pod.reason, one_pod.message, one_pod.who)
    assert said.get("detail", "") == one_pod.detail
    condition = [each.message for each in decisions if isinstance(each, SetPodUnscheduled) and each.name == "job-0"]
    if job.reason != "SchedulingGated":
        assert len(condition) == 1
        assert f"{said['stage']}: {condition[0]}" in paragraphs
        assert condition[0].startswith(f"{one_pod.reason}: ")
    assert f"{said['stage']}: {one_pod.reason}: " in paragraphs
    for cause, number in said.get("nodes", {}).items():
        assert [each.nodes for each in one_pod.nodes if each.cause.startswith(cause)] == [number], one_pod.nodes
        assert f"{number} {cause}" in condition[0]

    # Why nothing is evicted.
    evicting = explained.get("preemption", {}).get("default/job", {})
    if situation.evictions:
        assert [(action, each["reason"]) for action, each in evicting.items()] == list(situation.evictions)
    assert job.evictions == one_pod.evictions
    assert {each.action: (each.reason, numbered(each), each.who) for each in job.evictions} == {
        action: (
            each["reason"],
            f"{each['message']} ({each['detail']})" if "detail" in each else each["message"],
            each["actionable"],
        )
        for action, each in evicting.items()
    }
    for each in job.evictions:
        assert f"{each.action}: Preemption: {each.reason}: {numbered(each)}. {Actionable(each.who).told}" in paragraphs
        assert f"{each.action}: {each.reason}: {numbered(each)}" in texts(job)
        assert f"{each.action}: {each.reason} : {numbered(each)}" in web

    # What is ignored.
    ignored = "; ".join(f"spec.{field} {why}" for field, why in job.ignored.items())
    assert getattr(conditions.get("FieldIgnored"), "message", "") == ignored
    assert explained.get("warnings", {}).get("PodGroup default/job", {}).get("FieldIgnored", "") == ignored
    assert ignored in paragraphs
    assert all(f"spec.{field} {why}" in texts(job) for field, why in job.ignored.items())
    assert all(f"spec.{field} {why}" in web for field, why in job.ignored.items())
    if situation.reason != "QueueNotFound":
        of_queue = api("/explain/queue/default?last=true")
        ignored = "; ".join(f"spec.{field} {why}" for field, why in of_queue["ignored"].items())
        said = {
            c.type: c.message
            for each in decisions
            if isinstance(each, SetQueueStatus) and each.name == "default"
            for c in each.conditions or ()
            if c.status == "True"
        }
        assert said.get("FieldIgnored", "") == ignored
        assert explained.get("warnings", {}).get("Queue default", {}).get("FieldIgnored", "") == ignored
        queue_page = shown(pages.get("/queues/default").raise_for_status().text)
        assert all(f"spec.{field} {why}" in queue_page for field, why in of_queue["ignored"].items())
        assert of_queue["overused"] == api("/queues/default")["overused"] == ("Overused" in said)
        assert of_queue["waiting"] == {job.reason: 1} or len(of_queue["waiting"]) > 1

    everywhere = [texts(job, one_pod), web, json.dumps(explained), paragraphs]
    assert [text for text in everywhere if situation.number not in text] == []


def of_workload(obj: Any) -> Any:
    """An object as it is where a PodGroup was made for a Job, and has a name that tells people nothing."""
    if isinstance(obj, list):
        return [of_workload(each) for each in obj]
    if isinstance(obj, PodGroup):
        name = obj.metadata.name
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid_of(name), "controller": True}
        meta = obj.metadata.model_copy(update={"name": f"podgroup-{uid_of(name)}", "owner_references": [owner]})
        return obj.model_copy(update={"metadata": meta})
    if isinstance(obj, Pod) and (group := (obj.metadata.annotations or {}).get(GROUP_ANNOTATION)):
        annotations = {**(obj.metadata.annotations or {}), GROUP_ANNOTATION: f"podgroup-{uid_of(group)}"}
        return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations=annotations))
    return obj


def uid_of(name: str) -> str:
    return str(uuid5(NAMESPACE_URL, name))


def values(told: Any) -> Iterator[str]:
    """The texts in an answer, without the keys under which they are."""
    if isinstance(told, dict | list | tuple):
        for each in told.values() if isinstance(told, dict) else told:
            yield from values(each)
    elif isinstance(told, str):
        yield told


@pytest.mark.one_in(13)
@pytest.mark.parametrize("name", SITUATIONS)
def test_jobs_are_called_by_their_workloads_everywhere(
    name: str, service: Asked, pages: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = state
    monkeypatch.setitem(globals(), "state", lambda *objs: build(*map(of_workload, objs)))
    decisions = service.show(SITUATIONS[name])
    session = service.session
    assert session is not None
    told = [text for each in decisions for text in values(msgspec.to_builtins(each, enc_hook=KubeModel.model_dump))]
    told += [*summary.told_warnings(session), *values(explanation(session))]
    key = f"default/podgroup-{uid_of('job')}"
    # Its title has the name of the PodGroup, too, by which kubectl finds it.
    title, *said = asking.said(service.known, f"job {key}", SITUATIONS[name].policy).splitlines()
    assert title.startswith("Job default/job (PodGroup podgroup-")
    told += [*said, *asking.said(service.known, "pod default/job-0", SITUATIONS[name].policy).splitlines()]
    web = shown(pages.get(f"/jobs/{key}").raise_for_status().text).replace(f"PodGroup {key}", "")
    told += [web, shown(pages.get("/jobs").raise_for_status().text)]
    assert [found for text in told for found in re.findall(r".{0,40}/podgroup-[0-9a-f]{8}.{0,60}", text)] == []
