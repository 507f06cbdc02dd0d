"""Discovery of actions and plugins: those of the package, those installed with pip, and those in a user's folder.

A package registers classes by entry points in the groups `stromboli.plugins` and `stromboli.actions`. In a plugins
folder every module is imported, and each named class derived from `Plugin` or `Action` is registered. A name that is
taken is an error, so that no plugin is replaced silently.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

import stromboli.actions
import stromboli.plugins
from stromboli.api.errors import PolicyError, StromboliError
from stromboli.framework.action import Action
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.registry import Registry

#: the group of entry points of plugins, and the base class of each group
PLUGINS = "stromboli.plugins"
GROUPS: dict[str, type[Any]] = {"stromboli.actions": Action, PLUGINS: Plugin}
#: prefix of the names of a folder's modules
_FOLDER = "stromboli_plugins_"
_PACKAGES = {Action: stromboli.actions, Plugin: stromboli.plugins}


def discover(plugins_folder: Path | None = None) -> Registry:
    """The actions and plugins that a policy can name.

    Raises PolicyError for a class that cannot be loaded or whose name is taken.
    """
    modules = list(_folder(plugins_folder)) if plugins_folder else []
    found: dict[type[Any], dict[str, type[Any]]] = {}
    for group, base in GROUPS.items():
        named = found[base] = {each.name: each for each in _in_package(_PACKAGES[base], base)}
        strangers = [*_installed(group, base), *((str(path), c) for path, m in modules for c in _in_module(m, base))]
        for where, each in strangers:
            if each.name in named:
                raise PolicyError([f"{where}: the name {each.name!r} is taken by {_called(named[each.name])}"])
            named[each.name] = each
    return Registry(found[Action], found[Plugin])


def nameless(base: type[Any]) -> list[str]:
    """The classes of a folder's modules that a policy cannot name."""
    return [
        each.__name__
        for each in base.__subclasses__()
        if each.__module__.startswith(_FOLDER) and not hasattr(each, "name")
    ]


def _in_package(package: ModuleType, base: type[Any]) -> Iterator[type[Any]]:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        yield from _in_module(importlib.import_module(module.name), base)


def _in_module(module: ModuleType, base: type[Any]) -> list[type[Any]]:
    """The named classes that a module defines, or that a package exports from its own modules."""
    return [
        found
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, base) and found.__module__.startswith(module.__name__) and hasattr(found, "name")
    ]


def _installed(group: str, base: type[Any]) -> Iterator[tuple[str, type[Any]]]:
    for entry in entry_points(group=group):
        where = f"entry point {entry.name} of {entry.dist.name if entry.dist else entry.value}"
        try:
            found = entry.load()
        except BaseException as error:
            raise PolicyError([f"{where}: {entry.value} cannot be loaded: {_told(error)}"]) from error
        if not (inspect.isclass(found) and issubclass(found, base)):
            expected = f"{base.__module__}.{base.__qualname__}"
            raise PolicyError([f"{where}: {entry.value} is not a class derived from {expected}"])
        if not isinstance(getattr(found, "name", None), str):
            raise PolicyError([f"{where}: {entry.value} has no name"])
        yield where, found


def _folder(folder: Path) -> Iterator[tuple[Path, ModuleType]]:
    """The modules of a folder, imported."""
    for path in python_files(folder):
        name = f"{_FOLDER}{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # So that the module of a class can be found by name, as pickling and inspecting need.
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            line = next(
                (at.lineno for at in reversed(extract_tb(error.__traceback__)) if Path(at.filename).name == path.name),
                None,
            )
            told = f"{_told(error)}{f' (line {line})' if line else ''}"
            raise PolicyError([f"{path}: cannot be loaded: {told}"]) from error
        yield path, module


def python_files(folder: Path) -> list[Path]:
    """The files that are imported of a folder. Raises PolicyError when it cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".py")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise PolicyError([f"{folder}: cannot be read as a plugins folder: {why}"]) from None


def _called(found: type[Any]) -> str:
    """A class by its module, or its file in a plugins folder."""
    if not found.__module__.startswith(_FOLDER):
        return f"{found.__module__}.{found.__qualname__}"
    return f"class {found.__qualname__} of {found.__module__.removeprefix(_FOLDER)}.py"


def _told(error: BaseException) -> str:
    """An error in one line, with its class unless its message is enough."""
    words = " ".join(str(error).split()) if isinstance(error, Exception) else ""
    clear = isinstance(error, StromboliError | ImportError | SyntaxError)
    return words if words and clear else f"{type(error).__name__}: {words}" if words else repr(error)
