"""Which pods are in which job, as columns: counted and summed once for all jobs."""

from __future__ import annotations

import numpy as np

from stromboli.api.pod_state import ALLOCATED_STATES, STATES, PodState
from stromboli.api.resources import PODS, TOLERANCE, Mask, Matrix, Rows
from stromboli.state.snapshot import PodColumns, Snapshot

#: by state, whether a pod holds a place
ALLOCATED = np.isin(np.arange(STATES), ALLOCATED_STATES)


class Membership:
    """The pods of the jobs of a session. Rows are those of pods; jobs are known by their index in the session."""

    __slots__ = (
        "_allocated_before",
        "_by_job",
        "_index",
        "_pending",
        "_pods",
        "_requests",
        "_rows",
        "allocated",
        "counts",
        "index_of",
        "pending_best_effort",
    )

    def __init__(self, snapshot: Snapshot, jobs: Rows) -> None:
        """`jobs` are the rows of the PodGroups that are in the session."""
        self._pods: PodColumns = snapshot.pods
        #: by dimension, shape (dimensions, classes)
        self._requests = np.ascontiguousarray(snapshot.requests[:, : len(snapshot.dimensions)].T)
        #: by row in the snapshot the index of the job, -1 for none; pods without a PodGroup have -1 or -2 in its place
        self.index_of: Rows = np.full(len(snapshot.pod_groups) + 2, -1, np.intp)
        self.index_of[jobs] = np.arange(len(jobs))
        #: the job of each pod, -1 for none
        self._index: Rows = self.index_of[self._pods.job]
        self._rows = np.flatnonzero(self._index >= 0)
        self._by_job: Grouped | None = None
        self._pending = self._split(self._rows[self._pods.state[self._rows] == PodState.Pending], len(jobs))
        self._allocated_before = ALLOCATED[self._pods.state]
        #: what the pods of each job that hold a place requested at the start, shape (jobs, dimensions)
        self.allocated: Matrix = self._sum(self._rows[self._allocated_before[self._rows]], len(jobs))
        #: the number of pods at the start, shape (states, jobs)
        self.counts: Rows = self._count(len(jobs))
        #: the number of pods that waited at the start and request nothing, shape (jobs,)
        self.pending_best_effort: Rows = self._count_best_effort(len(jobs))

    def requested(self) -> Matrix:
        """What the pods request that hold a place or wait for one, shape (jobs, dimensions)."""
        return self.allocated + self._sum(self._pending.rows, len(self.allocated))

    def requested_by_all(self) -> Matrix:
        """What all pods request, whatever their state, shape (jobs, dimensions)."""
        return self._sum(self._rows, len(self.allocated))

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
            self._by_job = self._split(self._rows, len(self.allocated))
        return self._by_job.of(job)

    def pending(self, job: int) -> Rows:
        """The pods of a job that have no place now."""
        rows = self._pending.of(job)
        return rows[self._pods.state[rows] == PodState.Pending] if len(rows) else rows

    def all_pending(self) -> tuple[Grouped, Rows]:
        """The pods of all jobs that had no place at the start, job by job, and the index of the job of each."""
        return self._pending, self._index[self._pending.rows]

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

    def _count(self, jobs: int) -> Rows:
        cells = self._pods.state[self._rows].astype(np.intp)
        cells *= jobs
        cells += self._index[self._rows]
        return np.bincount(cells, minlength=STATES * jobs).reshape(STATES, jobs)

    def _count_best_effort(self, jobs: int) -> Rows:
        rows = self._pending.rows
        best_effort = _best_effort(self._requests)[self._pods.pod_class[rows]]
        return np.bincount(self._index[rows[best_effort]], minlength=jobs)

    def _split(self, rows: Rows, jobs: int) -> Grouped:
        return Grouped(rows, self._index[rows], jobs)


class Grouped:
    """Rows of a table, group by group."""

    __slots__ = ("_ends", "rows")

    def __init__(self, rows: Rows, group: Rows, groups: int) -> None:
        """`group` has the number of the group of each row, of so many `groups`."""
        self.rows: Rows = rows[np.argsort(group, kind="stable")]
        self._ends = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=groups))])

    def of(self, group: int) -> Rows:
        """Those of one group."""
        return self.rows[self._ends[group] : self._ends[group + 1]]

    def span(self, group: int) -> tuple[int, int]:
        """Where they begin and end in `rows`."""
        return int(self._ends[group]), int(self._ends[group + 1])


def _best_effort(requests: Matrix) -> Mask:
    """Which classes request nothing; `requests` has shape (dimensions, classes)."""
    counted = requests >= TOLERANCE
    counted[PODS] = False
    out: Mask = ~np.any(counted, axis=0)
    return out
