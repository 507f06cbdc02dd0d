"""Which units would be evicted, by amounts, and at what cost: on a node for the next places there, or on any node."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from heapq import heappop, heappush
from typing import Any

import numpy as np

from stromboli.api.resources import TOLERANCE, Mask, Rows, Vector, compared, copies_on
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.held_amounts import HeldAmounts
from stromboli.eviction.ordering import Cost, ascending, began, cheapness, unit_cost
from stromboli.eviction.sufficient import sufficient
from stromboli.eviction.units import Unit, above_minimum, spared, whole_gang
from stromboli.framework.cluster.job import Job, SubJob
from stromboli.state.pods import PodRecord

#: the place of a job among its units: it is asked before any of them
_JOB = -1
#: sizes of pods that plugins are asked about first, where those asked about before let too few go
_MOST_SIZES = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, the units to evict for its next places, none where they fit already, and the cost of each place."""

    node: int
    units: Sequence[Unit]
    cost: Cost


class NodeCandidates:
    """The candidates of all nodes for identical pods of a job."""

    def __init__(self, context: PreemptionContext, held_amounts: HeldAmounts, pod: PodRecord) -> None:
        """`pod` is the first of the pods."""
        self._session = session = context.session
        request: Vector = session.view.request(pod)
        self._pod_index = held_amounts.pod_index
        self._ranks = held_amounts.ranks
        self._held_amounts = held_amounts
        #: which of some candidates all plugins let go for the pod, in their order
        self._let_go = partial(session.ask.victims, context.point, pod)
        self._columns: list[int] = np.flatnonzero(compared(request, session.view.nodes.always)).tolist()
        self._wanted: list[float] = request[self._columns].tolist()
        #: the amounts above zero, each with its place among these
        self._asked = [(column, want) for column, want in enumerate(self._wanted) if want > 0]
        #: amounts wanted, infinite instead of 0, so that no part of it is gained
        self._divisors = [want if want > 0 else math.inf for want in self._wanted]
        #: whether plugins judge a victim independently of earlier evictions
        self._steady = session.ask.judges_steadily(context.point)
        #: whether it may matter which pods plugins are asked about first
        self._first_matters = not (self._steady or session.ask.gives_back_in_order)
        #: the sort keys of jobs, and of pods in their jobs, cached
        self._job_key, self._task_key = cache(session.ask.job_key), cache(session.ask.task_key)
        self._pod = pod
        self._only_like = context.takes_only_like(pod)
        self._may_break_gangs = context.may_break_gangs
        #: by job the pods of a gang that may be evicted whole
        self._allowed: dict[str, list[PodRecord]] = {}
        #: by node the pods that plugins first allowed, where they judge a victim independently of the others
        self._permitted: dict[int, list[PodRecord]] = {}

    def candidate(self, node: int, left: int, elsewhere: Mask) -> Candidate | None:
        """The cheapest way to make room on a node for some of `left` pods; None if there is none.

        `elsewhere` says at which nodes pods may be, besides, shape (nodes,).
        """
        free = self._session.view.nodes.future_idle(node)[self._columns].tolist()
        short = [want - TOLERANCE - have for want, have in zip(self._wanted, free, strict=True)]
        if max(short) < 0:
            return Candidate(node, (), Cost.of(()))
        willing, pods = self._asked_on(node)
        found = self._candidate(node, pods, short, left, elsewhere)
        if len(pods) == len(willing) or not self._first_matters:
            return found
        for others in self._permitted_by_size(willing):
            sets = (found, self._candidate(node, others, short, left, elsewhere))
            found = min(filter(None, sets), key=lambda each: each.cost, default=None)
            if found is not None:
                break
        return found

    def _candidate(
        self, node: int, pods: Sequence[PodRecord], short: Sequence[float], left: int, elsewhere: Mask
    ) -> Candidate | None:
        """The candidate if some pods may be evicted, with the cost of each place; None when they do not suffice."""
        # A gang is evicted before a more important pod that could be spared.
        needed = sufficient(self.units(pods), short, self._divisors)
        if not needed:
            return None
        # What a gang gives whole is not given again pod by pod.
        whole = {unit.job.key for unit in needed if unit.whole}
        units = [unit for unit in needed if unit.whole or unit.job.key not in whole]
        places = 1 if left == 1 else max(1, int(min(self._gained(node, units, elsewhere), left)))
        return Candidate(node, units, Cost.of(units, places))

    def evicted(self, units: Iterable[Unit]) -> set[int]:
        """Forget the units of evicted gangs, and return the nodes of their jobs, which can spare less now."""
        nodes = set[int]()
        for job in {unit.job for unit in units}:
            self._allowed.pop(job.key, None)
            for uid in job.sub_jobs if job.divided else ():
                self._allowed.pop(uid, None)
            nodes.update(self._held_amounts.node[self._held_amounts.job == job.index].tolist())
        return nodes

    def everything(self) -> list[Unit]:
        """All units that may be evicted, on any node, the cheapest first."""
        rows = self._held_amounts.rows
        return sorted(self.units(self.permitted(rows[self._pod_index.alive(rows)])), key=cheapness)

    def cheapest_first(self) -> Iterator[Unit]:
        """The units by ascending cost, computed as far as they are read; they may be evicted meanwhile.

        Where plugins judge a victim independently of the others, of thousands of jobs only few are looked at: a lower
        bound of the cost of a job's cheapest unit follows from columns.
        """
        if not self._steady:
            yield from self.everything()
            return
        held, (by_job, places) = self._held_amounts, self._by_job
        at = by_job[self._pod_index.alive(held.rows[by_job])]
        rows = np.split(held.rows[at], np.flatnonzero(np.diff(held.job[at])) + 1)
        heap = self._bounds(at, places) if len(at) else []
        while heap:
            *_, place, number, of = heappop(heap)
            if number == _JOB:
                for number, unit in enumerate(self.units(self.permitted(rows[of]))):
                    heappush(heap, (*unit_cost(unit), place, number, unit))
            else:
                yield of

    @cached_property
    def _by_job(self) -> tuple[Rows, Rows]:
        """The candidates job by job, and the place of each job among equals, the last one first, shape (jobs,)."""
        jobs, held = self._session.view.jobs, self._held_amounts
        places = np.zeros(len(jobs), np.intp)
        in_order = self._session.ask.in_job_order(jobs, np.unique(held.job))
        places[in_order] = -np.arange(len(in_order))
        return np.argsort(held.job, kind="stable"), places

    def _bounds(self, at: Rows, places: Rows) -> list[tuple[Any, ...]]:
        """Lower bound on the cost of each job's cheapest unit: a pod that it can spare, or else all its candidates."""
        held, began = self._held_amounts, self._pod_index.began[self._held_amounts.rows[at]]
        starts = np.flatnonzero(np.diff(held.job[at], prepend=-1))
        jobs, sizes = held.job[at[starts]], np.diff(starts, append=len(at))
        spares = above_minimum(self._session.view.jobs)[jobs]
        ranks = np.where(spares, np.minimum.reduceat(held.rank[at], starts), np.maximum.reduceat(held.rank[at], starts))
        age = -np.where(spares, np.maximum.reduceat(began, starts), np.minimum.reduceat(began, starts))
        number = np.full(len(jobs), _JOB)
        return ascending(ranks, ~spares, np.where(spares, 1, sizes), age, places[jobs], number, np.arange(len(jobs)))

    def on(self, node: int) -> list[Unit]:
        """All units with pods on a node that may be evicted, the cheapest first."""
        return sorted(self.units(self._asked_on(node)[1]), key=cheapness)

    def _gained(self, node: int, units: Sequence[Unit], elsewhere: Mask) -> float:
        """Number of additional pods that fit once units are evicted."""
        gains: dict[int, list[float]] = {}
        node_of = self._session.view.pods.node
        for unit in units:
            for pod in unit.pods:
                at = node_of.item(pod.row)
                if at == node or elsewhere[at]:
                    held, others = self._held(pod), gains.get(at)
                    gains[at] = held if others is None else [a + b for a, b in zip(others, held, strict=True)]
        nodes, gained = self._session.view.nodes, 0.0
        before = nodes.future_idle(np.array(list(gains), np.intp))[self._columns].T.tolist()
        for free, gain in zip(before, gains.values(), strict=True):
            after = [have + more for have, more in zip(free, gain, strict=True)]
            gained += copies_on(self._asked, after, nodes.always) - max(copies_on(self._asked, free, nodes.always), 0.0)
        return gained

    def units(self, pods: Iterable[PodRecord]) -> list[Unit]:
        """The units of pods in victim order: those that are evicted alone, in order, or with their sub groups, and for
        the others their gangs, the last job first.
        """
        jobs, found, rest = self._session.view.jobs, list[Unit](), dict[str, list[PodRecord]]()
        groups: dict[str, tuple[SubJob, int, list[PodRecord]]] = {}
        for order, (pod, spare) in enumerate(spared(self._session, pods)):
            job = jobs[pod.job]
            group = self._session.view.sub_job_of(job, pod) if spare and job.divided else None
            if group is not None and group.policy:
                groups.setdefault(group.uid, (group, order, []))[2].append(pod)
            elif spare:
                found.append(Unit(job, (pod,), False, self._rank(pod), began(pod), self._held(pod), order))
            else:
                rest.setdefault(pod.job, []).append(pod)
        for group, order, of_group in groups.values():
            together, job = self._whole(group.job, group), group.job
            gone = sum(len(unit.pods) for unit in found if unit.job is job)
            if together and gone + len(together) <= job.ready_count - job.min_available:
                found.append(self._together(job, together, of_group, order))
        for order, job in enumerate(sorted(map(jobs.__getitem__, rest), key=self._job_key, reverse=True)):
            if whole := self._whole(job):
                place = len(self._held_amounts.rows) + order
                found.append(self._together(job, whole, rest[job.key], place, whole=True))
        return found

    def _together(
        self, job: Job, pods: Sequence[PodRecord], here: Sequence[PodRecord], order: int, *, whole: bool = False
    ) -> Unit:
        """Pods of a job as one unit; a node gains what those on it hold."""
        gain = [sum(held) for held in zip(*map(self._held, here), strict=True)]
        return Unit(job, pods, whole, max(map(self._rank, pods)), min(map(began, pods)), gain, order)

    def _asked_on(self, node: int) -> tuple[list[PodRecord], list[PodRecord]]:
        """The pods on a node that may be evicted, and those of them that every plugin allows, in victim order.

        Where plugins judge steadily, both are the pods that were allowed when the node was first asked about.
        """
        known = self._permitted.get(node)
        if known is not None:
            held, states = self._pod_index.states, self._session.view.pods.state
            left = [pod for pod in known if states.item(pod.row) in held]
            return left, left
        willing = self._willing(self._held_amounts.on(node))
        found = self._let_go(self._in_order(willing)) if willing else []
        if self._steady:
            self._permitted[node] = found
        return willing, found

    def _permitted_by_size(self, willing: list[PodRecord]) -> Iterator[list[PodRecord]]:
        """The potential victims of a node if plugins are asked about the largest first, or about those of a next size.

        Victims that come first use up what their queue may give: one large pod may be cheaper than several small ones,
        several small ones may be needed where one large leaves too little.
        """
        by_size = sorted(willing, key=self._held, reverse=True)
        begins = [at for at, pod in enumerate(by_size) if not at or self._held(pod) != self._held(by_size[at - 1])]
        for at in begins[:_MOST_SIZES]:
            yield self._in_order(self._let_go(by_size[at:] + by_size[:at]))

    def permitted(self, rows: Rows) -> list[PodRecord]:
        """The potential victims among some pods, in victim order, as far as plugins allow them."""
        willing = self._willing(rows)
        return self._let_go(self._in_order(willing)) if willing else []

    def allowed_together(self, units: Iterable[Unit]) -> bool:
        """Whether plugins let units be evicted together, as things stand."""
        pods = [pod for unit in units for pod in unit.pods]
        return self._steady or not pods or self._all_go(pods)

    def _all_go(self, pods: list[PodRecord]) -> bool:
        return len(self._let_go(self._in_order(pods))) == len(pods)

    def _willing(self, rows: Rows) -> list[PodRecord]:
        """The pods in some rows that may be evicted; a pod that requests nothing reclaims only from its like."""
        pods = self._session.view.records(rows)
        return [pod for pod in pods if pod.pod_class.best_effort or not self._only_like]

    def _in_order(self, pods: list[PodRecord]) -> list[PodRecord]:
        """Pods in victim order: the least important first, of equals the last pod of the last job."""
        jobs = self._session.view.jobs

        def key(pod: PodRecord) -> tuple[Any, ...]:
            return -max(self._rank(pod), 0), self._job_key(jobs[pod.job]), self._task_key(pod)

        return sorted(pods, key=key, reverse=True)

    def _rank(self, pod: PodRecord) -> int:
        return int(self._ranks.of_row.item(pod.row))

    def _whole(self, job: Job, group: SubJob | None = None) -> list[PodRecord]:
        """All pods of a gang, or of a sub group that it can spare, when they may be evicted together; else none."""
        if group is None and (not self._may_break_gangs or job.key == self._pod.job):
            return []
        key = job.key if group is None else group.uid
        found = self._allowed.get(key)
        if found is None:
            pods = whole_gang(self._session, job, group)
            found = self._allowed[key] = pods if pods and self._all_go(pods) else []
        return found

    def _held(self, pod: PodRecord) -> list[float]:
        held: list[float] = self._session.view.request(pod)[self._columns].tolist()
        return held
