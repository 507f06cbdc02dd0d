"""Volcano's search for victims for all pods of a gang at once: the first HyperNode that works.

Bundles of other gangs are evicted as they are, one after the other, until all pods of the gang find places there.
The safe bundle of a gang is what it can lose and still run, the least important pods first; the whole bundle is the
rest, without which it stops. Volcano looks at the pods that are candidates alone, and all of them are safe when the
gang is below its minimum already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeAlias

from stromboli.api.resources import Mask, Vector, fits
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.gang_policy import may_evict, place_gang, search_domains
from stromboli.eviction.plan import Plan
from stromboli.eviction.units import Unit, spared
from stromboli.framework.cluster import shard
from stromboli.framework.cluster.job import NOWHERE, Job
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement
from stromboli.placement.pending import PendingGroup, by_group, in_turn
from stromboli.state.pods import PodRecord

#: the sort key of a bundle, given what is needed
BundleKey: TypeAlias = Callable[[Unit, Vector], tuple[Any, ...]]


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
        #: whether the job runs, and looks for places for more pods
        self._ready = session.ask.job_missing(job) <= 0
        #: the pods that are to be placed, in order
        self._pods: list[PodRecord] = in_turn(session, job)
        if self._ready:
            self._pods = next(by_group(session, job, self._pods), [])[: 1 if context.grows_by_share else None]
        self._need: Vector = session.view.requested(self._pods)

    def run(self) -> bool:
        """Evict for the job and promise its pods their places, if possible; whether there may be more to take."""
        context, session, job = self._context, self._session, self._job
        if not (may_evict(session, self._pods) and context.may_take(job, self._pods)):
            return False
        plan = next(filter(None, map(self._plan, search_domains(session, job, context.action))), None)
        if plan is None:
            return False
        # Without victims the pods have no nominated nodes either.
        for uid, hyper_node in plan.of_groups.items() if plan.evicted else ():
            plan.promises.nominate(job.sub_jobs[uid], hyper_node)
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
        """What may be evicted on some nodes, shape (nodes,), in order."""
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

    # -- places ------------------------------------------------------------------------------------------------------

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
        plan.of_groups = of_groups
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
