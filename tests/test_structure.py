"""What the code shows of itself: who imports whom, and that nobody reaches into another module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "app"
#: of the standard library: what ends a process that hangs has no public name
ALLOWED = {"os._exit"}


@cache
def modules() -> dict[str, ast.Module]:
    """The trees of all modules, by dotted name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(), str(path))
    return found


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules of the package that one imports, for type checking as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & modules().keys() or {node.module} & modules().keys()


def graph(package: str) -> dict[str, set[str]]:
    """Who imports whom in a package."""
    inside = {name: tree for name, tree in modules().items() if name.startswith(f"{package}.")}
    return {name: set(imported(tree)) & inside.keys() for name, tree in inside.items()}


@pytest.mark.parametrize("package", ["stromboli.framework", "stromboli"])
def test_imports_go_in_no_circle(package: str) -> None:
    edges = graph(package)
    assert any(edges.values())
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        pytest.fail(" > ".join(error.args[1]))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(tree: ast.Module) -> set[str]:
    """What a module itself calls its attributes, functions, classes and variables."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            names.add(node.attr)
    return names


def foreign(tree: ast.Module) -> Iterator[str]:
    """The private names of others that a module imports or reads."""
    own = own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            yield ast.unparse(node)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from stromboli.state.cluster import _hidden", ["stromboli.state.cluster._hidden"]),
        ("import x\nx._hidden()", ["x._hidden"]),
        ("class A:\n    def f(self, other):\n        self._own = other._own, other._theirs", ["other._theirs"]),
        ("__all__ = []\ntype(x).__name__", []),
    ],
)
def test_what_counts_as_reaching_into_another_module(source: str, found: list[str]) -> None:
    assert list(foreign(ast.parse(source))) == found


def test_nobody_reaches_into_another_module() -> None:
    reached = {name: set(foreign(tree)) - ALLOWED for name, tree in modules().items()}
    assert {name: names for name, names in reached.items() if names} == {}


def required(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Each function of a module, and how many arguments it needs by place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            taken = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args) if arg.arg not in ("self", "cls")]
            yield node.name, len(taken) - len(node.args.defaults)


def test_no_function_needs_more_than_seven_arguments_by_place() -> None:
    many = {f"{name}.{function}": n for name, tree in modules().items() for function, n in required(tree) if n > 7}
    assert many == {}


@pytest.mark.parametrize("kind", ["plugins", "actions"])
def test_each_of_the_package_has_tests_of_its_own(kind: str) -> None:
    """In a module beside those of the others, or in a folder when there is much to say."""
    tests = Path(__file__).parent
    names = [name.rpartition(".")[2] for name in modules() if re.fullmatch(rf"stromboli\.{kind}\.\w+", name)]
    places = {name: (tests / kind / f"test_{name}.py", tests / name / "test_plugin.py") for name in names}
    assert len(names) > 5
    assert [name for name, paths in places.items() if not any(path.is_file() for path in paths)] == []
