"""Which pods are in which job, as columns: counted and summed once for all jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from stromboli.api.pod_state import ALLOCATED_STATES, STATES, PodState
from stromboli.api.resources import PODS, TOLERANCE, Mask, Matrix, Rows
from stromboli.state.snapshot import PodColumns, Snapshot

Counts: TypeAlias = list[int]

NO_ROWS: Rows = np.zeros(0, np.intp)
#: by state, whether a pod holds a place
ALLOCATED = np.isin(np.arange(STATES), ALLOCATED_STATES)


class Membership:
    """The pods of the jobs of a session. Rows are those of pods; jobs are known by their index in the session."""

    __slots__ = ("_allocated_before", "_by_job", "_index", "_pending", "_pods", "_requests", "_rows", "allocated")

    def __init__(self, snapshot: Snapshot, jobs: Sequence[int]) -> None:
        """`jobs` are the rows of the PodGroups that are in the session."""
        self._pods: PodColumns = snapshot.pods
        #: by dimension, shape (dimensions, classes)
        self._requests = np.ascontiguousarray(snapshot.requests[:, : len(snapshot.dimensions)].T)
        # pods without a PodGroup have -1 or -2 in its place
        index_of = np.full(len(snapshot.pod_groups) + 2, -1, np.intp)
        index_of[jobs] = np.arange(len(jobs))
        #: the job of each pod, -1 for none
        self._index: Rows = index_of[self._pods.job]
        self._rows = np.flatnonzero(self._index >= 0)
        self._by_job: dict[int, Rows] | None = None
        self._pending = self._split(self._rows[self._pods.state[self._rows] == PodState.Pending])
        self._allocated_before = ALLOCATED[self._pods.state]
        #: what the pods of each job that hold a place requested at the start, shape (jobs, dimensions)
        self.allocated: Matrix = self._sum(self._rows[self._allocated_before[self._rows]], len(jobs))

    def counts(self) -> list[Counts]:
        """The number of pods by state, of each job."""
        cells = self._index[self._rows]
        cells *= STATES
        cells += self._pods.state[self._rows]
        counts = np.bincount(cells, minlength=len(self.allocated) * STATES)
        out: list[Counts] = counts.reshape(-1, STATES).tolist()
        return out

    def requested(self) -> Matrix:
        """What the pods request that hold a place or wait for one, shape (jobs, dimensions)."""
        return self.allocated + self._sum(self._all_pending(), len(self.allocated))

    def requested_by_all(self) -> Matrix:
        """What all pods request, whatever their state, shape (jobs, dimensions)."""
        return self._sum(self._rows, len(self.allocated))

    def pending_best_effort(self) -> list[int]:
        """The number of pending pods that request nothing, of each job."""
        rows = self._all_pending()
        best_effort = _best_effort(self._requests)[self._pods.pod_class[rows]]
        counts: list[int] = np.bincount(self._index[rows[best_effort]], minlength=len(self.allocated)).tolist()
        return counts

    def allocated_now(self) -> Matrix:
        """What the pods that hold a place request now, shape (jobs, dimensions)."""
        now = ALLOCATED[self._pods.state]
        changed = self._rows[(now != self._allocated_before)[self._rows]]
        if not len(changed):
            return self.allocated
        gained, jobs = now[changed], len(self.allocated)
        return self.allocated + self._sum(changed[gained], jobs) - self._sum(changed[~gained], jobs)

    def rows(self, job: int) -> Rows:
        """All pods of a job."""
        if self._by_job is None:
            self._by_job = self._split(self._rows)
        return self._by_job.get(job, NO_ROWS)

    def pending(self, job: int) -> Rows:
        """The pods of a job that have no place now."""
        rows = self._pending.get(job)
        return NO_ROWS if rows is None else rows[self._pods.state[rows] == PodState.Pending]

    def all_pending(self) -> tuple[Rows, Rows]:
        """The pods of all jobs that had no place at the start, job by job, and the index of the job of each."""
        rows = self._all_pending()
        return rows, self._index[rows]

    def _all_pending(self) -> Rows:
        return np.concatenate([NO_ROWS, *self._pending.values()])

    def _sum(self, rows: Rows, jobs: int) -> Matrix:
        index, classes = self._index[rows], self._pods.pod_class[rows]
        width = self._requests.shape[1]
        if 0 < jobs * width <= len(rows):
            # Few classes: counting is cheaper than adding up, and amounts are whole numbers.
            index *= width
            index += classes
            counts = np.bincount(index, minlength=jobs * width)
            return counts.reshape(jobs, width) @ self._requests.T
        out = np.zeros((jobs, len(self._requests)))
        if len(rows):
            for column, amounts in enumerate(self._requests):
                out[:, column] = np.bincount(index, weights=amounts[classes], minlength=jobs)
        return out

    def _split(self, rows: Rows) -> dict[int, Rows]:
        if not len(rows):
            return {}
        index = self._index[rows]
        order = np.argsort(index, kind="stable")
        rows, index = rows[order], index[order]
        starts = np.flatnonzero(np.diff(index, prepend=-1))
        return dict(zip(index[starts].tolist(), np.split(rows, starts[1:]), strict=True))


def _best_effort(requests: Matrix) -> Mask:
    """Which classes request nothing; `requests` has shape (dimensions, classes)."""
    counted = requests >= TOLERANCE
    counted[PODS] = False
    out: Mask = ~np.any(counted, axis=0)
    return out
