"""CustomResourceDefinitions, generated from the models.

`python -m stromboli.api.crd_schema DIRECTORY` writes one file for each kind. Types, bounds and descriptions
come from `crds`; this module adds what only a CRD has: names, printer columns, and CEL rules across fields.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from stromboli.api import crds
from stromboli.api.crd_compare import OURS, PART_OF


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; those with a priority above 0 are shown in wide output only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Definition:
    """The parts of a CRD besides its schema."""

    model: type[crds.KubeObject]
    scope: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]


DEFINITIONS = (
    Definition(
        crds.Queue,
        scope="Cluster",
        short_names=("q", "queue-v1beta1"),
        columns=(
            Column("PARENT", ".spec.parent"),
            Column("STATE", ".status.state"),
            Column("WEIGHT", ".spec.weight", "integer", 1),
            Column("AGE", ".metadata.creationTimestamp", "date"),
        ),
    ),
    Definition(
        crds.PodGroup,
        scope="Namespaced",
        short_names=("pg", "podgroup-v1beta1"),
        columns=(
            Column("STATUS", ".status.phase"),
            Column("minMember", ".spec.minMember", "integer"),
            Column("RUNNINGS", ".status.running", "integer"),
            Column("AGE", ".metadata.creationTimestamp", "date"),
            Column("QUEUE", ".spec.queue", priority=1),
        ),
    ),
    Definition(
        crds.HyperNode,
        scope="Cluster",
        short_names=("hn",),
        columns=(
            Column("Tier", ".spec.tier"),
            Column("TierName", ".spec.tierName"),
            Column("NodeCount", ".status.nodeCount", "integer"),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
    ),
)


def _at_most(smaller: str, larger: str, amounts: str, limits: str) -> dict[str, str]:
    """A rule that no amount exceeds the limit of the same resource, if there is one."""
    above = f"quantity(string({amounts}[r])).isGreaterThan(quantity(string({limits}[r])))"
    guards = " || ".join(f"!has({part})" for part in _parents(amounts) + _parents(limits))
    return {
        "rule": f"{guards} || {amounts}.all(r, !(r in {limits}) || !{above})",
        "message": f"{smaller} must not be above {larger}",
    }


def _parents(path: str) -> list[str]:
    """`self.a.b` -> `self.a`, `self.a.b`: the paths that must exist before the last can be read."""
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(2, len(parts) + 1)]


_GUARANTEE = "self.guarantee.resource"
#: validation rules across fields, by model
RULES: Mapping[type[crds.KubeModel], tuple[dict[str, str], ...]] = {
    crds.Queue: (
        {
            "rule": "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
            "message": "a queue cannot be its own parent",
        },
        {
            "rule": "!has(self.spec.parent) || self.spec.parent == '' || self.metadata.name != 'root'",
            "message": "the root queue has no parent",
        },
    ),
    crds.QueueSpec: (
        _at_most("deserved", "capability", "self.deserved", "self.capability"),
        _at_most("guarantee", "deserved", _GUARANTEE, "self.deserved"),
        _at_most("guarantee", "capability", _GUARANTEE, "self.capability"),
        _at_most("lendingLimit", "deserved", "self.lendingLimit", "self.deserved"),
    ),
    crds.NetworkTopology: (
        {
            "rule": "!has(self.highestTierAllowed) || !has(self.highestTierName) || size(self.highestTierName) == 0",
            "message": "only one of highestTierAllowed and highestTierName may be given",
        },
    ),
    crds.RegexMatch: (
        {
            # an expression that does not compile is an error of the rule, which rejects the object
            "rule": "''.matches(self.pattern) in [true, false]",
            "message": "pattern must be a regular expression (RE2)",
        },
    ),
}


class _StructuralSchema(GenerateJsonSchema):
    """JSON schema as a CRD needs it: absent instead of null, with the defaults and bounds of `crds.crd` only."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return {"type": "integer"}

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        return {"type": "string", "enum": list(schema["expected"])}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        result = super().model_schema(schema)
        result.pop("title", None)
        rules = RULES.get(schema["cls"])
        return {**result, "x-kubernetes-validations": list(rules)} if rules else result


def open_api_schema(model: type[crds.KubeObject]) -> dict[str, Any]:
    """The structural schema of a kind."""
    schema = model.model_json_schema(schema_generator=_StructuralSchema)
    inlined: dict[str, Any] = _inline(schema, schema.pop("$defs", {}))
    identity = {key: {"type": "string"} for key in ("apiVersion", "kind")}
    inlined["properties"].update(identity, metadata={"type": "object"})
    inlined["required"] = [key for key in inlined["required"] if key != "metadata"]
    return {key: value for key, value in inlined.items() if value != []}


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema with every `$ref` resolved; keys next to a reference take precedence."""
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    inlined = {key: _inline(value, definitions) for key, value in node.items() if key != "$ref"}
    if "$ref" in node:
        target = definitions[node["$ref"].removeprefix("#/$defs/")]
        return {**_inline(target, definitions), **inlined}
    return inlined


def custom_resource_definition(definition: Definition) -> dict[str, Any]:
    """The CRD of a kind as a manifest."""
    model = definition.model
    kind = model.__name__
    group, version = model.model_fields["api_version"].default.split("/")
    columns = [
        {"name": column.name, "jsonPath": column.path, "type": column.type}
        | ({"priority": column.priority} if column.priority else {})
        for column in definition.columns
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{model.plural}.{group}",
            "labels": {PART_OF: OURS},
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": group,
            "scope": definition.scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": model.plural,
                "singular": kind.lower(),
                "shortNames": list(definition.short_names),
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": open_api_schema(model)},
                }
            ],
        },
    }


def manifests() -> list[dict[str, Any]]:
    """Every CRD."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]


def files() -> dict[str, str]:
    """File name -> text of every CRD."""
    return {f"{crd['metadata']['name']}.yaml": _text(crd) for crd in manifests()}


class _Dumper(yaml.SafeDumper):
    """YAML without anchors: repeated rules and patterns are written out."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(manifest: Mapping[str, Any]) -> str:
    body: str = yaml.dump(dict(manifest), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    return f"# Generated by `python -m stromboli.api.crd_schema`.\n{body}"


def main(directory: str) -> None:
    """Write every CRD into a directory."""
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (target / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
