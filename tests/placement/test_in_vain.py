"""A gang of a kind that was tried in vain is told the same without a try, as long as nothing has changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.engine import Engine, SessionResult
from stromboli.framework.diagnosis.explain import all_reasons
from tests import builders
from tests.fuzz import tried


def _gangs(*sizes: int, cpu: str = "2", min_member: int | None = None) -> list[Any]:
    made: list[Any] = []
    for number, size in enumerate(sizes):
        name = f"g{number}"
        made += [builders.pod_group(name, min_member or size, created=number), *builders.gang(name, size, cpu=cpu)]
    return made


def _both(*objs: Any, policy: str) -> tuple[SessionResult, SessionResult]:
    """What is decided, and what is decided where every gang is tried."""
    state = builders.state(builders.queue("default"), *objs)
    fast, plain = (Engine(policy, plain=way).unbounded() for way in (False, True))
    return fast.decide(state.snapshot(), now=builders.NOON), plain.decide(state.snapshot(), now=builders.NOON)


@tried(25)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=8),
    nodes=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    elastic=st.booleans(),
    order=st.sampled_from(["priority gang", "priority gang sla"]),
)
def test_reasons_and_decisions_are_those_of_trying_every_gang(
    sizes: list[int], nodes: list[int], elastic: bool, order: str
) -> None:
    gangs = _gangs(*sizes, min_member=1 if elastic else None)
    policy = builders.policy(order, "drf predicates proportion nodeorder", actions="allocate, backfill, preempt")
    fast, plain = _both(*(builders.node(f"n{at}", str(cpu)) for at, cpu in enumerate(nodes)), *gangs, policy=policy)
    assert fast.decisions == plain.decisions
    assert all_reasons(fast.session) == all_reasons(plain.session)
    assert fast.session.ledger.tried.keys() == plain.session.ledger.tried.keys()


@pytest.mark.parametrize("gangs", [5, 50])
def test_a_kind_of_gang_is_tried_once(gangs: int) -> None:
    other = builders.pod_group("other", phase="Running"), builders.pod("other", "other", node="n")
    policy = builders.policy("gang", "predicates")
    fast, _ = _both(builders.node("n", "4"), *other, *_gangs(*[2] * gangs), policy=policy)
    assert len(fast.session.view.nodes.log) == 2, "one place that was tried and taken back"
    assert len(all_reasons(fast.session)) == 2 * gangs
