"""A job that runs grows by whole sub groups, and by pods with devices near it, wherever brute force finds victims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind, Evict, Nominate
from stromboli.engine import DEFAULT_POLICY, Engine
from tests.builders import NOON, gang, hyper_node, node, pod, pod_group, queue, state
from tests.expectations.world import CLASSES
from tests.fuzz import tried
from tests.kube import test_dra as dra

_SHARES = DEFAULT_POLICY.replace("name: proportion", "name: capacity")
BOTH = ("reclaim", "gangreclaim")
_BY = {action: Engine(_SHARES.replace("allocate, backfill", f"allocate, {action}")) for action in BOTH}
#: the racks of up to six nodes
_RACKS = [["n0", "n1"], ["n2", "n3"], ["n4", "n5"]]
_QUEUES = [
    queue("mine", deserved={"cpu": "99", "memory": "99Gi"}),
    queue("theirs", deserved={"cpu": "0", "memory": "0"}),
]


def _racks() -> Iterator[Any]:
    yield from (hyper_node(f"r{number}", 1, "Node", names) for number, names in enumerate(_RACKS))


def _placed(decisions: Iterable[Any]) -> set[str]:
    return {each.name for each in decisions if isinstance(each, Bind | Nominate) and each.name.startswith("g-")}


def _fits(cpus: list[int], wants: list[int], *, tight: bool) -> bool:
    """Whether pods fit on nodes with so many CPUs each, in one rack if they have to."""
    for nodes in product(range(len(cpus)), repeat=len(wants)):
        left = list(cpus)
        for at, cpu in zip(nodes, wants, strict=True):
            left[at] -= cpu
        if min(left) >= 0 and not (tight and len({at // 2 for at in nodes}) > 1):
            return True
    return False


@pytest.mark.parametrize("action", BOTH)
@tried(15)
@given(
    cpus=st.lists(st.integers(1, 4), min_size=2, max_size=6),
    wants=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    waiting=st.integers(1, 2),
    tight=st.booleans(),
    soft=st.booleans(),
)
@example(cpus=[2, 2, 1, 1], wants=[1, 2], waiting=1, tight=True, soft=False)
def test_a_job_grows_by_a_whole_group(
    action: str, cpus: list[int], wants: list[int], waiting: int, tight: bool, soft: bool
) -> None:
    """Nodes are full of pods of one CPU, but for the first group, which runs on a node of its own."""
    near = {"networkTopology": {"mode": "soft" if soft and not tight else "hard", "highestTierAllowed": 1}}
    policy = {"name": "part", "subGroupSize": len(wants), "minSubGroups": 1, "matchLabelKeys": ["part"]}
    policy |= near if tight or soft else {}
    objs: list[Any] = [*CLASSES, *_QUEUES, *_racks(), node("own")]
    objs += [node(f"n{number}", cpu=str(cpu)) for number, cpu in enumerate(cpus)]
    for number, cpu in enumerate(cpus):
        objs += [pod_group(f"j{number}", 1, "theirs", "Running"), *gang(f"j{number}", cpu, node=f"n{number}")]
    objs.append(pod_group("g", len(wants), "mine", "Running", created=9, subGroupPolicy=[policy]))
    for part in range(1 + waiting):
        at = {} if part else {"node": "own"}
        assume(part or sum(wants) <= 8)
        objs += [
            pod(f"g-{part}-{i}", "g", cpu=str(cpu), labels={"part": str(part)}, **at) for i, cpu in enumerate(wants)
        ]
    # What the first group leaves free of its own node is not enough for any other pod.
    objs.append(pod_group("rest", 1, "mine", "Running"))
    objs += [pod(f"rest-{i}", "rest", node="own") for i in range(8 - sum(wants))]
    decisions = _BY[action].decide(state(objs).snapshot(), now=NOON).decisions
    placed = _placed(decisions)
    assert len(placed) % len(wants) == 0
    assert bool(placed) == _fits(cpus, wants, tight=tight)
    assert bool(placed) == any(isinstance(each, Evict) for each in decisions)


@pytest.mark.parametrize("action", BOTH)
@pytest.mark.parametrize("where", ["rack", "anti-affinity", "host port"])
def test_a_job_grows_where_others_hold_the_devices_that_it_can_reach(action: str, where: str) -> None:
    """Devices are free on another node, where the pod may not go."""
    objs: list[Any] = [*CLASSES, *_QUEUES, *_racks(), *(node(name) for name in ("n0", "n2"))]
    near = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}} if where == "rack" else {}
    objs += [pod_group("j", 1, "theirs", "Running"), pod_group("g", 1, "mine", "Running", created=9, **near)]
    more: dict[str, Any] = {"labels": {"app": "g"}}
    if where == "anti-affinity":
        term = {"labelSelector": {"matchLabels": {"app": "g"}}, "topologyKey": "kubernetes.io/hostname"}
        more["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if where == "host port":
        more["ports"] = [{"containerPort": 80, "hostPort": 80}]
    objs.append(pod("g-0", "g", node="n0" if where == "rack" else "n2", **more))
    cluster = state(objs)
    held = dra.allocation("n0", "gpu-0") | {"reservedFor": [{"resource": "pods", "name": "j-0", "uid": "uid-j-0"}]}
    for each in (
        dra.device_class(),
        *(dra.resource_slice(name, dra.device("gpu-0")) for name in ("n0", "n2")),
        dra.claim("held", status=held),
        dra.claim("wanted"),
        dra.pod("j-0", "held", group="j", node="n0"),
        dra.pod("g-1", "wanted", group="g", **more),
    ):
        cluster.upsert(each["kind"] if isinstance(each, dict) else type(each).__name__, each)
    decisions = _BY[action].decide(cluster.snapshot(), now=NOON).decisions
    assert [each.name for each in decisions if isinstance(each, Evict)] == ["j-0"]
    assert _placed(decisions) == {"g-1"}


@pytest.mark.parametrize("action", ["preempt", "gangpreempt", *BOTH])
def test_a_group_that_cannot_be_whole_keeps_no_other_from_starting(action: str) -> None:
    """The first group lacks a pod; with the second the job has as many as it starts with."""
    theirs = "theirs" if action in BOTH else "mine"
    policy = {"name": "part", "subGroupSize": 2, "matchLabelKeys": ["part"]}
    objs: list[Any] = [*CLASSES, *_QUEUES, node("n0", cpu="2"), pod_group("j", 1, theirs, "Running")]
    objs += [*gang("j", 2, node="n0"), pod_group("g", 2, "mine", priorityClassName="high", subGroupPolicy=[policy])]
    objs += [pod(f"g-{i}", "g", priority=100, labels={"part": part}) for i, part in enumerate("011")]
    by = Engine(_SHARES.replace("allocate, backfill", f"allocate, {action}"))
    assert _placed(by.decide(state(objs).snapshot(), now=NOON).decisions) == {"g-1", "g-2"}


@pytest.mark.parametrize("action", BOTH)
def test_a_job_in_a_rack_grows_by_any_pod_that_fits(action: str) -> None:
    """The first of its pods is too large for the rack."""
    objs: list[Any] = [*CLASSES, *_QUEUES, *_racks(), node("n0", cpu="2"), pod_group("j", 1, "theirs", "Running")]
    near = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
    objs += [pod("j-0", "j", node="n0"), pod_group("g", 1, "mine", "Running", **near), pod("g-0", "g", node="n0")]
    objs += [pod("g-1", "g", cpu="2"), pod("g-2", "g")]
    decisions = _BY[action].decide(state(objs).snapshot(), now=NOON).decisions
    assert [each.name for each in decisions if isinstance(each, Evict)] == ["j-0"]
    assert _placed(decisions) == {"g-2"}


def _any_make_it_whole(cpus: list[int], parts: list[list[int]], *, tight: bool) -> bool:
    return any(_fits(cpus, [*two], tight=tight) for part in parts for two in combinations(part, 2))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("action", BOTH)
@tried(15)
@given(
    cpus=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    parts=st.lists(st.lists(st.integers(1, 4), min_size=2, max_size=3), min_size=1, max_size=2),
    tight=st.booleans(),
)
@example(cpus=[4, 1], parts=[[4, 3, 1], [4, 4]], tight=True)
@example(cpus=[4, 1, 1, 3], parts=[[4, 4, 1]], tight=False)
@example(cpus=[1, 2, 4], parts=[[3, 4, 1], [3, 4]], tight=False)
@example(cpus=[4], parts=[[4, 4], [1, 4, 1]], tight=False)
def test_a_job_grows_by_any_pods_that_make_a_group_whole(
    action: str, cpus: list[int], parts: list[list[int]], tight: bool
) -> None:
    """Groups are whole with two pods, have up to three, and the first of them may be too large."""
    near = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}} if tight else {}
    policy = {"name": "part", "subGroupSize": 2, "minSubGroups": 1, "matchLabelKeys": ["part"], **near}
    objs: list[Any] = [*CLASSES, *_QUEUES, *_racks(), node("own", cpu="2")]
    for number, cpu in enumerate(cpus):
        objs += [node(f"n{number}", cpu=str(cpu)), pod_group(f"j{number}", 1, "theirs", "Running")]
        objs += gang(f"j{number}", cpu, node=f"n{number}")
    objs.append(pod_group("g", 2, "mine", "Running", created=9, subGroupPolicy=[policy]))
    objs += [pod(f"g-own-{i}", "g", node="own", labels={"part": "own"}) for i in range(2)]
    for part, wants in enumerate(parts):
        objs += [pod(f"g-{part}-{i}", "g", cpu=str(cpu), labels={"part": str(part)}) for i, cpu in enumerate(wants)]
    decisions = _BY[action].decide(state(objs).snapshot(), now=NOON).decisions
    assert bool(_placed(decisions)) == _any_make_it_whole(cpus, parts, tight=tight)
    assert bool(_placed(decisions)) == any(isinstance(each, Evict) for each in decisions)
