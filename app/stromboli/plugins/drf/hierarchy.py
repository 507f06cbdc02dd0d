"""Queues in the tree that annotations describe: `volcano.sh/hierarchy` (`root/a/b`) and `…-weights` (`1/2/8`).

From the root down, the branch with the smaller share by weight is served first, and those that can use nothing more
come last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import total_ordering

import numpy as np

from stromboli.api import readers
from stromboli.api.resources import CPU, MEMORY, TOLERANCE, Mask, Matrix, Rows, Vector
from stromboli.fairness import shares
from stromboli.framework.cluster.job import Queue
from stromboli.framework.cluster.view import View
from stromboli.framework.recent import Recent

#: shares that are kept, each for other resources that are used up
_KEPT = 4
_PATH = "volcano.sh/hierarchy"
_WEIGHTS = "volcano.sh/hierarchy-weights"


@dataclass(slots=True, eq=False)
class Branch:
    """A node of the tree: a queue, or what several have in common.

    Its rows are the jobs right below it, then its children in order of arrival.
    """

    weight: float
    parent: Branch | None = None
    depth: int = 0
    children: dict[str, Branch] = field(default_factory=dict)
    #: index of the jobs right below it
    jobs: list[int] = field(default_factory=list)
    #: its place in the order of the tree, and its row in its parent, -1 for the root
    at: int = 0
    row: int = -1
    #: where its own rows begin and end
    first: int = 0
    last: int = 0


class Tree:
    """The hierarchy with its shares. After a change the shares on the path to the root are recomputed when needed."""

    def __init__(self, view: View, allocated: Matrix) -> None:
        """`allocated` has shape (jobs, dimensions) and is changed by the plugin."""
        self.total = view.total
        self.allocated = allocated
        self.requested = view.membership.requested_by_all()
        #: total that jobs hold, shape (dimensions,)
        self._in_use: Vector = allocated.sum(axis=0)
        root = Branch(weight=1.0)
        grown = [root]
        for queue in view.queues.values():
            if queue.has_jobs:
                self._grow(root, queue, grown).jobs.extend(queue.indices.tolist())
        #: the branches by depth, and with their rows one after the other
        self.branches = sorted(grown, key=lambda branch: branch.depth)
        #: the row of each job, and the branch that each row is in, shape (rows,)
        self.row_of_job: Rows = np.full(len(allocated), -1)
        self.owner: Rows = self._number()
        #: by which resources are used up: shares when they are. It may change to and fro with each placement.
        self._shares: Recent[bytes, Shares] = Recent(_KEPT)
        #: those that were asked for last, while nothing has changed
        self.fresh: Shares | None = None

    def changed(self, job: int, amount: Vector) -> None:
        """A job holds more, or less."""
        self._in_use += amount
        self.fresh = None
        for each in self._shares.values():
            each.changed.add(job)

    def path(self, queue: Queue) -> list[Branch]:
        """The branches from the root down to a queue, as far as there are jobs."""
        path = [self.branches[0]]
        for name in _parts(queue, _PATH):
            branch = path[-1].children.get(name)
            if branch is None:
                break
            path.append(branch)
        return path

    def shares(self) -> Shares:
        """All shares as they are now."""
        if self.fresh is not None:
            return self.fresh
        scarce = self._in_use >= self.total
        self.fresh = found = self._shares.get(scarce.tobytes(), lambda: Shares(self, scarce))
        found.refresh()
        return found

    def _grow(self, branch: Branch, queue: Queue, grown: list[Branch]) -> Branch:
        """The branch of a queue, made where it is missing."""
        weights = _parts(queue, _WEIGHTS)
        for depth, name in enumerate(_parts(queue, _PATH)):
            if name not in branch.children:
                branch.children[name] = Branch(_weight(weights[depth : depth + 1]), branch, depth + 1)
                grown.append(branch.children[name])
            branch = branch.children[name]
        return branch

    def _number(self) -> Rows:
        """Give branches and jobs their rows; returns the branch of each row."""
        rows = 0
        for at, branch in enumerate(self.branches):
            branch.at, branch.first = at, rows
            self.row_of_job[branch.jobs] = np.arange(rows, rows + len(branch.jobs))
            for row, child in enumerate(branch.children.values(), rows + len(branch.jobs)):
                child.row = row
            branch.last = rows = rows + len(branch.jobs) + len(branch.children)
        return np.repeat(np.arange(len(self.branches)), [branch.last - branch.first for branch in self.branches])


class Shares:
    """The amounts that branches of a tree hold while some resources are used up, as of some time, and later changes."""

    def __init__(self, tree: Tree, scarce: Mask) -> None:
        self._tree = tree
        self._scarce = scarce
        self._whole: list[float] = tree.total.tolist()
        #: jobs that hold more or less since
        self.changed: set[int] = set()
        #: amounts that each row counts as holding, shape (rows, dimensions), their share, and whether it can use more
        self._held: Matrix = np.zeros((len(tree.owner), len(tree.total)))
        self._parts: Vector = np.zeros(len(tree.owner))
        self._full: Mask = np.zeros(len(tree.owner), np.bool_)
        #: whether it holds something and can use more; of each branch the least share of such rows, and what rows hold
        #: when these are scaled down to it
        self._hungry: Mask = np.zeros(len(tree.owner), np.bool_)
        self._least: Vector = np.ones(len(tree.branches))
        self._scaled: Matrix = np.zeros_like(self._held)
        #: the place of each branch among its siblings, smaller first: whether nothing below it can use more, and its
        #: share by weight
        self.ranks: list[tuple[bool, float]] = [(True, 0.0)] * len(tree.branches)
        self._compute_all()

    def refresh(self) -> None:
        """Bring all shares up to date."""
        if not self.changed:
            return
        branches = self._tree.branches
        #: by branch the rows that changed in it
        upwards: dict[int, list[int]] = {}
        for job in sorted(self.changed):
            row = self._set_one(job)
            at = self._tree.owner.item(row)
            upwards.setdefault(at, []).append(row)
            above = branches[at].parent
            while above is not None and above.at not in upwards:
                upwards[above.at] = []
                above = above.parent
        self.changed.clear()
        for at in sorted(upwards, reverse=True):
            branch = branches[at]
            self._compute(branch, upwards[at])
            if branch.parent is not None:
                upwards[branch.parent.at].append(branch.row)

    def _set(self, jobs: Rows) -> None:
        """Record the holdings of some jobs."""
        tree = self._tree
        rows, held = tree.row_of_job[jobs], tree.allocated[jobs]
        self._held[rows], self._parts[rows] = held, _largest_shares(held, tree.total)
        self._full[rows] = self._sated(held, tree.requested[jobs])
        self._hungry[rows] = ~self._full[rows] & (self._parts[rows] > 0)

    def _set_one(self, job: int) -> int:
        """Record the holdings of one job; plain numbers are faster than arrays. Returns its row."""
        tree = self._tree
        row, held = tree.row_of_job.item(job), tree.allocated[job]
        part = self._largest_share(held)
        amounts = zip(held.tolist(), tree.requested[job].tolist(), self._scarce.tolist(), strict=True)
        full = any(
            wants > 0 and ((scarce and column in (CPU, MEMORY)) or (has > 0 and (scarce or has >= wants)))
            for column, (has, wants, scarce) in enumerate(amounts)
        )
        self._held[row], self._parts[row], self._full[row] = held, part, full
        self._hungry[row] = not full and part > 0
        return row

    def _sated(self, held: Matrix, requested: Matrix) -> Mask:
        """Mask of jobs that have all they request of a resource, or request one that is used up."""
        named = held > 0
        asked = (requested > 0) & named
        asked[:, [CPU, MEMORY]] = requested[:, [CPU, MEMORY]] > 0
        full: Mask = np.any(asked & ((held >= requested) & named | self._scarce), axis=1)
        return full

    def _compute_all(self) -> None:
        """Set the shares of all branches, those of a depth together."""
        tree = self._tree
        self._set(np.flatnonzero(tree.row_of_job >= 0))
        depths = np.array([branch.depth for branch in tree.branches])
        weights = np.array([branch.weight for branch in tree.branches])
        counted = tree.total >= TOLERANCE
        for depth in range(int(depths[-1]), -1, -1):
            first, last = np.searchsorted(depths, [depth, depth + 1]).tolist()
            branches = tree.branches[first:last]
            rows = slice(branches[0].first, branches[-1].last)
            owner, parts, full = tree.owner[rows] - first, self._parts[rows], self._full[rows]
            hungry = self._hungry[rows]
            least = self._least[first:last]
            np.minimum.at(least, owner[hungry], parts[hungry])
            self._scaled[rows] = self._held[rows] * _scale(hungry, parts, least[owner])
            total = np.stack([np.bincount(owner, column, len(branches)) for column in self._scaled[rows].T], axis=1)
            saturated = np.bincount(owner[~full], minlength=len(branches)) == 0
            largest = (total[:, counted] / tree.total[counted]).max(axis=1, initial=0.0) / weights[first:last]
            self.ranks[first:last] = zip(saturated.tolist(), largest.tolist(), strict=True)
            if depth:
                above = np.array([branch.row for branch in branches])
                self._held[above], self._full[above] = total, saturated
                self._parts[above] = _largest_shares(self._held[above], tree.total)
                self._hungry[above] = ~self._full[above] & (self._parts[above] > 0)

    def _compute(self, branch: Branch, changed: list[int]) -> None:
        """Set the share of a branch, some of whose rows changed, and its row in its parent.

        Siblings with more demand are scaled down to the smallest share among them, so that a branch is not charged for
        what one of its children holds beyond the others.
        """
        rows, hungry, parts = slice(branch.first, branch.last), self._hungry, self._parts
        least = float(np.minimum.reduce(parts[rows], initial=1.0, where=hungry[rows]))
        if least == self._least[branch.at]:
            for row in changed:
                self._scaled[row] = self._held[row] * (least / parts.item(row) if hungry.item(row) else 1.0)
        else:
            self._least[branch.at] = least
            self._scaled[rows] = self._held[rows] * _scale(hungry[rows], parts[rows], least)
        total: Vector = np.add.reduce(self._scaled[rows])
        saturated = bool(np.logical_and.reduce(self._full[rows]))
        self.ranks[branch.at] = saturated, shares.dominant_share(total, self._tree.total) / branch.weight
        row = branch.row
        if row >= 0:
            self._held[row], self._full[row], self._parts[row] = total, saturated, self._largest_share(total)
            hungry[row] = not saturated and parts[row] > 0

    def _largest_share(self, held: Vector) -> float:
        """The largest share of one row; numbers take less time than arrays."""
        parts = zip(held.tolist(), self._whole, strict=True)
        return max(0.0, *(have / whole if whole else float(have != 0) for have, whole in parts))


def _scale(hungry: Mask, parts: Vector, least: Vector | float) -> Matrix:
    """Factors that scale rows, hungry ones to the least share, shape (rows, 1)."""
    return np.divide(least, parts, out=np.ones(len(parts)), where=hungry)[:, None]


def _largest_shares(held: Matrix, total: Vector) -> Vector:
    found: Vector = shares.share(held, total).max(axis=1, initial=0.0)
    return found


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
        ranks = (tree.fresh or tree.shares()).ranks
        for mine, its in zip(self._path, other._path, strict=False):
            if mine is not its and ranks[mine.at] != ranks[its.at]:
                return ranks[mine.at], ranks[its.at]
        return None

    def __hash__(self) -> int:
        return id(self._path[-1])


def _parts(queue: Queue, annotation: str) -> list[str]:
    """The parts of a path below the root."""
    return queue.resource.metadata.annotations.get(annotation, "").split("/")[1:]


def _weight(written: list[str]) -> float:
    """A weight; 1 if it is missing, less than 1 or not a number."""
    return max(1.0, readers.number(written[0]) or 1.0) if written else 1.0
