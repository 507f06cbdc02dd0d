"""Whatever plugins leave from session to session, as plain data and back, exactly.

Beside plain Python values there are arrays, and dataclasses of types that plugins name: a file makes no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

#: kinds of arrays whose content is numbers
_NUMBERS = "biuf"
_DEEPEST = 32


class NotPlainError(ValueError):
    """A value of an unknown type, or with invalid data."""


def plain(value: Any, types: Iterable[type]) -> Any:
    """A value for MessagePack. Raises NotPlainError."""
    return _plain(value, {each: each.__name__ for each in types}, 0)


def _plain(value: Any, names: Mapping[type, str], depth: int) -> Any:
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if depth == _DEEPEST:
        raise NotPlainError(f"is nested more than {_DEEPEST} times")

    def all_of(values: Iterable[Any]) -> list[Any]:
        return [_plain(each, names, depth + 1) for each in values]

    match value:
        case list():
            return ["list", *all_of(value)]
        case tuple():
            return ["tuple", *all_of(value)]
        case dict():
            return ["dict", *(part for item in value.items() for part in all_of(item))]
        case frozenset():
            return ["frozenset", *all_of(sorted(value, key=repr))]
        case set():
            return ["set", *all_of(sorted(value, key=repr))]
        case np.ndarray() if value.dtype.kind in _NUMBERS:
            return ["array", value.dtype.str, list(value.shape), value.tobytes()]
        case np.generic() if value.dtype.kind in _NUMBERS:
            return ["number", value.dtype.str, value.tobytes()]
    name = names.get(type(value))
    if name is None or not is_dataclass(value):
        raise NotPlainError(f"a {type(value).__name__} cannot be kept")
    return ["object", name, *all_of(getattr(value, field.name) for field in fields(value))]


def value_of(content: Any, types: Iterable[type]) -> Any:
    """The value that `plain` made plain. Raises NotPlainError."""
    try:
        return _value(content, {each.__name__: each for each in types})
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPlainError(str(error) or type(error).__name__) from None


def _value(content: Any, types: Mapping[str, type]) -> Any:
    if not isinstance(content, list):
        if isinstance(content, dict):
            raise NotPlainError("a mapping is not a value")
        return content
    what, *parts = content
    match what:
        case "array" | "number":
            *form, data = parts
            dtype, shape = np.dtype(str(form[0])), tuple(form[1]) if what == "array" else ()
            if dtype.kind not in _NUMBERS or not all(isinstance(each, int) and each >= 0 for each in shape):
                raise NotPlainError("an array holds no numbers")
            array = np.frombuffer(data, dtype).reshape(shape)
            return array.copy() if what == "array" else array[()]
        case "object":
            name, *values = parts
            if name not in types:
                raise NotPlainError(f"there is no {name!r} to make")
            return types[name](*(_value(each, types) for each in values))
    values = [_value(each, types) for each in parts]
    match what:
        case "list":
            return values
        case "tuple":
            return tuple(values)
        case "dict":
            return dict(zip(values[::2], values[1::2], strict=True))
        case "frozenset":
            return frozenset(values)
        case "set":
            return set(values)
    raise NotPlainError(f"{what!r} is not a kind of value")
