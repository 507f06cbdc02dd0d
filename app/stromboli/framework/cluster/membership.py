"""Which pods are in which job, as columns: counted and summed once for all jobs."""

from __future__ import annotations

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import PODS, TOLERANCE, Mask, Matrix, Rows
from stromboli.framework.cluster.tally import ALLOCATED, Tally
from stromboli.state.snapshot import PodColumns, Snapshot

# A look at an enum's member costs more than the comparison with it.
_PENDING, _RELEASING = int(PodState.Pending), int(PodState.Releasing)


class Membership:
    """The pods of the jobs of a session. Rows are those of pods; jobs are known by their index in the session."""

    __slots__ = (
        "_by_job",
        "_classes",
        "_pending",
        "_pods",
        "_tally",
        "allocated",
        "counts",
        "empty",
        "index_of",
        "pending_best_effort",
    )

    def __init__(self, snapshot: Snapshot, jobs: Rows) -> None:
        """`jobs` are the rows of the PodGroups that are in the session."""
        self._pods: PodColumns = snapshot.pods
        self._classes = snapshot.classes
        self._tally = tally = Tally.of(snapshot)
        #: by row in the snapshot the index of the job, -1 for none; pods without a PodGroup have -1 or -2 in its place
        self.index_of: Rows = np.full(len(snapshot.pod_groups) + 2, -1, np.intp)
        self.index_of[jobs] = np.arange(len(jobs))
        self._by_job: Grouped | None = None
        #: the number of pods at the start, shape (states, jobs)
        self.counts: Rows = tally.counts(jobs)
        #: which jobs had no pods at the start, shape (jobs,)
        self.empty: Mask = self.counts.sum(axis=0) == 0
        #: requests of each job's pods that held a place at the start, shape (jobs, dimensions)
        self.allocated: Matrix = tally.allocated(jobs)
        self._pending = self._split(np.flatnonzero(self._pods.state == _PENDING))
        #: the number of pods that waited at the start and request nothing, shape (jobs,)
        self.pending_best_effort: Rows = self._count_best_effort()

    @property
    def looked_at(self) -> int:
        """Pods that were counted for this session, for reports of work done."""
        return self._tally.looked_at

    def requested(self) -> Matrix:
        """The requests of the pods that hold a place or wait for one, shape (jobs, dimensions)."""
        return self.allocated + self._sum(self._pending.rows)

    def requested_by_all(self) -> Matrix:
        """The requests of all pods, whatever their state, shape (jobs, dimensions)."""
        return self._sum(self._all().rows)

    def terminating(self) -> Matrix | None:
        """The requests of the pods now terminating on a node, shape (jobs, dimensions); None if there are none."""
        rows = np.flatnonzero(self._pods.state == _RELEASING)
        if not len(rows):
            return None
        rows, records = self._of_jobs(rows), self._pods.records
        rows = np.array([row for row in rows.tolist() if (pod := records[row]) is not None and pod.node_name], np.intp)
        return self._sum(rows) if len(rows) else None

    def allocated_now(self) -> Matrix:
        """The requests of the pods that hold a place now, shape (jobs, dimensions)."""
        now, before = self._pods.state, self._tally.state
        changed = self._of_jobs(np.flatnonzero(now != before))
        gained = changed[ALLOCATED[now[changed]] & ~ALLOCATED[before[changed]]]
        lost = changed[ALLOCATED[before[changed]] & ~ALLOCATED[now[changed]]]
        return self.allocated + self._sum(gained) - self._sum(lost) if len(gained) + len(lost) else self.allocated

    @property
    def has_gated(self) -> Mask:
        """Mask of jobs that had waiting pods with scheduling gates at the start, shape (jobs,)."""
        rows = self._pending.rows
        classes = self._pods.pod_class[rows]
        gated = np.isin(classes, [each for each in np.unique(classes).tolist() if self._classes[each].gated])
        found: Mask = np.bincount(self._index(rows[gated]), minlength=len(self.allocated)) > 0
        return found

    def rows(self, job: int) -> Rows:
        """All pods of a job."""
        return self._all().of(job)

    def pending(self, job: int) -> Rows:
        """The pods of a job that have no place now."""
        rows = self._pending.of(job)
        return rows[self._pods.state[rows] == _PENDING] if len(rows) else rows

    def all_pending(self) -> tuple[Grouped, Rows]:
        """The pods of all jobs that had no place at the start, job by job, and the index of the job of each."""
        return self._pending, self._index(self._pending.rows)

    def _index(self, rows: Rows) -> Rows:
        """The index of the job of some pods, -1 for none."""
        return self.index_of[self._pods.job[rows]]

    def _of_jobs(self, rows: Rows) -> Rows:
        """The pods that are in a job, of some."""
        return rows[self._index(rows) >= 0]

    def _sum(self, rows: Rows) -> Matrix:
        """The requests of some pods, summed by job, shape (jobs, dimensions)."""
        return self._tally.requests.sum(self._pods.pod_class[rows], self._index(rows), len(self.allocated)).T

    def _count_best_effort(self) -> Rows:
        rows = self._pending.rows
        best_effort = _best_effort(self._tally.requests.amounts)[self._pods.pod_class[rows]]
        return np.bincount(self._index(rows[best_effort]), minlength=len(self.allocated))

    def _all(self) -> Grouped:
        """All pods of jobs."""
        if self._by_job is None:
            self._by_job = self._split(np.arange(len(self._pods.state)))
        return self._by_job

    def _split(self, rows: Rows) -> Grouped:
        """The pods that are in a job, of some, job by job."""
        rows = self._of_jobs(rows)
        return Grouped(rows, self._index(rows), len(self.allocated))


class Grouped:
    """Rows of a table, group by group."""

    __slots__ = ("_ends", "rows")

    def __init__(self, rows: Rows, group: Rows, groups: int) -> None:
        """`group` has the group number of each row; `groups` is the number of groups."""
        self.rows: Rows = rows[np.argsort(group, kind="stable")]
        self._ends = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=groups))])

    def of(self, group: int) -> Rows:
        """The pods of one group."""
        return self.rows[self._ends[group] : self._ends[group + 1]]

    def span(self, group: int) -> tuple[int, int]:
        """The start and end of a group in `rows`."""
        return int(self._ends[group]), int(self._ends[group + 1])


def _best_effort(requests: Matrix) -> Mask:
    """Mask of classes that request nothing; `requests` has shape (dimensions, classes)."""
    counted = requests >= TOLERANCE
    counted[PODS] = False
    out: Mask = ~np.any(counted, axis=0)
    return out
