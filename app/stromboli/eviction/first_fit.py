"""Volcano's search for victims: the first node, or for a gang the first HyperNode, that works.

For a pod, nodes on which it would fit if all candidates were evicted are tried in order: the candidates that plugins
allow are evicted in victim order until the pod fits. With topology-aware preemption victims are given back from the
highest, and several nodes are compared by kube-scheduler's order (`weight`).

For a gang, bundles of other gangs are evicted one after the other until all its pods find places. The safe bundle of a
gang is what it can lose and still run, the least important pods first; the whole bundle is the rest, without which it
stops. Volcano looks only at candidates, and all of them are safe when the gang is below its minimum already.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, cmp_to_key, partial
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stromboli.api.resources import Mask, Rows, Vector, fits
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.eligibility import agrees
from stromboli.eviction.held_amounts import HeldAmounts
from stromboli.eviction.ordering import began, victim_key
from stromboli.eviction.plan import Plan, evict_until, give_back, take_back
from stromboli.eviction.preemptors import may_evict
from stromboli.eviction.units import Unit, spared
from stromboli.framework.cluster import shard
from stromboli.framework.cluster.job import NOWHERE, Job
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement
from stromboli.placement.gangs import domains_to_evict_in, place_gang
from stromboli.placement.pending import PendingGroup, by_group, in_turn
from stromboli.state.pods import PodRecord

#: the sort key of a bundle, given what is needed
BundleKey: TypeAlias = Callable[[Unit, Vector], tuple[Any, ...]]
#: makes priorities of pods positive, so that fewer victims weigh less whatever their priority
_LIFT = 2**31


def weight(evictions: Sequence[Operation]) -> tuple[int, int, int, float]:
    """kube-scheduler's order of nodes: the highest priority, the sum, the number, the latest start; smaller is better.

    Without victims it is smaller than with any.
    """
    if not evictions:
        return (-_LIFT - 1, 0, 0, 0.0)
    victims = [placement.pods[0] for placement in evictions]
    priorities = [pod.spec_priority or 0 for pod in victims]
    highest = max(priorities)
    oldest = min(began(pod) for pod in victims if (pod.spec_priority or 0) == highest)
    return highest, sum(priorities) + _LIFT * len(victims), len(victims), -oldest


def evict_for_pods(
    context: PreemptionContext,
    job: Job,
    pods: Callable[[], Iterable[PodRecord]],
    held: HeldAmounts,
    *,
    compared: int = 0,
) -> None:
    """Find places for a job's pods, in order, until it starves no longer; keep them if it may then run.

    `compared` is the number of candidate nodes to compare, with victims given back; 0 takes the first candidate.
    """
    session = context.session
    #: a statement for each pod that found a place
    found: list[Statement] = []
    #: classes and priorities of pods for which no place was found since the last success
    hopeless: set[tuple[Hashable, int]] = set()
    for pod in pods():
        if not context.grows_by_share and not session.ask.job_starving(job):
            break
        equivalence = (session.kernel.identity(pod), pod.priority)
        if equivalence in hopeless:
            continue
        statement = session.statement()
        if FirstFit(context, job, pod, held, compared).place(statement):
            hopeless.clear()
            found.append(statement)
        elif not session.kernel.varies(pod):
            hopeless.add(equivalence)
    if found and session.ask.job_pipelined(job):
        context.promise(job, found)
    else:
        take_back(found)


@dataclass(frozen=True)
class FirstFit:
    """The search for one pod. Reclaim asks neither scores nor all predicates, and passes over empty nodes."""

    context: PreemptionContext
    job: Job
    pod: PodRecord
    #: the pods that may be evicted, those of the pod's own job or of all others
    held: HeldAmounts
    #: number of candidate nodes that are compared
    compared: int = 0
    own_job: bool = False

    @property
    def _session(self) -> Session:
        return self.context.session

    @cached_property
    def _request(self) -> Vector:
        return self._session.view.request(self.pod)

    @cached_property
    def _varies(self) -> bool:
        return self._session.kernel.varies(self.pod)

    @property
    def _needs_victims(self) -> bool:
        """Whether a node without victims is none for the pod. A node where pods are in the way gives up all of them for
        the first pod of a job, so that there the others come before more victims are looked for.
        """
        return self.compared > 0 and not self._varies

    def place(self, statement: Statement) -> bool:
        """Evict for the pod and promise it the place, on a statement; False when it finds none."""
        plans = ((node, plan) for node in self._nodes() if (plan := self._plan(node)) is not None)
        best = min(islice(plans, max(1, self.compared)), key=lambda each: weight(each[1]), default=None)
        if best is None:
            return False
        node, evictions = best
        statement.recover(evictions)
        sub_job = self._session.view.sub_job_of(self.job, self.pod)
        statement.pipeline(sub_job, self.pod, node, after_eviction=bool(evictions))
        return True

    def _nodes(self) -> list[int]:
        """The nodes to try, in order: those of the own shard first, of these the best scored or the first."""
        rows = self._session.kernel.possible(self.pod)
        self.held.refresh()
        enough = self.held.suffices(self._request, rows)
        if self.context.reclaiming:
            # Every pod counts as one of those that a node may have.
            enough &= self.held.amounts[:, rows].any(axis=0)
        if not enough.any():
            return []
        own, keys = self._session.view.shard, list[NDArray[Any]]()
        if not self.context.reclaiming:
            keys.append(-self._session.kernel.whole_score(self.pod, rows))
        if self.compared and not self._needs_victims:
            keys.append(~self._free(rows))
        if own is not None:
            keys.append(~own.own[rows])
        order = np.lexsort(keys) if keys else np.arange(len(rows))
        nodes: list[int] = rows[order[enough[order]]].tolist()
        return nodes

    def _free(self, rows: Rows) -> Mask:
        """Mask of the given nodes that the pod fits on without further victims."""
        nodes = self._session.view.nodes
        free = fits(self._request, nodes.future_idle(rows), nodes.always)
        return free & self._session.kernel.feasible(self.pod)[rows] if free.any() else free

    def _plan(self, node: int) -> list[Operation] | None:
        """The evictions by which the pod fits on a node; None when there are none. Leaves the session as it was."""
        nodes = self._session.view.nodes
        candidates = self._candidates(self.held.on(node))
        if self.context.reclaiming and not candidates:
            return None
        victims = self._session.ask.victims(self.context.point, self.pod, candidates)
        free = nodes.future_idle(node) + self._session.view.requested(victims)
        if not fits(self._request, free, nodes.always):
            return None
        fit = partial(self._fits, node)
        units = [] if not self._needs_victims and fit() else evict_until(fit, self._evictions(victims))
        if units and self.compared:
            give_back(units[::-1], fit)
        if units is None or (self._needs_victims and not any(units)):
            return None
        evictions = [operation for unit in units for operation in unit.save()]
        take_back(units)
        return evictions

    def _candidates(self, rows: Rows) -> list[PodRecord]:
        """The pods that could be evicted, in victim order."""
        only_best_effort = not self.context.reclaiming and self.pod.pod_class.best_effort
        pods = [
            pod
            for pod in self._session.view.records(rows)
            if (pod.job == self.pod.job) == self.own_job
            and (pod.pod_class.best_effort or not only_best_effort)
            and agrees(self._session, pod)
        ]
        return sorted(pods, key=self._order)

    def _order(self, pod: PodRecord) -> tuple[object, ...]:
        """The victim order as things stand; shares change with every eviction."""
        return victim_key(self._session, pod, self.job.queue)

    def _evictions(self, victims: list[PodRecord]) -> Iterator[Statement]:
        """Evict one pod after the other, each on a statement."""

        def compare(one: PodRecord, other: PodRecord) -> int:
            return -1 if self._order(one) < self._order(other) else 1

        # A sorted list is a heap; keys change with every eviction, and Volcano's queue does not sort anew either.
        heap: list[Any] = list(map(cmp_to_key(compare), victims))
        while heap:
            yield self.context.evict([heapq.heappop(heap).obj], self.job)

    def _fits(self, node: int) -> bool:
        """Whether the pod has its place, as things stand on the statements; reclaim asks for amounts alone."""
        nodes = self._session.view.nodes
        if not fits(self._request, nodes.future_idle(node), nodes.always):
            return False
        if self.context.reclaiming:
            return True
        allowed, _ = self._session.ask.allocatable(self.job.queue, self.pod)
        return allowed > 0 and (not self._varies or bool(self._session.kernel.feasible(self.pod)[node]))


def evict_for_gang(context: PreemptionContext, key: BundleKey, job: Job, candidates: Mask) -> None:
    """Evict for a job and promise its pods their places, if possible; `candidates` has the shape (indexed pods,).

    `key` sorts safe bundles, and after them whole ones, given what is needed; smaller is evicted first.
    """
    while GangFirstFit(context, key, job, candidates).run():
        pass


class GangFirstFit:
    """The search for all pods of a job at once."""

    def __init__(self, context: PreemptionContext, key: BundleKey, job: Job, candidates: Mask) -> None:
        self._context = context
        self._session = session = context.session
        self._key = key
        self._job = job
        self._candidates = candidates
        #: the pods that are to be placed, in order
        self._pods: list[PodRecord] = in_turn(session, job)
        if session.ask.job_missing(job) <= 0:
            # A job that runs looks for places for more pods.
            self._pods = next(by_group(session, job, self._pods), [])[: 1 if context.grows_by_share else None]
        self._need: Vector = session.view.requested(self._pods)

    def run(self) -> bool:
        """Evict for the job and promise its pods their places, if possible; whether there may be more to take."""
        context, session, job = self._context, self._session, self._job
        if not (may_evict(session, self._pods) and context.may_take(job, self._pods)):
            return False
        within = domains_to_evict_in(session, job, context.most_domains)
        plan = next(filter(None, map(self._plan, within)), None)
        if plan is None:
            return False
        plan.decide()
        return context.grows_by_share

    def _plan(self, domain: int) -> Plan | None:
        """Evict bundle by bundle until the job fits in a HyperNode; None, and nothing done, if it never does."""
        plan = Plan(self._context, self._job)
        for bundle in self._bundles(self._session.view.topology.mask(domain)):
            plan.keep([plan.evict(bundle)])
            if self._fits(plan, domain):
                return plan
        plan.take_back()
        return None

    def _bundles(self, within: Mask) -> list[Unit]:
        """Units that may be evicted on some nodes, shape (nodes,), in order."""
        session, index = self._session, self._context.pod_index
        willing = self._candidates & within[index.node] & index.alive() & index.willing
        found: list[Unit] = []
        pods = session.view.records(index.rows[index.by_job[willing[index.by_job]]])
        for job, of_job in groupby(pods, attrgetter("job")):
            found += bundles(session, session.view.jobs[job], of_job)
        found.sort(key=lambda bundle: (bundle.whole, *self._key(bundle, self._need)))
        victims = list({pod.row: pod for bundle in found for pod in bundle.pods}.values())
        allowed = session.ask.gang_victims(self._context.point, self._job, self._pods[0], victims) if victims else []
        return [each for each in permitted(found, allowed) if self._context.may_break_gangs or not each.whole]

    def _fits(self, plan: Plan, domain: int) -> bool:
        """Promise the job its places in a HyperNode as things stand; False, and none is promised, without them."""
        session, nodes = self._session, self._session.view.nodes
        free = (nodes.idle + nodes.releasing) @ session.view.topology.mask(domain)
        if not fits(self._need, free, nodes.always):
            return False
        place = partial(self._place_group, plan.promises)
        of_groups = place_gang(session, self._job, self._pods, domain, place)
        if of_groups is None:
            plan.promises.discard()
            return False
        plan.nominate(of_groups)
        return True

    def _place_group(self, statement: Statement, group: PendingGroup, hyper_node: int) -> bool:
        """Promise all pods of a group places in a HyperNode, on a statement; False, and nothing done, if one fails."""
        session, sub_job = self._session, group.sub_job
        within = session.view.topology.mask(hyper_node)
        trial = session.statement()
        # Within the HyperNode nearness does not count: where victims are, there are places.
        trial.anchor(sub_job, NOWHERE)
        for pod in group.left():
            node = self._node_for(pod, within)
            if node is None:
                trial.discard()
                return False
            trial.pipeline(sub_job, pod, node, after_eviction=True)
        if session.ask.sub_job_missing(sub_job) > 0 and not session.ask.sub_job_pipelined(sub_job):
            trial.discard()
            return False
        statement.merge(trial)
        return True

    def _node_for(self, pod: PodRecord, within: Mask) -> int | None:
        """The best node on which a pod fits now, else the best on which it will."""
        session = self._session
        allowed, _ = session.ask.allocatable(self._job.queue, pod)
        if allowed <= 0:
            return None
        limits = shard.by_preference(session.view.shard, within)
        places = [session.kernel.best(pod, limit, hopeful=True) for limit in limits]
        node, _ = max((place for place in places if place is not None), key=lambda place: place[1], default=(None, 0))
        if node is None or session.ask.refusal(pod, node) is not None:
            return None
        return node


def bundles(session: Session, job: Job, candidates: Iterable[PodRecord]) -> list[Unit]:
    """The safe and the whole bundle of a job's candidates, without empty ones."""
    pods = sorted(candidates, key=lambda pod: (pod.priority, pod.uid))
    below = job.ready_count < job.min_available
    safe, rest = list[PodRecord](), list[PodRecord]()
    for pod, alone in spared(session, pods):
        (safe if below or alone else rest).append(pod)
    found = Unit(job, safe, whole=False), Unit(job, rest, whole=True)
    return [bundle for bundle in found if bundle.pods]


def permitted(bundles: Iterable[Unit], allowed: Iterable[PodRecord]) -> list[Unit]:
    """The bundles restricted to pods that may be evicted; of a whole bundle all pods are evicted, or none."""
    rows = {pod.row for pod in allowed}
    found: list[Unit] = []
    for bundle in bundles:
        pods = [pod for pod in bundle.pods if pod.row in rows]
        if len(pods) == len(bundle.pods) or (pods and not bundle.whole):
            found.append(replace(bundle, pods=pods))
    return found
