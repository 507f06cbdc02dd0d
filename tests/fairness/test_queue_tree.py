"""The one tree of queues: order, paths and what is below, also where parents lead in a circle or nowhere."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stromboli.fairness.queue_tree import QueueTree

NAMES = "abcdef"


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["", "x", *NAMES]), min_size=6, max_size=6))
def test_below_is_the_other_way_round_than_paths(parents: list[str]) -> None:
    tree = QueueTree.of(dict(zip(NAMES, parents, strict=True)))
    for row in range(len(tree)):
        assert set(tree.below(row)) == {each for each in range(len(tree)) if row in tree.path(each).tolist()}
    order = list(tree.in_order())
    assert sorted(row for row, _ in order) == list(range(len(tree)))
    levels = {row: depth for depth, rows in enumerate(tree.levels()) for row in rows.tolist()}
    assert {row: depth for row, depth in order if row in levels} == levels


def test_each_queue_comes_after_its_parent() -> None:
    tree = QueueTree.of({"b": "a", "a": "", "c": "b", "d": "gone", "e": "f", "f": "e"})
    assert [(tree.names[row], depth) for row, depth in tree.in_order()] == [
        *(("a", 0), ("b", 1), ("c", 2), ("d", 0), ("e", 0), ("f", 0)),
    ]
