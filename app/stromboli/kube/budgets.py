"""PodDisruptionBudgets, and which of them the eviction of a pod uses up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, cast

import msgspec

from stromboli.api import objects
from stromboli.api.resources import Rows
from stromboli.state.plain import NO_OBJECTS, PlainObjects
from stromboli.state.pod_facts import PodFacts
from stromboli.state.pods import PodRecord
from stromboli.state.selectors import NOTHING, Selector, label_selector
from stromboli.state.snapshot import Snapshot

#: a namespace and a label there; without a label for budgets whose selectors require none
_Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget."""

    namespace: str
    selector: Selector
    #: names of pods whose disruption the API server has already counted
    disrupted: frozenset[str]
    allowed: int

    def covers(self, pod: PodRecord) -> bool:
        """Whether an eviction of the pod counts against the budget."""
        return self.namespace == pod.namespace and pod.name not in self.disrupted and self.selector.matches(pod.labels)

    def covered(self, pods: PodFacts) -> Rows:
        """The rows of the pods that the budget selects."""
        rows = pods.selected(self.selector, pods.named((self.namespace,)))
        if not self.disrupted:
            return rows
        names = pods.column("name", attrgetter("name"))
        return rows[[names.value(row) not in self.disrupted for row in rows.tolist()]]


def budgets_of(snapshot: Snapshot, *, empty_selects_all: bool) -> Budgets:
    """The budgets of a snapshot. An empty selector selects all pods of the namespace, or none, depending on the API
    version."""
    key, plain = (Budgets, empty_selects_all), snapshot.objects.get("PodDisruptionBudget", NO_OBJECTS)
    before = cast("Budgets | None", snapshot.derived.get(key))
    if before is not None and not plain.changed_since(before.plain):
        return before
    found = snapshot.derived[key] = Budgets(plain, before, empty_selects_all=empty_selects_all)
    return found


class Budgets:
    """All budgets by number. Immutable: updated copies replace it."""

    def __init__(self, plain: PlainObjects, before: Budgets | None, *, empty_selects_all: bool) -> None:
        self.plain = plain
        self._read: dict[str, Budget] = {} if before is None else before._read.copy()
        for key in plain.changed_since(NO_OBJECTS if before is None else before.plain):
            self._read.pop(key, None)
            if key in plain:
                self._read[key] = _budget(plain[key], empty_selects_all=empty_selects_all)
        self.listed: list[Budget] = [self._read[key] for key in plain]
        #: numbers of budgets by a label that all selected pods must have
        self._placed: dict[_Place, list[int]] = {}
        for number, budget in enumerate(self.listed):
            for place in _places(budget):
                self._placed.setdefault(place, []).append(number)

    @cached_property
    def overlapping(self) -> list[int]:
        """The numbers of the budgets that may select pods which others select, too, in order."""
        # Budgets that require different values of the same label select no pod together.
        keys = Counter(namespace for namespace, _ in {place[:2] for place in self._placed})
        found = (numbers for place, numbers in self._placed.items() if keys[place[0]] > 1 or numbers[1:])
        return sorted({number for numbers in found for number in numbers})

    def key(self, number: int) -> str:
        """`NAMESPACE/NAME` of a budget."""
        return list(self.plain)[number]

    def covering(self, pod: PodRecord) -> list[int]:
        """The numbers of the budgets that select a pod."""
        places = [(pod.namespace, "", ""), *((pod.namespace, *label) for label in pod.labels.items())]
        numbers = [number for place in places for number in self._placed.get(place, ())]
        return [number for number in numbers if self.listed[number].covers(pod)]


def _places(budget: Budget) -> Iterator[_Place]:
    """The keys under which a budget is indexed; none if it selects no pods."""
    listing = (requirement for requirement in budget.selector.requirements if requirement.operator == "In")
    requirement = next(listing, None)
    if requirement is None:
        yield budget.namespace, "", ""
        return
    for value in requirement.values:
        yield budget.namespace, requirement.key, value


def _budget(manifest: Mapping[str, Any], *, empty_selects_all: bool) -> Budget:
    metadata, spec, status = (manifest.get(part) or {} for part in ("metadata", "spec", "status"))
    selector = label_selector(msgspec.convert(spec.get("selector"), objects.LabelSelector | None))
    if not selector.requirements and not empty_selects_all:
        selector = NOTHING
    return Budget(
        namespace=metadata.get("namespace") or "default",
        selector=selector,
        disrupted=frozenset(status.get("disruptedPods") or ()),
        allowed=int(status.get("disruptionsAllowed") or 0),
    )
