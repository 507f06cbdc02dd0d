"""Which plugin an error arose in, where it was not caught at the call of a plugin's method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import unwrap
from traceback import walk_tb
from types import CodeType, FunctionType
from typing import Any

from stromboli.framework.plugin.base import Plugin
from stromboli.framework.runtime.checks import AnswerError


def culprit(error: BaseException, plugins: Sequence[Plugin]) -> Plugin | None:
    """The innermost plugin whose code raised an error; None if no plugin was involved.

    Its code is what its class defines, and everything else in its module. It is looked up in the traceback, so calling
    a plugin costs nothing extra.
    """
    if isinstance(error, KeyboardInterrupt):
        return None
    if isinstance(error, AnswerError):
        return error.plugin if isinstance(error.plugin, Plugin) else None
    by_module = {type(plugin).__module__: plugin for plugin in plugins}
    by_code = {code: plugin for plugin in plugins for code in _codes(type(plugin))}
    found = None
    for frame, _ in walk_tb(error.__traceback__):
        found = by_code.get(frame.f_code) or by_module.get(frame.f_globals.get("__name__", "")) or found
    # A StopIteration that leaves a generator becomes a RuntimeError, whose cause has the generator's frames.
    return found or (culprit(error.__cause__, plugins) if error.__cause__ else None)


def _codes(plugin: type[Plugin]) -> Iterator[CodeType]:
    """The code of the methods that a class and its bases define, without those of `Plugin`."""
    for owner in plugin.__mro__:
        if not issubclass(Plugin, owner):
            yield from (code for value in vars(owner).values() if (code := _code(value)))


def _code(value: Any) -> CodeType | None:
    function = unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))
    return function.__code__ if isinstance(function, FunctionType) else None
