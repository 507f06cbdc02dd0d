"""The table of Kubernetes' types beside what a real API server says of its kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.e2e

_REFERENCE = "#/definitions/"


def test_every_field_of_the_api_server_is_in_the_table(api: httpx.Client, repository: Path) -> None:
    table = json.loads((repository / "app" / "stromboli" / "simulation" / "kubernetes_types.json").read_text())
    definitions = api.get("/openapi/v2").raise_for_status().json()["definitions"]
    missing = {
        f"{kind}.{path}"
        for kind, type_ in table["kinds"].items()
        for name, definition in definitions.items()
        if {"kind": kind, "version": "v1"}.items() <= _kind(definition).items()
        for path in _missing(definitions, name, table["types"], type_, set())
    }
    assert missing == set()


def _kind(definition: Mapping[str, Any]) -> Mapping[str, str]:
    """The one kind of a definition, empty for types that are none or belong to many."""
    kinds = definition.get("x-kubernetes-group-version-kind", [])
    return kinds[0] if len(kinds) == 1 else {}


def _missing(
    definitions: Mapping[str, Any], name: str, types: Mapping[str, Mapping[str, str]], type_: str, seen: set[str]
) -> Iterator[str]:
    """The paths of fields that a definition has and a type of the table has not."""
    if name in seen or type_ not in types:
        return
    seen.add(name)
    for field, schema in definitions[name].get("properties", {}).items():
        if field not in types[type_]:
            yield field
            continue
        inner = schema.get("items") or schema.get("additionalProperties") or schema
        reference = inner.get("$ref", "") if isinstance(inner, dict) else ""
        if reference:
            inside = _missing(
                definitions, reference.removeprefix(_REFERENCE), types, types[type_][field].lstrip("[]{}"), seen
            )
            yield from (f"{field}.{path}" for path in inside)
