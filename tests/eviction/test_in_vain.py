"""Reclaim and gang preemption: what was in vain before is passed over without a difference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.engine import Engine
from stromboli.eviction.context import PreemptionContext
from tests.builders import NOON, node, pod, pod_group, policy, queue, state
from tests.fuzz import tried


@st.composite
def clusters(draw: st.DrawFn) -> list[Any]:
    """A full cluster, and gangs of three queues that want some of it back."""
    few, queues = st.integers(1, 3), st.sampled_from("abc")
    objs: list[Any] = [queue("a"), queue("b"), queue("c", weight=draw(few))]
    sizes = draw(st.lists(st.integers(1, 4), min_size=3, max_size=6))
    objs += [node(f"n{number}", cpu=str(sum(sizes))) for number in range(2)]
    for number, size in enumerate(sizes):
        asks = {"volcano.sh/preemptable": draw(st.sampled_from(("true", "true", "false")))}
        objs.append(pod_group(f"j{number}", draw(st.integers(0, size)), queue=draw(queues), phase="Running"))
        objs += [pod(f"j{number}-{n}", f"j{number}", "2", node=f"n{n % 2}", annotations=asks) for n in range(size)]
    for number in range(draw(few)):
        count, cpu = draw(few), str(draw(few))
        objs.append(pod_group(f"w{number}", count, queue=draw(queues)))
        objs += [pod(f"w{number}-{n}", f"w{number}", cpu) for n in range(count)]
    return objs


@tried(20)
@given(clusters(), st.sampled_from(("reclaim", "gangreclaim", "gangpreempt")), st.sampled_from(("drf", "conformance")))
def test_passing_over_decides_as_asking_everybody(objs: list[Any], action: str, more: str) -> None:
    text = policy(f"priority gang {more}", "predicates proportion nodeorder", actions=f"allocate, {action}")
    passing_over = Engine(text).decide(state(*objs).snapshot(), now=NOON)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreemptionContext, "is_hopeless", lambda *_: False)
        asking = Engine(text).decide(state(*objs).snapshot(), now=NOON)
    assert passing_over.decisions == asking.decisions
