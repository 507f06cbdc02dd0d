"""How many of some pods are on each node, against counting them one after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.pod_state import ON_NODE_STATES, PodState
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.kube.placed import PlacedPods
from tests.fuzz import tried

_NODES = 3
_pods = st.tuples(st.sampled_from(list(PodState)), st.integers(-1, _NODES - 1), st.integers(-1, 2), st.booleans())


def _evicted(places: list[tuple[int, int]]) -> Operation:
    pods: Any = [SimpleNamespace(row=row) for row, _ in places]
    return Operation(Kind.Evict, None, None, pods, [node for _, node in places], np.zeros(1))


@tried(25)
@given(st.lists(_pods, min_size=1, max_size=40), st.booleans(), st.booleans(), st.booleans())
def test_counts_of_few_and_of_many_pods(
    pods: list[tuple[PodState, int, int, bool]], weighted: bool, terminating: bool, asked_before: bool
) -> None:
    """A pod that weighs nothing is in no selection."""
    pods_of_view = SimpleNamespace(
        state=np.array([state for state, *_ in pods], np.int8), node=np.array([node for _, node, *_ in pods], np.int32)
    )
    view: Any = SimpleNamespace(pods=pods_of_view, nodes=range(_NODES), snapshot=SimpleNamespace(pod_facts=None))
    placed = PlacedPods(view)
    rows = np.array([row for row, (_, _, weight, _) in enumerate(pods) if weight], np.intp)
    weights = np.array([pods[row][2] for row in rows], np.float64)

    def count() -> list[float]:
        selected = (rows, weights) if weighted else rows
        found = placed.count("these", lambda: selected, terminating=terminating)
        return [0.0] * _NODES if found is None else cast("list[float]", found.tolist())

    if asked_before:
        count()
    expected, gone = [0.0] * _NODES, []
    for row, (state, node, weight, evicted) in enumerate(pods):
        there = node >= 0 and (state in ON_NODE_STATES or state == PodState.Pipelined)
        there = there and (terminating or state != PodState.Releasing)
        if there and evicted:
            gone.append((row, node))
        elif there and weight:
            expected[node] += weight if weighted else 1
    if gone:
        placed.remove(_evicted(gone))
    assert count() == expected
