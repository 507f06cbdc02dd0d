"""The end of a search: victims that all preemptors together can do without are given back.

What was evicted for the first of them may be needless once more was evicted for others. Unit by unit, the most
expensive first, the steps are: whether all pods may have places when it stays, some of them on other nodes
(`Rearrangement`), and whether all plugins agree to those places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from stromboli.api.resources import fits
from stromboli.eviction.ordering import unit_cost
from stromboli.eviction.plan import Place, Plan
from stromboli.eviction.units import Surplus, Unit
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.session.statement import Statement

#: number of searches for other nodes, in all
_LOOKS = 500


class Rearrangement(Protocol):
    """Where the pods of a plan may go when victims stay."""

    def may_stay(self, plan: Plan, evictions: Sequence[Operation]) -> bool:
        """Whether there may be places beside some victims, which are still evicted."""

    def promise(self, plan: Plan) -> bool:
        """Promise the pods places beside these; False, and none is promised, where the share or a plugin objects."""


def settle(plan: Plan) -> Plan:
    """The plan without evictions that its pods do not need."""
    plan.join_gangs()
    if len(plan.evicted) > 1 or any(unit.whole for unit, _ in plan.evicted):
        give_back(plan, ByAmounts(plan))
    else:
        plan.settle()
    return plan


def give_back(plan: Plan, places: Rearrangement) -> None:
    """Give back units, the most expensive first, without which all pods of a plan still get places."""
    for at in sorted(range(len(plan.evicted)), key=lambda at: unit_cost(plan.evicted[at][0]), reverse=True):
        unit, statement = plan.evicted[at]
        if _stays(plan, unit, statement, places):
            plan.evicted[at] = replace(unit, whole=False), statement
    plan.settle()


def _stays(plan: Plan, unit: Unit, statement: Statement, places: Rearrangement) -> bool:
    """Give a unit back, or as much of it as its gang may run with; False, and nothing done, if it is needed."""
    before, placed = statement.save(), plan.placed
    # Of pods that may not all stay some may, the first or the last of them.
    singly = [[each] for each in before] if len(before) > 1 else []
    for parts in ([before], singly, singly[::-1]):
        stay = [part for part in parts if _give(plan, statement, part, places)]
        if stay and (not statement or Surplus(plan.context.session, unit.job).runs):
            return True
        if stay:
            _evict_only(plan, statement, before)
            plan.promise_again(placed)
    return False


def _give(plan: Plan, statement: Statement, back: Sequence[Operation], places: Rearrangement) -> bool:
    """Give pods of a unit back; False, and nothing done, where there are no places beside them."""
    if not places.may_stay(plan, back):
        return False
    operations, placed = statement.save(), plan.placed
    _evict_only(plan, statement, [each for each in operations if each not in back])
    if places.promise(plan):
        return True
    _evict_only(plan, statement, operations)
    plan.promise_again(placed)
    return False


def _evict_only(plan: Plan, statement: Statement, operations: Sequence[Operation]) -> None:
    """Make these the evictions of a statement."""
    plan.promises.discard()
    statement.discard()
    statement.recover(operations)


class ByAmounts:
    """Reprieve by amounts alone: pods move to other nodes to make room for victims that stay."""

    def __init__(self, plan: Plan) -> None:
        self._view = plan.context.session.view
        self._looks = _LOOKS

    def may_stay(self, plan: Plan, evictions: Sequence[Operation]) -> bool:
        """Whether there is room for the victims, with pods on other nodes."""
        #: amounts left on nodes, shape (dimensions, nodes), and the pods' nodes
        self._free = self._view.nodes.future_idle()
        self._places = list(plan.placed)
        #: by identity, what pods that could not leave their node might have instead: others like these cannot, either
        self._stuck = set[int]()
        return all(map(self._make_room, evictions))

    def promise(self, plan: Plan) -> bool:
        """Promise the pods these places."""
        return plan.promise(self._places)

    def _make_room(self, eviction: Operation) -> bool:
        """Move pods off a victim's node until it may stay there; False if too few can move."""
        node, request = eviction.nodes[0], eviction.request
        if node < 0:
            return True
        here = (
            at for at, place in enumerate(self._places) if place.node == node and id(place.instead) not in self._stuck
        )
        leaving = filter(self._leaves, here)
        while not fits(request, self._free[:, node], self._view.nodes.always):
            if next(leaving, None) is None:
                return False
        self._free[:, node] -= request
        return True

    def _leaves(self, at: int) -> bool:
        """Move a pod to another node; False if none has room for it."""
        pod, node, nodes = self._places[at]
        if not len(nodes) or self._looks <= 0:
            return False
        self._looks -= 1
        request = self._view.request(pod)
        room = fits(request, self._free[:, nodes], self._view.nodes.always) & (nodes != node)
        if not room.any():
            self._stuck.add(id(nodes))
            return False
        to = int(nodes[room.argmax()])
        self._free[:, node] += request
        self._free[:, to] -= request
        self._places[at] = Place(pod, to, nodes)
        return True
