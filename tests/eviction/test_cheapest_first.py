"""Which pods are evicted so that a queue may take more: looking as far as needed decides as sorting all pods."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api import objects
from stromboli.engine import Engine
from stromboli.eviction.node_candidates import NodeCandidates
from stromboli.eviction.units import Unit
from tests.builders import NOON, node, pod, pod_group, policy, queue, state
from tests.expectations.test_preemption import CLASSES
from tests.fuzz import tried

TIMES = st.sampled_from((None, "2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"))


@st.composite
def clusters(draw: st.DrawFn) -> list[Any]:
    """Nodes with much room, and jobs of a queue that may not take more: others want places."""
    few, priority, used = st.integers(1, 3), st.sampled_from(("low", "low", "middle", "high")), 0
    objs: list[Any] = [node(name, cpu="20") for name in "abc"]
    for number in range(draw(st.integers(2, 7))):
        size = draw(st.integers(1, 4))
        least = draw(st.sampled_from((0, 1, size, size)))
        objs.append(pod_group(f"j{number}", least, queue="q", phase="Running", priorityClassName=draw(priority)))
        said = {"volcano.sh/preemptable": draw(st.sampled_from(("true", "true", "true", "false")))}
        for n in range(size):
            cpu, where = draw(st.integers(1, 2)), draw(st.sampled_from("abc"))
            used += cpu
            one = pod(f"j{number}-{n}", f"j{number}", cpu=str(cpu), memory="", node=where, annotations=said)
            status = objects.PodStatus(phase="Running", start_time=draw(TIMES))
            objs.append(objects.Pod(one.metadata, one.spec, status))
    for number in range(draw(few)):
        count, cpu = draw(few), draw(few)
        objs.append(pod_group(f"w{number}", draw(st.integers(1, count)), queue="q", priorityClassName="high"))
        objs += [pod(f"w{number}-{n}", f"w{number}", cpu=str(cpu), memory="") for n in range(count)]
    return [queue("q", capability={"cpu": str(used + draw(st.integers(0, 2)))}), *objs]


def told(units: list[Unit]) -> list[tuple[Any, ...]]:
    return [(unit.rank, unit.job.key, [pod.name for pod in unit.pods]) for unit in units]


@tried(15)
@given(
    clusters(),
    st.sampled_from(("preempt", "gangpreempt")),
    st.sampled_from(("proportion", "capacity")),
)
def test_looking_as_far_as_needed_decides_as_sorting_everybody(objs: list[Any], action: str, shares: str) -> None:
    text = policy("priority gang conformance", f"predicates {shares} nodeorder", actions=f"allocate, {action}")
    as_needed = Engine(text).decide(state(CLASSES, *objs).snapshot(), now=NOON)

    def everybody(self: NodeCandidates) -> list[Unit]:
        known = self.everything()
        assert told(list(looking(self))) == told(known)
        return known

    looking = NodeCandidates.cheapest_first
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeCandidates, "cheapest_first", everybody)
        at_once = Engine(text).decide(state(CLASSES, *objs).snapshot(), now=NOON)
    assert as_needed.decisions == at_once.decisions
