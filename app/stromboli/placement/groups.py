"""Places the pods of one group on nodes, below one HyperNode.

Pods are tried in order until the group is ready. Identical pods that would be tried one after the other are placed in
one pass. Each pod goes to the best node on which it fits now, else to the best one on which it will fit when
terminating pods are gone; a node that was nominated for it comes before all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from stromboli.api.reasons import Stage
from stromboli.api.resources import Mask
from stromboli.framework import reasons
from stromboli.framework.cluster import shard
from stromboli.framework.diagnosis.explain import matches_nowhere, unplaceable
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement
from stromboli.placement import domains, in_vain
from stromboli.placement.pending import PendingGroup
from stromboli.placement.starting import may_start, startable, starts_later, wait_together
from stromboli.state.pods import PodRecord


def place_group(
    session: Session, pending: PendingGroup, hyper_node: int, *, on: Mask | None = None
) -> Statement | None:
    """Place pods of a group until it is ready; None when it stays neither ready nor promised a place.

    With `on`, a mask of shape (nodes,), only on those nodes.
    """
    job, in_order = pending.sub_job.job, pending.copy()
    statement = _GroupPlacement(session, pending, hyper_node, on).run()
    if statement is not None or not (job.divided and session.rules.what_fits and session.ask.job_missing(job) <= 0):
        return statement
    # No exact search looks for places of the sub groups that a job grows by.
    if not in_order.begin_with_largest(session, domains.least_placements(session, pending.sub_job)):
        return None
    pending.pods, pending.at, pending.failed_roles = in_order.pods, in_order.at, set()
    return _GroupPlacement(session, pending, hyper_node, on).run()


def place_as_nominated(session: Session, pending: PendingGroup) -> Statement | None:
    """Place all pods of a group on their nominated nodes in its nominated HyperNode.

    None, with the nominations void, if one of them no longer fits there, and None if one would have to wait where
    other nodes are tried, too.
    """
    sub_job = pending.sub_job
    within = session.view.topology.mask(sub_job.nominated_hyper_node)
    statement = session.statement()
    for pod in pending.left():
        allowed, _ = session.ask.allocatable(sub_job.job.queue, pod)
        place = session.nominated(pod, within) if allowed else None
        if place is None or session.ask.refusal(pod, place[0]) is not None:
            statement.give_up_nomination(sub_job)
            return None
        node, now = place
        if now and may_start(session, sub_job.job, pod, node):
            statement.allocate(sub_job, (pod,), (node,))
        elif now or not session.rules.what_fits:
            statement.pipeline(sub_job, pod, node)
        else:
            # Other nodes may be free by now.
            statement.discard()
            return None
    pending.take(len(pending.left()))
    pending.missing = max(0, session.ask.sub_job_missing(sub_job))
    if pending.missing:
        wait_together(session, statement)
    return statement


class _GroupPlacement:
    """One attempt to place groups."""

    __slots__ = ("_alike", "_everywhere", "_pending", "_session", "_statement", "_within")

    def __init__(self, session: Session, pending: PendingGroup, hyper_node: int, on: Mask | None) -> None:
        self._session = session
        self._pending = pending
        self._statement = session.statement()
        self._everywhere = hyper_node == session.view.topology.top and on is None
        self._within: Mask | None = None if self._everywhere else session.view.topology.mask(hyper_node)
        if on is not None:
            self._within = on & session.view.topology.mask(hyper_node)
        #: whether it is known that others of the kind fare the same
        self._alike = False
        if pending.sub_job.network_topology is not None:
            self._statement.anchor(pending.sub_job, pending.sub_job.allocated_hyper_node)

    def run(self) -> Statement | None:
        session, pending = self._session, self._pending
        sub_job = pending.sub_job
        missing = session.ask.sub_job_missing(sub_job) if pending.missing is None else pending.missing
        while pending:
            if not self._next(max(1, missing)):
                break
            missing = session.ask.sub_job_missing(sub_job)
            if self._statement and missing <= 0:
                break
        pending.missing = max(0, missing)
        if missing <= 0:
            return self._statement
        if session.ask.sub_job_pipelined(sub_job):
            wait_together(session, self._statement)
            return self._statement
        self._statement.discard()
        return None

    def _next(self, missing: int) -> bool:
        """Place the next identical pods; False when the rest of the group need not be tried."""
        session, pending = self._session, self._pending
        sub_job, pod = pending.sub_job, pending.pods[pending.at]
        wanted = pending.run_length(missing, session.kernel)
        count, refusal = session.ask.allocatable(sub_job.job.queue, pod, wanted)
        beyond = refusal if count < wanted else None
        if count == 0:
            if refusal is not None and refusal.stage is Stage.Placement and matches_nowhere(session, pod):
                # That the cluster is full is true, but passes, and no node would take it all the same.
                refusal = unplaceable(session, pod)
            # What is alike gets the same answer.
            for refused in pending.take(pending.run_length(len(pending.pods), session.kernel)):
                if refusal is not None:
                    session.view.trace.pod(refused.row, refusal)
            return True
        if pod.role and pod.role in pending.failed_roles:
            session.view.trace.pod(pending.take(1)[0].row, reasons.same_role_failed(pod))
            return True
        count = startable(session, sub_job.job, pod, count)
        if count == len(pending.pods) and self._everywhere and not session.kernel.plain:
            self._alike = in_vain.depends_on_kind(session, pending)
            if self._alike and in_vain.recall(session, pending):
                return False
        if self._place(pod, count) if count else self._promise(pod):
            return True
        pending.take(1)
        if self._everywhere:
            reason = unplaceable(session, pod)
            if reason.scalable and beyond is not None and not beyond.scalable and self._starts_with(wanted):
                # With more nodes it could not start either.
                reason = beyond
            session.view.trace.pod(pod.row, reason)
            if self._alike:
                in_vain.remember(session, pending, self._statement.save(), reason)
        pending.failed_roles.add(pod.role)
        return _worth_continuing(session, pending)

    def _starts_with(self, count: int) -> bool:
        """Whether the group cannot start without `count` pods like the last one taken."""
        pending = self._pending
        if not _worth_continuing(self._session, pending):
            return True
        left = pending.copy()
        left.at -= 1
        return left.run_length(len(left.pods), self._session.kernel) == len(left.left()) >= count

    def _place(self, pod: PodRecord, count: int) -> bool:
        """Place up to `count` pods like this one; False if there is no node for it."""
        kernel, nominated = self._session.kernel, None
        if pod.nominated_node and not self._pending.sub_job.nominations_void:
            nominated = self._session.nominated(pod, self._within)
            if nominated is not None and (nominated[1] or not self._session.rules.what_fits):
                return self._assign(nominated)
            count = 1
        limits = shard.by_preference(self._session.view.shard, self._within)
        for within in limits:
            nodes = kernel.together(pod, kernel.batch(pod, count, within))
            if nodes:
                self._allocate(nodes)
                return True
        if nominated is not None:
            return self._assign(nominated)
        return any(self._assign(kernel.best(pod, within)) for within in limits)

    def _promise(self, pod: PodRecord) -> bool:
        """Promise a pod that may not start yet the node that it would get now; False when there is none."""
        kernel, place = self._session.kernel, None
        if pod.nominated_node and not self._pending.sub_job.nominations_void:
            place = self._session.nominated(pod, self._within)
        if place is None:
            limits = shard.by_preference(self._session.view.shard, self._within)
            place = next(filter(None, (kernel.best(pod, within) for within in limits)), None)
        return place is not None and self._assign((place[0], False))

    def _assign(self, place: tuple[int, bool] | None) -> bool:
        """Give the next pod a node, now or later."""
        if place is None:
            return False
        node, now = place
        if now:
            self._allocate((node,))
        else:
            self._pipeline(node)
        return True

    def _allocate(self, nodes: Sequence[int]) -> None:
        """Assign these nodes to the next pods, until a plugin refuses one."""
        session, pending = self._session, self._pending
        pod = pending.pods[pending.at]
        vacated = session.outcome.vacated and session.is_vacated(pod, nodes[0])
        if vacated or starts_later(session, pod, nodes[0]):
            self._pipeline(nodes[0])
            return
        if session.ask.may_refuse:
            if self._refuses(nodes[0]):
                return
            nodes = nodes[:1]
        self._statement.allocate(pending.sub_job, pending.take(len(nodes)), nodes)
        self._gather(nodes)

    def _pipeline(self, node: int) -> None:
        """Promise the next pod a node, unless a plugin refuses it."""
        if not self._refuses(node):
            pending = self._pending
            self._statement.pipeline(pending.sub_job, pending.take(1)[0], node)
            self._gather((node,))

    def _refuses(self, node: int) -> bool:
        """Whether a plugin refuses the next pod its node after all; the pod is then passed over."""
        pending = self._pending
        why = self._session.ask.refusal(pending.pods[pending.at], node)
        if why is not None:
            self._session.view.trace.pod(pending.take(1)[0].row, why)
        return why is not None

    def _gather(self, nodes: Sequence[int]) -> None:
        """Remember around which HyperNode the group is now."""
        sub_job, tree = self._pending.sub_job, self._session.view.topology
        if sub_job.network_topology is None:
            return
        for hyper_node in set(tree.lowest[list(nodes)].tolist()):
            self._statement.anchor(sub_job, tree.lca(sub_job.anchor, hyper_node))


def _worth_continuing(session: Session, pending: PendingGroup) -> bool:
    """Whether the group can still become ready although a pod found no node."""
    sub_job = pending.sub_job
    job = sub_job.job
    if job.min_available == job.size or sub_job.min_available >= sub_job.size:
        return False
    if job.divided:
        return True
    roles = job.pod_group.spec.min_task_member
    if job.min_available < sum(roles.values()):
        left = sum(1 for pod in session.view.pending(job) if pod.role not in pending.failed_roles)
        return job.ready_count + left >= job.min_available
    if not roles:
        return True
    held = job.held_by_role(best_effort=session.ask.counts_best_effort)
    return all(held.get(role, 0) >= roles.get(role, 0) for role in pending.failed_roles)
