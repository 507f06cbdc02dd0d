"""The structure of the code: imports, private names, and limits on the size of modules and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "app"
#: private names of the standard library without a public equivalent
ALLOWED = {"os._exit", "sys._current_frames"}


def path_of(name: str) -> Path:
    """The file of a module."""
    path = ROOT.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def modules() -> dict[str, list[ast.AST]]:
    """What is in all modules, by dotted name: each begins with its tree."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = list(ast.walk(ast.parse(path.read_text(), str(path))))
    return found


@cache
def imported(name: str) -> frozenset[str]:
    """The modules of the package that one imports, for type checking as well."""
    return frozenset(_imported(modules()[name]))


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & modules().keys() or {node.module} & modules().keys()


def graph(package: str) -> dict[str, set[str]]:
    """The modules of a package, each with the modules that it imports."""
    inside = {name for name in modules() if name.startswith(f"{package}.")}
    return {name: imported(name) & inside for name in inside}


@pytest.mark.parametrize("package", ["stromboli.framework", "stromboli"])
def test_imports_have_no_cycles(package: str) -> None:
    edges = graph(package)
    assert any(edges.values())
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        pytest.fail(" > ".join(error.args[1]))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(nodes: list[ast.AST]) -> set[str]:
    """The names of attributes, functions, classes and variables that a module defines."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            names.add(node.attr)
    return names


def foreign(nodes: list[ast.AST]) -> Iterator[str]:
    """The private names of other modules that a module imports or reads."""
    own = own_names(nodes)
    for node in nodes:
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
    assert list(foreign(list(ast.walk(ast.parse(source))))) == found


def test_private_names_are_used_in_their_own_module_only() -> None:
    reached = {name: set(foreign(nodes)) - ALLOWED for name, nodes in modules().items()}
    assert {name: names for name, names in reached.items() if names} == {}


def unread(nodes: list[ast.AST], elsewhere: Set[str] = frozenset()) -> set[str]:
    """The private variables and attributes that a module sets and that are never read.

    Attributes may be read `elsewhere`, by a class that inherits them or from which theirs inherits.
    """
    variables: set[str] = set()
    module = nodes[0]
    assert isinstance(module, ast.Module)
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        variables.update(target.id for target in targets if isinstance(target, ast.Name))
    attributes = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    return {name for name in variables | attributes - elsewhere if is_private(name)} - read(nodes)


def read(nodes: list[ast.AST]) -> set[str]:
    """The names of variables and attributes that are read."""
    loaded = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Load)]
    variables = {node.id for node in loaded if isinstance(node, ast.Name)}
    return variables | {node.attr for node in loaded if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("_A = _B = 1\nprint(_B)", {"_A"}),
        ("_A: int = 1", {"_A"}),
        ("class A:\n    def f(self):\n        self._x, self._y = 1, 2\n        return self._y", {"_x"}),
        ("def f():\n    _unused, used = g()\n    return used", set()),
    ],
)
def test_what_counts_as_set_and_never_read(source: str, found: set[str]) -> None:
    assert unread(list(ast.walk(ast.parse(source)))) == found


def test_private_variables_and_attributes_are_read() -> None:
    related = {name: set(imported(name)) for name in modules()}
    for name in modules():
        for base in imported(name):
            related[base].add(name)
    reads = {name: read(nodes) for name, nodes in modules().items()}
    found = {
        name: unread(nodes, set().union(*(reads[each] for each in related[name]))) for name, nodes in modules().items()
    }
    assert {name: names for name, names in found.items() if names} == {}


#: app factories: functions that are a list of routes
FACTORIES = {
    "stromboli.dashboard.routes.dashboard_routes",
    "stromboli.http.api.api_routes",
    "stromboli.ui.app.make_ui",
}


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All functions of the package by `MODULE.NAME`."""
    for module, nodes in modules().items():
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{module}.{node.name}", node


@cache
def commands() -> frozenset[str]:
    """The functions whose parameters are options of a command."""
    for node in modules()["stromboli.cli"]:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_COMMANDS" and node.value is not None:
            groups = ast.literal_eval(node.value)
            return frozenset(
                "stromboli.cli." + at.replace(":", ".") for group in groups.values() for at in group.values()
            )
    raise AssertionError("no table of commands")


def is_command(name: str) -> bool:
    return name in commands()


def test_no_module_has_more_than_400_lines() -> None:
    lengths = {name: path_of(name).read_text().count("\n") for name in modules()}
    assert {name: lines for name, lines in lengths.items() if lines > 400} == {}


def test_no_function_has_more_than_50_lines() -> None:
    """Parameters of commands aside, which take a line or more each."""
    long = []
    for name, node in functions():
        first = node.body[0].lineno if is_command(name) else node.lineno
        if (node.end_lineno or first) - first >= 50 and name not in FACTORIES:
            long.append((name, node.lineno))
    assert long == []


def test_no_function_but_commands_has_more_than_seven_parameters() -> None:
    many = []
    for name, node in functions():
        given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if len([arg for arg in given if arg.arg not in ("self", "cls")]) > 7 and not is_command(name):
            many.append((name, node.lineno))
    assert many == []


def test_what_may_be_long_is_there() -> None:
    assert {name for name, _ in functions()} >= FACTORIES


@pytest.mark.parametrize("kind", ["plugins", "actions"])
def test_each_of_the_package_has_tests_of_its_own(kind: str) -> None:
    """In a module or a folder of its own."""
    tests = Path(__file__).parent
    names = [name.rpartition(".")[2] for name in modules() if re.fullmatch(rf"stromboli\.{kind}\.\w+", name)]
    places = {name: (tests / kind / f"test_{name}.py", tests / name / "test_plugin.py") for name in names}
    assert len(names) > 5
    assert [name for name, paths in places.items() if not any(path.is_file() for path in paths)] == []


#: what attempts change on jobs and groups, and where it is set: by statements, and when a session finds it
OF_ATTEMPTS = {"allocated_hyper_node", "anchor", "nominated_hyper_node", "nominations_void"}
SET_BY = {
    "stromboli.framework.cluster.job",
    "stromboli.framework.session.statement",
    "stromboli.framework.cluster.topology",
    "stromboli.framework.cluster.view",
}


def test_what_attempts_change_on_jobs_is_changed_by_statements() -> None:
    set_in: dict[str, set[str]] = {}
    for name, nodes in modules().items():
        for node in nodes:
            of_self = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not of_self:
                set_in.setdefault(node.attr, set()).add(name)
    assert set.union(*(set_in[attribute] for attribute in OF_ATTEMPTS)) <= SET_BY
