"""Selectors: which label sets, and which nodes, a Kubernetes selector selects.

A selector is parsed once into hashable `Requirement`s. For nodes, and for pods, it is answered for all of them at once,
on the columns of numbers that `NodeFacts.label` and `PodFacts.label` give.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from stromboli.api import crds, objects, readers
from stromboli.api.resources import Mask
from stromboli.state.columns import Column, Numbers
from stromboli.state.nodes import NodeFacts

T = TypeVar("T")
Numbers64 = npt.NDArray[np.int64]


class Labelled(Protocol):
    """Rows with labels, as columns of numbers."""

    def __len__(self) -> int: ...

    def label(self, key: str) -> Numbers:
        """The number of each row's value of a label, -1 where it has none, shape (rows,)."""

    def labels(self, key: str) -> Column[str]:
        """The values of a label."""

    def label_values(self, key: str) -> Mapping[str, int]:
        """value -> number, at least for the values that rows have."""


class Integers:
    """The whole numbers among a label's values."""

    def __init__(self) -> None:
        #: whether each value is one, and the number, shape (2, values)
        self.numbers = np.zeros((2, 0), np.int64)

    def extend(self, values: Sequence[str]) -> None:
        read = [(number is not None, number or 0) for number in map(readers.integer, values)]
        self.numbers = np.concatenate([self.numbers, np.array(read, np.int64).reshape(-1, 2).T], axis=1)


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
                return len(self.values) == 1 and readers.integer(next(iter(self.values))) is not None
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
        number, bound = readers.integer(value), readers.integer(next(iter(self.values), None))
        if number is None or bound is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound

    def mask(self, facts: Labelled) -> Mask:
        """The nodes or pods whose label meets it, shape (rows,)."""
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
        return self._compared(facts.labels(self.key))

    def _compared(self, labels: Column[str]) -> Mask:
        """The rows whose number is greater, or less."""
        bound = readers.integer(next(iter(self.values), None))
        if bound is None:
            return np.zeros(len(labels.numbers), np.bool_)
        least, most = labels.derived(_as_integers)
        met: Mask = least > bound if self.operator == "Gt" else most < bound
        return met


def _as_integers(labels: Column[str]) -> tuple[Numbers64, Numbers64]:
    """The whole number in each row's label, twice: where there is none it is the least of all, and the greatest."""
    known, values = labels.index(Integers).numbers
    # the entry at the end is for -1, rows without the label
    there = np.append(known > 0, False)[labels.numbers]
    numbers = np.append(values, 0)[labels.numbers]
    limits = np.iinfo(np.int64)
    return np.where(there, numbers, limits.min), np.where(there, numbers, limits.max)


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

    def mask(self, facts: Labelled) -> Mask:
        """The nodes or pods that it selects, shape (rows,)."""
        out = np.ones(len(facts), np.bool_)
        for requirement in self.requirements:
            out &= requirement.mask(facts)
        return out

    @property
    def single(self) -> Requirement | None:
        """A requirement that only one value of a label meets; None without any."""
        for requirement in self.requirements:
            if requirement.operator == "In" and len(requirement.values) == 1:
                return requirement
        return None

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


def of_model(selector: crds.LabelSelector) -> Selector:
    """The selector of a custom resource."""
    requirements = [objects.Requirement(r.key, r.operator, r.values) for r in selector.match_expressions]
    return label_selector(objects.LabelSelector(selector.match_labels, requirements))


#: the parts of a written selector, and what each of them may be: a label's name, in words or bare
_PARTS = re.compile(r",(?![^()]*\))")
_NAME = r"([A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_AMONG = re.compile(rf"\s*{_NAME}\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL = re.compile(rf"\s*{_NAME}\s*(==|=|!=)\s*([-A-Za-z0-9_.]*)\s*")
_THERE = re.compile(rf"\s*(!?)\s*{_NAME}\s*")


def parsed(text: str) -> Selector | None:
    """A label selector as kubectl takes it, such as `team in (a, b),env!=test`; None when it cannot be read."""
    found = [_requirement_of(part) for part in _PARTS.split(text)]
    return None if None in found else Selector(tuple(each for each in found if each is not None))


def _requirement_of(part: str) -> Requirement | None:
    if match := _AMONG.fullmatch(part):
        values = frozenset(value.strip() for value in match[3].split(","))
        return Requirement(match[1], "In" if match[2] == "in" else "NotIn", values)
    if match := _EQUAL.fullmatch(part):
        return Requirement(match[1], "NotIn" if match[2] == "!=" else "In", frozenset((match[3],)))
    if match := _THERE.fullmatch(part):
        return Requirement(match[2], "DoesNotExist" if match[1] else "Exists")
    return None


def requirement(raw: objects.Requirement) -> Requirement:
    """A requirement of the API."""
    return Requirement(raw.key, raw.operator, frozenset(raw.values or ()))


def derived(facts: NodeFacts, make: Callable[[NodeFacts], T]) -> T:
    """A value that a function derives from node facts alone, cached until a node changes."""
    found = facts.cache.get(make)
    if found is None:
        found = facts.cache[make] = make(facts)
    return cast(T, found)
