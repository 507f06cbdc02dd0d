"""drf: jobs take turns by their dominant share, the largest part of any one resource that they hold.

With `enableHierarchy` queues take turns too, in the tree that their annotations `volcano.sh/hierarchy` (`root/a/b`)
and `volcano.sh/hierarchy-weights` (`1/2/8`) describe: from the root down, the branch with the smaller share by weight
is served first, and those that can use nothing more come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import total_ordering

import numpy as np

from stromboli.api import readers
from stromboli.api.resources import CPU, MEMORY, Mask, Matrix, Vector
from stromboli.fairness import shares
from stromboli.framework.job import Job, Queue
from stromboli.framework.operation import Operation
from stromboli.framework.plugin import Key, Plugin
from stromboli.framework.view import View
from stromboli.state.pods import PodRecord

#: shares that differ by less are equal
_SHARE_TOLERANCE = 1e-6
_PATH = "volcano.sh/hierarchy"
_WEIGHTS = "volcano.sh/hierarchy-weights"


class Drf(Plugin):
    name = "drf"

    def open(self, view: View) -> None:
        self._view = view
        self._total = view.total
        self._allocated = view.job_allocated.copy()
        whole = shares.share(self._allocated, self._total)
        self._share: list[float] = whole.max(axis=1, initial=0.0).tolist()
        self._tree = Tree(view, self._allocated) if self.hierarchy else None

    def job_order(self, job: Job) -> float:
        return self._share[job.index]

    def queue_order(self, queue: Queue) -> Key:
        return PlaceInTree(self._tree, self._tree.path(queue)) if self._tree else 0

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """Victims are those whose job keeps at least the share that the pod's own gets."""
        view = self._view
        index = view.jobs[pod.job].index
        wanted = shares.dominant_share(self._allocated[index] + view.request(pod), self._total)
        left: dict[str, Vector] = {}
        victims = []
        for candidate in candidates:
            held = left.get(candidate.job)
            if held is None:
                held = self._allocated[view.jobs[candidate.job].index]
            left[candidate.job] = held = held - view.request(candidate)
            if wanted <= shares.dominant_share(held, self._total) + _SHARE_TOLERANCE:
                victims.append(candidate)
        return victims

    def reclaimable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord] | None:
        """Victims are those whose queue, with one pod less, still comes after the own queue with one more."""
        if self._tree is None:
            return None
        view = self._view
        own = view.jobs[pod.job]
        victims = []
        self._hold(own, view.request(pod))
        for candidate in candidates:
            job, request = view.jobs[candidate.job], view.request(candidate)
            self._hold(job, -request)
            if self.queue_order(own.queue) < self.queue_order(job.queue):
                victims.append(candidate)
            self._hold(job, request)
        self._hold(own, -view.request(pod))
        return victims

    def on_allocate(self, operation: Operation) -> None:
        if operation.job is not None:
            self._change(operation.job, operation, +1)

    def on_deallocate(self, operation: Operation) -> None:
        if operation.job is not None:
            self._change(operation.job, operation, -1)

    def _change(self, job: Job, operation: Operation, sign: int) -> None:
        self._hold(job, operation.total if sign > 0 else -operation.total)

    def _hold(self, job: Job, amount: Vector) -> None:
        """Let a job hold more, or less."""
        self._allocated[job.index] += amount
        self._share[job.index] = shares.dominant_share(self._allocated[job.index], self._total)
        if self._tree is not None:
            self._tree.changed()


@dataclass(slots=True, eq=False)
class Branch:
    """A node of the tree: a queue, or what several have in common."""

    weight: float
    children: dict[str, Branch] = field(default_factory=dict)
    #: index of the jobs right below it
    jobs: list[int] = field(default_factory=list)
    share: float = 0.0
    #: whether nothing below it can use more
    saturated: bool = True

    @property
    def rank(self) -> tuple[bool, float]:
        """Its place among its siblings, smaller first."""
        return self.saturated, self.share / self.weight


class Tree:
    """The hierarchy with its shares, which are computed when they are asked for after a change."""

    def __init__(self, view: View, allocated: Matrix) -> None:
        """`allocated` has shape (jobs, dimensions) and is changed by the plugin."""
        self._total = view.total
        self._allocated = allocated
        self._requested = view.membership.requested_by_all()
        self._root = Branch(weight=1.0)
        self._stale = True
        for queue in view.queues.values():
            if queue.jobs:
                self._grow(queue).jobs.extend(job.index for job in queue.jobs)

    def changed(self) -> None:
        """Jobs hold more or less than before."""
        self._stale = True

    def path(self, queue: Queue) -> list[Branch]:
        """The branches from the root down to a queue, as far as there are jobs."""
        path = [self._root]
        for name in _parts(queue, _PATH):
            branch = path[-1].children.get(name)
            if branch is None:
                break
            path.append(branch)
        return path

    def refresh(self) -> None:
        """Bring all shares up to date."""
        if not self._stale:
            return
        self._stale = False
        scarce = self._allocated.sum(axis=0) >= self._total
        named = self._allocated > 0
        named[:, [CPU, MEMORY]] = True
        asked = (self._requested > 0) & named
        #: jobs that have all they request of something, or request what is used up
        full = (asked & ((self._allocated >= self._requested) & (self._allocated > 0) | scarce)).any(axis=1)
        self._compute(self._root, full)

    def _grow(self, queue: Queue) -> Branch:
        """The branch of a queue, made where it is missing."""
        branch = self._root
        weights = _parts(queue, _WEIGHTS)
        for depth, name in enumerate(_parts(queue, _PATH)):
            if name not in branch.children:
                branch.children[name] = Branch(weight=_weight(weights[depth : depth + 1]))
            branch = branch.children[name]
        return branch

    def _compute(self, branch: Branch, full: Mask) -> Vector:
        """Set the share of a branch and of all below it; returns what it counts as holding, shape (dimensions,).

        Siblings that want more are scaled down to the smallest share among them, so that a branch is not blamed for
        what one of its children holds beyond the others.
        """
        below = [self._compute(child, full) for child in branch.children.values()]
        held = np.vstack([self._allocated[branch.jobs], *below]) if below else self._allocated[branch.jobs]
        part = shares.share(held, self._total).max(axis=1, initial=0.0)
        saturated = np.concatenate([full[branch.jobs], [child.saturated for child in branch.children.values()]]) > 0
        hungry = ~saturated & (part > 0)
        smallest = part[hungry].min(initial=1.0)
        held[hungry] *= (smallest / part[hungry])[:, None]
        total: Vector = held.sum(axis=0)
        branch.share = shares.dominant_share(total, self._total)
        branch.saturated = bool(saturated.all())
        return total


@total_ordering
class PlaceInTree:
    """Sorts queues by the branches at which their paths part, as they are when compared."""

    __slots__ = ("_path", "_tree")

    def __init__(self, tree: Tree, path: list[Branch]) -> None:
        self._tree = tree
        self._path = path

    def _ranks(self, other: PlaceInTree) -> tuple[tuple[bool, float], tuple[bool, float]]:
        """The ranks at which the two differ; equal ones when they do not."""
        self._tree.refresh()
        for mine, its in zip(self._path, other._path, strict=False):
            if mine.rank != its.rank:
                return mine.rank, its.rank
        return (False, 0.0), (False, 0.0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlaceInTree):
            return NotImplemented
        mine, its = self._ranks(other)
        return mine == its

    def __lt__(self, other: PlaceInTree) -> bool:
        mine, its = self._ranks(other)
        return mine < its

    def __hash__(self) -> int:
        return id(self._path[-1])


def _parts(queue: Queue, annotation: str) -> list[str]:
    """The parts of a path below the root."""
    return queue.resource.metadata.annotations.get(annotation, "").split("/")[1:]


def _weight(written: list[str]) -> float:
    """A weight, 1 when it is missing, smaller or not a number."""
    return max(1.0, readers.number(written[0]) or 1.0) if written else 1.0
