"""drf: jobs take turns by their dominant share, the largest part of any one resource that they hold.

With `enableHierarchy` queues take turns too, in the tree that their annotations `volcano.sh/hierarchy` (`root/a/b`)
and `volcano.sh/hierarchy-weights` (`1/2/8`) describe: from the root down, the branch with the smaller share by weight
is served first, and those that can use nothing more come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce, total_ordering

import numpy as np

from stromboli.api import readers
from stromboli.api.resources import CPU, MEMORY, Mask, Matrix, Rows, Vector
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
    in_turn = True
    by_share = True

    def open(self, view: View) -> None:
        self._view = view
        self._total = view.total
        self._allocated = view.job_allocated.copy()
        whole = shares.share(self._allocated, self._total)
        #: by column, of which there are few
        largest = reduce(np.maximum, whole.T, np.zeros(len(whole)))
        self._share: list[float] = largest.tolist()
        self._tree = Tree(view, self._allocated) if self.hierarchy else None

    def job_order(self, job: Job) -> float:
        return self._share[job.index]

    def queue_order(self, queue: Queue) -> Key:
        return PlaceInTree(self._tree, self._tree.path(queue)) if self._tree else 0

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """Victims are those whose job keeps at least the share that the pod's own gets."""
        view, wanted = self._view, self._share_with(pod)
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

    def preemptable_jobs(self, pod: PodRecord, smallest: Matrix) -> Mask:
        """Those that keep the share that the pod's own gets, whoever of them goes first."""
        wanted = self._share_with(pod)
        kept = shares.dominant_shares(self._allocated - smallest, self._total)
        enough: Mask = wanted <= kept + _SHARE_TOLERANCE
        return enough

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

    def _share_with(self, pod: PodRecord) -> float:
        """The share of a pod's job once the pod has its place."""
        held = self._allocated[self._view.jobs[pod.job].index]
        return shares.dominant_share(held + self._view.request(pod), self._total)

    def _change(self, job: Job, operation: Operation, sign: int) -> None:
        self._hold(job, operation.total if sign > 0 else -operation.total)

    def _hold(self, job: Job, amount: Vector) -> None:
        """Let a job hold more, or less."""
        self._allocated[job.index] += amount
        self._share[job.index] = shares.dominant_share(self._allocated[job.index], self._total)
        if self._tree is not None:
            self._tree.changed(job.index, amount)


@dataclass(slots=True, eq=False)
class Branch:
    """A node of the tree: a queue, or what several have in common.

    Rows are the jobs right below it, then its children in order of arrival.
    """

    weight: float
    parent: Branch | None = None
    depth: int = 0
    children: dict[str, Branch] = field(default_factory=dict)
    #: index of the jobs right below it
    jobs: list[int] = field(default_factory=list)
    #: its place among its siblings, smaller first: whether nothing below it can use more, and its share by weight
    rank: tuple[bool, float] = (True, 0.0)
    #: its row in its parent
    row: int = 0
    #: what each row counts as holding, shape (rows, dimensions), the share of that, and whether it can use more
    held: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    parts: Vector = field(default_factory=lambda: np.zeros(0))
    full: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))


class Tree:
    """The hierarchy with its shares. After a change those on the way up are computed anew, when they are asked for."""

    def __init__(self, view: View, allocated: Matrix) -> None:
        """`allocated` has shape (jobs, dimensions) and is changed by the plugin."""
        self._total = view.total
        self._whole: list[float] = view.total.tolist()
        self._allocated = allocated
        self._requested = view.membership.requested_by_all()
        #: what all jobs hold, and of which resources that is all there is, shape (dimensions,)
        self._in_use: Vector = allocated.sum(axis=0)
        self._scarce: Mask = self._in_use >= self._total
        #: the branches, parents first, and where each job is: the branch and the row there
        self._branches = [Branch(weight=1.0)]
        self._place: dict[int, tuple[Branch, int]] = {}
        for queue in view.queues.values():
            if queue.has_jobs:
                self._grow(queue).jobs.extend(queue.indices.tolist())
        #: jobs that hold more or less than when shares were computed
        self._changed: set[int] = set()
        self._fresh = False
        #: whether anything changed since shares were computed
        self.stale = True

    def changed(self, job: int, amount: Vector) -> None:
        """A job holds more, or less."""
        self._in_use += amount
        self._changed.add(job)
        self.stale = True

    def path(self, queue: Queue) -> list[Branch]:
        """The branches from the root down to a queue, as far as there are jobs."""
        path = [self._branches[0]]
        for name in _parts(queue, _PATH):
            branch = path[-1].children.get(name)
            if branch is None:
                break
            path.append(branch)
        return path

    def refresh(self) -> None:
        """Bring all shares up to date."""
        self.stale = False
        scarce = self._in_use >= self._total
        if not self._fresh or (scarce != self._scarce).any():
            self._fresh, self._scarce = True, scarce
            self._changed.clear()
            self._compute_all()
        else:
            self._compute_changed()

    def _grow(self, queue: Queue) -> Branch:
        """The branch of a queue, made where it is missing."""
        branch = self._branches[0]
        weights = _parts(queue, _WEIGHTS)
        for depth, name in enumerate(_parts(queue, _PATH)):
            if name not in branch.children:
                branch.children[name] = Branch(_weight(weights[depth : depth + 1]), branch, depth + 1)
                self._branches.append(branch.children[name])
            branch = branch.children[name]
        return branch

    def _compute_all(self) -> None:
        full = self._full(np.arange(len(self._allocated)))
        for branch in self._branches:
            rows = len(branch.jobs) + len(branch.children)
            branch.held = np.zeros((rows, len(self._total)))
            branch.parts, branch.full = np.zeros(rows), np.zeros(rows, np.bool_)
            jobs = len(branch.jobs)
            branch.held[:jobs] = self._allocated[branch.jobs]
            branch.parts[:jobs] = self._shares(branch.held[:jobs])
            branch.full[:jobs] = full[branch.jobs]
            for row, child in enumerate(branch.children.values(), jobs):
                child.row = row
            self._place.update({job: (branch, row) for row, job in enumerate(branch.jobs)})
        for branch in reversed(self._branches):
            self._compute(branch)

    def _compute_changed(self) -> None:
        jobs = np.array(sorted(self._changed), np.intp)
        self._changed.clear()
        held, full, upwards = self._allocated[jobs], self._full(jobs), dict[int, Branch]()
        for at, job in enumerate(jobs.tolist()):
            branch, row = self._place[job]
            branch.held[row], branch.parts[row], branch.full[row] = held[at], self._largest_share(held[at]), full[at]
            above: Branch | None = branch
            while above is not None and id(above) not in upwards:
                upwards[id(above)] = above
                above = above.parent
        for branch in sorted(upwards.values(), key=lambda branch: -branch.depth):
            self._compute(branch)

    def _full(self, jobs: Rows) -> Mask:
        """Which of some jobs have all they request of something, or request what is used up."""
        held, requested = self._allocated[jobs], self._requested[jobs]
        named = held > 0
        asked = (requested > 0) & named
        asked[:, [CPU, MEMORY]] = requested[:, [CPU, MEMORY]] > 0
        full: Mask = np.any(asked & ((held >= requested) & named | self._scarce), axis=1)
        return full

    def _shares(self, held: Matrix) -> Vector:
        found: Vector = shares.share(held, self._total).max(axis=1, initial=0.0)
        return found

    def _largest_share(self, held: Vector) -> float:
        """The same of one row, for which numbers take less time than arrays."""
        parts = zip(held.tolist(), self._whole, strict=True)
        return max(0.0, *(have / whole if whole else float(have != 0) for have, whole in parts))

    def _compute(self, branch: Branch) -> None:
        """Set the share of a branch, whose rows are known, and its row in its parent.

        Siblings that want more are scaled down to the smallest share among them, so that a branch is not blamed for
        what one of its children holds beyond the others.
        """
        held, hungry = branch.held, (~branch.full & (branch.parts > 0)).nonzero()[0]
        if len(hungry):
            held, parts = held.copy(), branch.parts[hungry]
            held[hungry] *= (np.minimum(np.minimum.reduce(parts), 1.0) / parts)[:, None]
        total: Vector = np.add.reduce(held)
        saturated = bool(np.logical_and.reduce(branch.full))
        branch.rank = saturated, shares.dominant_share(total, self._total) / branch.weight
        if branch.parent is not None:
            parent, row = branch.parent, branch.row
            parent.held[row], parent.full[row] = total, saturated
            parent.parts[row] = self._largest_share(total)


@total_ordering
class PlaceInTree:
    """Sorts queues by the branches at which their paths part, as they are when compared."""

    __slots__ = ("_path", "_tree")

    def __init__(self, tree: Tree, path: list[Branch]) -> None:
        self._tree = tree
        self._path = path

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlaceInTree):
            return NotImplemented
        return self._parting(other) is None

    def __lt__(self, other: PlaceInTree) -> bool:
        parting = self._parting(other)
        return parting is not None and parting[0] < parting[1]

    def _parting(self, other: PlaceInTree) -> tuple[tuple[bool, float], tuple[bool, float]] | None:
        """The first ranks in which the two differ, None when they do not."""
        tree = self._tree
        if tree.stale:
            tree.refresh()
        for mine, its in zip(self._path, other._path, strict=False):
            if mine is not its and mine.rank != its.rank:
                return mine.rank, its.rank
        return None

    def __hash__(self) -> int:
        return id(self._path[-1])


def _parts(queue: Queue, annotation: str) -> list[str]:
    """The parts of a path below the root."""
    return queue.resource.metadata.annotations.get(annotation, "").split("/")[1:]


def _weight(written: list[str]) -> float:
    """A weight, 1 when it is missing, smaller or not a number."""
    return max(1.0, readers.number(written[0]) or 1.0) if written else 1.0
