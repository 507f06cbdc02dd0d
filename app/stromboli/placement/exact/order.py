"""The order in which pods can be placed on the nodes found for them.

Affinity and spread rules are checked when a pod is placed, so the same places may work in one order and not in
another: if a pod has to join another one, the other one goes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stromboli.placement.exact.problem import BalancedRule, Domains, NearRule, Problem

#: the most attempts to find an order for the places
_MOST_TRIED = 2_000


def ordered(problem: Problem, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """Kinds and nodes in an order in which every rule holds for each when it comes; None when there is none."""
    if not problem.near and not problem.balanced:
        return list(places)
    return _Order(problem, places).find()


def may_order(problem: Problem, places: Sequence[tuple[int, int]]) -> bool:
    """Whether all orders of some places can be tried."""
    return not (problem.near or problem.balanced) or len(Counter(places)) <= 11


class _Order:
    def __init__(self, problem: Problem, places: Sequence[tuple[int, int]]) -> None:
        #: number of pods of each kind on each node that are still to come
        self._left = Counter(places)
        self._order: list[tuple[int, int]] = []
        #: attempts without success
        self._failed: set[frozenset[tuple[tuple[int, int], int]]] = set()
        self._near = [[rule for rule in problem.near if rule.kinds >> kind & 1] for kind in range(len(problem.kinds))]
        self._balanced = [
            [rule for rule in problem.balanced if rule.kind == kind] for kind in range(len(problem.kinds))
        ]

    def find(self) -> list[tuple[int, int]] | None:
        """The order, found depth first: without recursion, for gangs may be large."""
        waiting = [iter(sorted(self._left))]
        while waiting:
            if not +self._left:
                return self._order
            place = next((each for each in waiting[-1] if self._left[each] and self._holds(*each)), None)
            if place is not None:
                self._left[place] -= 1
                self._order.append(place)
                state = frozenset((+self._left).items())
                if state not in self._failed:
                    waiting.append(iter(sorted(+self._left)))
                    continue
                self._left[self._order.pop()] += 1
                continue
            self._failed.add(frozenset((+self._left).items()))
            if len(self._failed) > _MOST_TRIED:
                return None
            waiting.pop()
            if self._order:
                self._left[self._order.pop()] += 1
        return None

    def _holds(self, kind: int, node: int) -> bool:
        return all(self._joins(rule, kind, node) for rule in self._near[kind]) and all(
            self._balances(rule, node) for rule in self._balanced[kind]
        )

    def _joins(self, rule: NearRule, kind: int, node: int) -> bool:
        """Whether a pod finds one to join in each domain; the first of those that join themselves needs none."""
        came = [_reached(domains, (n for k, n in self._order if rule.selected >> k & 1)) for domains in rule.divisions]
        there = [mine | present for mine, present in zip(came, rule.present, strict=True)]
        if any(there) and all(mask >> node & 1 for mask in there):
            return True
        if any(came) or not rule.open:
            return False
        return bool(rule.selected >> kind & 1) and all(domains.of[node] >= 0 for domains in rule.divisions)

    def _balances(self, rule: BalancedRule, node: int) -> bool:
        counts = dict(rule.counts)
        for kind, on in self._order:
            if rule.selected >> kind & 1 and rule.eligible >> on & 1:
                counts[rule.domains.of[on]] += 1
        itself = rule.selected >> rule.kind & 1
        return counts.get(rule.domains.of[node], 0.0) + itself - rule.fewest(counts) <= rule.max_skew


def _reached(domains: Domains, nodes: object) -> int:
    mask = 0
    for node in nodes:  # type: ignore[attr-defined]
        mask |= domains.members.get(domains.of[node], 0)
    return mask
