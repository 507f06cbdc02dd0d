"""Structural schemas of custom resources: unknown fields are pruned, defaults filled in, values validated.

Supports what the schemas of schedulers and operators use. CEL rules, formats and `oneOf`/`anyOf` are not evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from stromboli.api.patterns import compiled

Schema = Mapping[str, Any]

_pattern = cache(compiled)

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
#: keywords that do not constrain the value itself
_STRUCTURE = frozenset({"properties", "additionalProperties", "items", "required"})
_UNTYPED_ROOT = frozenset({"apiVersion", "kind", "metadata"})


def conform(body: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """`body` without fields unknown to the schema and with its defaults; the argument is not changed."""
    shaped: dict[str, Any] = _shape({k: v for k, v in body.items() if k not in _UNTYPED_ROOT}, schema)
    return {**{k: body[k] for k in _UNTYPED_ROOT if k in body}, **shaped}


def problems(body: dict[str, Any], schema: Schema, *, nulls: bool = True) -> list[tuple[str, str]]:
    """(field path, problem) for each value of `body` that violates the schema.

    `nulls` says whether null is a value, or means absent.
    """
    return list(_check({k: v for k, v in body.items() if k not in _UNTYPED_ROOT}, schema, "", nulls))


def _shape(value: Any, schema: Schema) -> Any:
    if isinstance(value, dict):
        return _shape_object(value, schema)
    if isinstance(value, list) and "items" in schema:
        return [_shape(item, schema["items"]) for item in value]
    return value


def _shape_object(value: dict[str, Any], schema: Schema) -> dict[str, Any]:
    known: Mapping[str, Schema] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    keep_unknown = schema.get("x-kubernetes-preserve-unknown-fields", False) or others is True
    shaped: dict[str, Any] = {}
    for name, item in value.items():
        inner = known.get(name, others if isinstance(others, dict) else None)
        if inner is not None:
            # A null means absent where the schema has a default and does not allow null.
            if item is not None or inner.get("nullable") or "default" not in inner:
                shaped[name] = _shape(item, inner)
        elif keep_unknown or (schema.get("x-kubernetes-embedded-resource") and name in _UNTYPED_ROOT):
            shaped[name] = item
    for name, inner in known.items():
        if name not in shaped and "default" in inner:
            shaped[name] = _shape(inner["default"], inner)
    return shaped


def _check(value: Any, schema: Schema, path: str, nulls: bool) -> Iterator[tuple[str, str]]:
    if value is None:
        if nulls and not schema.get("nullable") and schema.get("type"):
            yield path, f'Invalid value: "null": {path} in body must be of type {schema["type"]}: "null"'
        return
    if _STRUCTURE.issuperset(schema):
        yield from _check_inner(value, schema, path, nulls)
        return
    if not _has_type(value, schema):
        wanted = schema.get("type", "integer or string")
        kind = _json_type(value)
        yield path, f'Invalid value: "{kind}": {path} in body must be of type {wanted}: "{kind}"'
        return
    for what in _value_problems(value, schema):
        yield path, what.format(path=path)
    yield from _check_inner(value, schema, path, nulls)


def _check_inner(value: Any, schema: Schema, path: str, nulls: bool) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        yield from _check_object(value, schema, path, nulls)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _check(item, schema["items"], f"{path}[{index}]", nulls)


def _check_object(value: dict[str, Any], schema: Schema, path: str, nulls: bool) -> Iterator[tuple[str, str]]:
    prefix = f"{path}." if path else ""
    for name in schema.get("required") or ():
        if name not in value or not (nulls or value[name] is not None):
            yield f"{prefix}{name}", "Required value"
    known: Mapping[str, Schema] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    for name, item in value.items():
        inner = known.get(name, others if isinstance(others, dict) else None)
        if inner is not None:
            yield from _check(item, inner, f"{prefix}{name}", nulls)


def _has_type(value: Any, schema: Schema) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, (int, str)) and not isinstance(value, bool)
    wanted = schema.get("type")
    if wanted is None:
        return True
    if isinstance(value, bool):
        return bool(wanted == "boolean")
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[wanted])


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next((name for name, types in _TYPES.items() if isinstance(value, types)), "null")


def _value_problems(value: Any, schema: Schema) -> Iterator[str]:
    """The problem of a value of the right type; `{path}` stands for its field path."""
    if "enum" in schema and value not in schema["enum"]:
        listed = ", ".join(f'"{choice}"' for choice in schema["enum"])
        yield f'Unsupported value: "{_shown(value)}": supported values: {listed}'
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            yield f"{_invalid(value)} should be greater than or equal to {schema['minimum']}"
        if "maximum" in schema and value > schema["maximum"]:
            yield f"{_invalid(value)} should be less than or equal to {schema['maximum']}"
    elif isinstance(value, str):
        if len(value) > schema.get("maxLength", len(value)):
            yield f"Too long: may not be more than {schema['maxLength']} bytes"
        if len(value) < schema.get("minLength", 0):
            yield f"{_invalid(value)} should be at least {schema['minLength']} chars long"
        if "pattern" in schema and not _pattern(schema["pattern"]).search(value):
            yield f"{_invalid(value)} should match '{schema['pattern'].replace('{', '{{').replace('}', '}}')}'"
    elif isinstance(value, (dict, list)):
        entries = "Properties" if isinstance(value, dict) else "Items"
        least, most = schema.get(f"min{entries}", 0), schema.get(f"max{entries}", len(value))
        if len(value) < least:
            yield f"Invalid value: {len(value)}: {{path}} in body should have at least {least} {entries.lower()}"
        if len(value) > most:
            yield f"Too many: {len(value)}: must have at most {most} items"


def _invalid(value: Any) -> str:
    quote = '"' if isinstance(value, str) else ""
    return f"Invalid value: {quote}{_shown(value)}{quote}: {{path}} in body"


def _shown(value: Any) -> str:
    """A value in a text that is formatted later."""
    text = json.dumps(value, ensure_ascii=False)[1:-1] if isinstance(value, str) else str(value)
    return text.replace("{", "{{").replace("}", "}}")
