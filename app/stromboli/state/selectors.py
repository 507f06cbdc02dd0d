"""Selectors: which label sets, and which nodes, a Kubernetes selector selects.

A selector is parsed once into hashable `Requirement`s. For nodes it is answered for all of them at once, on the columns
of numbers that `NodeFacts.label` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from stromboli.api import objects
from stromboli.api.resources import Mask
from stromboli.state.nodes import NodeFacts

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on the value of one label. Use `is_valid` before relying on `holds`."""

    key: str
    #: In, NotIn, Exists, DoesNotExist, Gt or Lt
    operator: str
    values: frozenset[str] = frozenset()

    @property
    def is_valid(self) -> bool:
        """Whether Kubernetes would accept it; a selector with an invalid requirement selects nothing."""
        match self.operator:
            case "In" | "NotIn":
                return bool(self.values)
            case "Exists" | "DoesNotExist":
                return not self.values
            case "Gt" | "Lt":
                return len(self.values) == 1 and _integer(next(iter(self.values))) is not None
        return False

    def holds(self, value: str | None) -> bool:
        """Whether a label's value, None when the label is absent, meets it."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        number, bound = _integer(value), _integer(next(iter(self.values), None))
        if number is None or bound is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound

    def mask(self, facts: NodeFacts) -> Mask:
        """The nodes whose label meets it, shape (nodes,)."""
        column = facts.label(self.key)
        match self.operator:
            case "Exists":
                return column >= 0
            case "DoesNotExist":
                return column < 0
        values = facts.label_values(self.key)
        if self.operator in ("In", "NotIn"):
            numbers = [values[value] for value in self.values if value in values]
            found = column == numbers[0] if len(numbers) == 1 else np.isin(column, numbers)
            return ~found if self.operator == "NotIn" else found
        # the entry at the end answers for -1, nodes without the label
        answers = np.array([*map(self.holds, values), False], np.bool_)
        met: Mask = answers[column]
        return met


#: no value is in the empty set
_NEVER = Requirement("", "In")


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that must all hold; without any it selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects a set of labels."""
        for requirement in self.requirements:  # noqa: SIM110 - asked for every pod: a generator takes twice as long
            if not requirement.holds(labels.get(requirement.key)):
                return False
        return True

    def narrowed(self, requirements: Iterable[Requirement]) -> Selector:
        """This selector with more requirements."""
        return Selector((*self.requirements, *requirements))


EVERYTHING = Selector()
NOTHING = Selector((_NEVER,))


def label_selector(selector: objects.LabelSelector | None) -> Selector:
    """A label selector of the API; an absent or invalid one selects nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    requirements = [Requirement(k, "In", frozenset((v,))) for k, v in (selector.match_labels or {}).items()]
    requirements += [requirement(raw) for raw in selector.match_expressions or ()]
    if not all(r.is_valid and r.operator not in ("Gt", "Lt") for r in requirements):
        return NOTHING
    return Selector(tuple(requirements))


def requirement(raw: objects.Requirement) -> Requirement:
    """A requirement of the API."""
    return Requirement(raw.key, raw.operator, frozenset(raw.values or ()))


def derived(facts: NodeFacts, make: Callable[[NodeFacts], T]) -> T:
    """What a function derives from the facts alone, kept until a node changes."""
    found = facts.cache.get(make)
    if found is None:
        found = facts.cache[make] = make(facts)
    return cast(T, found)


def _integer(text: str | None) -> int | None:
    try:
        return int(text) if text else None
    except ValueError:
        return None
