"""The search: depth first, the scarcest kind first, and never the same situation twice.

Its first descent is a better order for most gangs: the pods that the gang needs before those that it can spare, of
these the pods with the fewest nodes and the largest dominant share first, of the spare ones the smallest, each on the
node that it fills best, domain by domain if rules ask for it. If that fails, the search backtracks one decision at a
time. Of indistinguishable nodes one is tried, copies of a pod take nodes in one order only, and a situation that led
nowhere is not entered again. Work is counted in steps, which are the same on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from stromboli.api.resources import TOLERANCE, Rows
from stromboli.placement.exact import bounds
from stromboli.placement.exact.order import may_order, ordered
from stromboli.placement.exact.problem import Problem, bits
from stromboli.placement.exact.state import Partial

#: kinds and nodes of pods, in the order in which they are placed
Places = list[tuple[int, int]]
#: steps of a decision besides the looks that it causes
_DECISION = 20
#: nodes that are looked at in one step where they are columns
_COLUMN = 16
#: situations that are remembered
_MOST_KNOWN = 100_000


@dataclass(slots=True)
class Found:
    """Result of a search."""

    #: None when nothing was found
    places: Places | None
    #: whether it is proven that there is nothing where nothing was found
    proven: bool
    steps: int


@dataclass(slots=True)
class _Choice:
    """A pod of a kind that is to be placed."""

    kind: int
    #: the nodes to try, and after them to give up what is left of the kind
    order: list[int]
    #: the situation; None in the midst of a kind
    situation: Hashable
    #: the decision that is tried
    at: int = -1
    made: bool = False
    #: content of the nodes that were tried
    tried: set[Hashable] = field(default_factory=set)


def search(problem: Problem, budget: int, accept: Callable[[Places], bool] = lambda _: True) -> Found:
    """Find places for a gang that `accept` agrees to, within a number of steps.

    Places that `accept` refuses are not proven impossible, unless the problem forbids them from then on.
    """
    impossible, steps = bounds.refuted(problem, budget)
    if impossible:
        return Found(None, True, steps)
    return _Search(problem, budget, steps, accept).run()


class _Search:
    def __init__(self, problem: Problem, budget: int, steps: int, accept: Callable[[Places], bool]) -> None:
        self._problem = problem
        self._budget = budget
        self._accept = accept
        self._partial = Partial(problem)
        self._looks = problem.alike()
        self._known: set[Hashable] = set()
        #: whether every skipped branch is proven to lead nowhere
        self._proven = True
        self._steps = steps + len(problem.free) * (len(problem.kinds) + 1) // _COLUMN
        #: by dimension: the most that a node has left where that is limited, 1 where it is nothing
        amounts = self._partial.amounts
        self._largest = np.where(np.isfinite(amounts), amounts, 0.0).max(axis=0, initial=0.0)
        self._largest[self._largest <= 0] = 1.0
        requests = np.array([kind.request for kind in problem.kinds]).reshape(len(problem.kinds), -1)
        #: by kind: the largest share of a node that it takes
        self._shares: list[float] = (requests / self._largest).max(axis=1, initial=0.0).tolist()
        #: kinds that others join or are counted with
        self._related = 0
        for near in problem.near:
            self._related |= near.selected
        for balanced in problem.balanced:
            self._related |= balanced.selected

    def run(self) -> Found:
        """Search to the end or until the budget is used up."""
        partial, choices = self._partial, list[_Choice]()
        places = self._end() if partial.hopeful() else None
        if places is None and partial.hopeful():
            self._open(choices, None)
        while places is None and choices:
            if self._steps + partial.steps > self._budget:
                self._proven = False
                break
            choice = choices[-1]
            if choice.made:
                partial.undo()
            choice.made = self._decide(choice)
            if choice.made:
                places = self._end()
                if places is None:
                    self._open(choices, choice)
                continue
            choices.pop()
            if choice.situation is not None and len(self._known) < _MOST_KNOWN:
                self._known.add(choice.situation)
        return Found(places, places is None and self._proven, self._steps + partial.steps)

    def _decide(self, choice: _Choice) -> bool:
        """Take the next way of a choice that may lead on; False when there is none."""
        partial, kind = self._partial, choice.kind
        while choice.at < len(choice.order):
            choice.at += 1
            if choice.at == len(choice.order):
                led = partial.give_up(kind)
            else:
                node = choice.order[choice.at]
                look = self._looks[node], partial.content.get(node)
                if not partial.open[kind] >> node & 1 or look in choice.tried:
                    continue
                choice.tried.add(look)
                led = partial.place(kind, node)
            self._steps += _DECISION
            if led:
                return True
            partial.undo()
        return False

    def _end(self) -> Places | None:
        """The places in order, if all needed pods have one and plugins accept them."""
        problem, partial = self._problem, self._partial
        if any(lacking > 0 for lacking in partial.unmet):
            return None
        self._steps += len(partial.placed) * _DECISION
        places = ordered(problem, partial.placed)
        if places is None:
            self._proven = self._proven and may_order(problem, partial.placed)
            return None
        refused = len(problem.forbidden)
        if self._accept(places):
            return places
        self._proven = self._proven and len(problem.forbidden) > refused
        return None

    # -- the next decision -------------------------------------------------------------------------------------------

    def _open(self, choices: list[_Choice], last: _Choice | None) -> None:
        """Open the next choice: for the same kind as the last while it has pods left, else for the scarcest kind."""
        helpful = self._helpful()
        if last is not None and last.kind in helpful:
            choices.append(_Choice(last.kind, last.order[last.at :], None))
            return
        situation = self._situation()
        if helpful and situation not in self._known:
            spare = self._spare()
            kind = min(helpful, key=lambda kind: self._urgency(kind, spare))
            choices.append(_Choice(kind, self._in_order(kind), situation))

    def _helpful(self) -> list[int]:
        """The kinds of pods that are needed, or once these have places, those that let others be placed."""
        partial, wanted = self._partial, 0
        for need, lacking in zip(self._problem.needs, partial.unmet, strict=True):
            wanted |= need.kinds if lacking > 0 else 0
        wanted = wanted or self._related
        self._steps += wanted.bit_count() // _COLUMN
        return [kind for kind in bits(wanted) if partial.left[kind] and partial.open[kind]]

    def _situation(self) -> Hashable:
        partial = self._partial
        nodes = Counter((self._looks[node], content) for node, content in partial.content.items())
        return tuple(partial.left), frozenset(nodes.items())

    def _spare(self) -> list[tuple[int, int]]:
        """For each need that is unmet, its kinds and how many of their pods more than it lacks may be placed."""
        partial, out = self._partial, list[tuple[int, int]]()
        for need, lacking in zip(self._problem.needs, partial.unmet, strict=True):
            if lacking > 0:
                self._steps += need.kinds.bit_count() // _COLUMN
                left = sum(partial.left[kind] for kind in bits(need.kinds) if partial.open[kind])
                out.append((need.kinds, left - lacking))
        return out

    def _urgency(self, kind: int, spare: list[tuple[int, int]]) -> tuple[object, ...]:
        """Kinds that cannot be spared first, the scarcest in front; of the others those that are placed most easily."""
        share, nodes = self._shares[kind], self._partial.open[kind].bit_count()
        left = self._partial.left[kind] if nodes else 0
        if any(kinds >> kind & 1 and left > more for kinds, more in spare):
            return False, nodes, -share, kind
        return True, share, -nodes, kind

    def _in_order(self, kind: int) -> list[int]:
        """The nodes that are open to a kind, the most promising first."""
        partial, problem = self._partial, self._problem
        nodes = _members(partial.open[kind])
        self._steps += len(nodes) // _COLUMN
        request = np.array(problem.kinds[kind].request)
        asked = np.flatnonzero(request > 0)
        left_over = (partial.amounts[nodes][:, asked] - request[asked]) / self._largest[asked]
        share = np.where(np.isfinite(left_over), left_over, 1.0).sum(axis=1)
        crowd = [(rule.domains.of, partial.counts(rule)) for rule in problem.balanced if rule.selected >> kind & 1]
        gathering = self._gathering(kind, nodes.tolist())
        if not crowd and not gathering:
            in_order: list[int] = nodes[np.argsort(share, kind="stable")].tolist()
            return in_order
        left = dict(zip(nodes.tolist(), share.tolist(), strict=True))

        def place(node: int) -> tuple[object, ...]:
            crowded = sum(counts.get(of[node], 0.0) for of, counts in crowd)
            return gathering.get(node, ()), crowded, left[node], node

        return sorted(nodes.tolist(), key=place)

    def _gathering(self, kind: int, nodes: list[int]) -> dict[int, tuple[bool, float]]:
        """For a kind that stays in a domain, how well the domain of each node suits: the smallest that holds enough."""
        problem, partial = self._problem, self._partial
        near = [rule for rule in problem.near if rule.kinds >> kind & 1]
        divisions = [tuple(division.members.values()) for rule in near for division in rule.divisions]
        divisions += [rule.choices for rule in problem.within if rule.kinds >> kind & 1]
        if not divisions:
            return {}
        request = problem.kinds[kind].request
        wanted = max(max(partial.unmet, default=1), 1)
        copies = {node: _copies(request, partial.free[node], wanted) for node in nodes}
        suits: dict[int, tuple[bool, float]] = {}
        for members in divisions[0]:
            inside = [node for node in nodes if members >> node & 1]
            fitting = sum(copies[node] for node in inside)
            self._steps += len(inside)
            for node in inside:
                mine = fitting < wanted, fitting if fitting >= wanted else -fitting
                suits[node] = min(suits.get(node, mine), mine)
        return suits


def _members(mask: int) -> Rows:
    """The members of a large set, ascending."""
    whole = np.frombuffer(mask.to_bytes((mask.bit_length() + 7) // 8, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(whole, bitorder="little"))


def _copies(request: tuple[float, ...], free: list[float], most: int) -> float:
    """Number of pods of a request that a node takes, `most` at most."""
    return min(((left + TOLERANCE) // want for want, left in zip(request, free, strict=True) if want > 0), default=most)
