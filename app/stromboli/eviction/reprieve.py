"""The end of a search: victims that all preemptors together can do without are given back.

What was evicted for the first of them may be needless once more was evicted for others. Unit by unit, the most
expensive first, the steps are: whether all pods have room by amounts when it stays, some of them on other nodes
(`_Packing`), whether the queue may take them without its eviction, and whether all plugins agree to those places.
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
    """The plan made of a trial, without evictions that its pods do not need."""
    trial.join_gangs()
    if len(trial.evicted) > 1 or any(unit.whole for unit, _ in trial.evicted):
        _give_back(session, trial)
    # What a gang gave up alone before the rest of it went is of its unit, too.
    units = [replace(unit, pods=[each.pods[0] for each in statement.operations]) for unit, statement in trial.evicted]
    return Plan(trial.hand_over(), units, len(trial.placed), of_groups)


def _give_back(session: Session, trial: Trial) -> None:
    """Give back units, the most expensive first, without which all pods of a trial still get places."""
    packing, evicted = _Packing(session, trial), trial.evicted
    for at in sorted(range(len(evicted)), key=lambda at: unit_cost(evicted[at][0]), reverse=True):
        unit, statement = evicted[at]
        if _stays(session, trial, unit, statement, packing):
            evicted[at] = replace(unit, whole=False), statement
    if not trial.promised:
        trial.promise(packing.places())
    trial.evicted = [each for each in evicted if each[1]]


def _stays(session: Session, trial: Trial, unit: Unit, statement: Statement, packing: _Packing) -> bool:
    """Give a unit back, or as much of it as its gang may run with; False, and nothing done, if it is needed."""
    before = statement.save()
    back = packing.give_back(unit, before)
    stays = bool(back) and _give(trial, statement, back, packing)
    # Of pods that may not all stay some may.
    for each in back if not stays and len(back) > 1 else ():
        if packing.give_back(unit, [each]):
            stays |= _give(trial, statement, [each], packing)
    if stays and statement and not runs_in_part(session, unit.job):
        # What else stays by the amounts that were counted leaves room to spare.
        packing.undo()
        _evict_only(trial, statement, before)
        return False
    return stays


def _give(trial: Trial, statement: Statement, back: list[Operation], packing: _Packing) -> bool:
    """Give pods of a unit back; False, and nothing done, where the queue's share or a plugin objects."""
    operations = statement.save()
    _evict_only(trial, statement, [each for each in operations if each not in back])
    if trial.within_share() and trial.promise(packing.places()):
        return True
    _evict_only(trial, statement, operations)
    packing.undo()
    return False


def _evict_only(trial: Trial, statement: Statement, operations: Sequence[Operation]) -> None:
    """Make these the evictions of a statement."""
    trial.withdraw()
    statement.discard()
    statement.recover(operations)


class _Packing:
    """Nodes for the pods of a trial by amounts alone, where victims stay and pods move to other nodes to make room."""

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
        #: whether all pods are alike, so that no other victim finds room for any of them where one does not
        self._alike = len({id(place.of) for place in trial.placed}) == 1
        #: what was moved for the last unit, and from where
        self._moved: list[tuple[int, int]] = []

    def places(self) -> list[Place]:
        """The pods with their nodes."""
        return [Place(pod, node, of) for (pod, _, of), node in zip(self._placed, self._node, strict=False)]

    def give_back(self, unit: Unit, operations: Sequence[Operation]) -> list[Operation]:
        """The evictions of a unit that are not needed: all of them, as many as its gang needs to run, or none."""
        self._moved.clear()
        back = [each for each in operations if self._stays(each)]
        if len(back) < len(operations) and unit.job.ready_count + len(back) < unit.job.min_available:
            self.undo()
            return []
        return back

    def undo(self) -> None:
        """Undo what was done for the last unit."""
        while self._moved:
            self._put(*self._moved.pop())

    def _stays(self, eviction: Operation) -> bool:
        """Let a victim stay if there is room for it."""
        node = eviction.nodes[0]
        if node >= 0:
            if not self._make_room(node, eviction.request):
                return False
            self._requests.append(eviction.request)
            self._node.append(_NO_NODE)
            self._move(len(self._node) - 1, node)
        return True

    def _make_room(self, node: int, request: Vector) -> bool:
        """Move pods off a node until a request fits there; False if too few can move."""
        if fits(request, self._free[:, node], self._always):
            return True
        #: demands of which a pod could not leave: others like it cannot, either
        staying: set[Demand] = set()
        for pod in tuple(self._on.get(node, ())):
            of = self._placed[pod].of
            if of in staying:
                continue
            if not self._leaves(pod):
                staying.add(of)
            elif fits(request, self._free[:, node], self._always):
                return True
        return False

    def _leaves(self, pod: int) -> bool:
        """Move a pod to another node; False if none has room for it."""
        nodes = self._placed[pod].of.alternatives
        if not len(nodes) or self._looks <= 0:
            return False
        self._looks -= 1
        room = fits(self._requests[pod], self._free[:, nodes], self._always)
        if self._alike and not self._moved and not room.any():
            self._looks = 0
        room &= nodes != self._node[pod]
        if room.any():
            self._move(pod, int(nodes[room.argmax()]))
        return bool(room.any())

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
