"""pdb: no more victims than PodDisruptionBudgets allow.

A budget is what `status.disruptionsAllowed` says; every budget that selects a pod must have room for it. Evictions of
the session count, whoever they were for. Under Volcano's rules each question is answered as if it was the first, pods
without labels are never victims, and an empty selector selects nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from stromboli.api import objects
from stromboli.framework.operation import Kind, Operation
from stromboli.framework.plugin import Plugin
from stromboli.framework.view import View
from stromboli.state.pods import PodRecord
from stromboli.state.selectors import NOTHING, Selector, label_selector


@dataclass(slots=True, eq=False)
class Budget:
    """A PodDisruptionBudget."""

    namespace: str
    selector: Selector
    #: names of pods that the API server has counted already
    disrupted: frozenset[str]
    allowed: int

    def covers(self, pod: PodRecord) -> bool:
        """Whether an eviction of the pod uses up some of it."""
        return self.namespace == pod.namespace and pod.name not in self.disrupted and self.selector.matches(pod.labels)


class Pdb(Plugin):
    name = "pdb"
    in_turn = True
    protects = True

    def open(self, view: View) -> None:
        self._strict = view.rules.budgets
        self._budgets = [
            _budget(manifest, empty_selects_all=self._strict)
            for manifest in view.snapshot.objects.get("PodDisruptionBudget", {}).values()
        ]

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self.evictable(candidates)

    reclaimable = preemptable

    def victim_tasks(self, running: Sequence[PodRecord]) -> list[PodRecord]:
        """Volcano offers everybody whom no budget protects; a budget is no reason to evict."""
        return [] if self._strict else self.evictable(running)

    def on_deallocate(self, operation: Operation) -> None:
        self._count(operation, -1)

    def on_allocate(self, operation: Operation) -> None:
        self._count(operation, +1)

    def _count(self, operation: Operation, change: int) -> None:
        """Evictions use budgets up, and give back what they used when they are taken back."""
        if self._strict and operation.kind is Kind.Evict:
            for pod in operation.pods:
                for budget in self._covering(pod):
                    budget.allowed += change

    def evictable(self, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """Those that can go one after the other; also a pod that may not stay uses up the budgets that cover it."""
        left = {id(budget): budget.allowed for budget in self._budgets}
        victims = []
        for pod in candidates:
            if not pod.labels and not self._strict:
                continue
            covering = self._covering(pod)
            if self._strict and any(left[id(budget)] < 1 for budget in covering):
                continue
            for budget in covering:
                left[id(budget)] -= 1
            if all(left[id(budget)] >= 0 for budget in covering):
                victims.append(pod)
        return victims

    def _covering(self, pod: PodRecord) -> list[Budget]:
        return [budget for budget in self._budgets if budget.covers(pod)]


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
