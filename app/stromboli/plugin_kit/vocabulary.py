"""The names in a plugin's code: keys and values of labels, annotations and taints, and resources.

What a plugin reads of nodes is not declared. On a cluster whose nodes lack it, the checks would show nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any

from stromboli.framework.plugin.base import Plugin

_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def words_of(plugin: type[Plugin], arguments: Any = None) -> frozenset[str]:
    """All texts in the code and arguments of a plugin that could be names or values of labels."""
    texts = set(_texts(arguments))
    if plugin.Arguments is not None:
        texts.update(_texts([field.get_default() for field in plugin.Arguments.model_fields.values()]))
    seen: set[object] = set()
    for cls in plugin.__mro__:
        if cls.__module__ != Plugin.__module__ and cls is not object:
            texts.update(_of(cls, plugin.__module__, seen))
    return frozenset(text for text in texts if _NAME.fullmatch(text))


def _of(value: Any, module: str, seen: set[object]) -> Iterator[str]:
    """The texts of a class or a function, and of the module members that it uses."""
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    if not isinstance(value, type | FunctionType | partial):
        yield from _texts(value)
    elif value not in seen:
        seen.add(value)
        for part in _parts(value, module):
            yield from _of(part, module, seen)


def _parts(value: Any, module: str) -> Iterator[Any]:
    """The parts of a class or function: members, constants, closures, and the module members that it uses."""
    if isinstance(value, type):
        yield from (member for name, member in list(vars(value).items()) if name != "name" and name[:2] != "__")
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    else:
        for code in _codes(value.__code__):
            yield code.co_consts
            named = (value.__globals__.get(name) for name in code.co_names)
            yield from (each for each in named if getattr(each, "__module__", module) == module)
        yield from value.__defaults__ or ()
        yield from (cell.cell_contents for cell in value.__closure__ or () if cell != CellType())


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _texts(value: Any) -> Iterator[str]:
    """The texts in plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts([*value.keys(), *value.values()])
    elif isinstance(value, Iterable) and isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _texts(item)
