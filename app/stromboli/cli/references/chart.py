"""The table of the chart's values: the comments above them in values.yaml, down to where its schema goes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from stromboli.cli.references.tables import code, table

#: defaults that are longer are read in the file
_LONGEST = 60


def markdown(chart: Path) -> str:
    """Every value of the chart in a folder, with its default and its comment."""
    text = (chart / "values.yaml").read_text(encoding="utf-8")
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    return table(("value", "default", "what it is"), _rows(root, schema, text.splitlines(), ""))


def _rows(
    node: yaml.MappingNode, schema: Mapping[str, Any], lines: Sequence[str], prefix: str
) -> Iterator[tuple[str, str, str]]:
    for key, value in node.value:
        said = _comment(lines, key.start_mark.line)
        known = schema.get("properties", {}).get(key.value, {})
        if isinstance(value, yaml.MappingNode) and "properties" in known:
            if said:
                yield code(f"{prefix}{key.value}"), "", said
            yield from _rows(value, known, lines, f"{prefix}{key.value}.")
        else:
            yield code(f"{prefix}{key.value}"), _default(value), said


def _comment(lines: Sequence[str], line: int) -> str:
    """The lines of comment directly above one, as text."""
    first = line
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(each.lstrip().removeprefix("#").strip() for each in lines[first:line])


def _default(value: yaml.Node) -> str:
    shown = json.dumps(yaml.safe_load(yaml.serialize(value)))
    return code(shown) if len(shown) <= _LONGEST else "as in the file"
