"""What an API server with the chart's CustomResourceDefinitions would refuse is refused of files, too."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from stromboli.api import crd_schema
from stromboli.simulation.manifests import Loaded, load
from tests.cli.conftest import stromboli

Fields = tuple[str, ...]
Schema = Mapping[str, Any]
_MANY = "[]"
DEFINITIONS = {definition.model.__name__: definition.model for definition in crd_schema.DEFINITIONS}
SCHEMAS: dict[str, Schema] = {kind: crd_schema.open_api_schema(model) for kind, model in DEFINITIONS.items()}


def example(schema: Schema) -> Any:
    """The least that a schema takes."""
    if schema.get("type") == "object":
        known = schema.get("properties", {})
        needed = [*schema.get("required", ()), *list(known)[: schema.get("minProperties", 0)]]
        return {name: example(known[name]) for name in needed}
    if schema.get("type") == "array":
        return [example(schema["items"])] * schema.get("minItems", 0)
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "string":
        return "2024-01-01T00:00:00Z" if schema.get("format") == "date-time" else "a"
    return False if schema.get("type") == "boolean" else schema.get("minimum", 1)


def fields(schema: Schema, path: Fields = ()) -> Iterator[tuple[Fields, Schema]]:
    """All fields with their schemas."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        if path or name in ("spec", "status"):
            yield from fields(inner, (*path, name))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from fields(schema["additionalProperties"], (*path, "cpu"))
    if "items" in schema:
        yield from fields(schema["items"], (*path, _MANY))


def with_value(schema: Schema, path: Fields, value: Any) -> Any:
    """The least that a schema takes, with a value somewhere in it."""
    if not path:
        return value
    name, *rest = path
    if name == _MANY:
        return [with_value(schema["items"], tuple(rest), value)]
    inner = schema.get("properties", {}).get(name) or schema["additionalProperties"]
    whole = {} if schema.get("minProperties") else example(schema)
    return {**whole, name: with_value(inner, tuple(rest), value)}


def refused(schema: Schema) -> Iterator[Any]:
    """Values of the right type that are out of bounds."""
    if "enum" in schema:
        yield "NoneSuch"
    elif schema.get("type") == "integer":
        yield from [schema["minimum"] - 1] if "minimum" in schema else []
        yield from [schema["maximum"] + 1] if "maximum" in schema else []
    elif schema.get("type") == "string":
        yield from ["a" * (schema["maxLength"] + 1)] if "maxLength" in schema else []
        yield from [""] if schema.get("minLength") else []
        yield from ["Not_A_Name!", "a\n"] if "pattern" in schema else []
    elif schema.get("x-kubernetes-int-or-string"):
        yield from [-1, "1" * (schema["maxLength"] + 1), "much"]
    elif schema.get("type") == "object":
        if "maxProperties" in schema and "additionalProperties" in schema:
            yield {f"example.com/r{number}": "1" for number in range(schema["maxProperties"] + 1)}
    elif schema.get("type") == "array":
        yield from [[]] if schema.get("minItems") else []


def manifest(kind: str, path: Fields, value: Any) -> dict[str, Any]:
    group = DEFINITIONS[kind].model_fields["api_version"].default
    body = with_value(SCHEMAS[kind], path, value)
    return {**body, "apiVersion": group, "kind": kind, "metadata": {"name": "a"}}


def read(document: dict[str, Any], *, lenient: bool = False) -> Loaded:
    return load(["-"], io.BytesIO(json.dumps(document).encode()), lenient=lenient)


CASES = [
    pytest.param(kind, path, value, id=f"{kind}-{'.'.join(path)}-{number}")
    for kind, schema in SCHEMAS.items()
    for path, inner in fields(schema)
    for number, value in enumerate(refused(inner))
]


def test_the_definitions_bound_many_fields() -> None:
    assert len(CASES) > 60


@pytest.mark.parametrize(("kind", "path", "value"), CASES)
def test_what_is_out_of_bounds_is_refused_and_named(kind: str, path: Fields, value: Any) -> None:
    (problem,) = read(manifest(kind, path, value)).problems
    last = next(name for name in reversed(path) if name != _MANY)
    assert problem.startswith(f"standard input: document 1: {kind} a: {path[0]}")
    assert last in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        pytest.param(kind, path, inner[bound], id=f"{kind}-{'.'.join(path)}-{bound}")
        for kind, schema in SCHEMAS.items()
        for path, inner in fields(schema)
        for bound in ("minimum", "maximum")
        if bound in inner and inner.get("type") == "integer"
    ],
)
def test_what_is_on_a_bound_is_taken(kind: str, path: Fields, value: Any) -> None:
    assert not read(manifest(kind, path, value)).problems


@pytest.mark.parametrize(
    ("kind", "name", "spec", "problem"),
    [
        ("Queue", "a", {"parent": "a"}, "spec.parent: a queue cannot be its own parent"),
        ("Queue", "root", {"parent": "a"}, "spec.parent: the root queue has no parent, not 'a'"),
        (
            "Queue", "a", {"deserved": {"nvidia.com/gpu": 9}, "capability": {"nvidia.com/gpu": "8"}},
            "spec.deserved[nvidia.com/gpu]: must not be above capability, but 9 is above 8",
        ),
        (
            "Queue", "a", {"guarantee": {"resource": {"memory": "2Gi"}}, "deserved": {"memory": "1Gi"}},
            "spec.guarantee.resource.memory: must not be above deserved, but 2Gi is above 1Gi",
        ),
        (
            "Queue", "a", {"guarantee": {"resource": {"cpu": "1500m"}}, "capability": {"cpu": 1}},
            "spec.guarantee.resource.cpu: must not be above capability, but 1.5 is above 1",
        ),
        (
            "PodGroup", "default/a", {"networkTopology": {"highestTierAllowed": 1, "highestTierName": "rack"}},
            "spec.networkTopology: only one of highestTierAllowed and highestTierName may be given",
        ),
        (
            "PodGroup", "default/a",
            {"subGroupPolicy": [
                {"name": "p", "networkTopology": {"highestTierAllowed": 1, "highestTierName": "rack"}},
            ]},
            "spec.subGroupPolicy[0].networkTopology: only one of highestTierAllowed and highestTierName may be given",
        ),
    ],
)  # fmt: skip
def test_fields_that_do_not_go_together_are_named(kind: str, name: str, spec: dict[str, Any], problem: str) -> None:
    *namespace, own = name.split("/")
    metadata = {"name": own, **({"namespace": namespace[0]} if namespace else {})}
    document = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}
    assert read(document).problems == [f"standard input: document 1: {kind} {name}: {problem}"]
    assert not read(document, lenient=True).problems


def test_expressions_that_are_not_valid_are_named() -> None:
    path = ("spec", "members", _MANY, "selector", "regexMatch", "pattern")
    (problem,) = read(manifest("HyperNode", path, "(")).problems
    assert "HyperNode a: spec.members[0].selector.regexMatch.pattern: the pattern '(' is not valid" in problem


def test_each_rule_of_the_definitions_is_known_to_files() -> None:
    about = {rule["message"] for rules in crd_schema.RULES.values() for rule in rules}
    assert about == {
        "a queue cannot be its own parent",
        "the root queue has no parent",
        "deserved must not be above capability",
        "guarantee must not be above deserved",
        "guarantee must not be above capability",
        "only one of highestTierAllowed and highestTierName may be given",
        "pattern must be a regular expression (RE2)",
    }


def test_a_change_is_held_to_the_same_bounds_and_named_by_its_document(tmp_path: Fields) -> None:
    cluster, change = tmp_path / "cluster.json", tmp_path / "change.yaml"
    cluster.write_text(json.dumps(manifest("Queue", (), {})))
    change.write_text(
        "kind: Queue\nmetadata: {name: default}\n---\n" + json.dumps(manifest("Queue", ("spec", "weight"), -1))
    )
    result = stromboli("whatif", "-f", change, "--on", cluster)
    assert result.exit_code == 2
    assert "change.yaml: document 2: Queue a: spec.weight: Invalid value: -1" in result.stderr
