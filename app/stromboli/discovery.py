"""Finding actions and plugins: those of the package, those that pip installed, those in a folder of the user's.

A package offers plugins through entry points in group `stromboli.plugins`, whose values are classes. Every module in a
plugins folder is imported, and each class in it that derives from `Plugin` and has a name is one. A name that is taken
is an error: nobody replaces a plugin unnoticed.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import stromboli.actions
import stromboli.plugins
from stromboli.api.errors import PolicyError
from stromboli.framework.plugin import Plugin
from stromboli.framework.registry import Action, Registry

ENTRY_POINTS = "stromboli.plugins"

T = TypeVar("T")


def discover(plugins_folder: Path | None = None) -> Registry:
    """Everything that a policy can name.

    Raises PolicyError for a plugin that cannot be loaded or whose name is taken.
    """
    actions = {action.name: action for action in _in_package(stromboli.actions, Action)}
    plugins = {plugin.name: plugin for plugin in _in_package(stromboli.plugins, Plugin)}
    for where, plugin in (*_installed(), *(_in_folder(plugins_folder) if plugins_folder else ())):
        if plugin.name in plugins:
            raise PolicyError([f"{where}: the name {plugin.name!r} is taken by {_described(plugins[plugin.name])}"])
        plugins[plugin.name] = plugin
    return Registry(actions, plugins)


def _in_package(package: ModuleType, base: type[T]) -> Iterator[type[T]]:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        yield from _in_module(importlib.import_module(module.name), base)


def _in_module(module: ModuleType, base: type[T]) -> list[type[T]]:
    """The named classes that a module defines, or a package exports from its own modules."""
    return [
        found
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, base) and found.__module__.startswith(module.__name__) and hasattr(found, "name")
    ]


def _installed() -> Iterable[tuple[str, type[Plugin]]]:
    for entry in entry_points(group=ENTRY_POINTS):
        where = f"entry point {entry.name} of {entry.dist.name if entry.dist else entry.value}"
        try:
            plugin = entry.load()
        except Exception as error:
            raise PolicyError([f"{where}: {entry.value} cannot be loaded: {error}"]) from error
        if not (inspect.isclass(plugin) and issubclass(plugin, Plugin)):
            raise PolicyError([f"{where}: {entry.value} is not a class derived from stromboli.framework.Plugin"])
        yield where, plugin


def _in_folder(folder: Path) -> Iterable[tuple[str, type[Plugin]]]:
    for path in sorted(folder.glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"stromboli_plugins_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise PolicyError([f"{path}: cannot be loaded: {error}"]) from error
        for plugin in _in_module(module, Plugin):
            yield str(path), plugin


def _described(plugin: type[Plugin]) -> str:
    return f"{plugin.__module__}.{plugin.__qualname__}"
