"""Devices that evicted pods give back: for whom, when, and that no other pod goes meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api import objects
from stromboli.api.decisions import Bind, Evict
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.framework.cluster.environment import Environment
from stromboli.framework.diagnosis.explain import all_reasons
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.eviction.test_in_the_way import BOTH, CLASSES, GROUPS, claims, of
from tests.kube import test_dra as dra


def cluster(*objs: Any, gpus: int = 1) -> ClusterState:
    """A node with so many devices."""
    made = state(CLASSES, queue("default"), node("n0"), *GROUPS)
    devices = [dra.device(f"gpu-{number}") for number in range(gpus)]
    for each in (dra.device_class(), dra.resource_slice("n0", *devices), *objs):
        made.upsert(each["kind"] if isinstance(each, dict) else type(each).__name__, each)
    return made


def held(name: str, *users: str, gpu: str = "gpu-0", **more: Any) -> dict[str, Any]:
    """A claim that holds a device for some pods."""
    reserved = [{"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in users]
    return dra.claim(name, status=dra.allocation("n0", gpu) | {"reservedFor": reserved}, **more)


def engine(action: str) -> Engine:
    return Engine(DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}, backfill"))


def gone(result: SessionResult) -> list[str]:
    return sorted(each.name for each in result.decisions if isinstance(each, Evict))


def bound(result: SessionResult) -> list[str]:
    return sorted(each.name for each in result.decisions if isinstance(each, Bind))


@BOTH
@pytest.mark.parametrize("other", [False, True])
def test_the_pod_gets_the_device_when_the_claim_is_gone_and_no_other_pod_goes(action: str, other: bool) -> None:
    """The claim of the victim outlives it for a while; an equal pod holds another device."""
    low = [of("low", "v", "n0", **claims("a")), held("a", "v")]
    low += [of("low", "w", "n0", **claims("c")), held("c", "w", gpu="gpu-1")] if other else []
    live = cluster(*low, of("high", "p", **claims("b")), dra.claim("b"), gpus=2 if other else 1)
    sessions = Successive(engine(action), Environment())
    victims = gone(first := sessions.decide(live.snapshot(), now=NOON))
    assert len(victims) == 1
    assert bound(first) == []
    victim, claim = victims[0], "a" if victims[0] == "v" else "c"
    later = [
        lambda: live.upsert("Pod", of("low", victim, "n0", deleted=True, **claims(claim))),
        lambda: live.delete("Pod", f"default/{victim}"),
        lambda: None,
    ]
    for number, change in enumerate(later):
        change()
        result = sessions.decide(live.snapshot(), now=NOON + 1 + number)
        assert (gone(result), bound(result)) == ([], [])
        assert all_reasons(result.session)["default/p"].reason == "WaitingForRelease"
    live.delete("ResourceClaim", f"default/{claim}")
    assert bound(sessions.decide(live.snapshot(), now=NOON + 9)) == ["p"]


@BOTH
def test_a_gang_that_shares_a_claim_keeps_its_places_until_the_device_is_free(action: str) -> None:
    low = [of("low", "v", "n0", **claims("a")), held("a", "v")]
    live = cluster(*low, *(of("high", name, **claims("b")) for name in ("p", "q")), dra.claim("b"))
    live.upsert("PodGroup", pod_group("high", 2, priorityClassName="high"))
    sessions = Successive(engine(action), Environment())
    assert gone(sessions.decide(live.snapshot(), now=NOON)) == ["v"]
    live.upsert("Pod", of("low", "v", "n0", deleted=True, **claims("a")))
    for number in range(2):
        result = sessions.decide(live.snapshot(), now=NOON + 1 + number)
        assert (gone(result), bound(result)) == ([], [])
        assert {each.reason for each in all_reasons(result.session).values()} == {"WaitingForRelease"}
        live.delete("Pod", "default/v")
    live.delete("ResourceClaim", "default/a")
    assert bound(sessions.decide(live.snapshot(), now=NOON + 9)) == ["p", "q"]


@BOTH
@pytest.mark.parametrize("phase", ["", "Inqueue"])
def test_a_more_important_pod_takes_over_the_device_and_no_other_pod_goes(action: str, phase: str) -> None:
    """A pod that only the more important one might evict holds another device. The claim outlives the victim."""
    low = [of("low", "v", "n0", **claims("a")), held("a", "v")]
    equal = [of("high", "w", "n0", **claims("c")), held("c", "w", gpu="gpu-1")]
    live = cluster(*low, *equal, of("high", "p", **claims("b")), dra.claim("b"), gpus=2)
    live.upsert("PodGroup", pod_group("high", 2, priorityClassName="high"))
    sessions = Successive(engine(action), Environment())
    assert gone(sessions.decide(live.snapshot(), now=NOON)) == ["v"]
    live.upsert("PriorityClass", objects.PriorityClass(metadata=objects.Metadata(name="top"), value=5_000))
    top = pod_group("top", 1, priorityClassName="top", phase=phase)
    for each in (top, pod("q", "top", cpu="100m", memory="", priority=5_000, **claims("d"))):
        live.upsert(type(each).__name__, each)
    live.upsert("ResourceClaim", dra.claim("d"))
    later = [
        lambda: live.upsert("Pod", of("low", "v", "n0", deleted=True, **claims("a"))),
        lambda: live.upsert("PodGroup", pod_group("top", 1, priorityClassName="top")),
        lambda: live.delete("Pod", "default/v"),
        lambda: None,
    ]
    for number, change in enumerate(later):
        change()
        result = sessions.decide(live.snapshot(), now=NOON + 1 + number)
        assert (gone(result), bound(result)) == ([], [])
    assert all_reasons(result.session)["default/q"].reason == "WaitingForRelease"
    live.delete("ResourceClaim", "default/a")
    assert bound(sessions.decide(live.snapshot(), now=NOON + 9)) == ["q"]


@BOTH
def test_pods_that_share_a_claim_go_together(action: str) -> None:
    low = [of("low", name, "n0", **claims("a")) for name in ("v", "w")]
    live = cluster(*low, held("a", "v", "w"), of("high", "p", **claims("b")), dra.claim("b"))
    result = engine(action).decide(live.snapshot(), now=NOON)
    assert gone(result) == ["v", "w"]


@BOTH
@pytest.mark.parametrize("user", ["v", "w"])
def test_only_the_pod_that_holds_the_device_goes(action: str, user: str) -> None:
    """Its gang can spare one pod, and would else give up the last."""
    low = [of("low", name, "n0", **(claims("a") if name == user else {})) for name in ("v", "w")]
    live = cluster(*low, held("a", user), of("high", "p", **claims("b")), dra.claim("b"))
    assert gone(engine(action).decide(live.snapshot(), now=NOON)) == [user]


@BOTH
def test_no_pod_goes_for_a_device_that_one_who_stays_shares(action: str) -> None:
    live = cluster(
        of("low", "v", "n0", **claims("a")),
        of("high", "stays", "n0", **claims("a")),
        held("a", "v", "stays"),
        of("high", "p", **claims("b")),
        dra.claim("b"),
    )
    assert gone(engine(action).decide(live.snapshot(), now=NOON)) == []


@BOTH
def test_no_pod_goes_for_devices_that_do_not_exist(action: str) -> None:
    wanted = dra.claim("b", dra.request("r", count=2))
    live = cluster(of("low", "v", "n0", **claims("a")), held("a", "v"), of("high", "p", **claims("b")), wanted)
    result = engine(action).decide(live.snapshot(), now=NOON)
    assert gone(result) == []
    why = all_reasons(result.session)["default/p"]
    assert (why.message, why.actionable) == ("no node takes the pod: cannot allocate all claims", "admin")


def test_who_waits_for_a_device_that_others_hold_is_told_that_it_resolves() -> None:
    live = cluster(of("high", "v", "n0", **claims("a")), held("a", "v"), of("high", "p", **claims("b")), dra.claim("b"))
    why = all_reasons(engine("preempt").decide(live.snapshot(), now=NOON).session)["default/p"]
    assert (why.message, why.actionable) == ("no node takes the pod: cannot allocate all claims", "wait")


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_a_queue_takes_devices_back(action: str) -> None:
    low = pod("v", "low", cpu="7", node="n0", **claims("a"))
    live = cluster(low, held("a", "v"), dra.claim("b"))
    for each in (queue("rich", deserved={"cpu": "1"}), queue("poor", deserved={"cpu": "7"})):
        live.upsert("Queue", each)
    live.upsert("PodGroup", pod_group("low", 1, "rich", "Running"))
    live.upsert("PodGroup", pod_group("high", 1, "poor"))
    live.upsert("Pod", pod("p", "high", cpu="1", **claims("b")))
    by = DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}, backfill").replace("proportion", "capacity")
    assert gone(Engine(by).decide(live.snapshot(), now=NOON)) == ["v"]


#: a slice whose devices both nodes reach
REACHED = pytest.mark.parametrize(
    "where",
    [
        {"allNodes": True},
        {
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n0", "n1"]}]}
                ]
            }
        },
    ],
    ids=["all nodes", "some nodes"],
)


def reached(where: Any, *objs: Any) -> ClusterState:
    """Two nodes that reach one device, and a pod on n0 that holds it."""
    made = cluster(node("n1"), dra.resource_slice("far", dra.device("gpu-0"), **where), *objs, gpus=0)
    status = dra.allocation("far", "gpu-0") | {"reservedFor": [{"resource": "pods", "name": "v", "uid": "uid-v"}]}
    status["allocation"]["nodeSelector"] = where.get("nodeSelector")
    made.upsert("ResourceClaim", dra.claim("a", status=status))
    made.upsert("Pod", of("low", "v", "n0", **claims("a")))
    return made


@BOTH
@REACHED
def test_a_device_that_several_nodes_reach_is_given_back_on_the_node_of_the_pod(where: Any, action: str) -> None:
    """A second pod that wants it, too, waits, and no other pod goes for it."""
    second = [
        pod_group("second", 1, priorityClassName="high"),
        pod("q", "second", cpu="1", priority=100, **claims("c")),
    ]
    live = reached(where, of("high", "p", **claims("b")), dra.claim("b"), dra.claim("c"), *second)
    sessions = Successive(engine(action), Environment())
    first = sessions.decide(live.snapshot(), now=NOON)
    assert (gone(first), bound(first)) == (["v"], [])
    for change in (
        lambda: live.upsert("Pod", of("low", "v", "n0", deleted=True, **claims("a"))),
        lambda: live.delete("Pod", "default/v"),
    ):
        change()
        result = sessions.decide(live.snapshot(), now=NOON + 1)
        assert (gone(result), bound(result)) == ([], [])
    live.delete("ResourceClaim", "default/a")
    last = sessions.decide(live.snapshot(), now=NOON + 2)
    assert (gone(last), bound(last)) == ([], ["p"])


@BOTH
def test_no_pod_goes_for_a_device_that_its_node_would_not_free_for_another_node(action: str) -> None:
    """The pod may only go to n1, where the device would come free, but no pod leaves there."""
    where = {"kubernetes.io/hostname": "n1"}
    live = reached({"allNodes": True}, of("high", "p", nodeSelector=where, **claims("b")), dra.claim("b"))
    assert gone(engine(action).decide(live.snapshot(), now=NOON)) == []


@BOTH
def test_pods_elsewhere_do_not_have_at_once_what_a_victim_gives_back(action: str) -> None:
    """A pod is evicted for its CPU; another one, which may only go to the other node, would like its device."""
    on = [{"nodeSelector": {"kubernetes.io/hostname": name}} for name in ("n0", "n1")]
    wants = pod("p", "high", cpu="8", memory="", priority=100, **on[0])
    late = [pod_group("late", 1, created=9), pod("l", "late", **on[1], **claims("c")), dra.claim("c")]
    live = reached({"allNodes": True}, wants, *late)
    order = DEFAULT_POLICY.replace("allocate, backfill", f"{action}, allocate, backfill")
    result = Engine(order).decide(live.snapshot(), now=NOON)
    assert (gone(result), bound(result)) == (["v"], [])


@BOTH
@pytest.mark.parametrize(("wanted", "victims"), [(2, ["v-0", "v-1"]), (3, [])])
def test_a_device_that_a_terminating_pod_leaves_is_promised_once(action: str, wanted: int, victims: list[str]) -> None:
    """The device of n1 is free, but a gang takes the CPUs; that of n0 becomes free."""
    ends = [of("low", "e", "n0", deleted=True, **claims("a")), held("a", "e")]
    gang = [pod_group("v", 2, phase="Running"), *(pod(f"v-{i}", "v", node="n1", priority=10) for i in range(2))]
    wants = [pod(f"p-{i}", "p", priority=100, **claims(f"p-{i}")) for i in range(wanted)]
    live = cluster(*ends, node("n1", cpu="2"), dra.resource_slice("n1", dra.device("gpu-0")), *gang, *wants)
    for each in (pod_group("p", wanted, priorityClassName="high"), *(dra.claim(f"p-{i}") for i in range(wanted))):
        live.upsert(each["kind"] if isinstance(each, dict) else type(each).__name__, each)
    result = engine(action).decide(live.snapshot(), now=NOON)
    assert gone(result) == victims
    assert result.session.view.jobs["default/p"].waiting_count == (wanted if victims else 0)


@BOTH
def test_a_device_that_a_pod_keeps_after_all_is_not_promised(action: str) -> None:
    """One of two devices of n0 becomes free; no eviction lets another pod join it there, so it takes that of n2."""
    here = [of("low", "e", "n0", deleted=True, **claims("a")), held("a", "e")]
    here += [of("low", "r", "n0", **claims("c")), held("c", "r", gpu="gpu-1")]
    status = dra.allocation("n2", "gpu-0") | {"reservedFor": [{"resource": "pods", "name": "v", "uid": "uid-v"}]}
    there = [of("low", "v", "n2", **claims("d")), dra.claim("d", status=status)]
    constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    even = {"topologySpreadConstraints": [constraint | {"labelSelector": {"matchLabels": {"of": "p"}}}]}
    wants = [{"nodeSelector": {"kubernetes.io/hostname": "n1"}, **even}, claims("p-1"), claims("p-2") | even]
    pods = [pod(f"p-{at}", "p", priority=100, labels={"of": "p"}, **more) for at, more in enumerate(wants)]
    objs = [node("n1"), node("n2"), dra.resource_slice("n2", dra.device("gpu-0")), *here, *there, *pods]
    live = cluster(*objs, dra.claim("p-1"), dra.claim("p-2"), pod_group("p", 3, priorityClassName="high"), gpus=2)
    result = engine(action).decide(live.snapshot(), now=NOON)
    assert gone(result) == ["v"]
    assert result.session.view.jobs["default/p"].waiting_count == 3
