"""Volcano's search for victims for single pods: the first node that works.

The steps are: the nodes on which the pod would fit if all candidates were evicted (`_nodes`), the candidates of a node
in victim order as far as plugins allow them, and evictions until the pod fits (`_plan`). With topology-aware preemption
victims are given back from the highest, and several nodes are compared by kube-scheduler's order (`weight`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cmp_to_key, partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stromboli.api.resources import Mask, Rows, Vector, fits
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.eligibility import agrees
from stromboli.eviction.held_amounts import HeldAmounts
from stromboli.eviction.ordering import began, victim_key
from stromboli.eviction.plan import evict_until, give_back, take_back
from stromboli.framework.cluster.job import Job
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.session.statement import Statement
from stromboli.state.pods import PodRecord

#: what makes priorities of pods positive, so that fewer victims weigh less whatever their priority
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

    `compared` is how many nodes that work are compared, with victims given back; 0 for the first node that works.
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


class FirstFit:
    """The search for one pod. Reclaim asks neither scores nor all predicates, and passes over empty nodes."""

    def __init__(
        self,
        context: PreemptionContext,
        job: Job,
        pod: PodRecord,
        held: HeldAmounts,
        compared: int = 0,
        *,
        own_job: bool = False,
    ) -> None:
        """The pods in `held` may be evicted, those of the pod's own job or of all others.

        `compared` is how many nodes that work are compared.
        """
        self._context = context
        self._session = context.session
        self._job = job
        self._pod = pod
        self._held = held
        self._compared = compared
        self._own_job = own_job
        self._request: Vector = context.session.view.request(pod)
        self._varies = context.session.kernel.varies(pod)
        #: whether a node without victims is none for the pod. A node where pods are in the way gives up all of them for
        #: the first pod of a job, so that there the others come before more victims are looked for
        self._needs_victims = compared > 0 and not self._varies

    def place(self, statement: Statement) -> bool:
        """Evict for the pod and promise it the place, on a statement; False when it finds none."""
        plans = ((node, plan) for node in self._nodes() if (plan := self._plan(node)) is not None)
        best = min(islice(plans, max(1, self._compared)), key=lambda each: weight(each[1]), default=None)
        if best is None:
            return False
        node, evictions = best
        statement.recover(evictions)
        sub_job = self._session.view.sub_job_of(self._job, self._pod)
        statement.pipeline(sub_job, self._pod, node, after_eviction=bool(evictions))
        return True

    def _nodes(self) -> list[int]:
        """The nodes to try, in order: those of the own shard first, of these the best scored or the first."""
        rows = self._session.kernel.possible(self._pod)
        self._held.refresh()
        enough = self._held.suffices(self._request, rows)
        if self._context.reclaiming:
            enough &= self._held.counts[rows] > 0
        if not enough.any():
            return []
        own, keys = self._session.view.shard, list[NDArray[Any]]()
        if not self._context.reclaiming:
            keys.append(-self._session.kernel.whole_score(self._pod, rows))
        if self._compared and not self._needs_victims:
            keys.append(~self._free(rows))
        if own is not None:
            keys.append(~own.own[rows])
        order = np.lexsort(keys) if keys else np.arange(len(rows))
        nodes: list[int] = rows[order[enough[order]]].tolist()
        return nodes

    def _free(self, rows: Rows) -> Mask:
        """On which of some nodes the pod fits without further victims."""
        nodes = self._session.view.nodes
        free = fits(self._request, nodes.future_idle(rows), nodes.always)
        return free & self._session.kernel.feasible(self._pod)[rows] if free.any() else free

    def _plan(self, node: int) -> list[Operation] | None:
        """The evictions by which the pod fits on a node; None when there are none. Leaves the session as it was."""
        nodes = self._session.view.nodes
        candidates = self._candidates(self._held.on(node))
        if self._context.reclaiming and not candidates:
            return None
        victims = self._session.ask.victims(self._context.point, self._pod, candidates)
        free = nodes.future_idle(node)
        for victim in victims:
            free += self._session.view.request(victim)
        if not fits(self._request, free, nodes.always):
            return None
        fit = partial(self._fits, node)
        units = [] if not self._needs_victims and fit() else evict_until(fit, self._evictions(victims))
        if units and self._compared:
            give_back(units[::-1], fit)
        if units is None or (self._needs_victims and not any(units)):
            return None
        evictions = [operation for unit in units for operation in unit.save()]
        take_back(units)
        return evictions

    def _candidates(self, rows: Rows) -> list[PodRecord]:
        """The pods that could be evicted, in victim order."""
        only_best_effort = not self._context.reclaiming and self._pod.pod_class.best_effort
        pods = [
            pod
            for pod in self._session.view.records(rows)
            if (pod.job == self._pod.job) == self._own_job
            and (pod.pod_class.best_effort or not only_best_effort)
            and agrees(self._session, pod)
        ]
        return sorted(pods, key=self._order)

    def _order(self, pod: PodRecord) -> tuple[object, ...]:
        """The victim order as things stand; shares change with every eviction."""
        return victim_key(self._session, pod, self._job.queue)

    def _evictions(self, victims: list[PodRecord]) -> Iterator[Statement]:
        """Evict one pod after the other, each on a statement."""

        def compare(one: PodRecord, other: PodRecord) -> int:
            return -1 if self._order(one) < self._order(other) else 1

        # A sorted list is a heap; keys change with every eviction, and Volcano's queue does not sort anew either.
        heap: list[Any] = list(map(cmp_to_key(compare), victims))
        while heap:
            victim: PodRecord = heapq.heappop(heap).obj
            statement = self._session.statement()
            if self._session.view.pods.state[victim.row] in self._held.pod_index.states:
                statement.evict(victim, self._context.action, self._job.key)
            yield statement

    def _fits(self, node: int) -> bool:
        """Whether the pod has its place, as things stand on the statements; reclaim asks for amounts alone."""
        nodes = self._session.view.nodes
        if not fits(self._request, nodes.future_idle(node), nodes.always):
            return False
        if self._context.reclaiming:
            return True
        allowed, _ = self._session.ask.allocatable(self._job.queue, self._pod)
        return allowed > 0 and (not self._varies or bool(self._session.kernel.feasible(self._pod)[node]))
