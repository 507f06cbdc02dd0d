"""The parts of the server that are functions: patches, schemas, selectors, table cells."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.structural import conform, problems
from stromboli.devserver.errors import ApiError
from stromboli.devserver.patch import json_patch, merge_patch, strategic_merge
from stromboli.devserver.selectors import label_selector_matches
from stromboli.devserver.tables import duration, json_path

scalars = st.none() | st.booleans() | st.integers(0, 9) | st.text("ab", max_size=2)
names = st.text("abc", max_size=1)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner), max_leaves=8
)
objects = st.dictionaries(names, documents)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return value


@given(objects, objects)
def test_a_merge_patch_leaves_its_target_alone_and_can_be_repeated(target: Any, patch: Any) -> None:
    before = copy.deepcopy(target)
    merged = merge_patch(target, patch)
    assert target == before
    assert merge_patch(merged, patch) == merged
    assert merge_patch({}, patch) == without_nulls(patch)


@given(objects, objects)
def test_without_keyed_lists_strategic_merge_is_a_merge_patch(target: Any, patch: Any) -> None:
    before = copy.deepcopy(target)
    assert strategic_merge(target, patch) == merge_patch(target, patch)
    assert target == before


@given(objects, documents)
def test_a_json_patch_leaves_its_target_alone(target: Any, value: Any) -> None:
    before = copy.deepcopy(target)
    added = json_patch(target, [{"op": "add", "path": "/new", "value": value}])
    assert added == {**before, "new": value}
    assert json_patch(added, [{"op": "remove", "path": "/new"}]) == before
    assert target == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/list/5", "value": 0},
        {"op": "add", "path": "/text/x", "value": 0},
        {"op": "remove", "path": "/list/9"},
        {"op": "replace", "path": "/list/9", "value": 0},
        {"op": "move", "from": "/none", "path": "/x"},
        {"op": "test", "path": "/list/0", "value": 2},
        {"op": "add", "path": "no-slash", "value": 0},
        {"op": "unheard-of", "path": "/x"},
        {"path": "/x"},
    ],
)
def test_json_patches_that_fail(operation: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as failure:
        json_patch({"list": [1], "text": "t"}, [operation])
    assert (failure.value.code, failure.value.reason) == (422, "Invalid")


def test_strategic_merge_keeps_the_order_of_what_it_does_not_name() -> None:
    current = {"containers": [{"name": "a", "image": "1"}, {"name": "b"}, {"name": "c"}]}
    patch = {"containers": [{"name": "c", "image": "3"}, {"name": "new"}]}
    assert strategic_merge(current, patch) == {
        "containers": [{"name": "a", "image": "1"}, {"name": "b"}, {"name": "c", "image": "3"}, {"name": "new"}]
    }


def test_strategic_merge_obeys_its_directives() -> None:
    current = {"spec": {"volumes": [{"name": "a"}, {"name": "b"}], "x": 1, "y": 2}, "finalizers": ["f", "g"]}
    patch = {
        "spec": {
            "$retainKeys": ["volumes"],
            "$setElementOrder/volumes": [{"name": "c"}, {"name": "a"}],
            "volumes": [{"name": "c"}, {"name": "b", "$patch": "delete"}],
        },
        "$deleteFromPrimitiveList/finalizers": ["f"],
    }
    merged = strategic_merge(current, patch)
    assert merged == {"spec": {"volumes": [{"name": "c"}, {"name": "a"}]}, "finalizers": ["g"]}


def test_ports_are_told_apart_by_protocol() -> None:
    current = {"ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}]}
    patch = {"ports": [{"containerPort": 53, "protocol": "UDP", "name": "dns"}]}
    assert strategic_merge(current, patch)["ports"] == [
        {"containerPort": 53, "protocol": "UDP", "name": "dns"},
        {"containerPort": 53},
    ]


def test_a_schema_keeps_what_it_is_told_to_keep() -> None:
    schema = {
        "properties": {
            "open": {"x-kubernetes-preserve-unknown-fields": True, "properties": {"n": {"default": 1}}},
            "closed": {"properties": {"n": {"default": 1, "nullable": True}}},
            "maps": {"additionalProperties": {"properties": {"n": {"default": 1}}}},
        }
    }
    body = {"kind": "K", "open": {"x": 1}, "closed": {"x": 1, "n": None}, "maps": {"a": {}}, "gone": 1}
    assert conform(body, schema) == {
        "kind": "K",
        "open": {"x": 1, "n": 1},
        "closed": {"n": None},
        "maps": {"a": {"n": 1}},
    }


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (True, {"type": "integer"}, "must be of type integer"),
        (1.0, {"type": "integer"}, None),
        (1.5, {"type": "integer"}, "must be of type integer"),
        (None, {"type": "string"}, "must be of type string"),
        (None, {"type": "string", "nullable": True}, None),
        ("1", {"x-kubernetes-int-or-string": True}, None),
        ([], {"type": "array", "minItems": 1}, "at least 1 items"),
        ([1, 2], {"type": "array", "maxItems": 1}, "at most 1 items"),
        ("abc", {"type": "string", "maxLength": 2}, "more than 2 bytes"),
        ("{x}", {"type": "string", "pattern": "^a{2}$"}, "should match '^a{2}$'"),
    ],
)
def test_values_and_their_schemas(value: Any, schema: dict[str, Any], expected: str | None) -> None:
    found = problems({"v": value}, {"properties": {"v": schema}})
    if expected is None:
        assert found == []
    else:
        ((path, what),) = found
        assert path == "v"
        assert expected in what


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ({"key": "a", "operator": "In", "values": ["1"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "b", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "b", "operator": "Exists"}, False),
        ({"key": "b", "operator": "DoesNotExist"}, True),
    ],
)
def test_label_selectors_of_objects(expression: dict[str, Any], selected: bool) -> None:
    assert label_selector_matches({"matchExpressions": [expression]}, {"a": "1"}) is selected
    assert label_selector_matches({}, {"a": "1"})
    assert not label_selector_matches(None, {"a": "1"})


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 61, "3h1m"),
        (24 * 3600, "24h"),
        (49 * 3600, "2d1h"),
        (30 * 86400, "30d"),
        (800 * 86400, "2y"),
    ],
)
def test_durations_are_written_as_kubectl_does(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.queue", ["gold"]),
        (".spec.none", []),
        (".metadata.labels.volcano\\.sh/x", ["y"]),
        (".metadata.labels['volcano.sh/x']", ["y"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[0].type", ["Busy"]),
        (".status.conditions[*].type", ["Busy", "Ready"]),
    ],
)
def test_json_paths(path: str, found: list[Any]) -> None:
    conditions = [{"type": "Busy", "status": "False"}, {"type": "Ready", "status": "True"}]
    body = {
        "metadata": {"labels": {"volcano.sh/x": "y"}},
        "spec": {"queue": "gold"},
        "status": {"conditions": conditions},
    }
    assert json_path(body, path) == found
