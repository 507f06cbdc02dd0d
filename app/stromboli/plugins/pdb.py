"""pdb: respects PodDisruptionBudgets when victims are chosen.

A budget allows `status.disruptionsAllowed` evictions. All evictions of the session count. A pod that several budgets
select is never evicted: Kubernetes refuses that. Under Volcano's rules it is if all of them allow it, each question is
answered as if it were the first, pods without labels are never victims, and an empty selector selects nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stromboli.api.resources import Mask, Rows
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.kube.budgets import budgets_of
from stromboli.state.pods import PodRecord


class Pdb(Plugin):
    name = "pdb"
    protects = True

    def open(self, view: View) -> None:
        self._strict = view.rules.budgets
        self._budgets = budgets_of(view.snapshot, empty_selects_all=self._strict)
        #: remaining evictions of each budget, by number
        self._allowed = [budget.allowed for budget in self._budgets.listed]
        self._facts = view.snapshot.pod_facts
        #: number of exhausted budgets that select each pod, by row, more where several do; None until it is needed
        self._barring: Rows | None = None
        #: numbers of the budgets that select a pod, by row
        self._covering: dict[int, list[int]] = {}

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self.evictable(candidates)

    reclaimable = preemptable

    def victim_tasks(self, running: Sequence[PodRecord]) -> list[PodRecord]:
        """Volcano returns all candidates that no budget protects, although a budget is no reason to evict."""
        return [] if self._strict else self.evictable(running)

    def on_deallocate(self, operation: Operation) -> None:
        self._count(operation, -1)

    def on_allocate(self, operation: Operation) -> None:
        self._count(operation, +1)

    def _count(self, operation: Operation, change: int) -> None:
        """Evictions consume budgets, and give them back when they are undone."""
        if self._strict and operation.kind is Kind.Evict:
            for pod in operation.pods:
                for number in self._covers(pod):
                    self._change(number, change)

    def _change(self, number: int, change: int) -> None:
        """Change the remaining evictions of a budget by one."""
        before = self._allowed[number]
        self._allowed[number] = now = before + change
        if self._barring is not None and (now < 1) != (before < 1):
            self._barring[self._budgets.listed[number].covered(self._facts)] -= change

    def evictable(self, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The candidates that may be evicted one after the other; a protected pod consumes its other budgets too."""
        #: of partially consumed budgets
        left: dict[int, int] = {}
        victims = []
        for pod in candidates:
            if not pod.labels and not self._strict:
                continue
            covering = self._covering.get(pod.row)
            if covering is None:
                covering = self._covers(pod)
            least = 1
            for number in covering:
                allowed = left.get(number)
                if allowed is None:
                    allowed = left[number] = self._allowed[number]
                least = min(least, allowed)
            if self._strict and (least < 1 or len(covering) > 1):
                continue
            for number in covering:
                left[number] -= 1
            if least >= 1:
                victims.append(pod)
        return victims

    def evictable_pods(self, rows: Rows) -> Mask | None:
        """The candidates that no exhausted budget selects."""
        if not self._strict:
            return None
        if self._barring is None:
            self._barring, selecting = np.zeros((2, len(self._facts)), np.intp)
            for budget, allowed in zip(self._budgets.listed, self._allowed, strict=True):
                if allowed < 1:
                    self._barring[budget.covered(self._facts)] += 1
            for number in self._budgets.overlapping:
                selecting[self._budgets.listed[number].covered(self._facts)] += 1
            self._barring += selecting > 1
        spared: Mask = self._barring[rows] == 0
        return spared

    def _covers(self, pod: PodRecord) -> list[int]:
        found = self._covering.get(pod.row)
        if found is None:
            found = self._covering[pod.row] = self._budgets.covering(pod)
        return found
