"""Objects that only plugins read: what comes out is what went in, and which of them changed is known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.state.plain import NO_OBJECTS, ObjectTable
from tests import builders
from tests.fuzz import tried

CLAIM = "ResourceClaim"
names = st.sampled_from("abcd")
#: None deletes, else what is put there
changes = st.lists(st.tuples(names, st.none() | st.integers(0, 3)), max_size=12)


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize("value", [1.5, 2**70, "\ud800", {"a": [None, True]}], ids=str)
def test_an_object_comes_out_as_it_went_in(value: Any) -> None:
    cluster = builders.state()
    obj = {"metadata": {"namespace": "default", "name": "c"}, "spec": value}
    cluster.upsert(CLAIM, obj)
    assert cluster.objects[CLAIM]["default/c"] == obj
    assert cluster.snapshot().objects[CLAIM]["default/c"] == obj


def test_an_object_is_read_by_somebody_many_calls_deep() -> None:
    def read(calls: int) -> Any:
        return read(calls - 1) if calls else snapshot.read("c", dict[str, Any])

    table = ObjectTable(CLAIM)
    for depth in range(100, 900, 50):
        table["c"] = {"name": "c", "spec": nested(depth)}
        snapshot = table.frozen()
        assert read(300)["name"] == "c"


@tried(20)
@given(changes, changes, st.booleans())
def test_changes_are_those_that_comparing_all_objects_finds(first: Any, second: Any, apart: bool) -> None:
    table = ObjectTable(CLAIM)
    change(table, first)
    before = table.frozen()
    assert set(before.changed_since(NO_OBJECTS)) == set(before)
    later = table.copy() if apart else table
    change(later, second)
    now = later.frozen()
    changed = now.changed_since(before)
    assert len(set(changed)) == len(changed)
    assert set(changed) >= {key for key in {*before, *now} if before.get(key) != now.get(key)}
    assert set(changed) <= {key for key, _ in second}


def change(table: ObjectTable, some: Any) -> None:
    for key, value in some:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = {"value": value}
