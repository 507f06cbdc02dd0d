"""A partial placement in the search, and what follows from it for the pods that are left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stromboli.placement.exact.problem import BalancedRule, NearRule, Problem, bits, fits


@dataclass(slots=True)
class _Saved:
    """Values that a change replaces: of one node, -1 for none, and of everything else."""

    node: int
    free: list[float]
    content: tuple[int, ...]
    left: list[int]
    open: list[int]
    unmet: list[int]
    choices: list[tuple[int, ...]]
    quotas: list[float]


class Partial:
    """Pods that have places, and the nodes that each kind may still have. `place` and `undo` go in pairs."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        kinds = problem.kinds
        #: by kind: pods that are neither placed nor given up, and the nodes that may take one
        self.left = [kind.count for kind in kinds]
        self.open = problem.opened()
        #: by need: the pods that it still lacks
        self.unmet = [need.least for need in problem.needs]
        #: kind and node of each pod that has a place
        self.placed: list[tuple[int, int]] = []
        #: by node: what is left of it, and the kinds of pods that it got, ascending
        self.free = [list(free) for free in problem.free]
        #: amounts left of the nodes once more, shape (nodes, dimensions)
        self.amounts = np.array(problem.free, np.float64).reshape(len(problem.free), len(problem.dimensions))
        self.content: dict[int, tuple[int, ...]] = {}
        #: by rule: the choices that are left, and what all pods may still take
        self._choices = [tuple(rule.choices) for rule in problem.within]
        self._quotas = [rule.free for rule in problem.quotas]
        #: number of pods of each kind that have places
        self.numbers = [0] * len(kinds)
        self._needs_of = [
            [at for at, need in enumerate(problem.needs) if need.kinds >> kind & 1] for kind in range(len(kinds))
        ]
        self._saved: list[_Saved] = []
        #: looks at a kind on a node, and at a rule
        self.steps = 0

    # -- changes -----------------------------------------------------------------------------------------------------

    def place(self, kind: int, node: int) -> bool:
        """Put a pod of a kind on a node; whether the others may still get what the gang needs."""
        self._save(node)
        self.placed.append((kind, node))
        self.left[kind] -= 1
        self.numbers[kind] += 1
        request, free = self._problem.kinds[kind].request, self.free[node]
        for at, amount in enumerate(request):
            free[at] -= amount
        self.amounts[node] = free
        self.content[node] = tuple(sorted((*self.content.get(node, ()), kind)))
        for at in self._needs_of[kind]:
            self.unmet[at] -= 1
        self._follow(kind, node)
        return self.hopeful()

    def give_up(self, kind: int) -> bool:
        """Place no more pods of a kind; whether the others may still get what the gang needs."""
        self._save(-1)
        self.left[kind] = 0
        return self.hopeful()

    def undo(self) -> None:
        """Take back the last change."""
        saved = self._saved.pop()
        if saved.node >= 0:
            self.numbers[self.placed.pop()[0]] -= 1
            self.free[saved.node] = saved.free
            self.amounts[saved.node] = saved.free
            if saved.content:
                self.content[saved.node] = saved.content
            else:
                del self.content[saved.node]
        self.left, self.open, self.unmet = saved.left, saved.open, saved.unmet
        self._choices, self._quotas = saved.choices, saved.quotas

    def _save(self, node: int) -> None:
        self._saved.append(
            _Saved(
                node,
                list(self.free[node]) if node >= 0 else [],
                self.content.get(node, ()),
                list(self.left),
                list(self.open),
                list(self.unmet),
                list(self._choices),
                list(self._quotas),
            )
        )

    # -- consequences ------------------------------------------------------------------------------------------------

    def hopeful(self) -> bool:
        """Whether there are as many pods with a node as each need lacks, no more than is allowed, and a way to order
        them."""
        self.steps += len(self.left)
        for lacking, need in zip(self.unmet, self._problem.needs, strict=True):
            if lacking > 0:
                found = sum(self.left[kind] for kind in bits(need.kinds) if self.open[kind])
                if found < lacking:
                    return False
        for refused in self._problem.forbidden:
            if all(mine >= others for mine, others in zip(self.numbers, refused, strict=True)):
                return False
        return all(map(self._joins, self._problem.near)) and all(map(self._balances, self._problem.balanced))

    def _follow(self, kind: int, node: int) -> None:
        """Narrow what is open to others after a pod of a kind went to a node."""
        problem, opened, bit, free = self._problem, self.open, 1 << node, self.free[node]
        for other, left in enumerate(self.left):
            if left and opened[other] & bit:
                self.steps += 1
                if not fits(problem.kinds[other].request, free):
                    opened[other] &= ~bit
        for apart in problem.apart:
            if apart.conflicts[kind]:
                domain = apart.domains.of[node]
                excluded = ~apart.domains.members.get(domain, 0)
                for other in bits(apart.conflicts[kind]):
                    opened[other] &= excluded
        for at, within in enumerate(problem.within):
            if within.kinds >> kind & 1:
                self._choices[at] = tuple(choice for choice in self._choices[at] if choice & bit)
                union = 0
                for choice in self._choices[at]:
                    union |= choice
                for other in bits(within.kinds):
                    opened[other] &= union
        for at, quota in enumerate(problem.quotas):
            if not quota.nodes & bit:
                continue
            self._quotas[at] -= quota.takes[kind]
            for other, left in enumerate(self.left):
                if left and not fits((quota.takes[other],), (self._quotas[at],)):
                    opened[other] &= ~quota.nodes

    def _joins(self, rule: NearRule) -> bool:
        """Whether the pods of a rule may have pods to join, in some order; narrows where the others may go."""
        founders, on = rule.founders, self._nodes_of(rule.kinds)
        waiting = sum(self.left[kind] for kind in bits(founders) if self.open[kind])
        founding = self._nodes_of(founders)
        alone = bool(rule.kinds & rule.selected) and rule.open
        self.steps += len(rule.divisions) * (len(on) + 1)
        for domains, present in zip(rule.divisions, rule.present, strict=True):
            there = present
            for node in founding:
                there |= domains.members.get(domains.of[node], 0)
            unfounded = {domains.of[node] for node in on if not there >> node & 1}
            if len(unfounded) > waiting + alone:
                return False
            if waiting:
                continue
            if unfounded:
                there |= domains.members.get(next(iter(unfounded)), 0)
            elif alone:
                # All placed pods have others to join; one more may still be placed before them.
                for members in domains.members.values():
                    there |= members
            for kind in bits(rule.kinds):
                self.open[kind] &= there
        return True

    def _balances(self, rule: BalancedRule) -> bool:
        """Whether the domains may end up close to each other; narrows where the others may go."""
        itself = rule.selected >> rule.kind & 1
        counts = self.counts(rule)
        mine: dict[int, int] = {}
        for kind, node in self.placed:
            if kind == rule.kind:
                domain = rule.domains.of[node]
                mine[domain] = mine.get(domain, 0) + (itself & rule.eligible >> node)
        self.steps += len(self.placed) + len(counts)
        coming = sum(self.left[kind] for kind in bits(rule.selected) if self.open[kind])
        most = rule.max_skew + rule.fewest({domain: count + coming for domain, count in counts.items()})
        if any(rule.counts.get(domain, 0.0) + number > most for domain, number in mine.items()):
            return False
        if self.left[rule.kind]:
            for domain, members in rule.domains.members.items():
                if rule.counts.get(domain, 0.0) + mine.get(domain, 0) + itself > most:
                    self.open[rule.kind] &= ~members
        return True

    def counts(self, rule: BalancedRule) -> dict[int, float]:
        """The selected pods of each domain that has eligible nodes."""
        counts = dict(rule.counts)
        for kind, node in self.placed:
            if rule.selected >> kind & 1 and rule.eligible >> node & 1:
                counts[rule.domains.of[node]] += 1
        return counts

    def _nodes_of(self, kinds: int) -> list[int]:
        return [node for kind, node in self.placed if kinds >> kind & 1] if kinds else []
