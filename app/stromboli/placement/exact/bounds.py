"""Bounds: proofs that places do not exist, without a search.

A gang of large pods can fill nodes in so many ways that no search would end, yet it needs none: if each node fits only
one such pod, no more of them get places than can be matched with nodes. The same holds for pods that exclude each
other and the domains of their rule. Matchings are found by augmenting paths, using each node as often as it takes
pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from stromboli.api.resources import TOLERANCE, Matrix, Vector
from stromboli.placement.exact.problem import Problem, as_set, bits

#: sets of large pods that are matched
_MOST_SETS = 96


def refuted(problem: Problem, budget: int) -> tuple[bool, int]:
    """Whether a bound says that a gang cannot get what it needs, and the steps that it took, about `budget` at most."""
    steps, opened = len(problem.free), problem.opened()
    if _beyond_all_nodes(problem, opened) or _beyond_quotas(problem, opened):
        return True, steps
    for kinds, capacity, places in _sets(problem):
        if steps > budget:
            break
        wanted = _at_least(problem, kinds, opened)
        steps += len(problem.kinds)
        if wanted <= 0:
            continue
        matching = _Matching(problem, kinds, opened, capacity, places)
        found = matching.pods(budget - steps)
        steps += matching.steps
        if found is not None and found < wanted:
            return True, steps
    return False, steps


def _beyond_all_nodes(problem: Problem, opened: Sequence[int]) -> bool:
    """Whether the smallest pods that are needed request more of a resource than all nodes that may take them have."""
    free = np.array(problem.free).reshape(len(problem.free), len(problem.dimensions))
    for need in problem.needs:
        kinds = [problem.kinds[kind] for kind in bits(need.kinds) if opened[kind]]
        nodes = list(bits(_union([opened[kind] for kind in bits(need.kinds)])))
        if sum(kind.count for kind in kinds) < need.least:
            return True
        requests = np.repeat([kind.request for kind in kinds], [kind.count for kind in kinds], axis=0)
        smallest = np.sort(requests, axis=0)[: need.least].sum(axis=0)
        if (smallest >= np.maximum(free[nodes], 0).sum(axis=0) + need.least * TOLERANCE)[smallest > 0].any():
            return True
    return False


def _beyond_quotas(problem: Problem, opened: Sequence[int]) -> bool:
    """Whether the pods that are needed and take least of limited amounts take too much, wherever they may go."""
    for quota in problem.quotas:
        for need in problem.needs:
            kinds = [(kind, problem.kinds[kind].count) for kind in bits(need.kinds) if opened[kind]]
            takes = sorted(
                0.0 if opened[kind] & ~quota.nodes else quota.takes[kind] for kind, count in kinds for _ in range(count)
            )
            if sum(takes[: need.least]) >= max(0.0, quota.free) + need.least * TOLERANCE:
                return True
    return False


def _at_least(problem: Problem, kinds: int, opened: Sequence[int]) -> int:
    """Minimum number of pods of some kinds that must get places, whatever becomes of all others."""
    return max(
        (
            need.least - sum(problem.kinds[kind].count for kind in bits(need.kinds & ~kinds) if opened[kind])
            for need in problem.needs
        ),
        default=0,
    )


def _sets(problem: Problem) -> Iterator[tuple[int, Vector, Sequence[int] | None]]:
    """Sets of kinds, the number of their pods that each place takes, and the nodes of each place, None for one each."""
    free = np.array(problem.free).reshape(len(problem.free), len(problem.dimensions))
    everything = (1 << len(problem.kinds)) - 1
    for kinds in islice(dict.fromkeys((everything, *_large(problem))), _MOST_SETS):
        yield kinds, _capacity(problem, kinds, free), None
    for rule in problem.apart:
        places = list(rule.domains.members.values())
        covered = _union(places)
        for kinds in dict.fromkeys(_cliques(rule.conflicts)):
            if not any(problem.kinds[kind].nodes & ~covered for kind in bits(kinds)):
                yield kinds, np.ones(len(places)), None if rule.domains.whole else places


def _large(problem: Problem) -> Iterator[int]:
    """The kinds that ask for at least as much of a resource as one of them does."""
    for at in range(len(problem.dimensions)):
        amounts = sorted({kind.request[at] for kind in problem.kinds if kind.request[at] > 0}, reverse=True)
        for least in amounts:
            yield sum(1 << kind for kind, each in enumerate(problem.kinds) if each.request[at] >= least)


def _cliques(conflicts: Sequence[int]) -> Iterator[int]:
    """Sets of kinds that all exclude each other, and pods like themselves."""
    for kind, excluded in enumerate(conflicts):
        if not excluded >> kind & 1:
            continue
        clique = 1 << kind
        for other in bits(excluded):
            if conflicts[other] & (clique | 1 << other) == clique | 1 << other:
                clique |= 1 << other
        yield clique


def _capacity(problem: Problem, kinds: int, free: Matrix) -> Vector:
    """Upper bound on pods of some kinds on each node, shape (nodes,), by their smallest request of each resource.

    `free` has the shape (nodes, dimensions).
    """
    smallest = np.array([problem.kinds[kind].request for kind in bits(kinds)]).min(axis=0)
    asked = np.flatnonzero(smallest > 0)
    most = np.full(len(free), sum(problem.kinds[kind].count for kind in bits(kinds)), np.float64)
    if not len(asked):
        return most
    copies = np.maximum(np.ceil((free[:, asked] + TOLERANCE) / smallest[asked]) - 1, 0)
    least: Vector = np.minimum(copies.min(axis=1), most)
    return least


class _Matching:
    """Pods, and places that each take some of them."""

    def __init__(
        self, problem: Problem, kinds: int, opened: Sequence[int], capacity: Vector, places: Sequence[int] | None
    ) -> None:
        """Without `places` each node is one."""
        self._counts = {kind: problem.kinds[kind].count for kind in bits(kinds)}
        self._left = capacity.tolist()
        #: the places that take one more
        self._free = as_set(capacity >= 1)
        #: by place: the kinds of pods that were matched with it
        self._held: dict[int, list[int]] = {}
        self._open = {kind: _places_of(opened[kind], places) & self._free for kind in self._counts}
        self.steps = len(problem.free) + len(self._counts)

    def pods(self, budget: int) -> int | None:
        """Upper bound on the number of pods that get places; None where that takes more steps than the budget has."""
        matched = 0
        for kind, count in self._counts.items():
            for _ in range(count):
                if self.steps > budget:
                    return None
                if not self.augment(kind):
                    break
                matched += 1
        return matched

    def augment(self, kind: int) -> bool:
        """Match one more pod of a kind, moving others where need be."""
        came: dict[int, tuple[int, int]] = {}
        queue, seen_kinds, seen = [(kind, -1)], {kind}, 0
        for mine, before in queue:
            self.steps += 1
            new = self._open[mine] & ~seen
            if new & self._free:
                place = next(bits(new & self._free))
                came[place] = mine, before
                self._shift(place, came)
                return True
            seen |= new
            for place in bits(new):
                self.steps += 1
                came[place] = mine, before
                for other in self._held.get(place, ()):
                    if other not in seen_kinds:
                        seen_kinds.add(other)
                        queue.append((other, place))
        return False

    def _shift(self, place: int, came: dict[int, tuple[int, int]]) -> None:
        """Give a place to the pod that the path led it to, whose own goes to the one before it, and so on."""
        self._left[place] -= 1
        if self._left[place] < 1:
            self._free &= ~(1 << place)
        while place >= 0:
            kind, before = came[place]
            self._held.setdefault(place, []).append(kind)
            if before >= 0:
                self._held[before].remove(kind)
            place = before


def _places_of(nodes: int, places: Sequence[int] | None) -> int:
    """The places that have some of the nodes."""
    return nodes if places is None else sum(1 << at for at, place in enumerate(places) if nodes & place)


def _union(masks: Sequence[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union
