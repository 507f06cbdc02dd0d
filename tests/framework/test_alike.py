"""Nodes with equal amounts are asked once, and each is told what it would be told by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stromboli.api.resources import CPU, MEMORY, Rows, Vector, fits
from stromboli.framework.nodes import Amounts, NodeLedger, NodeView
from tests import builders

NODES = 40


def score(nodes: Amounts) -> Vector:
    """Something that looks at all amounts."""
    return nodes.used[CPU] / nodes.allocatable[CPU] + 3 * nodes.scoring[1] - nodes.used[MEMORY]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    cpus=st.lists(st.sampled_from([4, 8]), min_size=NODES, max_size=NODES),
    changes=st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(-1, 2)), max_size=60),
    chosen=st.sets(st.integers(0, NODES - 1), min_size=1),
)
def test_each_node_is_told_what_it_would_be_told_by_itself(
    cpus: list[int], changes: list[tuple[int, int]], chosen: set[int]
) -> None:
    nodes = [builders.node(f"n{at}", cpu=str(cpu)) for at, cpu in enumerate(cpus)]
    snapshot = builders.state(nodes, builders.pod("p", cpu="1500m")).snapshot()
    ledger = NodeLedger(snapshot.nodes)
    request = snapshot.requests[0]
    for number in range(10):
        for node, count in changes[number::10]:
            ledger.occupy(node, request, (1500.0, 2.0), count)
        for rows in (ledger.nodes.rows, np.array(sorted(chosen))):
            view = ledger.nodes.view(rows)
            np.testing.assert_array_equal(view.by_amounts(score), score(NodeView(ledger.nodes, rows)))
            assert ledger.nodes.fitting(request, rows).tolist() == one_by_one(ledger, request, rows)


def one_by_one(ledger: NodeLedger, request: Vector, rows: Rows) -> list[bool]:
    return [bool(fits(request, ledger.nodes.idle[:, row])) for row in rows.tolist()]


def test_nodes_of_few_models_are_asked_once_a_model() -> None:
    nodes = [builders.node(f"n{at}", cpu=str(4 + at % 3)) for at in range(NODES)]
    ledger = NodeLedger(builders.state(nodes).snapshot().nodes)
    asked: list[int] = []

    def counting(amounts: Amounts) -> Vector:
        asked.append(len(amounts.used[CPU]))
        return score(amounts)

    for _ in range(15):
        ledger.nodes.view(ledger.nodes.rows).by_amounts(counting)
    assert asked[0] == NODES
    assert asked[-1] == 3
    ledger.occupy(7, np.ones(len(ledger.nodes.used)), (1.0, 1.0), 1)
    ledger.nodes.view(ledger.nodes.rows).by_amounts(counting)
    assert asked[-1] == 4
