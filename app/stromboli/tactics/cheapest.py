"""Whom it costs least to evict so that pods of a job find places: less important ones, then fewer, then younger ones.

A `Market` is what others hold in the session; `Purchase` looks there for places for identical pods of one job. The
steps are: a bound for each node of what the next place there costs, in vectors (`Bounds`), the exact offers of the
nodes that look cheapest (`_Offer`), of these the cheapest for each place (`_buy`), victims on any node where it is the
queue that may take no more (`_free_share`), and in the end whatever of it the pods can do without is given back, the
dearest first (`_spare`).

A pod that its gang can do without goes alone, any other with its whole gang, wherever that is. What a gang leaves on
other nodes is room for the next pods. Offers are worked out in amounts; who is evicted for one is tried on a statement,
and everybody who has a say is asked before anything is decided.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np

from stromboli.api.resources import CPU, MEMORY, TOLERANCE, Mask, Matrix, Rows, Vector, fits
from stromboli.framework.job import Job
from stromboli.framework.kernel import copies_that_fit
from stromboli.framework.operation import Operation
from stromboli.framework.session import Session
from stromboli.framework.statement import Statement
from stromboli.state.pods import PodRecord
from stromboli.tactics.bounds import NOBODY, Bounds
from stromboli.tactics.bundles import Surplus, everything
from stromboli.tactics.candidates import Reversed, began, preemptable
from stromboli.tactics.holders import Holders

#: how many offers of equal promise are compared for a place
_COMPARED = 16


#: smaller is cheaper
Price: TypeAlias = tuple[int, bool, float, float]


@dataclass(frozen=True, slots=True)
class _Unit:
    """Victims that go together: one that its gang can do without, or a gang."""

    job: Job
    pods: Sequence[PodRecord]
    rank: int
    whole: bool
    #: when the first of them began to run, infinite where that is not known
    began: float


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a node asks for its next places; nobody goes where there is room."""

    node: int
    units: Sequence[_Unit]
    #: the most important of the victims, whether a gang goes whole, how many go for each place, who ran longest
    price: Price


@dataclass(slots=True)
class _Item:
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


class Market:
    """What jobs of a queue hold that others may get, for one action; see the module's docstring."""

    def __init__(self, session: Session, holders: Holders, action: str, point: str) -> None:
        self.session = session
        self.holders = holders
        self.action = action
        #: the extension point that says who may be evicted
        self.point = point
        #: what was looked for in vain: how many places were found at most
        self._in_vain: dict[Any, int] = {}
        self._agrees: dict[str, bool] = {}

    def candidates(self, job: Job) -> Mask:
        """The holders that may be evicted for a job at all, as far as that is known without asking about each."""
        holders = self.holders
        mask: Mask = (holders.queue == job.queue.index) & (holders.job != job.index) & holders.may_go_for(job.queue)
        allowed = self.session.ask.preemptable_jobs(job)
        if allowed is not None:
            mask &= allowed[holders.job]
        return mask

    def agrees(self, job: str) -> bool:
        """Whether a job agrees to be evicted, be it by its PodGroup."""
        found = self._agrees.get(job)
        if found is None:
            found = self._agrees[job] = preemptable(self.session.view.jobs[job].pod_group.metadata)
        return found

    def kind(self, job: Job, pod: PodRecord) -> Any:
        """What decides, beside the session, how many places can be found for pods."""
        own = job.key if self.session.ask.by_share(self.point) else ""
        return own, job.queue.index, job.priority, pod.priority, pod.role, self.session.kernel.identity(pod)

    def is_hopeless(self, kind: Any, count: int) -> bool:
        """Whether so many places were looked for in vain."""
        return self._in_vain.get(kind, count) < count

    def in_vain(self, kind: Any, found: int) -> None:
        """Remember that no more places were found."""
        self._in_vain[kind] = min(found, self._in_vain.get(kind, found))


def serve_cheaply(market: Market, job: Job, pods: Sequence[PodRecord]) -> None:
    """Find places for a job's pods, in order, until it starves no longer; keep them if it may then run."""
    session, left = market.session, list(pods)
    statement = session.statement()
    while left and session.ask.job_starving(job):
        wanted = max(1, session.ask.job_missing(job) - job.waiting_count)
        alike = identical(session, left)
        kind, run = market.kind(job, left[0]), alike[:wanted]
        found = 0
        if not market.is_hopeless(kind, len(run)):
            purchase = Purchase(market, job, run, market.candidates(job))
            found = purchase.run()
            purchase.settle(statement)
            if found < len(run) and len(left) == len(pods):
                market.in_vain(kind, found)
        left = left[len(run if found == len(run) else alike) :]
    if session.ask.job_pipelined(job):
        statement.commit()
    else:
        statement.discard()


def price(evictions: Sequence[Operation]) -> tuple[Any, ...]:
    """What evictions cost, the less the better: the highest priority, how many there are, who has run longest."""
    priorities = {op.pods[0].row: (op.job.priority if op.job else 0, op.pods[0].spec_priority or 0) for op in evictions}
    highest = max(priorities.values(), default=(-math.inf, 0))
    oldest = min((began(op.pods[0]) for op in evictions if priorities[op.pods[0].row] == highest), default=0.0)
    return highest, len(evictions), -oldest


def identical(session: Session, pods: Sequence[PodRecord]) -> list[PodRecord]:
    """The first pods that are placed alike; one whose places depend on other pods stands alone."""
    first = pods[0]
    if session.kernel.varies(first):
        return [first]
    identity = session.kernel.identity(first)
    return list(takewhile(lambda pod: pod.role == first.role and session.kernel.identity(pod) == identity, pods))


class Purchase:
    """Places for identical pods of a job, bought from others on a statement."""

    def __init__(
        self,
        market: Market,
        job: Job,
        pods: Sequence[PodRecord],
        candidates: Mask,
        within: Mask | None = None,
        *,
        whole: bool = True,
    ) -> None:
        """`candidates` are of the market's holders; `within` is where the places have to be.

        `whole` says whether gangs may go that then cannot run.
        """
        self._may_go_whole = whole
        self._market = market
        self._session = session = market.session
        self._job = job
        self._pods = pods
        self._pod = pods[0]
        self._request: Vector = session.view.request(pods[0])
        asked = self._request > 0
        asked[[CPU, MEMORY]] = True
        self._columns: list[int] = np.flatnonzero(asked).tolist()
        self._wanted: list[float] = self._request[self._columns].tolist()
        self._varies = session.kernel.varies(pods[0])
        self._candidates = candidates
        self._within = within
        self._allowed: dict[str, list[PodRecord]] = {}
        self._orders: dict[str, Any] = {}
        #: nodes whose offers have victims of a job
        self._nodes_of: dict[str, set[int]] = {}
        #: jobs of which somebody went since offers were made
        self._gave: set[str] = set()
        #: nodes that did not take the pods though there was room
        self._refused: set[int] = set()
        #: whether the queue may take no more, whoever goes
        self._exhausted = False
        #: units that went, each on a statement
        self._gone: list[tuple[_Unit, Statement]] = []
        self._placed: list[tuple[PodRecord, int]] = []
        self._promises = session.statement()

    def run(self) -> int:
        """Buy as many places as there are pods, or as can be had; how many they are. Keep it with `settle`."""
        rows = self._rows()
        if not len(rows):
            return 0
        self._bounds = Bounds(self._market.holders, self._candidates, self._session, self._request, rows)
        self._offers: dict[int, _Offer | None] = {}
        self._heap = self._bounds.heap(self._scores(rows), len(self._pods))
        self._seen = len(self._session.view.nodes.log)
        for pod in self._pods:
            if not self._buy(pod):
                break
        if len(self._gone) > 1 and not self._varies:
            self._spare(rows)
        return len(self._placed)

    def settle(self, statement: Statement) -> None:
        """Add what was bought to a statement."""
        self._promises.discard()
        for _, unit in self._gone:
            statement.merge(unit)
        for pod, node in self._placed:
            sub_job = self._session.view.sub_job_of(self._job, pod)
            statement.pipeline(sub_job, pod, node, after_eviction=bool(self._gone))

    def take_back(self) -> None:
        """Leave everything as it was."""
        self._promises.discard()
        for _, unit in reversed(self._gone):
            unit.discard()

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _rows(self) -> Rows:
        rows = self._session.kernel.possible(self._pod)
        return rows if self._within is None else rows[self._within[rows]]

    def _scores(self, rows: Rows) -> Vector:
        """The place of each node among equals, smaller first: own nodes first, then the best scored."""
        score = -self._session.kernel.whole_score(self._pod, rows)
        place = np.empty(len(rows))
        shard = self._session.view.shard
        order = np.argsort(score, kind="stable")
        if shard is not None:
            order = order[np.argsort(~shard.own[rows][order], kind="stable")]
        place[order] = np.arange(len(rows))
        return place

    def _buy(self, pod: PodRecord) -> bool:
        """Buy the cheapest place for a pod; False when there is none."""
        while not self._exhausted:
            self._look_again()
            offer = self._cheapest()
            if offer is None:
                return False
            if self._take(offer, pod):
                return True
            # What looked possible in amounts is not: nobody asks that node again for these pods.
            self._offers[offer.node] = None
            self._refused.add(offer.node)
        return False

    def _look_again(self) -> None:
        """Forget the offers of nodes that changed, and of those with pods of jobs that have less to give."""
        log = self._session.view.nodes.log
        changed = set(log[self._seen :]) & self._bounds.known
        for key in self._gave:
            changed |= self._nodes_of.pop(key, set())
        for node in changed:
            if node not in self._refused:
                self._offers.pop(node, None)
                heapq.heappush(self._heap, (NOBODY, False, 0.0, self._bounds.place.get(node, 0.0), node))
        self._gave.clear()
        self._seen = len(log)

    def _cheapest(self) -> _Offer | None:
        """The cheapest of the offers that look best."""
        heap = self._heap
        found: list[tuple[Price, float, int]] = []
        looked: set[int] = set()
        while heap and len(found) < _COMPARED:
            *least, place, node = heap[0]
            if found and tuple(least) > min(found)[0][:3]:
                break
            heapq.heappop(heap)
            if node in looked:
                continue
            looked.add(node)
            if node not in self._offers:
                self._offers[node] = self._offer(node)
            offer = self._offers[node]
            if offer is not None:
                found.append((offer.price, place, node))
        for price, place, node in found:
            heapq.heappush(heap, (*price[:3], place, node))
        return self._offers[min(found)[2]] if found else None

    # -- victims on a node -----------------------------------------------------------------------------------------

    def _offer(self, node: int) -> _Offer | None:
        """The cheapest way to make room on a node, in amounts."""
        room = self._session.view.nodes.future_idle(node)[self._columns].tolist()
        short = [want - TOLERANCE - have for want, have in zip(self._wanted, room, strict=True)]
        if max(short) < 0:
            return _Offer(node, (), (NOBODY, False, 0.0, 0.0))
        items = self._items(node, short)
        if not items:
            return None
        units = [unit for item in items if item.taken for unit in self._units(item, items)]
        highest = max(unit.rank for unit in units)
        count = sum(len(unit.pods) for unit in units)
        oldest = min(unit.began for unit in units if unit.rank == highest)
        whole = any(unit.whole for unit in units)
        return _Offer(node, units, (highest, whole, count / self._places(node, units), -oldest))

    def _places(self, node: int, units: Sequence[_Unit]) -> int:
        """How many of the pods that still wait would find a place when units go."""
        gains: dict[int, Vector] = {}
        view = self._session.view
        if len(self._pods) - len(self._placed) == 1:
            return 1
        for unit in units:
            for pod in unit.pods:
                at = int(view.pods.node[pod.row])
                if at == node or at in self._bounds.known:
                    gains[at] = gains.get(at, 0) + view.request(pod)
        nodes = np.array(list(gains), np.intp)
        before = view.nodes.future_idle(nodes)
        after = before + np.array(list(gains.values())).T
        gained = copies_that_fit(self._request, after) - copies_that_fit(self._request, before).clip(min=0)
        return max(1, int(min(gained.sum(), len(self._pods) - len(self._placed))))

    def _items(self, node: int, short: list[float]) -> list[_Item]:
        """Who goes on a node, and whose going was considered: those that may go alone, and gangs where nobody can.

        A gang goes before somebody more important who could be spared.
        """
        found, rest = self._sparable(self._bounds.on(node))
        for key in {item.job.key for item in found} | rest.keys():
            self._nodes_of.setdefault(key, set()).add(node)
        enough = self._sufficient(found, short)
        highest = max((item.rank for item in enough if item.taken), default=None)
        ranks = self._bounds.rank_of
        if highest is not None and all(ranks[pod.row] >= highest for pods in rest.values() for pod in pods):
            return enough
        for item in found:
            item.taken = True
        return self._sufficient(found + self._gangs(rest), short)

    def _sparable(self, rows: Rows) -> tuple[list[_Item], Mapping[str, Sequence[PodRecord]]]:
        """Of some holders those that may go alone, and by job those that their gangs cannot do without."""
        view = self._session.view
        found: list[_Item] = []
        rest: dict[str, list[PodRecord]] = {}
        surplus: dict[str, Surplus] = {}
        for order, pod in enumerate(self._permitted(rows)):
            job = view.jobs[pod.job]
            if pod.job not in surplus:
                surplus[pod.job] = Surplus(self._session, job)
            if surplus[pod.job].spend(pod):
                found.append(_Item(job, pod, self._bounds.rank_of[pod.row], self._held(pod), began(pod), order))
            else:
                rest.setdefault(pod.job, []).append(pod)
        return found, rest

    def _gangs(self, rest: Mapping[str, Sequence[PodRecord]]) -> list[_Item]:
        """Gangs that go whole, for pods that they cannot do without."""
        ranks = self._bounds.rank_of
        items = []
        for key, pods in rest.items():
            job = self._session.view.jobs[key]
            whole = self._whole(job)
            if whole:
                gain = [sum(held) for held in zip(*map(self._held, pods), strict=True)]
                rank = max(ranks.get(pod.row, NOBODY) for pod in whole)
                items.append(_Item(job, None, rank, gain, min(map(began, whole)), len(ranks), len(whole)))
        return items

    def _sufficient(self, items: list[_Item], short: list[float]) -> list[_Item]:
        """Enough items, of which those are taken that cannot be done without, the dearest given back first; else none.

        More important ones are not looked at while the others suffice.
        """
        lacking, taken = list(short), list[_Item]()
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

    def _dearness(self, item: _Item) -> tuple[Any, ...]:
        """Larger is given back first: the important, whole gangs, what gives little, has run long or would go last."""
        part = sum(gain / want for gain, want in zip(item.gain, self._wanted, strict=True) if want > 0)
        return item.rank, item.pod is None, item.size, -part, -item.began, item.order

    def _units(self, item: _Item, items: Sequence[_Item]) -> list[_Unit]:
        """The victims of an item; what a gang gives whole is not given again pod by pod."""
        if item.pod is None:
            return [_Unit(item.job, self._whole(item.job), item.rank, True, item.began)]
        if any(other.taken and other.pod is None and other.job is item.job for other in items):
            return []
        return [_Unit(item.job, (item.pod,), item.rank, False, item.began)]

    def _permitted(self, rows: Rows) -> list[PodRecord]:
        """The candidates among some holders, in the order in which they would go, with everybody's consent."""
        only_like = self._pod.pod_class.best_effort
        pods = [
            pod
            for pod in self._session.view.records(rows)
            if preemptable(pod) and self._market.agrees(pod.job) and (pod.pod_class.best_effort or not only_like)
        ]
        return self._session.ask.victims(self._market.point, self._pod, self._in_order(pods)) if pods else []

    def _in_order(self, pods: list[PodRecord]) -> list[PodRecord]:
        """Who goes first in front: the less important, of equals the last job's last pod."""
        ranks, jobs, task_key = self._bounds.rank_of, self._session.view.jobs, self._session.ask.task_key
        return sorted(pods, key=lambda p: (ranks.get(p.row, 0), self._order(jobs[p.job]), Reversed(task_key(p))))

    def _order(self, job: Job) -> Any:
        found = self._orders.get(job.key)
        if found is None:
            found = self._orders[job.key] = Reversed(self._session.ask.job_order(job))
        return found

    def _whole(self, job: Job) -> list[PodRecord]:
        """All pods of a gang, when it may go whole; else none."""
        if not self._may_go_whole:
            return []
        found = self._allowed.get(job.key)
        if found is None:
            pods = everything(self._session, job)
            allowed = self._session.ask.victims(self._market.point, self._pod, self._in_order(pods)) if pods else []
            found = self._allowed[job.key] = pods if len(allowed) == len(pods) else []
        return found

    def _held(self, pod: PodRecord) -> list[float]:
        held: list[float] = self._session.view.request(pod)[self._columns].tolist()
        return held

    # -- trying ----------------------------------------------------------------------------------------------------

    def _take(self, offer: _Offer, pod: PodRecord) -> bool:
        """Evict for an offer and promise a pod the place; False, and nothing done, when that does not work."""
        session = self._session
        gone = [(unit, self._evicted(unit)) for unit in offer.units]
        if not self._has_share(pod):
            gone += self._free_share(pod)
        if self._fits(pod, offer.node):
            self._gone += gone
            self._join()
            self._promises.pipeline(session.view.sub_job_of(self._job, pod), pod, offer.node)
            self._placed.append((pod, offer.node))
            for unit, _ in gone:
                self._allowed.pop(unit.job.key, None)
                self._gave.add(unit.job.key)
            return True
        for _, statement in reversed(gone):
            statement.discard()
        return False

    def _free_share(self, pod: PodRecord) -> list[tuple[_Unit, Statement]]:
        """Evict, wherever they are and the cheapest first, until the queue may take a pod; nobody if it never may.

        How much of its share a queue lacks nobody says, so it is asked after each.
        """
        state, gone = self._session.view.pods.state, list[tuple[_Unit, Statement]]()
        held = [row for row in self._bounds.rank_of if state[row] in self._market.holders.states]
        found, rest = self._sparable(np.array(held, np.intp))
        for item in sorted(found + self._gangs(rest), key=_cheapness):
            gone += [(unit, self._evicted(unit)) for unit in self._units(item, ())]
            if self._has_share(pod):
                return gone
        for _, statement in reversed(gone):
            statement.discard()
        self._exhausted = True
        return []

    def _evicted(self, unit: _Unit) -> Statement:
        statement = self._session.statement()
        for pod in unit.pods:
            if self._session.view.pods.state[pod.row] in self._market.holders.states:
                statement.evict(pod, self._market.action, self._job.key)
        return statement

    def _join(self) -> None:
        """What a gang gave before it went whole is given back with it or not at all."""
        whole = {unit.job.key: (unit, statement) for unit, statement in self._gone if unit.whole}
        if not whole:
            return
        kept: list[tuple[_Unit, Statement]] = []
        for unit, statement in self._gone:
            of = whole.get(unit.job.key)
            if of is None or of[0] is unit:
                kept.append((unit, statement))
            else:
                of[1].merge(statement)
        self._gone = kept

    def _fits(self, pod: PodRecord, node: int) -> bool:
        """Whether a pod has its place, as things stand on the statements."""
        session = self._session
        if not fits(self._request, session.view.nodes.future_idle(node)):
            return False
        if not self._has_share(pod) or session.ask.refusal(pod, node) is not None:
            return False
        return not self._varies or bool(session.kernel.feasible(pod)[node])

    def _has_share(self, pod: PodRecord) -> bool:
        """Whether the queue may take one more pod, as things stand on the statements."""
        return self._session.ask.allocatable(self._job.queue, pod)[0] > 0

    # -- giving back -----------------------------------------------------------------------------------------------

    def _spare(self, rows: Rows) -> None:
        """Give back, the dearest first, what the pods can do without, and place them anew."""
        self._promises.discard()
        if self._refused:
            rows = rows[~np.isin(rows, list(self._refused))]
        before, gone = self._placed, self._gone
        #: what was given back, and how to undo that
        given: list[tuple[Statement, list[Operation]]] = []
        place = {node: at for at, node in enumerate(rows.tolist())}
        room = self._session.view.nodes.future_idle(rows)
        for unit, statement in sorted(self._gone, key=lambda gone: _dear(gone[0]), reverse=True):
            less = room.copy()
            for operation in statement.operations:
                at = place.get(operation.nodes[0])
                if at is not None:
                    less[:, at] -= operation.request
            if copies_that_fit(self._request, less).clip(min=0).sum() < len(self._placed):
                continue
            evictions = statement.save()
            statement.discard()
            if self._within_share():
                room = less
                given.append((statement, evictions))
                self._gone = [gone for gone in self._gone if gone[0] is not unit]
            else:
                statement.recover(evictions)
        if self._place_anew(rows, room):
            return
        for statement, evictions in reversed(given):
            statement.recover(evictions)
        self._gone = gone
        self._promise(before)

    def _within_share(self) -> bool:
        """Whether the queue may take all the pods that found places, as things stand on the statements."""
        session, left, trial = self._session, self._placed, self._session.statement()
        room = 1
        while left and room > 0:
            room, _ = session.ask.allocatable(self._job.queue, left[0][0], len(left))
            # Who limits what pods bring along, as devices, speaks for fewer than he may grant in the end.
            for pod, node in left[:room] if room < len(left) else ():
                trial.pipeline(session.view.sub_job_of(self._job, pod), pod, node)
            left = left[room:]
        trial.discard()
        return not left

    def _place_anew(self, rows: Rows, room: Matrix) -> bool:
        """Promise the pods places again: the nodes where they were first in front. False if a plugin refuses one."""
        before = [node for _, node in self._placed]
        copies = dict(zip(rows.tolist(), copies_that_fit(self._request, room).tolist(), strict=True))
        nodes = [node for node in dict.fromkeys(before) for _ in range(int(min(max(0, copies[node]), len(before))))]
        for node in sorted(copies, key=lambda node: self._bounds.place.get(node, 0.0)):
            if len(nodes) >= len(before):
                break
            if node not in before:
                nodes += [node] * int(min(max(0, copies[node]), len(before)))
        pods = [pod for pod, _ in self._placed]
        return self._promise(list(zip(pods, nodes[: len(pods)], strict=True)))

    def _promise(self, places: list[tuple[PodRecord, int]]) -> bool:
        """Promise pods places; False, and none is promised, if a plugin refuses one."""
        self._placed, self._promises = places, self._session.statement()
        for pod, node in places:
            if self._session.ask.refusal(pod, node) is not None:
                self._promises.discard()
                return False
            self._promises.pipeline(self._session.view.sub_job_of(self._job, pod), pod, node)
        return True


def _cheapness(item: _Item) -> tuple[Any, ...]:
    return item.rank, item.pod is None, item.size, -item.began, item.order


def _dear(unit: _Unit) -> tuple[Any, ...]:
    return unit.rank, len(unit.pods), -unit.began
