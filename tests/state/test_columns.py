"""Columns that survive snapshots: the same as read anew, without reading what did not change."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stromboli.state.cluster import ClusterState
from stromboli.state.columns import Column
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot
from tests import builders

#: the pod that an event is about, and its new label; None takes the pod away
EVENTS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["a", "b", "c", "", None])), max_size=12)


def change(state: ClusterState, events: list[tuple[int, str | None]]) -> None:
    for number, label in events:
        if label is None:
            state.delete("Pod", f"default/p-{number}")
        else:
            state.upsert("Pod", builders.pod(f"p-{number}", labels={"app": label} if label else {}))


def shown(snapshot: Snapshot) -> list[str | None]:
    names = {number: value for value, number in snapshot.pod_facts.label_values("app").items()}
    return [names.get(number) for number in snapshot.pod_facts.label("app").tolist()]


def expected(snapshot: Snapshot) -> list[str | None]:
    return [record.labels.get("app") if record else None for record in snapshot.pods.records]


@given(st.lists(EVENTS, max_size=5), st.booleans())
def test_labels_of_pods_are_those_of_the_snapshot_whoever_asked_before(
    steps: list[list[tuple[int, str | None]]], late: bool
) -> None:
    state, snapshots = builders.state(), []
    for events in steps:
        change(state, events)
        snapshots.append(state.snapshot())
        if not late:
            assert shown(snapshots[-1]) == expected(snapshots[-1])
    for snapshot in reversed(snapshots):
        assert shown(snapshot) == expected(snapshot)


@given(st.lists(st.tuples(EVENTS, st.booleans()), max_size=5))
def test_rows_of_a_value_are_found_whether_or_not_they_were_sorted_before(
    steps: list[tuple[list[tuple[int, str | None]], bool]],
) -> None:
    state = builders.state()
    for events, asked in steps:
        change(state, events)
        labels, read = (snapshot := state.snapshot()).pod_facts.labels("app"), expected(snapshot)
        # so often that it is worth sorting them
        for value in ["a", "b", "c"] * (4 if asked else 0):
            rows = labels.rows(labels.by_value.get(value, -2)).tolist()
            assert rows == [row for row, label in enumerate(read) if label == value]


@given(
    st.lists(st.integers(0, 50) | st.none(), min_size=1, max_size=150),
    st.lists(st.integers(0, 50), max_size=4, unique=True),
    st.booleans(),
)
def test_rows_of_some_values_are_found_whether_or_not_they_were_sorted_before(
    values: list[int | None], wanted: list[int], sorted_before: bool
) -> None:
    column = Column.read(values, lambda value: value, None, np.full(len(values), -1))
    for _ in range(20 if sorted_before else 0):
        column.rows(0)
    known = [value for value in wanted if value in column.by_value]
    rows, which = column.rows_of_any(np.array([column.by_value[value] for value in known], np.intp))
    assert rows.tolist() == [row for row, value in enumerate(values) if value in known]
    assert [known[each] for each in which.tolist()] == [values[row] for row in rows.tolist()]


def test_only_pods_that_changed_are_read() -> None:
    state, read = builders.state([builders.pod(f"p-{number}") for number in range(100)]), []

    def note(pod: PodRecord) -> str:
        read.append(pod.name)
        return pod.name

    state.snapshot().pod_facts.column("noted", note)
    assert len(read) == 100
    state.upsert("Pod", builders.pod("p-7", labels={"app": "web"}))
    state.snapshot().pod_facts.column("noted", note)
    assert read[100:] == ["p-7"]


def test_only_nodes_that_changed_are_read() -> None:
    state, read = builders.state([builders.node(f"n-{number}") for number in range(100)]), []
    state.snapshot().nodes.facts.column("noted", lambda node: read.append(node.name) or node.name)
    state.upsert("Node", builders.node("n-7", labels={"zone": "a"}))
    state.delete("Node", "n-3")
    column = state.snapshot().nodes.facts.column("noted", lambda node: read.append(node.name) or node.name)
    assert read[100:] == ["n-7"]
    assert [column.values[number] for number in column.numbers] == [f"n-{n}" for n in range(100) if n != 3]


def test_values_that_nobody_has_any_longer_are_forgotten() -> None:
    state = builders.state()
    for number in range(2_000):
        state.upsert("Pod", builders.pod("p-0", labels={"app": str(number)}))
        found = state.snapshot().pod_facts.label_values("app")
    assert len(found) < 1_500


class Texts:
    """An index that keeps what it is given."""

    def __init__(self) -> None:
        self.known: list[str] = []

    def extend(self, values: list[str]) -> None:
        self.known += values


def test_an_index_goes_on_with_values_that_are_new() -> None:
    state = builders.state(builders.pod("p-0", labels={"app": "a"}))
    first = state.snapshot().pod_facts.labels("app").index(Texts)
    state.upsert("Pod", builders.pod("p-1", labels={"app": "b"}))
    assert state.snapshot().pod_facts.labels("app").index(Texts) is first
    assert first.known == ["a", "b"]
