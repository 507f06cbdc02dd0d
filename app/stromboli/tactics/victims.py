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
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector, fits
from stromboli.framework.job import Job
from stromboli.framework.operation import Operation
from stromboli.framework.session import Session
from stromboli.framework.statement import Statement
from stromboli.state.pods import PodRecord
from stromboli.tactics.candidates import HELD, Reversed, Weight, agrees, kind, victim_queue_key, weight
from stromboli.tactics.consent import Consent, Patience
from stromboli.tactics.holders import Bound, Releasable

#: how many nodes that work are compared under strict rules
CHOICES = 8


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
    #: whether the fewest go, or who comes first in order
    cheaply: bool = False


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
        #: the nodes that would have room if all went who may go at all, shape (nodes,); None while nobody asked
        self._able: Mask | None = None
        #: whether there may be one
        self._hope = True
        self._patience = Patience()
        if not releasable.fruitful:
            self._rule_out()
        #: what was worked out of the order of victims, by job since the log had some length, and by row
        self._keyed = -1
        self._keys: dict[str, tuple[object, ...]] = {}
        self._queue_keys: dict[str, tuple[object, ...]] = {}
        self._task_keys: dict[int, Reversed] = {}

    def place(self, statement: Statement) -> bool:
        """Evict for the pod and promise it the place, on a statement; False when it finds no place."""
        plan = self._lightest() if self._way.cheaply else self._first_choices()
        self._releasable.fruitful = plan is not None
        if plan is None:
            return False
        statement.recover(plan.evictions)
        sub_job = self._session.view.sub_job_of(self._job, self._pod)
        statement.pipeline(sub_job, self._pod, plan.node, after_eviction=bool(plan.evictions))
        return True

    def _first_choices(self) -> _Plan | None:
        """The best of the first plans that work."""
        plans = (plan for node in self._nodes() if (plan := self._try(node)) is not None)
        return min(self._comparable(plans), key=lambda plan: weight(plan.evictions), default=None)

    def _lightest(self) -> _Plan | None:
        """The plan whose victims weigh least; nodes are asked in the order of what victims there weigh at least."""
        if not self._hope:
            return None
        best: _Plan | None = None
        lightest: Weight = (math.inf, 0.0, 0.0, 0.0)
        found = 0
        for least, _, node in self._ranked():
            if found == self._way.choices or lightest <= least or not self._hope:
                break
            plan = self._try(node)
            if plan is not None:
                found += 1
                best, lightest = min((best, lightest), (plan, weight(plan.evictions)), key=lambda each: each[1])
        return best

    def _try(self, node: int) -> _Plan | None:
        """The plan for a node, if those who may go could make room there at all."""
        if self._able is not None and not self._able[node]:
            return None
        plan = self._plan(node)
        if plan is None:
            self._rule_out()
        return plan

    def _rule_out(self) -> None:
        """Find out which nodes need not be tried; the more were tried in vain, the closer."""
        if not self._session.rules.veto:
            return
        among = self._releasable
        if self._able is None:
            self._able = among.holders.given(among, self._pod, self._way.point).sufficient(self._request)
        elif self._patience.is_over():
            consent = Consent(self._session, among.holders, among.candidates, self._pod, self._way.point)
            before = int(self._able.sum())
            self._able &= consent.nodes(self._request)
            self._patience.renew(before - int(self._able.sum()))
        self._hope = bool(self._able.any())

    def _ranked(self) -> Iterator[Bound]:
        """The nodes to try, where victims weigh least at least first."""
        ranking = None
        if not (self._varies or self._way.scored or self._way.needs_candidates):
            identity = self._session.kernel.identity(self._pod)
            possible = partial(self._session.kernel.possible, self._pod)
            ranking = self._releasable.ranking(identity, self._request, possible)
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
        if self._way.cheaply and len(victims) < len(candidates):
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
        nodes = self._session.view.nodes
        room = nodes.future_idle(node)
        for victim in victims:
            room += self._session.view.request(victim)
        if not fits(self._request, room, nodes.always):
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
            for pod in self._session.view.records(self._agreeing(rows))
            if (pod.job == self._pod.job) == self._way.own_job and (pod.pod_class.best_effort or not only_like)
        ]
        return sorted(pods, key=self._order)

    def _agreeing(self, rows: Rows) -> Rows:
        """Those of some holders that agree to go."""
        if self._session.rules.veto:
            return rows[self._releasable.holders.willing_of[rows]]
        pods = self._session.view.records(rows)
        return rows[[agrees(self._session, pod) for pod in pods]] if pods else rows

    def _order(self, pod: PodRecord) -> tuple[object, ...]:
        """Smaller goes first; what follows from the pod's job is worked out anew after each operation."""
        now = len(self._session.view.nodes.log)
        if now != self._keyed:
            self._keyed = now
            self._keys.clear()
            self._queue_keys.clear()
        of_job = self._keys.get(pod.job)
        if of_job is None:
            of_job = self._keys[pod.job] = self._order_of(self._session.view.jobs[pod.job])
        of_pod = self._task_keys.get(pod.row)
        if of_pod is None:
            of_pod = self._task_keys[pod.row] = Reversed(self._session.ask.task_key(pod))
        return *of_job, of_pod

    def _order_of(self, job: Job) -> tuple[object, ...]:
        """The place of a job's pods among those of others."""
        of_queue = self._queue_keys.get(job.queue.name)
        if of_queue is None:
            of_queue = victim_queue_key(self._session, job.queue, self._job.queue)
            self._queue_keys[job.queue.name] = of_queue
        return *of_queue, Reversed(self._session.ask.job_order(job))

    def _permitted(self, candidates: list[PodRecord]) -> list[PodRecord]:
        return self._session.ask.victims(self._way.point, self._pod, candidates)

    def _make_room(
        self, node: int, victims: list[PodRecord], order: Callable[[PodRecord], tuple[object, ...]]
    ) -> list[Statement] | None:
        """Evict, the first in order first, until the pod fits; a statement for each that goes alone or as a gang."""
        units: list[Statement] = []
        # What is in order is a heap.
        heap = [_InOrder(pod, order) for pod in victims]
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
        nodes = self._session.view.nodes
        if not fits(self._request, nodes.future_idle(node), nodes.always):
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


def join(unit: Statement, units: list[Statement]) -> None:
    """Make what a gang gave before part of the unit in which the rest of it goes."""
    job = unit.operations[0].job
    unit.merge(*[other for other in units if other.operations[0].job is job])
    units[:] = [other for other in units if other.operations]


def serve(
    session: Session,
    way: Way,
    job: Job,
    pods_of: Callable[[], Iterable[PodRecord]],
    releasable: Releasable,
    in_vain: set[Hashable] | None = None,
) -> None:
    """Find places for a job's pods, in order, until it starves no longer; keep them if it may then run.

    `in_vain`, where jobs are offered the same, are the kinds of pods for which nothing was found since somebody's
    places were kept.
    """
    #: a statement for each pod that found a place
    found: list[Statement] = []
    #: classes and priorities for which nothing was found since the last success: the next would fare no better
    hopeless: set[tuple[Hashable, int]] = set()
    for pod in pods_of():
        if not way.by_share and not session.ask.job_starving(job):
            break
        here = (session.kernel.identity(pod), pod.priority)
        anywhere = kind(session, job, pod, way.point)
        if here in hopeless or (in_vain and not found and anywhere in in_vain):
            continue
        statement = session.statement()
        if Search(session, way, job, pod, releasable).place(statement):
            hopeless.clear()
            found.append(statement)
        elif not session.kernel.varies(pod):
            hopeless.add(here)
            if in_vain is not None and not found:
                in_vain.add(anywhere)
    if not found:
        return
    if session.ask.job_pipelined(job):
        if in_vain:
            in_vain.clear()
        session.promise(job, found)
    else:
        take_back(reversed(found))


def take_back(units: Iterable[Statement]) -> None:
    """Discard what was tried."""
    for unit in units:
        unit.discard()
