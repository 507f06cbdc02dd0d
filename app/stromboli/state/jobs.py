"""Jobs as rows: a PodGroup each, and the number of pods that name it."""

from __future__ import annotations

import numpy as np

from stromboli.api.crds import PodGroup
from stromboli.api.resources import Rows
from stromboli.state.rows import RowNumbers


class JobTable:
    """The rows of jobs. A job has one while its PodGroup exists or a pod names it.

    `changed` has the time at which each row got another PodGroup, counted in changes; `now` is the last of them.
    """

    __slots__ = ("_keys", "_numbers", "_pods", "by_key", "changed", "left", "now", "pod_groups")

    def __init__(self) -> None:
        #: by row; None when pods name a group that does not exist
        self.pod_groups: list[PodGroup | None] = []
        #: PodGroups that were deleted while there are pods that name them, by row: these hold what their queue may have
        self.left: dict[int, PodGroup] = {}
        #: the row of each job
        self.by_key: dict[str, int] = {}
        self.changed: Rows = np.zeros(64, np.int64)
        self.now = 0
        self._keys: list[str] = []
        self._pods: list[int] = []
        self._numbers = RowNumbers()

    def copy(self) -> JobTable:
        """An independent copy."""
        out = JobTable()
        out.pod_groups, out.by_key, out.changed = self.pod_groups.copy(), self.by_key.copy(), self.changed.copy()
        out.now, out._numbers = self.now, self._numbers.copy()
        out.left = self.left.copy()
        out._keys, out._pods = self._keys.copy(), self._pods.copy()
        return out

    def row(self, key: str) -> int:
        """The row of a job, a new one if it has none."""
        row = self.by_key.get(key)
        if row is None:
            row = self._numbers.take()
            if row == len(self.pod_groups):
                self.pod_groups.append(None)
                self._pods.append(0)
                self._keys.append("")
                if row == len(self.changed):
                    self.changed = np.concatenate([self.changed, np.zeros(row, np.int64)])
            self.by_key[key] = row
            self._keys[row] = key
            self._put(row, None)
        return row

    @property
    def keys(self) -> list[str]:
        """The key of each job by its row, empty for a free one."""
        rows = {row: key for key, row in self.by_key.items()}
        return [rows.get(row, "") for row in range(len(self.pod_groups))]

    def upsert(self, pod_group: PodGroup) -> None:
        """A PodGroup was added or changed."""
        self._put(self.row(pod_group.key), pod_group)

    def delete(self, key: str) -> None:
        """A PodGroup is gone."""
        row = self.by_key.get(key)
        if row is not None:
            was = self.pod_groups[row] or self.left.get(row)
            self._put(row, None)
            if was is not None and self._pods[row]:
                self.left[row] = was
            self._collect(row)

    def move_pod(self, old: int, new: int) -> None:
        """Record that a pod names a different job than before; negative rows stand for no job."""
        if new >= 0:
            self._pods[new] += 1
        if old >= 0:
            self._pods[old] -= 1
            self._collect(old)

    def pod_group(self, key: str) -> PodGroup | None:
        """A PodGroup, or None when it is not known."""
        row = self.by_key.get(key)
        return None if row is None else self.pod_groups[row]

    def has_pods(self, key: str, least: int = 1) -> bool:
        """Whether at least `least` pods name a job."""
        row = self.by_key.get(key)
        return row is not None and self._pods[row] >= least

    def may_start(self, row: int) -> bool:
        """Whether a job has as many pods as it starts with."""
        pod_group = self.pod_groups[row]
        return pod_group is not None and self._pods[row] >= pod_group.spec.min_member

    def _put(self, row: int, pod_group: PodGroup | None) -> None:
        self.now += 1
        self.left.pop(row, None)
        self.pod_groups[row], self.changed[row] = pod_group, self.now

    def _collect(self, row: int) -> None:
        """Free the row of a job that no pod refers to."""
        if self.pod_groups[row] is None and self._pods[row] == 0:
            del self.by_key[self._keys[row]]
            self.left.pop(row, None)
            self._numbers.give_back(row)
            for column in (self.pod_groups, self._pods, self._keys):
                del column[self._numbers.size :]
