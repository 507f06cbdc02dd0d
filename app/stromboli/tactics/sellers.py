"""What holders of a node ask for the next places there, in amounts: who would go, and what that costs.

What a node asks is worked out when somebody looks at it, and kept: of jobs that give one pod after the other most ask
the same again. It is worked out anew when the node changed, when its holders come in another order, or when a job can
no longer do without what it offered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import TOLERANCE, Mask, Rows, Vector, compared, copies_that_fit
from stromboli.framework.job import Job
from stromboli.framework.nodes import Changes
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord
from stromboli.tactics.bounds import NOBODY, Stock
from stromboli.tactics.bundles import Surplus, everything
from stromboli.tactics.candidates import began
from stromboli.tactics.holders import Holders

#: smaller is cheaper
Price: TypeAlias = tuple[int, bool, float, float]


@dataclass(frozen=True, slots=True)
class Unit:
    """Victims that go together: one that its gang can do without, or a gang."""

    job: Job
    pods: Sequence[PodRecord]
    rank: int
    whole: bool
    #: when the first of them began to run, infinite where that is not known
    began: float


@dataclass(frozen=True, slots=True)
class Ask:
    """What a node asks for its next places; nobody goes where there is room."""

    node: int
    units: Sequence[Unit]
    #: the most important of the victims, whether a gang goes whole, how many go for each place, who ran longest
    price: Price


@dataclass(slots=True)
class Item:
    """A victim on a node in a calculation: what the node gains by it."""

    job: Job
    pod: PodRecord | None
    rank: int
    gain: list[float]
    began: float
    #: its place among those of the node, who goes first in front
    order: int
    size: int = 1
    taken: bool = True


@dataclass(frozen=True, slots=True)
class _Offer:
    """Who goes on a node, and for how many more pods there is room then."""

    units: Sequence[Unit]
    places: float
    #: the most important of them, whether a gang goes whole, how many go, and when the first of the former began
    rank: int
    whole: bool
    count: int
    oldest: float

    @classmethod
    def of(cls, units: Sequence[Unit], places: float) -> _Offer:
        """What some units that go together make."""
        rank = max(unit.rank for unit in units)
        oldest = min(unit.began for unit in units if unit.rank == rank)
        return cls(
            units, places, rank, any(unit.whole for unit in units), sum(len(unit.pods) for unit in units), oldest
        )

    def ask(self, node: int, left: int) -> Ask:
        """The same for each of the places that so many pods take."""
        gets = 1 if left == 1 else max(1, int(min(self.places, left)))
        return Ask(node, self.units, (self.rank, self.whole, self.count / gets, -self.oldest))


@dataclass(slots=True)
class _Known:
    """What was worked out for a node where nobody's gang goes whole."""

    #: by the key of each job that has pods there: the job, its place among the others, and how many it could give
    jobs: Mapping[str, tuple[Job, Any, int]]
    #: the pods that may go, by row
    allowed: list[int]
    offer: _Offer | None
    #: when jobs were last found to be in their places
    turn: int


class Sellers:
    """See the module's docstring. One for identical pods of equal jobs; `turn` begins with each of these jobs."""

    def __init__(self, session: Session, holders: Holders, stock: Stock, request: Vector, point: str) -> None:
        """`point` is where plugins are asked about victims."""
        self._session = session
        self._holders = holders
        self._stock = stock
        self._point = point
        self._columns: list[int] = np.flatnonzero(compared(request, session.view.nodes.always)).tolist()
        self._wants: Vector = request[self._columns]
        self._wanted: list[float] = self._wants.tolist()
        #: whether what is said about a victim stays so
        self._steady = session.ask.judges_steadily(point)
        self._known: dict[int, _Known] = {}
        #: what pods of a class hold of what is wanted
        self._amounts: dict[int, list[float]] = {}
        #: the places of pods in their jobs, by row
        self._tasks: dict[int, tuple[Any, ...]] = {}
        self._changes = Changes(session.view.nodes)
        self._turn = 0
        self.turn(None, may_go_whole=True)

    def turn(self, pod: PodRecord | None, *, may_go_whole: bool) -> None:
        """Sell to a job from now on; `pod` is the first of its pods. `may_go_whole` says whether gangs may stop."""
        self._turn += 1
        self._pod = pod
        self.may_go_whole = may_go_whole
        self._places: dict[str, tuple[tuple[Any, ...], int]] = {}
        self._allowed: dict[str, list[PodRecord]] = {}
        #: by node who might go when somebody first asked, where what is said about a victim stays so
        self._permitted: dict[int, list[PodRecord]] = {}

    def ask(self, node: int, left: int, elsewhere: Mask) -> tuple[Ask | None, Iterable[str]]:
        """The cheapest way to make room on a node for some of `left` pods, and the jobs on which it depends.

        `elsewhere` says at which nodes pods may be, besides, shape (nodes,).
        """
        self._refresh()
        known = self._known.get(node)
        if known is not None and self._holds(known, node):
            return None if known.offer is None else known.offer.ask(node, left), known.jobs
        room = self._session.view.nodes.future_idle(node)[self._columns].tolist()
        short = [want - TOLERANCE - have for want, have in zip(self._wanted, room, strict=True)]
        if max(short) < 0:
            return Ask(node, (), (NOBODY, False, 0.0, 0.0)), ()
        pods = self._permitted_on(node)
        found, rest = self.sparable(pods)
        jobs = {pod.job: self._session.view.jobs[pod.job] for pod in pods}
        items = self._items(found, rest, short)
        units = [unit for item in items if item.taken for unit in self.units(item, items)]
        places = self._gained(node, units, elsewhere) if units and (left > 1 or not rest) else 1.0
        offer = _Offer.of(units, places) if units else None
        if not rest and not any(job.divided or job.min_by_role for job in jobs.values()):
            count = Counter(pod.job for pod in pods)
            of_jobs = {key: (job, self._place(job), count[key]) for key, job in jobs.items()}
            self._known[node] = _Known(of_jobs, [pod.row for pod in pods], offer, self._turn)
        return None if offer is None else offer.ask(node, left), jobs

    def gave(self, units: Iterable[Unit]) -> set[str]:
        """Units went; the keys of their jobs, which have less to give now."""
        keys = {unit.job.key for unit in units}
        for key in keys:
            self._allowed.pop(key, None)
        return keys

    def everything(self) -> list[Item]:
        """All that may go, one by one and as gangs, the cheapest first."""
        found, rest = self.sparable(self.permitted(self._stock.left()))
        return sorted(found + self.gangs(rest), key=_cheapness)

    def on(self, node: int) -> list[Item]:
        """All that may go with pods of a node, one by one and as gangs, the cheapest first."""
        found, rest = self.sparable(self._permitted_on(node))
        return sorted(found + self.gangs(rest), key=_cheapness)

    # -- what is kept ----------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Forget the nodes that changed."""
        for node in self._changes.take():
            self._known.pop(node, None)

    def _holds(self, known: _Known, node: int) -> bool:
        """Whether what is known of a node that did not change would be found again."""
        for job, _, count in known.jobs.values():
            if job.ready_count - job.min_available < count:
                return False
        if known.turn != self._turn:
            if any(self._place(job) != place for job, place, _ in known.jobs.values()):
                return False
            known.turn = self._turn
        return self._steady or [pod.row for pod in self.permitted(self._stock.on(node))] == known.allowed

    def _place(self, job: Job) -> tuple[tuple[Any, ...], int]:
        """What the order of a job's pods among others follows from."""
        found = self._places.get(job.key)
        if found is None:
            found = self._places[job.key] = self._session.ask.job_order(job), job.counts[PodState.Pending]
        return found

    def _gained(self, node: int, units: Sequence[Unit], elsewhere: Mask) -> float:
        """For how many more pods there is room when units go."""
        gains: dict[int, list[float]] = {}
        node_of = self._session.view.pods.node
        for unit in units:
            for pod in unit.pods:
                at = node_of.item(pod.row)
                if at == node or elsewhere[at]:
                    held, others = self._held(pod), gains.get(at)
                    gains[at] = held if others is None else [a + b for a, b in zip(others, held, strict=True)]
        nodes = self._session.view.nodes
        before = nodes.future_idle(np.array(list(gains), np.intp))[self._columns]
        rooms = np.concatenate([before, before + np.array(list(gains.values())).T], axis=1)
        copies = copies_that_fit(self._wants, rooms, nodes.always)
        gained: float = (copies[len(gains) :] - copies[: len(gains)].clip(min=0)).sum().item()
        return gained

    # -- who goes --------------------------------------------------------------------------------------------------

    def _items(self, found: list[Item], rest: Mapping[str, Sequence[PodRecord]], short: Sequence[float]) -> list[Item]:
        """Who goes on a node, and whose going was considered: those that may go alone, and gangs where nobody can.

        A gang goes before somebody more important who could be spared.
        """
        enough = self._sufficient(found, short)
        highest = max((item.rank for item in enough if item.taken), default=None)
        if highest is not None and all(self._rank(pod) >= highest for pods in rest.values() for pod in pods):
            return enough
        for item in found:
            item.taken = True
        return self._sufficient(found + self.gangs(rest), short)

    def sparable(self, pods: Iterable[PodRecord]) -> tuple[list[Item], Mapping[str, Sequence[PodRecord]]]:
        """Of some pods, in order, those that may go alone, and by job those that their gangs cannot do without."""
        view = self._session.view
        found: list[Item] = []
        rest: dict[str, list[PodRecord]] = {}
        surplus: dict[str, Surplus] = {}
        for order, pod in enumerate(pods):
            job = view.jobs[pod.job]
            if pod.job not in surplus:
                surplus[pod.job] = Surplus(self._session, job)
            if surplus[pod.job].spend(pod):
                found.append(Item(job, pod, self._rank(pod), self._held(pod), began(pod), order))
            else:
                rest.setdefault(pod.job, []).append(pod)
        return found, rest

    def gangs(self, rest: Mapping[str, Sequence[PodRecord]]) -> list[Item]:
        """Gangs that go whole, for pods that they cannot do without."""
        items = []
        for key, pods in rest.items():
            job = self._session.view.jobs[key]
            whole = self._whole(job)
            if whole:
                gain = [sum(held) for held in zip(*map(self._held, pods), strict=True)]
                rank = max(map(self._rank, whole))
                items.append(Item(job, None, rank, gain, min(map(began, whole)), len(self._stock.rows), len(whole)))
        return items

    def _sufficient(self, items: list[Item], short: Sequence[float]) -> list[Item]:
        """Enough items, of which those are taken that cannot be done without, the dearest given back first; else none.

        More important ones are not looked at while the others suffice.
        """
        lacking, taken = list(short), list[Item]()
        items.sort(key=lambda item: (item.rank, item.pod is None))
        for at, item in enumerate(items):
            taken.append(item)
            lacking = [lack - gain for lack, gain in zip(lacking, item.gain, strict=True)]
            after = items[at + 1] if at + 1 < len(items) else None
            alike = after is not None and (after.rank, after.pod is None) == (item.rank, item.pod is None)
            if not alike and max(lacking) < 0:
                break
        if max(lacking) >= 0:
            return []
        for item in sorted(taken, key=self._dearness, reverse=True):
            without = [lack + gain for lack, gain in zip(lacking, item.gain, strict=True)]
            if max(without) < 0:
                item.taken, lacking = False, without
        return taken

    def _dearness(self, item: Item) -> tuple[Any, ...]:
        """Larger is given back first: the important, whole gangs, what gives little, has run long or would go last."""
        part = sum(gain / want for gain, want in zip(item.gain, self._wanted, strict=True) if want > 0)
        return item.rank, item.pod is None, item.size, -part, -item.began, item.order

    def units(self, item: Item, items: Sequence[Item]) -> list[Unit]:
        """The victims of an item; what a gang gives whole is not given again pod by pod."""
        if item.pod is None:
            return [Unit(item.job, self._whole(item.job), item.rank, True, item.began)]
        if any(other.taken and other.pod is None and other.job is item.job for other in items):
            return []
        return [Unit(item.job, (item.pod,), item.rank, False, item.began)]

    def _permitted_on(self, node: int) -> list[PodRecord]:
        """The candidates on a node, in the order in which they would go, with everybody's consent."""
        known = self._permitted.get(node)
        if known is not None:
            held, states = self._holders.states, self._session.view.pods.state
            return [pod for pod in known if states.item(pod.row) in held]
        found = self.permitted(self._stock.on(node))
        if self._steady:
            self._permitted[node] = found
        return found

    def permitted(self, rows: Rows) -> list[PodRecord]:
        """The candidates among some holders, in the order in which they would go, with everybody's consent."""
        assert self._pod is not None
        only_like = self._pod.pod_class.best_effort
        pods = [
            pod
            for pod in self._session.view.records(rows[self._holders.willing_of[rows]])
            if pod.pod_class.best_effort or not only_like
        ]
        return self._session.ask.victims(self._point, self._pod, self._in_order(pods)) if pods else []

    def _in_order(self, pods: list[PodRecord]) -> list[PodRecord]:
        """Who goes first in front: the less important, of equals the last job's last pod."""
        return sorted(pods, key=self.place_of, reverse=True)

    def place_of(self, pod: PodRecord) -> tuple[Any, ...]:
        """A pod's place in that order, larger goes first."""
        task = self._tasks.get(pod.row)
        if task is None:
            task = self._tasks[pod.row] = self._session.ask.task_key(pod)
        place = self._places.get(pod.job) or self._place(self._session.view.jobs[pod.job])
        return -max(self._rank(pod), 0), place[0], task

    def place(self, job: Job) -> tuple[Any, ...]:
        """The place of a job's pods among those of others, as it is when it is first asked for in a turn."""
        return self._place(job)[0]

    def _rank(self, pod: PodRecord) -> int:
        return int(self._holders.rank_of.item(pod.row))

    def _whole(self, job: Job) -> list[PodRecord]:
        """All pods of a gang, when it may go whole; else none."""
        if not self.may_go_whole:
            return []
        found = self._allowed.get(job.key)
        if found is None:
            assert self._pod is not None
            pods = everything(self._session, job)
            allowed = self._session.ask.victims(self._point, self._pod, self._in_order(pods)) if pods else []
            found = self._allowed[job.key] = pods if len(allowed) == len(pods) else []
        return found

    def _held(self, pod: PodRecord) -> list[float]:
        held = self._amounts.get(pod.pod_class.id)
        if held is None:
            held = self._amounts[pod.pod_class.id] = self._session.view.request(pod)[self._columns].tolist()
        return held


def _cheapness(item: Item) -> tuple[Any, ...]:
    return item.rank, item.pod is None, item.size, -item.began, item.order
