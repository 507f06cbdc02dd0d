"""Numbers in sentences, and that all sentences have them from one place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stromboli.api.words import counted, measured

PACKAGE = Path(__file__).parents[2] / "app" / "stromboli"
#: nouns that are counted in messages, after a number that may be 1
_PLURAL = re.compile(
    r" (?:more |other |of the )?"
    r"(?:pods|nodes|jobs|queues|devices|cards|PodGroups|HyperNodes|claims|volumes|others|times)\b"
)
#: the same in the text of a file, be it in the next part of a string that is written in several
_WRITTEN = re.compile(rf"""\}}(?:["']\s*f?["'])?{_PLURAL.pattern}""")
#: numbers that are never 1
_MANY = re.compile(r"\b_?[A-Z]{2,}|len\(of_job\.bound\)|\bcount\b|\btimes\b|\bspec\[|\bcards\b|^words$")
#: what is measured, in tables
_TABLES = {"cli/lab.py", "cli/lab_starts.py", "cli/matrix.py", "cli/bench.py", "plugin_kit/trial.py"}


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (counted(1, "pod"), "1 pod"),
        (counted(0, "pod"), "0 pods"),
        (counted(1_200.0, "more node"), "1,200 more nodes"),
        (measured("1", "pods"), "1 pod"),
        (measured("2", "pods"), "2 pods"),
        (measured("1", "cpu"), "1 cpu"),
    ],
)
def test_one_is_singular(told: str, says: str) -> None:
    assert told == says


def _plurals(source: str) -> Iterator[str]:
    """Numbers in f-strings that a plural follows at once, but for parts of a whole (`2 of N`)."""
    nodes = ast.walk(ast.parse(source)) if _WRITTEN.search(source) else ()
    for text in (node for node in nodes if isinstance(node, ast.JoinedStr)):
        before = ""
        for value, after in zip(text.values, text.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                written = ast.unparse(value.value)
                if _PLURAL.match(str(after.value)) and not _MANY.search(written) and not before.endswith("0/"):
                    yield f"{{{written}}}{after.value}"
            before = str(value.value) if isinstance(value, ast.Constant) else ""


def test_no_message_puts_a_plural_behind_a_number_by_itself() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {each}"
        for path in PACKAGE.rglob("*.py")
        if str(path.relative_to(PACKAGE)) not in _TABLES
        for each in _plurals(path.read_text())
    }
    assert found == set()
