"""What answers must not say unless it is so, and what they have to name: each sentence over variants."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.decisions import EmitEvent
from stromboli.api.objects import Metadata, PriorityClass
from stromboli.engine import Engine
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.remedies import explained
from stromboli.explain.words import lines
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, gang, node, pod, pod_group, policy, queue, racks, state
from tests.explain.asking import said, why
from tests.explain.test_surfaces import PORT, apart

HIGH, MIDDLE = (PriorityClass(metadata=Metadata(name=name), value=value) for name, value in (("high", 10), ("mid", 5)))
PREEMPTING = policy("priority gang conformance pdb", "predicates", actions="allocate, preempt")
CAPACITY = policy("priority gang", "predicates capacity", actions="enqueue, allocate")
ZONES = [node(f"n{i}", labels={"zone": f"z{i % 2}"}) for i in range(4)]


def in_zones(label: str) -> dict[str, Any]:
    """Away from pods with a label, by zone."""
    terms = apart(label)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{**each, "topologyKey": "zone"} for each in terms]
            }
        }
    }


def alone(nodes: list[Any], count: int, **pods: Any) -> ClusterState:
    """A gang that is alone in its cluster."""
    return state(nodes, queue("default"), pod_group("job", count), gang("job", count, **pods))


IN_VAIN = {
    "more pods with a host port than nodes": lambda: alone([node("n0"), node("n1")], 4, **PORT),
    "more pods than nodes that keep apart": lambda: alone(ZONES, 5, labels={"app": "x"}, **apart("x")),
    "more pods than zones that keep apart": lambda: alone(ZONES, 3, labels={"app": "x"}, **in_zones("x")),
    "minResources above the cluster": lambda: state(
        node("n"), queue("default"), pod_group("job", phase="Pending", minResources={"cpu": "9"}), pod("job-0", "job")
    ),
    "a gang above its rack": lambda: state(
        *(*racks(2, 3), queue("default")),
        pod_group("job", 7, networkTopology={"mode": "hard", "highestTierAllowed": 1}),
        gang("job", 7, cpu="1", memory=""),
    ),
    "guarantees of others": lambda: state(
        *(node("n", cpu="10"), queue("kept", guarantee={"resource": {"cpu": "10"}}), queue("poor")),
        *(pod_group("job", queue="poor"), pod("job-0", "job")),
    ),
    "most is guaranteed to others": lambda: state(
        *(node("n", cpu="10"), queue("kept", guarantee={"resource": {"cpu": "8"}}), queue("poor")),
        *(pod_group("job", queue="poor"), pod("job-0", "job", cpu="3")),
    ),
}


@pytest.mark.parametrize("situation", IN_VAIN)
def test_nobody_is_told_to_wait_in_vain(situation: str) -> None:
    found = why(IN_VAIN[situation](), "job default/job")
    assert found.reason
    assert found.who in ("user", "admin")
    assert "wait" not in {remedy.who for remedy in found.remedies}
    assert "resolve" not in "\n".join(lines(found))


@pytest.mark.parametrize("others", [1, 2, 3])
def test_it_is_told_to_resolve_where_it_does(others: int) -> None:
    runs = [
        (pod_group(f"run{i}", phase="Running"), pod(f"run{i}-0", f"run{i}", cpu="2", node="n")) for i in range(others)
    ]
    flat = [each for pair in runs for each in pair]
    found = why(
        state(node("n", cpu=str(2 * others)), queue("default"), flat, pod_group("job"), pod("job-0", "job")), JOB
    )
    assert (found.who, found.remedies[0].who) == ("wait", "wait")
    assert "no one; it resolves as others finish" in "\n".join(lines(found))


JOB = "job default/job"


def spread(skew: int, key: str = "kubernetes.io/hostname", **more: Any) -> dict[str, Any]:
    """Evenly over a topology."""
    selector = {"labelSelector": {"matchLabels": {"app": "x"}}, "whenUnsatisfiable": "DoNotSchedule"}
    constraint = {"maxSkew": skew, "topologyKey": key, **selector, **more}
    return {"labels": {"app": "x"}, "topologySpreadConstraints": [constraint]}


UNEVEN = [node("n0", cpu="1"), node("n1"), node("n2")]


@pytest.mark.parametrize(
    ("nodes", "pods", "fits"),
    [
        (UNEVEN, spread(1), 5),
        (UNEVEN, spread(2), 6),
        (UNEVEN, spread(1, minDomains=4), 3),
        ([*ZONES[:1], node("n9", cpu="0", labels={"zone": "z9"})], spread(2, "zone"), 2),
        ([node("n0"), node("n1")], PORT, 2),
        (ZONES, {"labels": {"app": "x"}, **apart("x")}, 4),
        (ZONES, {"labels": {"app": "x"}, **in_zones("x")}, 2),
    ],
    ids=["skew of 1", "skew of 2", "few domains", "a full zone", "ports", "nodes", "zones"],
)
def test_rooms_are_counted_for_the_gang(nodes: list[Any], pods: dict[str, Any], fits: int) -> None:
    found = why(alone(nodes, 6, **pods), JOB, policy("gang", "predicates"))
    assert found.placed + found.would_fit == fits


@pytest.mark.parametrize("cpu", ["2", "4", "8"])
def test_a_full_cluster_is_not_called_a_share(cpu: str) -> None:
    runs = [pod_group("runs", phase="Running"), pod("runs-0", "runs", cpu=cpu, node="n")]
    found = why(state(node("n", cpu=cpu), queue("default"), runs, pod_group("job"), pod("job-0", "job")), JOB)
    assert (found.stage, found.reason) == ("Placement", "ClusterFull")
    assert found.detail == f"cpu: the cluster has {cpu}, queue default holds {cpu}, 1 more requested"


def test_a_share_names_the_queues_that_hold_the_rest() -> None:
    cluster = state(
        *(node("n", cpu="8", memory="800Gi"), queue("ours"), queue("theirs"), queue("idle")),
        *(pod_group("mine", 4, "ours", phase="Running"), *gang("mine", 4, node="n", memory="")),
        *(
            pod_group("more", 4, "theirs", phase="Running"),
            *gang("more", 4, node="n", memory=""),
            pod("more-9", "more"),
        ),
        *(pod_group("job", queue="ours"), pod("job-0", "job", memory="")),
    )
    assert "of the rest, queue theirs holds 4 of 4 cpu" in said(cluster, JOB)


def running(in_queue: str = "default", least: int = 1, **spec: Any) -> list[Any]:
    """A job that holds all of node n."""
    labels = {"app": "web"}
    return [
        pod_group("runs", least, in_queue, phase="Running", **spec),
        *gang("runs", 4, node="n", labels=labels, memory=""),
    ]


def test_priorities_are_causes_with_names_and_numbers() -> None:
    waits = [pod_group("job", 2, priorityClassName="mid"), *gang("job", 2, memory="")]
    of_queue: list[Any] = [HIGH, MIDDLE, node("n", cpu="4"), queue("default"), queue("other")]
    higher = said(state(of_queue, running(priorityClassName="high"), waits), JOB, PREEMPTING)
    assert "no job has a lower priority than its 5: default/runs in queue default has 10 (4 pods)" in higher
    elsewhere = said(state(of_queue, running("other"), waits), JOB, PREEMPTING)
    assert (
        "jobs of lower priority are in other queues, from which only reclaim takes: default/runs in queue other"
        in elsewhere
    )


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@pytest.mark.parametrize(
    ("allowed", "told"),
    [
        (0, "PodDisruptionBudget default/web allows no disruption, and covers 4 of them"),
        (1, "PodDisruptionBudget default/web allows 1 disruption, and covers 3 more"),
        (4, ""),
    ],
)
def test_disruption_budgets_are_causes_with_names(allowed: int, told: str, action: str) -> None:
    waits = [pod_group("job", 2, priorityClassName="mid"), *gang("job", 2, memory="")]
    cluster = state(MIDDLE, node("n", cpu="4"), queue("default"), running(), waits)
    budget = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": allowed},
    }
    cluster.upsert("PodDisruptionBudget", budget)
    text = said(cluster, JOB, PREEMPTING.replace("preempt", action))
    assert told in text
    assert ("PodDisruptionBudget" in text) == bool(told)
    cluster.upsert("PodDisruptionBudget", budget | {"metadata": {"name": "second", "namespace": "default"}})
    several = "Kubernetes evicts no pod that several disruption budgets select, as they do 4 of them"
    assert several in said(cluster, JOB, PREEMPTING.replace("preempt", action))


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}


@pytest.mark.parametrize(
    ("phase", "status", "ready", "says"),
    [
        ("Pending", {"containerStatuses": [waiting("ImagePullBackOff", "no x")]}, "True", "image cannot be pulled ("),
        ("Pending", {"containerStatuses": [waiting("ErrImagePull")]}, "True", "container main: ErrImagePull"),
        ("Pending", {"containerStatuses": [waiting("CreateContainerConfigError")]}, "True", "a ConfigMap or Secret"),
        ("Running", {"containerStatuses": [waiting("CrashLoopBackOff")]}, "True", "container ends again and again"),
        (
            "Pending",
            {
                "initContainerStatuses": [{"name": "db", "state": {"running": {}}}],
                "containerStatuses": [waiting("PodInitializing")],
            },
            "True",
            "init container db runs, and the others start after it",
        ),
        ("Running", {}, "False", "node n1 is not ready (Ready is False)"),
        ("Pending", {}, "Unknown", "node n1 is not ready (Ready is Unknown)"),
        ("Pending", {"containerStatuses": [waiting("ContainerCreating")]}, "True", ""),
    ],
)
def test_what_is_bound_and_does_not_run_is_told(phase: str, status: dict[str, Any], ready: str, says: str) -> None:
    group = pod_group("job", phase="Running")
    bound = pod("job-0", "job", node="n1", phase=phase, status=status)
    cluster = state(node("n1", ready=ready), queue("default"), group, bound)
    of_pod, of_job = (said(cluster, f"{kind}") for kind in ("pod default/job-0", JOB))
    assert says in of_pod
    assert says in of_job
    assert ("not run as it should" in of_job) == bool(says)


def test_a_queue_under_capacity_does_not_contradict_itself() -> None:
    cluster = state(
        *(node("n"), queue("a"), pod_group("runs", queue="a", phase="Running"), gang("runs", 6, node="n", memory="")),
        *(pod_group("job", 2, "a"), gang("job", 4, memory="")),
    )
    text = said(cluster, "queue a", CAPACITY)
    assert "deserves nothing, so that its share counts as 1: all that it holds is borrowed from others" in text
    assert "nothing is placed in it" not in text
    assert "though its share is" not in text


CARDS = {"resources": {"nvidia.com/gpu": "4"}}
REMEDIES: dict[str, tuple[Any, list[str], list[str]]] = {
    "cordon": (
        lambda: alone([node("n", unschedulable=True)], 1),
        ["uncordon node n"],
        [],
    ),
    "resource misspelt": (
        lambda: alone([node("n", **CARDS)], 1, resources={"nvidia.com/gpus": "1"}),
        ["ask for nvidia.com/gpu instead of nvidia.com/gpus"],
        ["with 1 nvidia.com/gpus"],
    ),
    "label misspelt": (
        lambda: alone([node("n", labels={"disk": "hdd"})], 1, nodeSelector={"disk": "hddd"}),
        ["correct disk: hddd to hdd in nodeSelector"],
        ["label node"],
    ),
    "key of a label misspelt": (
        lambda: alone([node("n", labels={"disktype": "hdd"})], 1, nodeSelector={"disktyp": "hdd"}),
        ["correct disktyp: hdd to disktype: hdd in nodeSelector"],
        [],
    ),
    "taint of cards": (
        lambda: alone([node("n", taints=[{"key": "gpu", "effect": "NoSchedule"}], **CARDS)], 1),
        ["add 1 node like n"],
        ["tolerate"],
    ),
    "taint of a node that is not well": (
        lambda: alone([node("n", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])], 1),
        ["bring back node n"],
        ["tolerate"],
    ),
    "large gang": (
        lambda: alone([node("n", cpu="2")], 40),
        ["add 19 nodes like n"],
        ["minMember"],
    ),
}


@pytest.mark.parametrize("situation", REMEDIES)
def test_remedies_are_what_a_person_would_do(situation: str) -> None:
    made, helps, silly = REMEDIES[situation]
    told = [remedy.change for remedy in why(made(), JOB, policy("gang", "predicates")).remedies]
    assert [each for each in helps if not any(each in change for change in told)] == [], told
    assert [each for each in silly if any(each in change for change in told)] == [], told


def test_misspelt_names_are_told_by_events_with_what_was_meant() -> None:
    groups = [pod_group("lost", queue="reserch"), pod_group("low", priorityClassName="hgih")]
    cluster = state(
        HIGH, node("n"), queue("research"), queue("default"), groups, pod("lost-0", "lost"), pod("low-0", "low")
    )
    decided = Engine(DEFAULT_POLICY).decide(cluster.snapshot(), now=NOON).decisions
    told = {each.name: each.message for each in decided if isinstance(each, EmitEvent)}
    assert told["lost"] == "QueueNotFound: there is no queue reserch (did you mean research?). The job must be changed."
    assert told["low"] == ("spec.priorityClassName has no effect: there is no PriorityClass hgih, did you mean 'high'?")


def test_ahead_are_those_that_can_start() -> None:
    first, never, second = pod_group("first", 2), pod_group("never", 1, created=1), pod_group("job", created=2)
    runs = [pod_group("runs", phase="Running"), pod("runs-0", "runs", cpu="3", node="n")]
    cluster = state(
        *(node("n", cpu="4"), queue("default"), runs, first, gang("first", 2)),
        *(never, pod("never-0", "never", cpu="99"), second, pod("job-0", "job", cpu="4")),
    )
    assert [each.name for each in why(cluster, JOB, policy("gang", "predicates")).ahead] == ["first"]


def test_who_has_waited_long_gets_what_was_found_so_far() -> None:
    runs = [pod_group("runs", phase="Running"), pod("runs-0", "runs", cpu="4", node="n")]
    cluster = state(node("n", cpu="4"), queue("default"), runs, pod_group("job"), pod("job-0", "job"))
    rehearsal = Rehearsal(Engine(), cluster, OFFLINE, NOON, late=lambda: rehearsal.sessions > 2)
    found = explained(rehearsal.session(), "job", "default/job", rehearsal)
    assert found is not None
    assert (found.reason, found.tried, found.unfinished) == ("ClusterFull", True, True)
    assert rehearsal.sessions <= 5


def test_an_answer_on_a_large_cluster_says_that_not_all_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stromboli.explain.remedies.case.MOST_STEPS", 1)
    runs = [pod_group("runs", phase="Running"), pod("runs-0", "runs", cpu="4", node="n")]
    found = why(state(node("n", cpu="4"), queue("default"), runs, pod_group("job"), pod("job-0", "job")), JOB)
    assert (found.tried, found.unfinished, found.remedies) == (True, True, [])
    text = "\n".join(lines(found))
    assert "Others were not tried" in text
    assert "it may resolve as others finish" in text


@pytest.mark.exhaustive
def test_what_helps_is_found_for_one_job_among_many_that_wait() -> None:
    """Changes are tried without the others first: each of these sessions would take all of the bound by itself."""
    runs = [pod_group("runs", 40, phase="Running"), *gang("runs", 40, node="n", memory="")]
    many = [
        each
        for n in range(500)
        for each in (pod_group(f"w{n}", 10, created=1), *gang(f"w{n}", 10, memory="", cpu=f"{n % 9 + 1}"))
    ]
    job = [pod_group("job", 12), *gang("job", 12, memory="")]
    cluster = state(node("n", cpu="40", pods="500"), queue("default"), runs, many, job)
    engine, fork = Engine(policy("gang", "predicates")), cluster.fork()
    rehearsal = Rehearsal(engine, fork, OFFLINE, NOON)
    found = explained(rehearsal.session(), "job", "default/job", rehearsal)
    assert found is not None
    assert {remedy.who for remedy in found.remedies} >= {"wait", "admin"}
    assert rehearsal.sessions < 60


@pytest.mark.parametrize(("used", "told"), [("1", True), ("0", False)])
def test_a_quota_that_keeps_pods_from_being_made_is_named(used: str, told: bool) -> None:
    cluster = state(node("n"), queue("default"), pod_group("job", 2), pod("job-0", "job"))
    status = {"hard": {"pods": "4", "requests.cpu": "1500m"}, "used": {"pods": "1", "requests.cpu": used}}
    cluster.upsert("ResourceQuota", {"metadata": {"name": "team", "namespace": "default"}, "status": status})
    cluster.upsert("ResourceQuota", {"metadata": {"name": "theirs", "namespace": "other"}, "status": status})
    ended = {"metadata": {"name": "ended", "namespace": "default"}, "spec": {"scopes": ["Terminating"]}}
    cluster.upsert("ResourceQuota", {**ended, "status": status})
    found = why(cluster, JOB, policy("gang", "predicates"))
    assert found.reason == "NotEnoughPods"
    words = "ResourceQuota team would be exceeded by one more (requests.cpu: 1 of 1.5 used, 1 more requested)"
    assert (f"{words}, so none is made" in found.detail) is told
    assert "theirs" not in found.detail
    assert "ended" not in found.detail
