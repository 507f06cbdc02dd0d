"""The queues of a session: their tree, the amounts that their jobs hold and request, and invalid queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stromboli.api.pod_state import ALLOCATED_STATES, PodState
from stromboli.api.reasons import Reason
from stromboli.api.resources import PODS, Mask, Matrix, Rows, Vector
from stromboli.fairness import obstacles
from stromboli.fairness.obstacles import ROOT
from stromboli.fairness.queue_tree import linked
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.view import View
from stromboli.plugins.fairshare.spec import Amounts
from stromboli.plugins.fairshare.tree import DivisionTree

#: dimensions counted in whole units; all others are counted in thousandths
_UNITS = frozenset(("cpu", "memory", "pods"))


class Accounts:
    """Two trees of the same queues, `shared` with the resources that are divided, `bounds` with all there are.

    The resources that are divided come first in both, so `shared` is a view of `bounds`.
    """

    def __init__(self, view: View, resources: Sequence[str], preemptible: Mask) -> None:
        """`resources` are divided, as far as nodes, pods or queues name them; `preemptible` says which jobs may be
        evicted.
        """
        names = view.dimensions
        divided = [names.index(name) for name in resources if name in names]
        #: the session's dimensions in the order of the trees
        self.dimensions: Rows = np.array([*divided, *(c for c in range(len(names)) if c not in divided)], np.intp)
        self.width = len(divided)
        self.names = [names[column] for column in self.dimensions]
        queues = sorted(view.queues.values(), key=lambda queue: queue.name)
        self.row = {queue.name: row for row, queue in enumerate(queues)}
        #: why nothing can be scheduled in a queue
        self.broken: dict[str, Reason] = {}
        parent = self._parents(view, queues)
        amounts = Amounts(queues, self.names)
        for queue in queues:
            if queue.name in amounts.problems:
                self.broken.setdefault(queue.name, obstacles.misconfigured(queue, amounts.problems[queue.name]))
        quota = amounts.quota()
        quota[:, self.width :] = np.inf
        allocated = self._by_queue(view, view.job_allocated, np.ones(len(view.jobs), np.bool_))
        self.bounds = DivisionTree(
            names=[queue.name for queue in queues],
            parent=parent,
            priority=np.array([queue.spec.priority for queue in queues], np.float64),
            created=np.array([queue.created for queue in queues], np.float64),
            quota=quota,
            limit=amounts.limit(),
            weight=amounts.weight(),
            usage=np.zeros_like(quota),
            request=allocated + self._by_queue(view, _waiting(view), self._schedulable(view)),
            allocated=allocated,
            non_preemptible=self._by_queue(view, view.job_allocated, ~preemptible),
            unit=np.array([1.0 if name in _UNITS else 1000.0 for name in self.names]),
        )
        #: what terminating pods hold beyond `allocated`, without what is promised to others that start when they are
        #: gone; and of this, what jobs hold that are never evicted. Shape (queues, resources); None for nothing
        self.terminating: tuple[Matrix, Matrix] | None = None
        if view.terminating is not None:
            of_all, fixed = np.zeros((2, len(queues), len(names)))
            of_all[[self.row[name] for name in view.queues]] = view.terminating[:, self.dimensions]
            if view.job_terminating is not None:
                fixed += self._by_queue(view, view.job_terminating, ~preemptible)
            self.terminating = of_all, fixed
        self._count_for_ancestors()
        self.shared = self.bounds.first(self.width)

    def narrow(self, amounts: Vector) -> Vector:
        """Amounts in the session's dimensions, as those of `shared`."""
        return amounts[self.dimensions[: self.width]]

    def full(self, amounts: Vector) -> Vector:
        """Amounts in the session's dimensions, as those of `bounds`."""
        return amounts[self.dimensions]

    def of_session(self, amounts: Vector, unset: float = 0.0) -> Vector:
        """Amounts of a tree in the session's dimensions; `unset` in those that the tree does not have."""
        out = np.full(len(self.dimensions), unset)
        out[self.dimensions[: len(amounts)]] = amounts
        return out

    def leaf(self, job: Job) -> int:
        """The row of a job's queue."""
        return self.row[job.queue.name]

    def kept(self, amounts: Mapping[str, Vector]) -> tuple[Matrix, Matrix] | None:
        """The amounts kept in queues and their descendants, by queue; none is for jobs that are never evicted."""
        if not amounts:
            return None
        out = np.zeros_like(self.bounds.allocated)
        for queue, amount in amounts.items():
            out[self.bounds.path(self.row[queue])] += self.full(amount)
        return out, np.zeros_like(out)

    def held_now(self) -> Matrix:
        """The divided resources that queues hold, including terminating pods and without mere promises,
        shape (queues, resources).
        """
        held: Matrix = self.shared.allocated.copy()
        if self.terminating is not None:
            held += self.terminating[0][:, : self.width]
        return np.maximum(held, 0)

    def change_terminating(self, job: Job, amount: Vector, *, preemptible: bool) -> None:
        """A job's pods terminate from now on; a negative amount is promised to pods that start when others are gone."""
        if self.terminating is None:
            self.terminating = np.zeros_like(self.bounds.allocated), np.zeros_like(self.bounds.allocated)
        path, full = self.bounds.path(self.leaf(job)), self.full(amount)
        self.terminating[0][path] += full
        if not preemptible:
            self.terminating[1][path] += full

    def change(self, job: Job, amount: Vector, *, preemptible: bool) -> None:
        """A job gets, or loses, an amount in the session's dimensions."""
        path, full = self.bounds.path(self.leaf(job)), self.full(amount)
        self.bounds.allocated[path] += full
        if not preemptible:
            self.bounds.non_preemptible[path] += full

    # -- opening -----------------------------------------------------------------------------------------------------

    def _parents(self, view: View, queues: Sequence[Queue]) -> Rows:
        """The row of each queue's parent; those below the root are at the top, as are broken ones."""
        tree, broken = linked(view.queues, [queue.name for queue in queues], with_root=False)
        self.broken |= broken
        for row, queue in enumerate(queues):
            if tree.children(row) or (queue.name == ROOT and len(queues) > 1):
                self.broken.setdefault(queue.name, obstacles.not_a_leaf(queue))
        return tree.parent

    def _schedulable(self, view: View) -> Mask:
        """Whether jobs can get anything: jobs in a broken queue have no claim to a share."""
        whole = np.array([name not in self.broken for name in view.queues], np.bool_)
        return whole[view.jobs.queue]

    def _by_queue(self, view: View, per_job: Matrix, counted: Mask) -> Matrix:
        """The sums of some jobs' amounts, by queue."""
        leaves = np.array([self.row[name] for name in view.queues], np.intp)[view.jobs.queue]
        out = np.zeros((len(self.row), len(self.dimensions)))
        np.add.at(out, leaves[counted], per_job[counted][:, self.dimensions])
        return out

    def _count_for_ancestors(self) -> None:
        tree = self.bounds
        for level in [*tree.levels()][:0:-1]:
            for matrix in (tree.request, tree.allocated, tree.non_preemptible, *(self.terminating or ())):
                np.add.at(matrix, tree.parent[level], matrix[level])


def _waiting(view: View) -> Matrix:
    """The requests of pods that wait for a place and are not gated, shape (jobs, dimensions)."""
    waiting: Matrix = view.job_requested - view.job_allocated
    gated = view.snapshot.pod_facts.column("gated", lambda pod: pod.pod_class.gated or None).numbers >= 0
    if not gated.any():
        return waiting
    pods = view.pods
    index_of = view.membership.index_of
    counted = (pods.state == PodState.Pending) & gated & (index_of[pods.job] >= 0)
    counted[list(view.too_large)] = False
    rows = np.flatnonzero(counted)
    np.subtract.at(waiting, index_of[pods.job[rows]], view.requests(rows))
    # Of jobs that can never run, or whose queue is closed, nothing was counted.
    return np.maximum(waiting, 0, out=waiting)


def divisible(view: View) -> Vector:
    """The capacity for queues, shape (dimensions,): that of the nodes, less the holdings of pods without a job."""
    pods = view.pods
    held = np.isin(pods.state, ALLOCATED_STATES) & (pods.node >= 0) & (view.membership.index_of[pods.job] < 0)
    total: Vector = np.maximum(view.total - view.requests(held).sum(axis=0), 0)
    total[PODS] = view.total[PODS]
    return total
