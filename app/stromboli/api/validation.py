"""What pydantic found wrong, told in one line: where it is, what was expected and what was found."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic_core import ErrorDetails

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SHOWN = 60


def field_path(keys: Iterable[int | str], prefix: str = "") -> str:
    """Keys and indexes as Kubernetes writes them: `spec.members[0].type`, `spec.deserved[nvidia.com/gpu]`."""
    path = prefix
    for key in keys:
        if isinstance(key, str) and _NAME.fullmatch(key):
            path += f".{key}" if path else key
        else:
            path += f"[{key}]"
    return path


def shown(value: object) -> str:
    """A value as an error message quotes it: its repr, cut when it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def problem(error: ErrorDetails) -> str:
    """What is wrong with the value that one validation error is about."""
    kind, message, found = error["type"], error["msg"], error["input"]
    if kind == "missing":
        return "is required"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind == "model_type":
        message = "Input should be a mapping"
    return f"{message[:1].lower()}{message[1:]}, not {shown(found)}"
