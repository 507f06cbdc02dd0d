"""With all that makes placement fast, sessions decide as in the plain way, which asks about all nodes for each pod."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stromboli.engine import Engine, SessionResult
from stromboli.simulation import synthetic
from stromboli.state.cluster import ClusterState
from tests import builders
from tests.framework.test_nothing_half_done import clusters

ACTIONS = "enqueue, allocate, backfill, preempt, reclaim, gangpreempt, gangreclaim, consolidation"


def both(text: str, cluster: ClusterState, compatibility: Any = None) -> tuple[SessionResult, SessionResult]:
    fast, plain = (
        Engine(text, compatibility=compatibility, plain=way).unbounded().decide(cluster.snapshot(), now=builders.NOON)
        for way in (False, True)
    )
    return fast, plain


@settings(max_examples=25)
@given(
    objs=clusters(cpu=(2, 12)),
    scores=st.sampled_from(["nodeorder", "binpack", "nodeorder binpack resource-strategy-fit", "usage task-topology"]),
    compatibility=st.sampled_from(["strict", "volcano"]),
)
def test_random_clusters_are_decided_alike(objs: list[Any], scores: str, compatibility: Any) -> None:
    text = builders.policy("priority gang", f"overcommit drf predicates proportion {scores}", actions=ACTIONS)
    fast, plain = both(text, builders.state(*objs), compatibility)
    assert fast.decisions == plain.decisions


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shape", list(synthetic.Shape))
def test_each_shape_of_load_is_decided_alike(shape: synthetic.Shape) -> None:
    fast, plain = both(synthetic.policy(shape), synthetic.cluster(40, 120, 6, shape))
    assert fast.decisions == plain.decisions
    assert fast.session.kernel.nodes_scored <= plain.session.kernel.nodes_scored
