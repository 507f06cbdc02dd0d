"""Shorter forms of parts of a policy that users write, and their meaning.

A form is an error that says how it is to be written. What it means is read on, so that mistakes in it are named, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

#: a value in place of a list's entry -> its proper form, and the entry; None for a value without a meaning
Shorthand: TypeAlias = Callable[[object], tuple[str, dict[str, Any]] | None]

_SEPARATORS = re.compile(r"[\s,;|]+")


def action_names(value: object) -> tuple[str, ...] | None:
    """The names of actions that a value stands for; None if it names none."""
    if isinstance(value, str):
        return tuple(filter(None, _SEPARATORS.split(value))) or None
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(name.strip() for name in value) or None
    return None


def nothing(_: object) -> None:
    """A list that has no shorter form of entries."""


def named(value: object) -> tuple[str, dict[str, Any]] | None:
    """A plugin or an action by nothing but its name."""
    return (f"name: {value}", {"name": value}) if isinstance(value, str) else None


def tier(value: object) -> tuple[str, dict[str, Any]] | None:
    """A tier that is its plugins: the name of one, one as it is configured, or a list of them."""
    if isinstance(value, str):
        return f"plugins: [name: {value}]", {"plugins": [{"name": value}]}
    if isinstance(value, Mapping) and "name" in value and "plugins" not in value:
        return f"plugins: [name: {value['name']}]", {"plugins": [value]}
    return ("plugins: [...]", {"plugins": value}) if isinstance(value, list) else None


def entries(value: object, meaning: Shorthand) -> tuple[str, list[dict[str, Any]]]:
    """Suggested form of a list given as names or as one entry, and its entries; both empty for anything else."""
    if isinstance(value, dict):
        return "", [value]
    names = _SEPARATORS.split(value.strip()) if isinstance(value, str) else ()
    meant = [found for found in map(meaning, names) if found]
    return ", ".join(f"'- {written}'" for written, _ in meant), [entry for _, entry in meant]
