"""Network domains in which a job may be placed: which HyperNodes to try, in which order, and which to skip.

Plugins group the HyperNodes into gradients: the first gradient in which the job fits is the best. A trial is costly, so
HyperNodes whose nodes cannot hold enough copies of the pods are skipped, by one sum over all nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import Matrix, Rows, Vector, copies_that_fit
from stromboli.api.validation import did_you_mean
from stromboli.api.words import counted
from stromboli.framework.cluster.job import Job, SubJob
from stromboli.framework.plugin.operation import Kind
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement
from stromboli.state.pods import PodRecord


def gradients(session: Session, of: Job | SubJob, root: int, *, evicting: bool = False) -> list[Rows]:
    """HyperNodes at or below `root` that a job or group may be placed in, the best gradient first.

    The first plugin that takes part decides; without any it is the root alone.
    """
    found = session.ask.hyper_node_gradients(of, root, evicting, len(session.view.topology))
    return [np.array([root], np.intp)] if found is None else found


def that_may_fit(session: Session, hyper_nodes: Rows, pods: Iterable[PodRecord], least: int) -> Rows:
    """The HyperNodes, of some, on whose nodes `least` of the pods may fit, now or later.

    A HyperNode left out cannot work; one left in may still not. The whole cluster is never left out, so that trying it
    shows the reason.
    """
    most = copies_in(session, pods, hyper_nodes)
    kept: Rows = hyper_nodes[(most >= least) | (hyper_nodes == session.view.topology.top)]
    return kept


def copies_in(session: Session, pods: Iterable[PodRecord], hyper_nodes: Rows) -> Vector:
    """An upper bound on the number of some pods that fit in each of some HyperNodes, now or later; shape (HyperNodes,).

    Of pods whose place depends on other pods only amounts count. A HyperNode in which they do not fit cannot be the
    best of several for a plugin, so it is skipped for all pods or for none.
    """
    tree, most = session.view.topology, np.zeros(len(hyper_nodes))
    by_class: dict[Hashable, list[PodRecord]] = {}
    for pod in pods:
        by_class.setdefault(session.kernel.identity(pod), []).append(pod)
    alone = tree.nodes(int(hyper_nodes[0])) if len(hyper_nodes) == 1 else None
    for alike in by_class.values():
        session.kernel.step(session.kernel.steps_of_question)
        copies = (_copies_by_amounts if session.kernel.varies(alike[0]) else copies_on_nodes)(
            session, alike[0], len(alike)
        )
        sums = tree.sums(copies)[hyper_nodes] if alone is None else copies[alone].sum()
        most += np.minimum(sums, len(alike))
    return most


def least_placements(session: Session, of: Job | SubJob) -> int:
    """Minimum number of pods that must get a place in a trial for a job or group to become ready or pipelined."""
    if isinstance(of, Job):
        missing, may_stay = session.ask.job_missing(of), session.ask.job_pipelined(of)
    else:
        missing, may_stay = session.ask.sub_job_missing(of), session.ask.sub_job_pipelined(of)
    return 1 if may_stay else max(1, missing - of.waiting_count)


def needed(job: Job) -> bool:
    """Whether a HyperNode has to be found for a job."""
    return job.divided or is_bound(job)


def is_bound(job: Job) -> bool:
    """Whether the pods of a job, or of one of its groups, must lie in one HyperNode; the virtual root counts as one."""
    for sub_job in job.sub_jobs.values():
        if sub_job.highest_tier is not None:
            return True
    return job.highest_tier is not None


def locate(session: Session, statement: Statement, job: Job) -> None:
    """Locate a job and its groups where a statement places their pods."""
    lowest = session.view.topology.lowest
    for operation in statement.operations:
        if operation.job is job and operation.kind is not Kind.Evict and operation.sub_job is not None:
            for hyper_node in set(lowest[list(operation.nodes)].tolist()):
                statement.locate(job, hyper_node)
                statement.locate(operation.sub_job, hyper_node)


def binding_tier(session: Session, job: Job) -> int | None:
    """The lowest tier that the pods of a job, or of one of its groups, must not leave; None when they may spread."""
    own = [job.highest_tier, *(sub_job.highest_tier for sub_job in job.sub_jobs.values())]
    tier = min((t for t in own if t is not None), default=None)
    return tier if tier is not None and tier < session.view.topology.tiers[session.view.topology.top] else None


def no_domain(session: Session, job: Job, tier: int) -> Reason:
    """Why a job that must not leave a HyperNode of a tier has no place."""
    tree = session.view.topology
    number = int((tree.tiers <= tier).sum())
    if number == 0:
        spec = job.pod_group.spec
        of = [t for t in (spec.network_topology, *(p.network_topology for p in spec.sub_group_policy)) if t is not None]
        name = next((t.highest_tier_name for t in of if t.highest_tier_name), "")
        which = "" if len(tree) == 1 else f" of tier {name}" if name else f" up to tier {tier}"
        labels = session.policy.topology.labels
        detail, who = did_you_mean(name, [*tree.tier_by_name, *labels]).removeprefix(", "), Actionable.User
        if name in labels or not detail:
            wider = " together with those of wider levels" if name in labels[1:] else ""
            detail = "the policy's topology.levels stand in for HyperNodes of the cluster" if labels else ""
            detail, who = f"no node has the label {name}{wider}" if name in labels else detail, Actionable.Admin
        return Reason(Stage.Placement, "NoHyperNode", f"there is no HyperNode{which}", who, detail)
    never = _largest(session, job, tier, session.view.nodes.allocatable)
    if never:
        never = f"the largest, {never} when it is empty"
        message = f"no HyperNode up to tier {tier} is large enough for {job.title}"
        return Reason(Stage.Placement, "NoHyperNodeFits", message, Actionable.User, never, scalable=True)
    held = tree.name(job.allocated_hyper_node)
    near = f" that holds {held}, where others of its pods are," if held else ""
    return Reason(
        Stage.Placement,
        "NoHyperNodeFits",
        f"no HyperNode up to tier {tier}{near} fits {job.title}",
        Actionable.Wait,
        "; ".join(filter(None, (f"of {counted(number, 'HyperNode')}", _freest(session, job, tier)))),
        scalable=True,
    )


def _freest(session: Session, job: Job, tier: int) -> str:
    """The HyperNode up to a tier with most room for a gang of equal pods now, in words; empty where it has enough."""
    nodes = session.view.nodes
    most = _largest(session, job, tier, nodes.available(nodes.rows)) if session.report.tells else ""
    return f"the one with most room now, {most}" if most else ""


def _largest(session: Session, job: Job, tier: int, amounts: Matrix) -> str:
    """The HyperNode up to a tier that fits most of a gang of equal pods, in words, if it does not fit all of it.

    `amounts` has what each node offers them, shape (dimensions, nodes).
    """
    view = session.view
    tree, rows = view.topology, view.membership.pending(job.index)
    together = job.min_available - job.ready_count
    alike = len(rows) and (view.pods.pod_class[rows] == view.pods.pod_class[rows[0]]).all()
    if job.highest_tier is None or job.highest_tier > tier or job.ready_count or not alike:
        return ""
    copies = copies_that_fit(view.request(view.record(int(rows[0]))), amounts, view.nodes.always)
    fitting = tree.sums(np.clip(copies, 0, together))
    within = np.flatnonzero(tree.tiers <= tier)
    largest = int(within[np.argmax(fitting[within])])
    if fitting[largest] >= together:
        return ""
    return f"{tree.name(largest)}, fits {fitting[largest]:.0f} of {counted(together, 'pod')}"


def _copies_by_amounts(session: Session, pod: PodRecord, most: float) -> Vector:
    """Number of copies of a pod that fit on each node by amounts, now or later, `most` at most; shape (nodes,)."""
    nodes = session.view.nodes
    free = np.maximum(nodes.available(nodes.rows), nodes.future_idle())
    return np.clip(copies_that_fit(session.view.request(pod), free, nodes.always), 0, most)


def copies_on_nodes(session: Session, pod: PodRecord, most: float = np.inf) -> Vector:
    """Number of pods like this one that each node takes, now or later, `most` at most, shape (nodes,)."""
    board = session.kernel.board(pod)
    copies = np.zeros(len(session.view.nodes))
    copies[board.rows] = np.clip(board.copies, 0, most)
    return copies
