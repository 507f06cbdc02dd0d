"""The end of a search: victims that all preemptors together can do without are given back.

What was evicted for the first of them may be needless once more was evicted for others. Unit by unit, the most
expensive first, the steps are: whether all pods may have places when it stays, some of them on other nodes
(`Rearrangement`), and whether the queue may take them without its eviction, and all plugins agree to those places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from stromboli.api.resources import Rows, Vector, fits
from stromboli.eviction.ordering import unit_cost
from stromboli.eviction.plan import Demand, Place, Plan
from stromboli.eviction.units import Unit, runs_in_part
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.session.statement import Statement

#: how often other nodes are looked for, in all
_LOOKS = 500


class Rearrangement(Protocol):
    """Where the pods of a plan may go when victims stay."""

    def beside(self, evictions: Sequence[Operation]) -> Sequence[Operation]:
        """The victims, of some, beside which there may be places; they count as staying."""

    def undo(self) -> None:
        """The last of these count as evicted again."""

    def promise(self, plan: Plan) -> bool:
        """Promise the pods places beside them; False, and none is promised, where the share or a plugin objects."""


def settle(plan: Plan) -> Plan:
    """The plan without evictions that its pods do not need."""
    plan.join_gangs()
    if len(plan.evicted) > 1 or any(unit.whole for unit in plan.units):
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
    back = places.beside(before)
    if not back or (len(back) < len(before) and unit.job.ready_count + len(back) < unit.job.min_available):
        places.undo()
        return False
    # Of pods that may not all stay some may, the first or the last of them.
    singly = [[each] for each in back] if len(back) > 1 else []
    for parts in ([back], singly, singly[::-1]):
        stays = False
        for part in parts:
            if part is back or places.beside(part):
                stays |= _give(plan, statement, part, places)
        if stays and (not statement or runs_in_part(plan.context.session, unit.job)):
            return True
        if stays:
            # What else stays by the amounts that were counted leaves room to spare.
            places.undo()
            _evict_only(plan, statement, before)
            plan.placed = placed
    return False


def _give(plan: Plan, statement: Statement, back: Sequence[Operation], places: Rearrangement) -> bool:
    """Give pods of a unit back; False, and nothing done, where there are no places beside them."""
    operations = statement.save()
    _evict_only(plan, statement, [each for each in operations if each not in back])
    if places.promise(plan):
        return True
    _evict_only(plan, statement, operations)
    places.undo()
    return False


def _evict_only(plan: Plan, statement: Statement, operations: Sequence[Operation]) -> None:
    """Make these the evictions of a statement."""
    plan.promises.discard()
    statement.discard()
    statement.recover(operations)


class ByAmounts:
    """The same pods by amounts alone: pods move to other nodes to make room for victims that stay."""

    def __init__(self, plan: Plan) -> None:
        nodes = plan.context.session.view.nodes
        self._placed = plan.placed
        self._always = nodes.always
        #: what is left on nodes, shape (dimensions, nodes), and the node of each pod; these before victims stayed last
        self._free = nodes.future_idle()
        self._node: Rows = np.array([place.node for place in plan.placed], np.intp)
        self._before = self._free, self._node
        self._looks = _LOOKS
        #: whether all pods are alike, so that no other victim finds room for any of them where one does not
        self._alike = len({id(place.of) for place in plan.placed}) == 1

    def beside(self, evictions: Sequence[Operation]) -> Sequence[Operation]:
        """The victims that stay; pods move to other nodes for them."""
        self._before = self._free.copy(), self._node.copy()
        return [each for each in evictions if self._stays(each)]

    def undo(self) -> None:
        """Put pods back that moved for the last victims."""
        self._free, self._node = self._before

    def promise(self, plan: Plan) -> bool:
        """Promise the pods their nodes."""
        places = [
            Place(place.pod, node, place.of) for place, node in zip(self._placed, self._node.tolist(), strict=True)
        ]
        return plan.within_share() and plan.promise(places)

    def _stays(self, eviction: Operation) -> bool:
        """Let a victim stay if there is room for it."""
        node, request = eviction.nodes[0], eviction.request
        if node >= 0:
            if not (self._has_room(node, request) or self._make_room(node, request)):
                return False
            self._free[:, node] -= request
        return True

    def _has_room(self, node: int, request: Vector) -> bool:
        return bool(fits(request, self._free[:, node], self._always))

    def _make_room(self, node: int, request: Vector) -> bool:
        """Move pods off a node until a request fits there; False if too few can move."""
        #: demands of which a pod could not leave: others like it cannot, either
        staying: set[Demand] = set()
        for pod in np.flatnonzero(self._node == node).tolist():
            of = self._placed[pod].of
            if of in staying:
                continue
            if not self._leaves(pod, of):
                staying.add(of)
            elif self._has_room(node, request):
                return True
        return False

    def _leaves(self, pod: int, of: Demand) -> bool:
        """Move a pod to another node; False if none has room for it."""
        nodes, at = of.alternatives, self._node[pod]
        if not len(nodes) or self._looks <= 0:
            return False
        self._looks -= 1
        room = fits(of.request, self._free[:, nodes], self._always)
        if self._alike and not room.any() and (self._free == self._before[0]).all():
            self._looks = 0
        room &= nodes != at
        if not room.any():
            return False
        to = nodes[room.argmax()]
        self._free[:, at] += of.request
        self._free[:, to] -= of.request
        self._node[pod] = to
        return True
