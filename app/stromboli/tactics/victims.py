"""Evicting some pods so that another gets their place: one mechanism for preempt and reclaim.

A `Search` acts for one pod. The steps are: the nodes that could have room if every candidate went (`_worth_trying`, in
vectors), the candidates of a node in the order in which they would go and with the plugins' consent (`_permitted`),
evictions on a statement until the pod fits (`_make_room`), what turns out not to be needed given back from the highest
(`_spare`), and of several nodes the one whose victims weigh least (`_Plan`).

Under strict rules a plan proves that the pod fits there before anything is decided, is the smallest that suffices on
its node, and takes a gang that would lose its minimum whole. Volcano takes the first node that works.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, total_ordering
from itertools import islice
from typing import Any

import numpy as np

from stromboli.api import crds
from stromboli.api.pod_state import STATES, PodState
from stromboli.api.resources import TOLERANCE, Mask, Matrix, Rows, Vector, fits
from stromboli.framework.job import Job, Queue
from stromboli.framework.operation import Operation
from stromboli.framework.session import Session
from stromboli.framework.statement import Statement
from stromboli.state.pods import PREEMPTABLE, PodRecord

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
#: states in which a pod can be evicted
HELD = (PodState.Running, PodState.Bound)
#: the priority of the class system-cluster-critical
_CRITICAL = 2_000_000_000
#: how many nodes that work are compared under strict rules
CHOICES = 8
#: what makes priorities of pods positive, so that fewer victims weigh less whatever their priority
_LIFT = 2**31
#: how many rankings of nodes are kept, each as long as there are nodes
_MOST_RANKINGS = 8

#: what a set of victims weighs, the less the better
_Weight = tuple[float, float, float, float]
#: what victims on a node weigh at least, whether the node belongs to another shard, and its row
_Bound = tuple[_Weight, bool, int]


@total_ordering
class Reversed:
    """A key that sorts the other way round."""

    __slots__ = ("_key",)

    def __init__(self, key: Any) -> None:
        self._key = key

    def __lt__(self, other: Reversed) -> bool:
        return bool(other._key < self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reversed) and bool(self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)


def began(pod: PodRecord) -> float:
    """When a pod began to run, infinite where that is not known: it counts as the last."""
    return pod.started or math.inf


def victim_queue_key(session: Session, queue: Queue, beneficiary: Queue) -> tuple[object, ...]:
    """Smaller gives way first: the queue served last, unless a plugin knows better."""
    return *session.ask.victim_queue_order(queue, beneficiary), Reversed(session.ask.queue_key(queue))


def job_victim_key(session: Session, pod: PodRecord, beneficiary: Queue) -> tuple[object, ...]:
    """Smaller is evicted first: of the queue that gives way first its last job, of which the last pod goes first."""
    job = session.view.jobs[pod.job]
    return *victim_queue_key(session, job.queue, beneficiary), Reversed(session.ask.job_order(job))


def victim_key(session: Session, pod: PodRecord, beneficiary: Queue) -> tuple[object, ...]:
    """Smaller is evicted first: of the job that gives way first its last pod."""
    return *job_victim_key(session, pod, beneficiary), Reversed(session.ask.task_key(pod))


def preemptable(of: PodRecord | crds.Metadata) -> bool:
    """Whether a pod, or a PodGroup by its metadata, agrees to be evicted. Without a word it does."""
    said = of.annotations.get(PREEMPTABLE, of.labels.get(PREEMPTABLE))
    return said is None or said in _TRUE


def agrees(session: Session, pod: PodRecord) -> bool:
    """Whether a pod agrees to be evicted; under Volcano's rules its PodGroup has no say, unless gangs are asked."""
    if not preemptable(pod):
        return False
    job = session.view.jobs.get(pod.job) if session.rules.veto else None
    return job is None or preemptable(job.pod_group.metadata)


def critical(pod: PodRecord) -> bool:
    """Whether the cluster itself needs a pod; only the system's own priority classes reach such a priority."""
    return pod.namespace == "kube-system" or (pod.spec_priority or 0) >= _CRITICAL


def starving(session: Session, *, among_others: bool = False, by_share: bool = False) -> dict[str, list[Job]]:
    """The jobs that may evict others, by queue; `among_others` adds the queues whose jobs all have what they need.

    With `by_share` every job whose pods wait starves: its queue's share says how much it may take.
    """
    found: dict[str, list[Job]] = {}
    jobs, behind = session.view.jobs, session.behind
    for job in jobs.where(jobs.count(PodState.Pending) > 0):
        if job.key in behind or not job.counts[PodState.Pending]:
            continue
        if session.attempt(job, partial(_starves, session, job, by_share), False):
            found.setdefault(job.queue.name, []).append(job)
    if among_others:
        for queue in session.view.queues.values():
            if queue.name not in found and any(_competes(session, jobs.at(index)) for index in queue.indices.tolist()):
                found[queue.name] = []
    return found


def _starves(session: Session, job: Job, by_share: bool) -> bool:
    """Whether a job whose pods wait may evict others."""
    return _competes(session, job) and (by_share or session.ask.job_starving(job))


def _competes(session: Session, job: Job) -> bool:
    """Whether a job is admitted and can be scheduled."""
    return not job.pending_phase and session.attempt(job, lambda: session.ask.job_valid(job) is None, otherwise=False)


class Holders:
    """The pods of jobs that hold a node when an action begins, by node. Arrays have shape (holders,)."""

    def __init__(self, session: Session, states: Sequence[PodState]) -> None:
        self._session = session
        pods = session.view.pods
        job_of = session.view.membership.index_of
        rows = np.flatnonzero(np.isin(pods.state, states) & (pods.node >= 0) & (job_of[pods.job] >= 0))
        rows = rows[np.argsort(pods.node[rows], kind="stable")]
        self.states = frozenset(states)
        self.rows: Rows = rows
        self.node: Rows = pods.node[rows].astype(np.intp)
        self.job: Rows = job_of[pods.job[rows]]
        self.queue: Rows = session.view.jobs.queue[self.job]
        self._rank: Rows | None = None
        #: those that anybody else may take back, and the queues that hold anything
        self._offered: Mask | None = None
        self._holding: frozenset[int] = frozenset()
        #: by the candidates that they are of
        self._releasable: dict[bytes, Releasable] = {}
        self._rankings: _Rankings = {}

    @cached_property
    def by_job(self) -> Rows:
        """The order that brings those of each job together."""
        order: Rows = np.argsort(self.job, kind="stable")
        return order

    @cached_property
    def willing(self) -> Mask:
        """Which agree to go, and their jobs with them."""
        view = self._session.view
        said = view.snapshot.pod_facts.column("preemptable", preemptable)
        of_jobs = view.jobs.holds("preemptable", lambda group: preemptable(group.metadata))
        willing: Mask = np.array([*said.values[:], False], np.bool_)[said.numbers[self.rows]] & of_jobs[self.job]
        return willing

    @property
    def rank(self) -> Rows:
        """How important each is: by the priority of its job, then by its own; equals have the same number."""
        if self._rank is None:
            of_jobs = self._session.view.jobs.priority
            own = np.array([pod.spec_priority or 0 for pod in self._session.view.records(self.rows)], np.int64)
            both = of_jobs[self.job] * 2**32 + own if len(self.rows) else own
            self._rank = np.unique(both, return_inverse=True)[1].astype(np.intp)
        return self._rank

    def alive(self) -> Mask:
        """Which of them have not been evicted since."""
        known = np.zeros(STATES, np.bool_)
        known[list(self.states)] = True
        still: Mask = known[self._session.view.pods.state[self.rows]]
        return still

    def may_go_for(self, queue: Queue) -> Mask:
        """Which of them are of jobs that were not evicted for a queue too often."""
        paused = self._session.churn.paused_for(queue)
        return ~np.isin(self.job, paused) if paused else np.ones(len(self.rows), np.bool_)

    def releasable(self, candidates: Mask) -> Releasable:
        """What some of them would release; shared by all who ask for the same ones."""
        which = candidates.tobytes()
        found = self._releasable.get(which)
        if found is None:
            rows, node = self.rows[candidates], self.node[candidates]
            found = Releasable(self._session, rows, node, self.states, self._rankings)
            self._releasable[which] = found
        return found

    def outside(self, queue: Queue) -> Mask:
        """Which of them are in other queues, of which anybody may take back."""
        if self._offered is None:
            gives = np.zeros(len(self._session.view.snapshot.queues), np.bool_)
            for other in self._session.view.queues.values():
                gives[other.index] = other.spec.reclaimable is not False
            self._offered, self._holding = gives[self.queue], frozenset(self.queue.tolist())
        others = self._offered
        if queue.index in self._holding:
            others = others & (self.queue != queue.index)
        if self._session.churn.paused_for(queue):
            others = others & self.may_go_for(queue)
        return others


class ByNode:
    """Candidates by the node that they hold."""

    def __init__(self, session: Session, rows: Rows, node: Rows, states: frozenset[PodState]) -> None:
        """`node` is that of each of the rows, in ascending order."""
        self._view = session.view
        self._rows = rows
        self._node = node
        self._states = states
        #: where the candidates of each node begin and end
        self._bounds = np.searchsorted(node, np.arange(len(session.view.nodes) + 1))

    @property
    def counts(self) -> Rows:
        """How many there were at first, shape (nodes,)."""
        counts: Rows = np.diff(self._bounds)
        return counts

    def amounts(self) -> Matrix:
        """What they held at first, shape (dimensions, nodes)."""
        nodes, held = len(self._view.nodes), self._view.requests(self._rows)
        return np.array([np.bincount(self._node, weights=amounts, minlength=nodes) for amounts in held.T])

    def on(self, node: int) -> Rows:
        """The rows of the candidates that are still on a node."""
        rows = self._rows[self._bounds[node] : self._bounds[node + 1]]
        states = self._view.pods.state[rows].tolist()
        return rows[[state in self._states for state in states]] if len(rows) else rows


class Releasable:
    """What candidates on each node would release at most, followed through the session's placements."""

    def __init__(
        self, session: Session, rows: Rows, node: Rows, states: frozenset[PodState], rankings: _Rankings
    ) -> None:
        self._session = session
        self.states = states
        self._rankings = rankings
        #: kinds of pods that nodes were ranked for once
        self._ranked: set[Hashable] = set()
        still = np.isin(session.view.pods.state[rows], list(states))
        by_node = ByNode(session, rows[still], node[still], states)
        #: the rows of the candidates that are still on a node
        self.on = by_node.on
        #: shape (dimensions, nodes)
        self.amounts: Matrix = by_node.amounts()
        #: number of candidates, shape (nodes,)
        self.counts: Rows = by_node.counts
        self._seen = len(session.view.nodes.log)
        self._least: _Least | None = None

    @property
    def least(self) -> _Least:
        """What evictions on each node cost at least."""
        if self._least is None:
            self._least = _Least(self._session, self.on, self.counts)
        return self._least

    def refresh(self) -> None:
        """Look again at the nodes that changed."""
        log, session = self._session.view.nodes.log, self._session
        for node in set(log[self._seen :]):
            rows = self.on(node)
            self.counts[node] = len(rows)
            self.amounts[:, node] = session.view.requests(rows).sum(axis=0)
            if self._least is not None:
                self._least.look_at(node, rows)
        self._seen = len(log)

    def suffices(self, request: Vector, rows: Rows) -> Mask:
        """Which of some nodes would have room if all candidates went."""
        nodes = self._session.view.nodes
        if len(rows) == len(nodes):
            return fits(request, nodes.future_idle() + self.amounts)
        return fits(request, nodes.future_idle(rows) + self.amounts[:, rows])

    def ranking(self, kind: Hashable, request: Vector, possible: Callable[[], Rows]) -> _Ranking | None:
        """The ranking of nodes for a kind of pods; None the first time: it is worth its cost for the next of the kind.

        `possible` says which nodes come into question for the kind, as long as the session lasts.
        """
        if kind not in self._ranked:
            self._ranked.add(kind)
            return None
        ranking = self._rankings.pop((self, kind), None) or _Ranking(self._session, self, request, possible())
        self._rankings[self, kind] = ranking
        if len(self._rankings) > _MOST_RANKINGS:
            del self._rankings[next(iter(self._rankings))]
        return ranking


class _Least:
    """Bounds by node of what victims there weigh: the lowest priority, who started last, the largest request."""

    def __init__(self, session: Session, on: Callable[[int], Rows], counts: Rows) -> None:
        self._session = session
        nodes = session.view.nodes
        self._priority = np.zeros(len(nodes))
        self._started = np.zeros(len(nodes))
        self._largest: Matrix = np.zeros_like(nodes.idle)
        for node in np.flatnonzero(counts).tolist():
            self.look_at(node, on(node))

    def look_at(self, node: int, rows: Rows) -> None:
        """Look again at a node with these candidates."""
        if not len(rows):
            return
        view = self._session.view
        victims = view.records(rows)
        self._priority[node] = min(pod.spec_priority or 0 for pod in victims)
        self._started[node] = max(map(began, victims))
        self._largest[:, node] = view.requests(rows).max(axis=0)

    def weights(self, request: Vector, rows: Rows) -> Matrix:
        """For each of some nodes a weight that no set of victims there that makes room is below, shape (4, rows)."""
        lacks = request[:, None] - TOLERANCE - self._session.view.nodes.future_idle(rows)
        largest = self._largest[:, rows]
        count = np.ceil(np.divide(lacks, largest, out=np.zeros_like(lacks), where=largest > 0)).max(axis=0).clip(min=0)
        priority = self._priority[rows]
        bounds = np.array([priority, count * (priority + _LIFT), count, -self._started[rows]])
        bounds[:, count == 0] = np.array(weight(()))[:, None]
        return bounds


class _Ranking:
    """Where a kind of pods may find room, in the order of what victims there weigh at least; follows the session."""

    def __init__(self, session: Session, releasable: Releasable, request: Vector, rows: Rows) -> None:
        self._session = session
        self._releasable = releasable
        self._request = request
        self._possible = frozenset(rows.tolist())
        #: by node, for those that would have room
        self._bounds: dict[int, _Bound] = {}
        self._heap: list[_Bound] = []
        #: what `in_order` took from the heap
        self._out: list[_Bound] = []
        self._seen = len(session.view.nodes.log)
        releasable.refresh()
        self._look_at(rows)

    def in_order(self) -> Iterator[_Bound]:
        """The nodes as they are now; what changes meanwhile is seen the next time."""
        self._refresh()
        while self._heap:
            bound = heapq.heappop(self._heap)
            if self._bounds.get(bound[-1]) is bound:
                self._out.append(bound)
                yield bound

    def _refresh(self) -> None:
        for bound in self._out:
            heapq.heappush(self._heap, bound)
        self._out.clear()
        log = self._session.view.nodes.log
        changed = self._possible.intersection(log[self._seen :])
        self._seen = len(log)
        self._releasable.refresh()
        if changed:
            self._look_at(np.array(sorted(changed), np.intp))

    def _look_at(self, rows: Rows) -> None:
        """Work out anew what victims on some nodes weigh at least."""
        before = {node: bound for node in rows.tolist() if (bound := self._bounds.pop(node, None)) is not None}
        rows = rows[self._releasable.suffices(self._request, rows)]
        shard = self._session.view.shard
        foreign = [False] * len(rows) if shard is None else (~shard.own[rows]).tolist()
        weights = self._releasable.least.weights(self._request, rows).T.tolist()
        for weighs, of_others, node in zip(map(tuple, weights), foreign, rows.tolist(), strict=True):
            bound = (weighs, of_others, node)
            known = before.get(node)
            if known == bound:
                self._bounds[node] = known
            else:
                self._bounds[node] = bound
                heapq.heappush(self._heap, bound)


#: by the candidates and the kind, those that were asked for last at the end
_Rankings = dict[tuple[Releasable, Hashable], _Ranking]


@dataclass(frozen=True, slots=True)
class Way:
    """How an action looks for victims."""

    #: its name, for the decisions
    action: str
    #: the extension point that says who may be evicted
    point: str
    #: whether the best scored node comes first, else the first
    scored: bool
    #: whether the pod must pass its queue's limits and all predicates, or have room only
    checked: bool
    #: whether victims that are not needed are given back
    sparing: bool
    #: how many nodes that work are compared
    choices: int = 1
    #: whether the pods of the own job are the candidates, or those of others
    own_job: bool = False
    #: whether a pod without requests takes only from its like
    like_for_like: bool = True
    #: whether nodes without candidates are passed over, and those where nobody has to go
    needs_candidates: bool = False
    needs_victims: bool = False
    #: whether the job's queue says how much it may take, or only what the job needs to run
    by_share: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    """Who has to go so that a pod fits on a node."""

    node: int
    evictions: list[Operation]


class _InOrder:
    """A victim in a heap: shares change with every eviction, so its place is worked out when it is compared."""

    __slots__ = ("_order", "pod")

    def __init__(self, pod: PodRecord, order: Callable[[PodRecord], tuple[object, ...]]) -> None:
        self.pod = pod
        self._order = order

    def __lt__(self, other: _InOrder) -> bool:
        return self._order(self.pod) < self._order(other.pod)


class Search:
    """Looks for victims for one pod; see the module's docstring."""

    def __init__(self, session: Session, way: Way, job: Job, pod: PodRecord, releasable: Releasable) -> None:
        self._session = session
        self._way = way
        self._job = job
        self._pod = pod
        self._request: Vector = session.view.request(pod)
        self._releasable = releasable
        self._varies = session.kernel.varies(pod)
        #: what was worked out of the order of victims, by job since the log had some length, and by row
        self._keyed = -1
        self._keys: dict[str, tuple[object, ...]] = {}
        self._task_keys: dict[int, Reversed] = {}

    def place(self, statement: Statement) -> bool:
        """Evict for the pod and promise it the place, on a statement; False when it finds no place."""
        plan = self._lightest() if self._way.by_share else self._first_choices()
        if plan is None:
            return False
        statement.recover(plan.evictions)
        sub_job = self._session.view.sub_job_of(self._job, self._pod)
        statement.pipeline(sub_job, self._pod, plan.node, after_eviction=bool(plan.evictions))
        return True

    def _first_choices(self) -> _Plan | None:
        """The best of the first plans that work."""
        plans = (plan for node in self._nodes() if (plan := self._plan(node)) is not None)
        return min(self._comparable(plans), key=lambda plan: weight(plan.evictions), default=None)

    def _lightest(self) -> _Plan | None:
        """The plan whose victims weigh least; nodes are asked in the order of what victims there weigh at least."""
        best: _Plan | None = None
        lightest: _Weight = (math.inf, 0.0, 0.0, 0.0)
        found = 0
        for least, _, node in self._ranked():
            if found == self._way.choices or lightest <= least:
                break
            plan = self._plan(node)
            if plan is not None:
                found += 1
                best, lightest = min((best, lightest), (plan, weight(plan.evictions)), key=lambda each: each[1])
        return best

    def _ranked(self) -> Iterator[_Bound]:
        """The nodes to try, where victims weigh least at least first."""
        ranking = None
        if not (self._varies or self._way.scored or self._way.needs_candidates):
            kind = self._session.kernel.identity(self._pod)
            possible = partial(self._session.kernel.possible, self._pod)
            ranking = self._releasable.ranking(kind, self._request, possible)
        if ranking is not None:
            yield from ranking.in_order()
            return
        nodes = np.array(self._nodes(), np.intp)
        bounds = self._releasable.least.weights(self._request, nodes)
        for at in np.lexsort(bounds[::-1]):
            first, total, count, started = bounds[:, at].tolist()
            yield (first, total, count, started), False, int(nodes[at])

    def _comparable(self, plans: Iterator[_Plan]) -> Iterator[_Plan]:
        """The plans to choose from; none is better than one without victims."""
        for plan in islice(plans, self._way.choices):
            yield plan
            if not plan.evictions:
                return

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _nodes(self) -> list[int]:
        """The nodes to try, in order: those of the own shard first, of these the best scored or the first."""
        rows = self._session.kernel.possible(self._pod)
        worth = self._worth_trying(rows)
        if not worth.any():
            return []
        if self._way.scored:
            order = np.argsort(-self._session.kernel.whole_score(self._pod, rows), kind="stable")
            rows, worth = rows[order], worth[order]
        shard = self._session.view.shard
        if shard is not None:
            order = np.argsort(~shard.own[rows], kind="stable")
            rows, worth = rows[order], worth[order]
        nodes: list[int] = rows[worth].tolist()
        return nodes

    def _worth_trying(self, rows: Rows) -> Mask:
        """Whether the pod would have room on nodes if all candidates went."""
        self._releasable.refresh()
        worth = self._releasable.suffices(self._request, rows)
        if self._way.needs_candidates:
            worth &= self._releasable.counts[rows] > 0
        return worth

    # -- victims on a node -----------------------------------------------------------------------------------------

    def _plan(self, node: int) -> _Plan | None:
        """Who has to go on a node; None when it does not help. Leaves the session as it was."""
        candidates = self._candidates(self._releasable.on(node))
        if self._way.needs_candidates and not candidates:
            return None
        victims = self._permitted(candidates)
        plans = [self._plan_with(node, victims, self._order)]
        if self._way.by_share and len(victims) < len(candidates):
            # Who goes first uses up what others could give: one large pod may be less than several small ones.
            by_size = sorted(candidates, key=self._largest_first)
            plans.append(self._plan_with(node, self._permitted(by_size), self._largest_first))
        return min(filter(None, plans), key=lambda plan: weight(plan.evictions), default=None)

    def _largest_first(self, pod: PodRecord) -> tuple[object, ...]:
        request = self._session.view.request(pod)
        return tuple(-request[self._request > 0]), *self._order(pod)

    def _plan_with(
        self, node: int, victims: list[PodRecord], order: Callable[[PodRecord], tuple[object, ...]]
    ) -> _Plan | None:
        """Who of some pods has to go on a node, the first in order first."""
        room = self._session.view.nodes.future_idle(node)
        for victim in victims:
            room += self._session.view.request(victim)
        if not fits(self._request, room):
            return None
        evicted = self._make_room(node, victims, order)
        if evicted is None or (self._way.needs_victims and not evicted):
            return None
        plan = _Plan(node, [placement for unit in evicted for placement in unit.save()])
        take_back(evicted)
        return plan

    def _candidates(self, rows: Rows) -> list[PodRecord]:
        """The pods that could be asked to go, in the order in which they would."""
        only_like = self._way.like_for_like and self._pod.pod_class.best_effort
        pods = [
            pod
            for pod in self._session.view.records(rows)
            if (pod.job == self._pod.job) == self._way.own_job
            and agrees(self._session, pod)
            and (pod.pod_class.best_effort or not only_like)
        ]
        return sorted(pods, key=self._order)

    def _order(self, pod: PodRecord) -> tuple[object, ...]:
        """Smaller goes first; what follows from the pod's job is worked out anew after each operation."""
        now = len(self._session.view.nodes.log)
        if now != self._keyed:
            self._keyed = now
            self._keys.clear()
        of_job = self._keys.get(pod.job)
        if of_job is None:
            of_job = self._keys[pod.job] = job_victim_key(self._session, pod, self._job.queue)
        of_pod = self._task_keys.get(pod.row)
        if of_pod is None:
            of_pod = self._task_keys[pod.row] = Reversed(self._session.ask.task_key(pod))
        return *of_job, of_pod

    def _permitted(self, candidates: list[PodRecord]) -> list[PodRecord]:
        return self._session.ask.victims(self._way.point, self._pod, candidates)

    def _make_room(
        self, node: int, victims: list[PodRecord], order: Callable[[PodRecord], tuple[object, ...]]
    ) -> list[Statement] | None:
        """Evict, the first in order first, until the pod fits; a statement for each that goes alone or as a gang."""
        units: list[Statement] = []
        heap = [_InOrder(pod, order) for pod in victims]
        heapq.heapify(heap)
        asked = not self._way.needs_victims
        while not (asked and self._fits(node)):
            asked = True
            if not heap:
                take_back(units)
                return None
            victim = heapq.heappop(heap).pod
            if self._session.view.pods.state[victim.row] in self._releasable.states:
                unit = self._evict(victim, units)
                if unit is not None:
                    units.append(unit)
        return self._spare(node, units) if self._way.sparing else units

    def _fits(self, node: int) -> bool:
        """Whether the pod has its place, as things stand on the statements."""
        if not fits(self._request, self._session.view.nodes.future_idle(node)):
            return False
        if not self._way.checked:
            return True
        room, _ = self._session.ask.allocatable(self._job.queue, self._pod)
        return room > 0 and (not self._varies or bool(self._session.kernel.feasible(self._pod)[node]))

    def _evict(self, victim: PodRecord, units: list[Statement]) -> Statement | None:
        """Evict a pod, with its whole gang if that would fall below its minimum; None when the gang may not go.

        What the gang gave before joins it, so that it is given back whole or not at all.
        """
        session = self._session
        unit = session.statement()
        unit.evict(victim, self._way.action, self._job.key)
        job = session.view.jobs[victim.job]
        if not session.rules.whole_gang_eviction or session.ask.job_missing(job) <= 0:
            return unit
        if job is self._job:
            take_back([unit])
            return None
        rest = session.view.holding(job)
        may_go = all(session.view.pods.state[pod.row] in HELD and agrees(session, pod) for pod in rest)
        if not may_go or len(self._permitted(sorted(rest, key=self._order))) < len(rest):
            take_back([unit])
            return None
        for pod in rest:
            unit.evict(pod, self._way.action, self._job.key)
        join(unit, units)
        return unit

    def _spare(self, node: int, units: list[Statement]) -> list[Statement]:
        """Give back, from the highest, what the pod can do without."""
        # Without the last the pod did not fit, unless nobody asked before the first went.
        needed = [] if self._way.needs_victims else units[-1:]
        for unit in reversed(units[: len(units) - len(needed)]):
            evictions = unit.save()
            unit.discard()
            if not self._fits(node):
                unit.recover(evictions)
                needed.append(unit)
        return needed[::-1]


def weight(evictions: Sequence[Operation]) -> tuple[int, int, int, float]:
    """How much victims matter, the less the better: the highest priority, the sum, the number, who started last."""
    if not evictions:
        return (-_LIFT - 1, 0, 0, 0.0)
    victims = [placement.pods[0] for placement in evictions]
    priorities = [pod.spec_priority or 0 for pod in victims]
    highest = max(priorities)
    oldest = min(began(pod) for pod in victims if (pod.spec_priority or 0) == highest)
    return highest, sum(priorities) + _LIFT * len(victims), len(victims), -oldest


def join(unit: Statement, units: list[Statement]) -> None:
    """Make what a gang gave before part of the unit in which the rest of it goes."""
    job = unit.operations[0].job
    unit.merge(*[other for other in units if other.operations[0].job is job])
    units[:] = [other for other in units if other.operations]


def serve(
    session: Session, way: Way, job: Job, pods_of: Callable[[], Iterable[PodRecord]], releasable: Releasable
) -> None:
    """Find places for a job's pods, in order, until it starves no longer; keep them if it may then run."""
    statement = session.statement()
    #: classes and priorities for which nothing was found since the last success: the next would fare no better
    hopeless: set[tuple[Hashable, int]] = set()
    for pod in pods_of():
        if not way.by_share and not session.ask.job_starving(job):
            break
        kind = (session.kernel.identity(pod), pod.priority)
        if kind in hopeless:
            continue
        if Search(session, way, job, pod, releasable).place(statement):
            hopeless.clear()
        elif not session.kernel.varies(pod):
            hopeless.add(kind)
    if session.ask.job_pipelined(job):
        statement.commit()
    else:
        statement.discard()


def take_back(units: Iterable[Statement]) -> None:
    """Discard what was tried."""
    for unit in units:
        unit.discard()
