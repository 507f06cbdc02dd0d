"""The end of a search: victims that all preemptors together can do without are given back.

What was evicted for the first of them may be needless once more was evicted for others. The steps are: by amounts, the
most expensive unit first, whether all pods still have room when it stays, some of them on other nodes (`_Packing`);
whether the queue may take them without its eviction; and in the end whether all pods get those places. Where a plugin
objects to that, it is asked unit by unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from stromboli.api.resources import Vector, fits
from stromboli.eviction.ordering import unit_cost
from stromboli.eviction.plan import Plan
from stromboli.eviction.trial import Demand, Place, Trial
from stromboli.eviction.units import Unit, runs_in_part
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement

#: how often other nodes are looked for, in all
_LOOKS = 500
#: the node of what has none
_NO_NODE = -1


def settle(session: Session, trial: Trial, of_groups: Mapping[str, int] = MappingProxyType({})) -> Plan:
    """The plan that a trial comes to once evictions that it can do without are given back."""
    trial.join_gangs()
    if len(trial.evicted) > 1 or any(unit.whole for unit, _ in trial.evicted):
        Reprieve(session, trial).run()
    # What a gang gave up alone before the rest of it went is of its unit, too.
    units = [replace(unit, pods=[each.pods[0] for each in statement.operations]) for unit, statement in trial.evicted]
    return Plan(trial.hand_over(), units, len(trial.placed), of_groups)


class Reprieve:
    """Gives back what the pods of a trial can do without."""

    def __init__(self, session: Session, trial: Trial) -> None:
        self._session = session
        self._trial = trial
        evicted = trial.evicted
        #: where units are, the most expensive first
        self._in_order = sorted(range(len(evicted)), key=lambda at: unit_cost(evicted[at][0]), reverse=True)

    def run(self) -> None:
        """Give units back; plugins are asked about places once, or after each unit if they object then."""
        _ = self._give_back(one_by_one=False) or self._give_back(one_by_one=True)
        self._trial.evicted = [each for each in self._trial.evicted if each[1]]

    def _give_back(self, *, one_by_one: bool) -> bool:
        """False, and nothing done, when some pod does not get its place."""
        trial, given = self._trial, list[tuple[int, Unit, list[Operation]]]()
        packing, before = _Packing(self._session, trial), trial.placed
        for at in self._in_order:
            unit, statement = trial.evicted[at]
            operations = statement.save()
            if self._stays(unit, statement, packing, one_by_one=one_by_one):
                trial.evicted[at] = replace(unit, whole=False), statement
                given.append((at, unit, operations))
        if trial.promised or trial.promise(packing.places()):
            return True
        for at, unit, operations in reversed(given):
            self._go(trial.evicted[at][1], operations)
            trial.evicted[at] = unit, trial.evicted[at][1]
        trial.promise(before)
        return False

    def _stays(self, unit: Unit, statement: Statement, packing: _Packing, *, one_by_one: bool) -> bool:
        """Give a unit back, or as much of it as its gang may run with; False, and nothing done, if it has to go."""
        before = statement.save()
        back = packing.give_back(unit, before)
        stays = bool(back) and self._give(statement, back, packing, one_by_one=one_by_one)
        # Of pods that may not all stay some may.
        for each in back if not stays and len(back) > 1 else ():
            if packing.give_back(unit, [each]):
                stays |= self._give(statement, [each], packing, one_by_one=one_by_one)
        if stays and statement and not runs_in_part(self._session, unit.job):
            # What else stays by the amounts that were counted leaves room to spare.
            packing.undo()
            self._go(statement, before)
            return False
        return stays

    def _give(self, statement: Statement, back: list[Operation], packing: _Packing, *, one_by_one: bool) -> bool:
        """Give pods of a unit back; False, and nothing done, where a queue or, one by one, a plugin objects."""
        operations = statement.save()
        self._go(statement, [each for each in operations if each not in back])
        if self._trial.within_share() and (not one_by_one or self._trial.promise(packing.places())):
            return True
        self._go(statement, operations)
        packing.undo()
        return False

    def _go(self, statement: Statement, operations: Sequence[Operation]) -> None:
        """Have only some pods of a unit go."""
        self._trial.withdraw()
        statement.discard()
        statement.recover(operations)


class _Packing:
    """Where the pods of a trial may be by amounts, when victims stay after all and pods go to other nodes for them."""

    def __init__(self, session: Session, trial: Trial) -> None:
        self._placed = trial.placed
        self._always = session.view.nodes.always
        #: what is left on nodes, shape (dimensions, nodes)
        self._free = session.view.nodes.future_idle()
        #: the request and node of each pod; after the pods come the victims that stay
        self._requests = [place.of.request for place in trial.placed]
        self._node = [place.node for place in trial.placed]
        #: the pods on each node
        self._on: dict[int, list[int]] = {}
        for pod, node in enumerate(self._node):
            self._on.setdefault(node, []).append(pod)
        self._looks = _LOOKS
        #: how many pods move at most for one victim, each for the one before; nothing is gained where all are alike
        self._depth = min(2, len({id(place.of) for place in trial.placed}))
        #: what was moved for the last unit, and from where
        self._moved: list[tuple[int, int]] = []

    def places(self) -> list[Place]:
        """The pods with their nodes."""
        return [Place(pod, node, of) for (pod, _, of), node in zip(self._placed, self._node, strict=False)]

    def give_back(self, unit: Unit, operations: Sequence[Operation]) -> list[Operation]:
        """The evictions of a unit that are not needed: all, or as many as its gang may run with, or none."""
        self._moved.clear()
        back = [each for each in operations if self._stays(each)]
        if len(back) < len(operations) and unit.job.ready_count + len(back) < unit.job.min_available:
            self.undo()
            return []
        return back

    def undo(self, to: int = 0) -> None:
        """Undo what was done for the last unit, but for its first moves."""
        while len(self._moved) > to:
            self._put(*self._moved.pop())

    def _stays(self, eviction: Operation) -> bool:
        """Have a victim stay, if there is room for it."""
        node = eviction.nodes[0]
        if node >= 0:
            if not self._make_room(node, eviction.request, self._depth):
                return False
            self._requests.append(eviction.request)
            self._node.append(_NO_NODE)
            self._move(len(self._node) - 1, node)
        return True

    def _make_room(self, node: int, request: Vector, depth: int) -> bool:
        """Have pods leave a node until a request fits there; False when they cannot."""
        if fits(request, self._free[:, node], self._always):
            return True
        #: demands of which a pod could not leave: others like it cannot, either
        staying: set[Demand] = set()
        for pod in tuple(self._on.get(node, ())) if depth else ():
            of = self._placed[pod].of
            if of in staying:
                continue
            if not self._leaves(pod, depth - 1):
                staying.add(of)
            elif fits(request, self._free[:, node], self._always):
                return True
        return False

    def _leaves(self, pod: int, depth: int) -> bool:
        """Have a pod go to another node, which others leave for it if need be; False when there is none."""
        before, request, nodes = self._node[pod], self._requests[pod], self._placed[pod].of.alternatives
        if not len(nodes) or self._looks <= 0:
            return False
        self._looks -= 1
        mark = len(self._moved)
        room = fits(request, self._free[:, nodes], self._always)
        nowhere, room = not room.any(), room & (nodes != before)
        self._move(pod, _NO_NODE)
        if room.any():
            self._move(pod, int(nodes[room.argmax()]))
            return True
        for node in tuple(self._on) if depth else ():
            if node != before and (nodes == node).any() and self._make_room(node, request, depth):
                self._move(pod, node)
                return True
        self.undo(mark)
        if self._depth == 1 and nowhere and not self._moved:
            # No other victim finds more room, where all pods are alike.
            self._looks = 0
        return False

    def _move(self, pod: int, node: int) -> None:
        self._moved.append((pod, self._node[pod]))
        self._put(pod, node)

    def _put(self, pod: int, node: int) -> None:
        before, request = self._node[pod], self._requests[pod]
        self._node[pod] = node
        if before != _NO_NODE:
            self._free[:, before] += request
        if node != _NO_NODE:
            self._free[:, node] -= request
        if pod < len(self._placed):
            if before != _NO_NODE:
                self._on[before].remove(pod)
            if node != _NO_NODE:
                self._on.setdefault(node, []).append(pod)
