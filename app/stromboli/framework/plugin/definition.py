"""Mistakes that a plugin's class alone reveals: methods that would never be called."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from stromboli.api.errors import StromboliError
from stromboli.api.validation import nearest


class PluginDefinitionError(StromboliError, TypeError):
    """A plugin's class is not defined as intended."""


def check_methods(cls: type, base: type) -> None:
    """Check that each public method overrides one of the base class with a compatible signature.

    Raises PluginDefinitionError, which names the method and, if the name is unknown, the closest known one.
    """
    points = dict(public_methods(base))
    for name, method in _own_methods(cls, base):
        if name not in points:
            near = nearest(name, points)
            hint = f"; did you mean {near!r}?" if near else ""
            raise PluginDefinitionError(
                f"{_where(cls, name)} is no extension point{hint} (names of helpers begin with an underscore)"
            )
        _check_signature(cls, name, method, points[name])


def _own_methods(cls: type, base: type) -> Iterator[tuple[str, Any]]:
    """The public names that a class and its bases, other than the plugin base, define."""
    points = {name for name, _ in public_methods(base)}
    for owner in cls.__mro__:
        if owner is object or issubclass(base, owner):
            continue
        for name, value in vars(owner).items():
            called = inspect.isroutine(value) or isinstance(value, staticmethod | classmethod)
            if not name.startswith("_") and (called or name in points):
                yield name, value


def public_methods(base: type) -> Iterator[tuple[str, Any]]:
    """The methods that a class and those that it derives from define under public names, in their order."""
    for owner in base.__mro__[:-1]:
        yield from (
            (name, value) for name, value in vars(owner).items() if inspect.isfunction(value) and name[0] != "_"
        )


def _check_signature(cls: type, name: str, method: Any, expected: Any) -> None:
    function = method.__func__ if isinstance(method, staticmethod | classmethod) else method
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise PluginDefinitionError(f"{_where(cls, name)} should be a plain method")
    parameters = list(inspect.signature(expected).parameters)
    arguments = len(parameters) - isinstance(method, staticmethod)
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        takes = ", ".join(parameters)
        raise PluginDefinitionError(f"{_where(cls, name)} should take ({takes})") from None
    except ValueError:  # a function of an extension module does not say what it takes
        return


def _where(cls: type, name: str) -> str:
    return f"plugin {getattr(cls, 'name', cls.__name__)!r}: method {name!r} of class {cls.__qualname__}"
