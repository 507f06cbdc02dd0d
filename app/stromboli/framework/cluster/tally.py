"""The pods of each PodGroup, counted by state and summed up, updated from one session to the next.

Little happens to pods from one session to the next, so only rows that differ are counted. Amounts are whole numbers, so
what was added can be subtracted again; where sums are too large for that, everything is recounted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stromboli.api.pod_state import ALLOCATED_STATES, STATES
from stromboli.api.resources import EXACT, Matrix, Rows
from stromboli.state.pods import IntColumn, StateColumn
from stromboli.state.snapshot import Snapshot

#: by state, whether a pod holds a place
ALLOCATED = np.isin(np.arange(STATES), ALLOCATED_STATES)
#: added to `PodColumns.job`, which is -1 or -2 for pods without a PodGroup
_OFFSET = 2


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of pod classes."""

    dimensions: tuple[str, ...]
    #: shape (dimensions, classes)
    amounts: Matrix

    @classmethod
    def of(cls, snapshot: Snapshot) -> Requests:
        """The requests of the classes of a snapshot."""
        dimensions = snapshot.dimensions
        return cls(dimensions, np.ascontiguousarray(snapshot.requests[:, : len(dimensions)].T))

    def sum(self, classes: IntColumn, group: IntColumn | Rows, groups: int) -> Matrix:
        """The requests of pods with the given classes, summed by group, shape (dimensions, groups)."""
        width = self.amounts.shape[1]
        if 0 < groups * width <= len(classes):
            # Few classes: counting is cheaper than adding up, and amounts are whole numbers.
            counts = np.bincount(group.astype(np.intp) * width + classes, minlength=groups * width)
            return self.amounts @ counts.reshape(groups, width).T
        out = np.zeros((len(self.amounts), groups))
        if len(classes):
            for column, amounts in enumerate(self.amounts):
                out[column] = np.bincount(group, weights=amounts[classes], minlength=groups)
        return out


@dataclass(frozen=True, slots=True)
class _Pods:
    """The columns of pods that are counted."""

    requests: Requests
    state: StateColumn
    job: IntColumn
    pod_class: IntColumn
    groups: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Pods:
        """The pods of a snapshot, whose states the session is about to change."""
        pods, groups = snapshot.pods, len(snapshot.pod_groups) + _OFFSET
        return cls(Requests.of(snapshot), pods.state.copy(), pods.job, pods.pod_class, groups)

    def other_than(self, before: _Pods) -> Rows:
        """The rows whose pod is another one or has changed."""
        size, before_size = len(self.state), len(before.state)
        both = min(size, before_size)
        differs = np.ones(size, np.bool_)
        differs[:both] = self.state[:both] != before.state[:both]
        differs[:both] |= self.job[:both] != before.job[:both]
        differs[:both] |= self.pod_class[:both] != before.pod_class[:both]
        now, then = self.requests.amounts, before.requests.amounts
        known = min(now.shape[1], then.shape[1])
        reused = (now[:, :known] != then[:, :known]).any(axis=0)
        if reused.any():
            differs |= np.append(reused, np.ones(now.shape[1] - known, np.bool_))[self.pod_class]
        return np.flatnonzero(differs)

    def count(self) -> tuple[Rows, Matrix]:
        """The counts by state and PodGroup, and the allocated amounts, as `Tally` keeps them."""
        group, groups = self.job + _OFFSET, self.groups
        counts = np.bincount(group + groups * self.state.astype(np.intp), minlength=STATES * groups)
        holding = ALLOCATED[self.state]
        return counts.reshape(STATES, groups), self.requests.sum(self.pod_class[holding], group[holding], groups)

    def add_to(self, counts: Rows, allocated: Matrix, rows: Rows, sign: int) -> None:
        """Add some of the pods, or take them off (-1)."""
        group, state = self.job[rows] + _OFFSET, self.state[rows]
        np.add.at(counts, (state, group), sign)
        holding = ALLOCATED[state]
        group, classes = group[holding], self.pod_class[rows[holding]]
        for sums, amounts in zip(allocated, self.requests.amounts, strict=True):
            np.add.at(sums, group, sign * amounts[classes])


class Tally:
    """The counted pods; `counts` and `allocated` return the figures of PodGroups, by row in the snapshot."""

    __slots__ = ("_allocated", "_counts", "_pods", "looked_at")

    def __init__(self, pods: _Pods, before: Tally | None) -> None:
        self._pods = pods
        #: pods that were counted for this one, for reports of work done
        self.looked_at = 0
        if before is None or before._pods.requests.dimensions != pods.requests.dimensions:
            self._count_all()
        else:
            self._count_on(before)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Tally:
        """The tally of a snapshot, which keeps it for the next one."""
        before = snapshot.derived.get(Tally)
        found = snapshot.derived[Tally] = Tally(_Pods.of(snapshot), before if isinstance(before, Tally) else None)
        return found

    def _count_all(self) -> None:
        self.looked_at = len(self._pods.state)
        self._counts, self._allocated = self._pods.count()

    def _count_on(self, before: Tally) -> None:
        pods, old = self._pods, before._pods
        changed, groups = pods.other_than(old), max(pods.groups, old.groups)
        gone = np.concatenate([changed[changed < len(old.state)], np.arange(len(pods.state), len(old.state))])
        if not len(changed) and not len(gone) and pods.groups == old.groups:
            self._counts, self._allocated = before._counts, before._allocated
            return
        counts, allocated = _resized(before._counts, groups), _resized(before._allocated, groups)
        pods.add_to(counts, allocated, changed, +1)
        if allocated.max(initial=0.0) >= EXACT:
            self._count_all()
            return
        old.add_to(counts, allocated, gone, -1)
        self.looked_at = len(changed)
        self._counts, self._allocated = counts[:, : pods.groups], allocated[:, : pods.groups]

    @property
    def requests(self) -> Requests:
        """The requests of pod classes when they were counted."""
        return self._pods.requests

    @property
    def state(self) -> StateColumn:
        """The states that pods had, shape (pods,)."""
        return self._pods.state

    def counts(self, groups: Rows) -> Rows:
        """The number of pods of some PodGroups, shape (states, PodGroups)."""
        return self._counts.take(groups + _OFFSET, axis=1)

    def allocated(self, groups: Rows) -> Matrix:
        """The requests of the pods of some PodGroups that hold a place, shape (PodGroups, dimensions)."""
        return self._allocated.take(groups + _OFFSET, axis=1).T


def _resized(of_groups: NDArray[Any], groups: int) -> NDArray[Any]:
    """A copy with columns for more groups."""
    out = np.zeros((len(of_groups), groups), of_groups.dtype)
    out[:, : of_groups.shape[1]] = of_groups
    return out
