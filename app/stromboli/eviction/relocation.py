"""Moving running pods so that a job fits that otherwise fits nowhere: no pod is evicted without another place for it.

For each pod of the job that fits on no node those are tried on which it would fit if all movable pods moved, the one
that lacks least first. Pods move away one by one, the least important first, until the pod fits: one that its gang can
spare moves alone or with its sub group, any other with its whole gang. What turns out not to be needed stays. All of
it is on one statement, which is kept when the job may then run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from stromboli.api.pod_state import HELD
from stromboli.api.resources import Mask
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.eligibility import preemptable
from stromboli.eviction.held_amounts import HeldAmounts
from stromboli.eviction.ordering import victim_key
from stromboli.eviction.plan import evict_until, give_back, has_place, join
from stromboli.eviction.room import sums_suffice
from stromboli.eviction.units import spared, whole_gang
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.topology import has_topology
from stromboli.framework.session.statement import Statement
from stromboli.placement.pending import in_turn, needed_first
from stromboli.state.pods import PodRecord

#: number of nodes that are tried for a pod
_NODES_TRIED = 16


class Relocation:
    """Looks for pods to move so that one job fits."""

    def __init__(self, context: PreemptionContext, job: Job, *, most: int, keeping: float) -> None:
        """`most` is the number of pods that may move, and `keeping` the seconds that their places are reserved."""
        self._context = context
        self._session = session = context.session
        self._job = job
        self._most = most
        self._keeping = keeping
        self._statement = session.statement()

    def run(self) -> None:
        """Move pods and promise the job its places; nothing is done when that is impossible or needless."""
        pods = needed_first(self._session, self._job, in_turn(self._session, self._job))
        if self._could_fit(pods) and self._place_all(pods) and _moved(self._statement):
            self._session.keeper.reserve_promised(self._statement.operations, self._keeping)
            self._context.promise(self._job, [self._statement])
        else:
            self._statement.discard()

    def _could_fit(self, pods: Sequence[PodRecord]) -> bool:
        """Whether the cluster has what the job asks for at all, and no search for an equal pod was in vain."""
        session, context = self._session, self._context
        if not pods or any(pod.pod_class.spec.preemption_policy == "Never" for pod in pods):
            return False
        if any(context.is_hopeless(context.kind(self._job, pod), 1) for pod in pods):
            return False
        requests = [session.view.request(pod) for pod in pods]
        return sums_suffice(requests, max(1, session.ask.job_missing(self._job)), session.view.nodes.future_idle())

    def _place_all(self, pods: Sequence[PodRecord]) -> bool:
        """Promise places to the pods until the job starves no longer; whether it may then run."""
        session, job = self._session, self._job
        for pod in pods:
            if not session.ask.job_starving(job):
                break
            if not self._place(pod):
                return False
        return not session.ask.job_starving(job) and session.ask.starts_as_promised(job)

    def _place(self, pod: PodRecord) -> bool:
        """Promise a pod a place, for which other pods may have to move."""
        session = self._session
        if session.ask.allocatable(self._job.queue, pod)[0] <= 0:
            return False
        node = self._best_node(pod)
        if node is not None:
            self._statement.pipeline(session.view.sub_job_of(self._job, pod), pod, node)
            return True
        if any(self._move_away(pod, node) for node in self._nodes(pod)):
            return True
        if not self._statement and not session.kernel.varies(pod):
            # Before any pod has moved: no job with such a pod finds places for all.
            self._context.in_vain(self._context.kind(self._job, pod), 0)
        return False

    def _nodes(self, pod: PodRecord) -> list[int]:
        """The nodes to try, the one that lacks least first."""
        session, request = self._session, self._session.view.request(pod)
        rows = np.flatnonzero(session.kernel.feasible(pod))
        rows = rows[self._held_amounts().suffices(request, rows)]
        free = session.view.nodes.future_idle(rows)
        lacks = (np.maximum(request[:, None] - free, 0) / np.maximum(request, 1)[:, None]).sum(axis=0)
        nodes: list[int] = rows[np.argsort(lacks, kind="stable")[:_NODES_TRIED]].tolist()
        return nodes

    def _held_amounts(self) -> HeldAmounts:
        return self._context.held_amounts(self._job, np.ones(len(self._context.pod_index.rows), np.bool_))

    def _move_away(self, pod: PodRecord, node: int) -> bool:
        """Move others away from a node until a pod fits there, and promise it the place."""
        self._session.kernel.step()
        fit = partial(has_place, self._session, self._job, pod, node)
        units = [] if fit() else evict_until(fit, self._moves(node))
        if units is None:
            return False
        give_back(reversed(units), fit)
        self._statement.merge(*units)
        sub_job = self._session.view.sub_job_of(self._job, pod)
        self._statement.pipeline(sub_job, pod, node, after_eviction=True)
        return True

    def _moves(self, node: int) -> Iterator[Statement]:
        """Move pods away from a node in victim order, each alone or with its sub group, or with the whole gang."""
        session, made = self._session, list[Statement]()
        movable = self._movable(session.view.records(self._held_amounts().on(node)))
        in_order = sorted(movable, key=lambda pod: victim_key(session, pod, self._job.queue))
        tried = set[str]()
        for pod, alone in spared(session, in_order):
            job = session.view.jobs[pod.job]
            if not alone and (job.key in tried or job.allocated_count > self._most):
                continue
            tried |= set() if alone else {job.key}
            group = session.view.sub_job_of(job, pod)
            pods = (pod,) if alone and not group.policy else whole_gang(session, job, group if alone else None)
            unit = self._move(pods, node, self._most - _moved(self._statement, *made))
            if unit is not None:
                if not alone:
                    join(unit, job, made)
                made.append(unit)
                yield unit

    def _movable(self, pods: Sequence[PodRecord]) -> list[PodRecord]:
        """The pods among `pods` that may move."""
        return self._session.ask.evictable([pod for pod in pods if self._may_move(pod)])

    def _may_move(self, pod: PodRecord) -> bool:
        """Whether a pod may move, as far as it and its job say, and its other places depend on amounts alone."""
        session, job = self._session, self._session.view.jobs[pod.job]
        return (
            job is not self._job
            and session.view.pods.state[pod.row] in HELD
            and not has_topology(job)
            and not session.keeper.reserves(job)
            and preemptable(pod)
            and preemptable(job.pod_group.metadata)
            # Moved pods of a gang below its minimum would not start again on their own.
            and session.ask.job_missing(job) <= job.waiting_count
            and session.ask.shut(job) is None
            and not session.kernel.varies(pod)
        )

    def _move(self, pods: Sequence[PodRecord], node: int, most: int) -> Statement | None:
        """Move pods away from a node, `most` at most; None when they may not move or one has no other place."""
        session = self._session
        if not 0 < len(pods) <= most or len(self._movable(pods)) < len(pods):
            return None
        session.kernel.step()
        unit, elsewhere = self._context.evict(pods, self._job), session.view.nodes.rows != node
        if all(self._find(unit, pod, elsewhere) for pod in pods):
            return unit
        unit.discard()
        return None

    def _find(self, unit: Statement, pod: PodRecord, elsewhere: Mask) -> bool:
        """Promise a pod that is evicted another place, if its queue would let it have one."""
        session, queue = self._session, self._session.view.jobs[pod.job].queue
        if session.ask.overused(queue) is not None or session.ask.allocatable(queue, pod)[0] <= 0:
            return False
        node = self._best_node(pod, elsewhere)
        if node is not None:
            unit.move(pod, node, self._job.key)
        return node is not None

    def _best_node(self, pod: PodRecord, within: Mask | None = None) -> int | None:
        """The best node on which a pod fits, unless a plugin refuses it."""
        found = self._session.kernel.best(pod, within)
        return None if found is None or self._session.ask.refusal(pod, found[0]) is not None else found[0]


def _moved(*units: Statement) -> int:
    """Number of pods that move."""
    return sum(operation.origin >= 0 for unit in units for operation in unit.operations)
