"""The values of expressions: Python's own, quantities, versions, and the maps of a device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import total_ordering
from typing import Any

from stromboli.api.errors import StromboliError

#: the API's limit on the length of a version
_LONGEST_VERSION = 64
#: length to which values are cut in messages
_SHOWN = 60


class CelError(StromboliError):
    """An invalid expression, or one that has no value for a device."""


class CostError(StromboliError):
    """An expression that exceeds its cost budget."""


@total_ordering
class Quantity:
    """A Kubernetes quantity."""

    __slots__ = ("value",)

    def __init__(self, value: Fraction) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.value == other.value

    def __lt__(self, other: Quantity) -> bool:
        return self.value < other.value

    def __hash__(self) -> int:
        return hash(self.value)


@total_ordering
class Version:
    """A semantic version, 2.0.0; build metadata after `+` is ignored."""

    __slots__ = ("_key", "release")
    _PATTERN = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")

    def __init__(self, text: str) -> None:
        match = self._PATTERN.fullmatch(text) if len(text) <= _LONGEST_VERSION else None
        if match is None:
            raise CelError(f"{shown(text)} is not a semantic version")
        before = tuple(
            (not part.isdigit(), int(part) if part.isdigit() else part) for part in (match[4] or "").split(".")
        )
        #: major, minor and patch
        self.release = (int(match[1]), int(match[2]), int(match[3]))
        # A release follows all of its pre-releases.
        self._key = (self.release, match[4] is None, before)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key == other._key

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)


@dataclass(frozen=True, slots=True)
class Maybe:
    """An optional value."""

    #: the value, or nothing
    some: tuple[Any, ...]


class Domains(dict[str, Mapping[str, Any]]):
    """Attributes by domain. A domain without attributes is empty."""

    def __missing__(self, domain: str) -> Mapping[str, Any]:
        return {}


_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    type(None): "null",
    list: "list",
    Quantity: "quantity",
    Version: "semver",
    Maybe: "optional_type",
}


def kind(value: Any) -> str:
    """CEL's name for the type of a value."""
    return _NAMES.get(type(value), "map")


def shown(value: Any) -> str:
    """A value as shown in messages."""
    text = repr(value[: _SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
