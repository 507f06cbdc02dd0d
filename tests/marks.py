"""Which files hold tests that are asked for, found by their text: to import the others takes each process seconds."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain, combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

_TESTS = Path(__file__).parent
#: marks that `make test` leaves out; those of cases (`one_in`) are added while tests are collected
_COSTLY = frozenset({"e2e", "exhaustive", "image", "operators", "perf"})
_MARK = re.compile(r"\bmark\.(\w+)")
_OF_ALL = re.compile(r"^pytestmark = pytest\.mark\.(\w+)", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file of which no test can have the marks that are asked for, unless it is named."""
    expression: str = config.option.markexpr
    asked = set(re.findall(r"\w+", expression)) - {"and", "or", "not"}
    if not asked or asked - _COSTLY or not collection_path.name.startswith("test_") or collection_path.is_dir():
        return None
    named = {(config.invocation_params.dir / each.partition("::")[0]).resolve() for each in config.args}
    if collection_path in named:
        return None
    of_all = _COSTLY & set(_OF_ALL.findall(collection_path.read_text(encoding="utf-8")))
    possible = (marks for marks in _subsets(_of_some(collection_path)) if of_all <= marks)
    return None if any(_selects(expression, marks) for marks in possible) else True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise UsageError for a test with a mark that the text of its file does not tell: it would be left out unseen."""
    for item in items:
        untold = {mark.name for mark in item.iter_markers()} & _COSTLY - _of_some(item.path)
        if untold:
            said = f"neither its file nor a conftest.py beside it has mark.{untold.pop()}"
            raise pytest.UsageError(f"{item.nodeid}: {said}")


@cache
def _of_some(path: Path) -> frozenset[str]:
    """Marks that a test of a file can have."""
    return _marks(path.read_text(encoding="utf-8")) | _of_fixtures(path.parent)


def _marks(text: str) -> frozenset[str]:
    found = set(_MARK.findall(text))
    return _COSTLY & (found | {"exhaustive"} if "one_in" in found else found)


@cache
def _of_fixtures(folder: Path) -> frozenset[str]:
    """Marks that parameters of a folder's fixtures have."""
    above = _of_fixtures(folder.parent) if folder.parent != _TESTS and _TESTS in folder.parents else frozenset()
    conftest = folder / "conftest.py"
    return above | _marks(conftest.read_text(encoding="utf-8")) if conftest.exists() and folder != _TESTS else above


@cache
def _subsets(marks: frozenset[str]) -> list[frozenset[str]]:
    return [frozenset(some) for some in chain.from_iterable(combinations(marks, n) for n in range(len(marks) + 1))]


@cache
def _selects(expression: str, marks: frozenset[str]) -> bool:
    return Expression.compile(expression).evaluate(lambda name, **_: name in marks)
