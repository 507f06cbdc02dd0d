"""docs/reasons.md names the reasons that the code gives, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls that make a Reason."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reason":
            yield node


def test_every_reason_is_documented() -> None:
    given = set()
    for path in (ROOT / "app").rglob("*.py"):
        for call in calls(ast.parse(path.read_text())):
            word = call.args[1]
            if isinstance(word, ast.Constant):
                given.add(word.value)
    listed = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "reasons.md").read_text(), re.MULTILINE))
    assert len(given) > 25
    assert given <= listed
    source = "".join(path.read_text() for path in (ROOT / "app").rglob("*.py"))
    assert [word for word in listed if f'"{word}"' not in source] == []
