"""The page about custom resources, written from the schemas of their definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stromboli.api.crd_schema import DEFINITIONS, Definition, custom_resource_definition, open_api_schema
from stromboli.cli.references.tables import code, table
from stromboli.framework.diagnosis.ignored import QUEUE_FIELDS

_HEADER = """\
# Custom resources

The fields of the definitions that `stromboli crds apply` and the chart install, under `spec` and `status`. A cluster
that has Volcano's keeps those: they have the same fields, and other bounds. Rules are checked by the API server when an
object is written. Fields that the policy in force does not read are named by the condition `FieldIgnored`.
"""
#: form of an amount, instead of its pattern
_AMOUNT = "quantity"


def markdown() -> str:
    """The page."""
    return "\n".join([_HEADER, *(line for definition in DEFINITIONS for line in _kind(definition))])


def _kind(definition: Definition) -> Iterator[str]:
    schema, manifest = open_api_schema(definition.model), custom_resource_definition(definition)
    names = manifest["spec"]["names"]
    yield f"## {names['kind']}\n"
    version = definition.model.model_fields["api_version"].default
    scope = "in a namespace" if definition.scope == "Namespaced" else "in the whole cluster"
    short = ", ".join(f"`{name}`" for name in (names["plural"], *names["shortNames"]))
    yield f"{schema['description']}\n"
    yield f"`{version}`, {scope}; kubectl calls it {short}.\n"
    fields = [row for part in ("spec", "status") for row in _fields(part, schema["properties"].get(part, {}))]
    yield table(("field", "type", "default", ""), fields)
    rules = [(code(path or names["kind"]), rule) for path, rule in _rules("", schema)]
    if rules:
        yield "Rules across fields:\n"
        yield table(("field", "rule"), rules)
    if names["kind"] == "Queue":
        yield "What has to be in the policy for a field to have an effect, one of:\n"
        yield table(("field", "read by"), [(code(f"spec.{field.name}"), field.readers) for field in QUEUE_FIELDS])


def _fields(path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """A row for each field below a path, each before those below it."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        below = f"{path}.{name}"
        default = code(field["default"]) if field.get("default") not in (None, {}) else ""
        must = "**required** " if name in required else ""
        yield code(below), f"{must}{_type(field)}", default, field.get("description", "")
        yield from _fields(below, field)
        if field.get("type") == "array":
            yield from _fields(f"{below}[]", field["items"])


def _type(field: Mapping[str, Any]) -> str:
    """Type of a value, with its bounds, in words."""
    if "enum" in field:
        return " or ".join(code(value) for value in field["enum"] if value != "")
    if "properties" in field:
        return "object with one of its fields" if field.get("maxProperties") == 1 else "object"
    if field.get("format") == "date-time":
        return "time"
    if field.get("x-kubernetes-int-or-string"):
        return _AMOUNT
    match field.get("type"):
        case "array":
            return f"list of {_type(field['items'])}{_bounds(field, 'Items', ' entries')}"
        case "object":
            values = field.get("additionalProperties")
            return f"map to {_type(values)}" if isinstance(values, Mapping) else "object"
        case "integer" | "number" as kind:
            return f"{kind}{_bounds(field, 'imum')}"
        case kind:
            return f"{kind or 'any'}{_bounds(field, 'Length', ' characters')}"


def _bounds(field: Mapping[str, Any], what: str, unit: str = "") -> str:
    least, most = field.get(f"min{what}"), field.get(f"max{what}")
    if least is not None and most is not None:
        return f", {least} to {most}{unit}"
    if least is not None:
        return f", at least {least}{unit}"
    return "" if most is None else f", at most {most}{unit}"


def _rules(path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each rule below a path, and the field that it is about."""
    yield from ((path, rule["message"]) for rule in schema.get("x-kubernetes-validations", ()))
    for name, field in schema.get("properties", {}).items():
        yield from _rules(f"{path}.{name}".lstrip("."), field)
    if "items" in schema:
        yield from _rules(f"{path}[]", schema["items"])
