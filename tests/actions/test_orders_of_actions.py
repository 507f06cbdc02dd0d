"""In whatever order a policy names its actions, pods that fit are bound, and no pod is evicted for them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind, Evict
from stromboli.api.pod_state import PodState
from stromboli.engine import Engine, Successive
from stromboli.explain.rehearsal import advance
from stromboli.framework.cluster.environment import Environment
from stromboli.framework.session.session import Session
from stromboli.state.cluster import ClusterState
from tests import builders
from tests.fuzz import tried

TIERS = (
    ("priority gang conformance", "overcommit drf predicates proportion nodeorder binpack"),
    ("priority gang conformance", "predicates capacity nodeorder"),
    ("priority conformance", "drf predicates fairshare nodeorder"),
)
EVICTING = ("preempt", "reclaim", "gangpreempt", "gangreclaim")
CYCLES = 8


@st.composite
def orders(draw: st.DrawFn) -> str:
    """The actions of a policy that binds and evicts, with `enqueue` in front or without it."""
    evicting = draw(st.lists(st.sampled_from(EVICTING), min_size=1, max_size=3, unique=True))
    rest = draw(st.permutations(["allocate", "backfill", *evicting]))
    return ", ".join([*draw(st.sampled_from([["enqueue"], []])), *rest])


@st.composite
def clusters(draw: st.DrawFn, *, cpu: tuple[int, int]) -> list[Any]:
    """Nodes of some CPUs; pods that run, and gangs that wait, elastic ones and some of whose pods request nothing."""
    objs: list[Any] = [builders.queue("a"), builders.queue("b", weight=2)]
    nodes = [f"n{index}" for index in range(draw(st.integers(1, 3)))]
    objs += [builders.node(name, cpu=str(draw(st.integers(*cpu)))) for name in nodes]
    for number in range(draw(st.integers(1, 4))):
        name, size, queue = f"j{number}", draw(st.integers(1, 4)), draw(st.sampled_from("ab"))
        runs = draw(st.integers(0, 2))
        least = draw(st.integers(1, size))
        objs.append(builders.pod_group(name, least, queue=queue, phase="Running" if runs else "Pending"))
        for index in range(size):
            asked = draw(st.sampled_from(["1", "", ""]))
            node = draw(st.sampled_from(nodes)) if index < runs else ""
            more = {"cpu": asked} if asked else {"cpu": "", "memory": ""}
            objs.append(builders.pod(f"{name}-{index}", name, node=node, priority=draw(st.integers(0, 2)), **more))
    return objs


def lived(objs: list[Any], tiers: tuple[str, ...], actions: str) -> tuple[Session, ClusterState, list[str]]:
    """The last of some sessions on a cluster that does what they decide, the cluster, and all that were evicted."""
    state = builders.state(*objs)
    sessions = Successive(Engine(builders.policy(*tiers, actions=actions)), Environment())
    evicted: list[str] = []
    for cycle in range(CYCLES):
        result = sessions.decide(state.snapshot(), now=builders.NOON)
        evicted += [each.key for each in result.decisions if isinstance(each, Evict)]
        if not any(isinstance(each, Bind | Evict) for each in result.decisions) and cycle > 1:
            break
        advance(state, result.decisions, builders.NOON)
    return result.session, state, evicted


@pytest.mark.parametrize("evicting", EVICTING)
@pytest.mark.parametrize(("size", "least"), [(1, 1), (3, 2), (3, 3)])
def test_pods_that_request_nothing_are_bound_by_backfill(evicting: str, size: int, least: int) -> None:
    gang = builders.gang("g", size, cpu="", memory="")
    objs = [builders.queue("default"), builders.node("n"), builders.pod_group("g", least, phase="Pending"), *gang]
    state = builders.state(*objs)
    result = builders.decide(state, builders.policy(*TIERS[1], actions=f"enqueue, allocate, {evicting}, backfill"))
    assert len(result.session.bound) == size


def test_a_place_that_is_free_is_not_offered_to_two_pods() -> None:
    """The first pod fits, so the second, which does not fit beside it, has a pod evicted from where it can fit."""
    objs = [builders.queue("default"), builders.node("n", cpu="2")]
    objs += [builders.pod_group("old", 0, phase="Running"), builders.pod("old-0", "old", node="n", priority=0)]
    for name in ("first", "second"):
        objs += [builders.pod_group(name, 1, priorityClassName="high"), builders.pod(f"{name}-0", name, priority=5)]
    objs.append(builders.decode("PriorityClass", {"metadata": {"name": "high"}, "value": 5}, "high"))
    policy = builders.policy("priority gang", "predicates nodeorder", actions="preempt, allocate, backfill")
    result = builders.decide(builders.state(*objs), policy)
    assert list(result.session.bound) == ["default/first-0"]
    assert list(result.session.evicted) == ["default/old-0"]


@tried(15)
@given(clusters(cpu=(30, 40)), st.sampled_from(TIERS), orders())
def test_who_fits_is_bound_and_nobody_goes_for_it(objs: list[Any], tiers: tuple[str, ...], actions: str) -> None:
    session, state, evicted = lived(objs, tiers, actions)
    assert not evicted
    waiting = [record.key for record in state.pods.records if record is not None and not record.node_name]
    assert not waiting, [session.view.trace.pods, session.view.trace.jobs]


@tried(15)
@given(clusters(cpu=(1, 4)), st.sampled_from(TIERS), orders())
def test_once_nothing_is_decided_no_pod_is_promised_a_place(
    objs: list[Any], tiers: tuple[str, ...], actions: str
) -> None:
    session, _, _ = lived(objs, tiers, actions)
    states = session.view.pods.state
    assert session.evicted or not (states == PodState.Pipelined).any()
