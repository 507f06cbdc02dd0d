"""The jobs of a session: columns over all of them, and objects for those that are asked for.

Most jobs are not touched in a session; their state follows from their PodGroup and the states of their pods. So the
fields of PodGroups are kept in columns from session to session, and jobs are selected by columns. Objects are only made
for jobs that are selected or asked for by key, so only these can have changed since the start.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np

from stromboli.api import resources
from stromboli.api.crds import PodGroup
from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.membership import Membership
from stromboli.state.columns import Column
from stromboli.state.snapshot import Snapshot

T = TypeVar("T", bound=Hashable)

#: under which name actions leave the jobs that they hold back, by key and uid
HELD_BACK = "held back"

#: minMember, and the pods running, succeeded and failed that the status shows
_Numbers = tuple[int, int, int, int]
#: minResources as they are written
_Amounts = tuple[tuple[str, str | int | float], ...]


class Jobs(Mapping[str, Job]):
    """The jobs by key, in the order of their index. Columns have shape (jobs,) and say what holds at the start."""

    def __init__(self, snapshot: Snapshot, queues: Mapping[str, Queue], make: Callable[[int], Job]) -> None:
        """PodGroups whose queue does not exist are no jobs. `make` makes the object of the job with some index."""
        self._snapshot = snapshot
        self._make = make
        self._made: dict[int, Job] = {}
        self._by_key: dict[str, Job] = {}
        named = snapshot.group_facts.column("queue", lambda group: group.queue)
        known = [queues[name].index if name in queues else -1 for name in named.values[:]]
        queue = np.array([*known, -1], np.intp)[named.numbers]
        #: rows in the snapshot
        self.rows: Rows = np.flatnonzero(queue >= 0)
        #: rows of PodGroups that are no jobs
        self.lost: Rows = np.flatnonzero((queue < 0) & (named.numbers >= 0))
        #: index of the queue of each
        self.queue: Rows = queue[self.rows]
        self._queues = len(queues)
        #: for each key of `said`, the number of each job's value
        self._said: dict[Hashable, Rows] = {}
        self.membership = Membership(snapshot, self.rows)
        #: which could not run even on the empty cluster
        self.aside: Mask = np.zeros(len(self.rows), np.bool_)
        #: which were admitted and had no pods for so long that they claim nothing until pods come
        self.given_up: Mask = np.zeros(len(self.rows), np.bool_)
        #: whether jobs lay claim to their minResources; None for all
        self.claims: Mask | None = None

    # -- objects -----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Job:
        job = self._by_key.get(key)
        if job is not None:
            return job
        index = self._index(key)
        if index < 0:
            raise KeyError(key)
        return self.at(index)

    def get(self, key: str, default: Job | None = None) -> Job | None:  # type: ignore[override]
        """The job with a key, or the default."""
        job = self._by_key.get(key)
        if job is not None:
            return job
        index = self._index(key)
        return default if index < 0 else self.at(index)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key or self._index(key) >= 0

    def __iter__(self) -> Iterator[str]:
        return map(self._keys.values.__getitem__, self._keys.numbers[self.rows].tolist())

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, index: int) -> Job:
        """The job with an index."""
        job = self._made.get(index)
        if job is None:
            # A session that is over is asked by several threads at a time, which all get one object.
            job = self._made.setdefault(index, self._make(index))
            self._by_key[job.key] = job
        return job

    def key(self, index: int) -> str:
        """The key of the job with an index."""
        number = int(self._keys.numbers[self.rows[index]])
        return self._keys.values[number]

    def title(self, index: int) -> str:
        """The display name of the job with an index."""
        titles, numbers = self.said("title", lambda group: group.title)
        return titles[int(numbers[index])]

    def keys_of(self, indices: Rows) -> list[str]:
        """The keys of some jobs."""
        values = self._keys.values
        return [values[number] for number in self._keys.numbers[self.rows[indices]].tolist()]

    def in_row(self, row: int) -> Job | None:
        """The job of a row in the snapshot, which may be negative; None where there is none."""
        index = int(self.membership.index_of[row])
        return self.at(index) if index >= 0 else None

    def of(self, mask: Mask) -> list[Job]:
        """Some jobs, in order."""
        return [self.at(index) for index in np.flatnonzero(mask).tolist()]

    def where(self, mask: Mask) -> list[Job]:
        """Some jobs and all others that may have changed since the columns were true, in order."""
        if self._made:
            mask = mask.copy()
            mask[list(self._made)] = True
        return self.of(mask)

    @property
    def unmade(self) -> Mask:
        """The jobs for which no Job object exists yet."""
        mask = np.ones(len(self), np.bool_)
        mask[list(self._made)] = False
        return mask

    def set_aside(self, mask: Mask) -> None:
        """Mark the jobs that do not compete for capacity; they wait for admission from now on."""
        self.aside = mask
        for job in self.of(mask & ~self.in_phase("", "Pending")):
            job.phase = "Pending"

    def held_back(self, left: Mapping[str, Any]) -> Mask:
        """The jobs that an action held back in the session before, by what that left, shape (jobs,)."""
        out = np.zeros(len(self), np.bool_)
        for key, uid in left.get(HELD_BACK, ()):
            job = self.get(key)
            if job is not None and job.pod_group.metadata.uid == uid:
                out[job.index] = True
        return out

    def set_claims(self, claims: Mask) -> None:
        """Say which jobs lay claim to their minResources at the start."""
        self.claims = claims
        for index, job in self._made.items():
            job.claims = bool(claims[index])

    @property
    def made(self) -> list[Job]:
        """The jobs that were asked for, in order."""
        return [self._made[index] for index in sorted(self._made)]

    def _index(self, key: object) -> int:
        number = self._keys.by_value.get(key, -1)  # type: ignore[call-overload]
        # Later snapshots may have added keys.
        row = int(self._row_of_key[number]) if 0 <= number < len(self._row_of_key) else -1
        return int(self.membership.index_of[row])

    @cached_property
    def _keys(self) -> Column[str]:
        return self._snapshot.group_facts.column("key", lambda group: group.key)

    @cached_property
    def _row_of_key(self) -> Rows:
        numbers = self._keys.numbers
        rows = np.full(numbers.max(initial=-1) + 1, -1, np.intp)
        used = np.flatnonzero(numbers >= 0)
        rows[numbers[used]] = used
        return rows

    @cached_property
    def alphabetical(self) -> Rows:
        """The rank of each job in the order of the keys, the smallest first."""
        return self._keys.index(_Alphabet).places[self._keys.numbers[self.rows]]

    # -- columns -----------------------------------------------------------------------------------------------------

    def said(self, key: Hashable, read: Callable[[PodGroup], T]) -> tuple[Sequence[T], Rows]:
        """The distinct values (a list that may grow) that a function reads from PodGroups, and each job's number."""
        column = self._snapshot.group_facts.column(key, read)
        numbers = self._said.get(key)
        if numbers is None:
            numbers = self._said[key] = column.numbers[self.rows].astype(np.intp)
        return column.values, numbers

    def holds(self, key: Hashable, read: Callable[[PodGroup], bool]) -> Mask:
        """The jobs whose PodGroups satisfy a predicate."""
        values, numbers = self.said(key, read)
        mask: Mask = np.array(values[:], np.bool_)[numbers]
        return mask

    def in_phase(self, *phases: str) -> Mask:
        """Mask of jobs whose PodGroups are in one of some phases."""
        values, numbers = self.said("phase", lambda group: group.status.phase)
        mask: Mask = np.array([value in phases for value in values], np.bool_)[numbers]
        return mask

    def count(self, *states: PodState) -> Rows:
        """The number of pods in some states."""
        counts = self.membership.counts
        return reduce(np.add, (counts[state] for state in states))

    def now(self, column: Rows, read: Callable[[Job], int], among: Mask | None = None) -> Rows:
        """A copy of a column, updated for the jobs that have Job objects, or only those of them in `among`."""
        column = column.copy()
        made = np.fromiter(self._made, np.intp, len(self._made))
        for index in (made if among is None else made[among[made]]).tolist():
            column[index] = read(self._made[index])
        return column

    def now_in_phase(self, *phases: str) -> Mask:
        """Mask of jobs in one of some phases now."""
        mask = self.in_phase(*phases)
        for index, job in self._made.items():
            mask[index] = job.phase in phases
        return mask

    @cached_property
    def numbers(self) -> Rows:
        """minMember, and the numbers of pods that the status shows to run, to have succeeded and failed: (4, jobs)."""
        column = self._snapshot.group_facts.column("numbers", _numbers)
        numbers: Rows = column.index(_NumbersIndex).listed[:, column.numbers[self.rows]]
        return numbers

    @property
    def min_available(self) -> Rows:
        """minMember."""
        least: Rows = self.numbers[0]
        return least

    @cached_property
    def priority(self) -> Rows:
        """The value of the priority class, or the number given in one of Kubernetes' own groups."""
        classes = self._snapshot.priority_classes
        otherwise = next((each.value for each in classes.values() if each.global_default), 0)
        values, numbers = self.said("priority", lambda group: (group.priority, group.spec.priority_class_name))
        of_class = {name: each.value for name, each in classes.items()}
        known = [of_class.get(name, otherwise) if number is None else number for number, name in values]
        priority: Rows = np.array(known, np.intp)[numbers]
        return priority

    @cached_property
    def created(self) -> Vector:
        """Creation time of each job, in seconds since the epoch."""
        values, numbers = self.said("created", lambda group: group.metadata.created)
        created: Vector = np.array(values[:], np.float64)[numbers]
        return created

    @cached_property
    def namespace(self) -> Rows:
        """A number for the namespace of each."""
        return self.said("namespace", lambda group: group.metadata.namespace)[1]

    @property
    def has_min_resources(self) -> Mask:
        """Mask of jobs that set minResources, the capacity needed before they are admitted."""
        return self.holds("has minResources", lambda group: group.spec.min_resources is not None)

    @cached_property
    def min_resources(self) -> Matrix:
        """The minResources needed to admit each job, 0 where unset, shape (jobs, dimensions)."""
        column = self._snapshot.group_facts.column("minResources", _amounts)
        by_name, numbers = column.index(_AmountsIndex).by_name, column.numbers[self.rows]
        out = np.zeros((len(self), len(self._snapshot.dimensions)))
        for at, name in enumerate(self._snapshot.dimensions):
            if name in by_name:
                out[:, at] = by_name[name][numbers]
        return out

    def by_queue(self, of_jobs: Matrix) -> Matrix:
        """The sums over the jobs of each queue; `of_jobs` has the shape (jobs, dimensions)."""
        out = np.zeros((self._queues, of_jobs.shape[1]))
        for column, amounts in enumerate(of_jobs.T) if of_jobs.any() else ():
            out[:, column] = np.bincount(self.queue, weights=amounts, minlength=self._queues)
        return out


class _NumbersIndex:
    """Numbers of PodGroups, one row each."""

    def __init__(self) -> None:
        self.listed: Rows = np.zeros((4, 0), np.int64)

    def extend(self, values: Sequence[_Numbers]) -> None:
        self.listed = np.concatenate([self.listed, np.array(values, np.int64).reshape(-1, 4).T], axis=1)


class _Alphabet:
    """The order of keys."""

    def __init__(self) -> None:
        self.places: Rows = np.zeros(0, np.intp)
        self._listed: list[str] = []
        self._order: list[int] = []

    def extend(self, values: Sequence[str]) -> None:
        self._order += range(len(self._listed), len(self._listed) + len(values))
        self._listed += values
        # What was sorted before costs little.
        self._order.sort(key=self._listed.__getitem__)
        self.places = np.argsort(self._order)


class _AmountsIndex:
    """Amounts by resource, in the units of their dimension."""

    def __init__(self) -> None:
        self.by_name: dict[str, Rows] = {}
        self._size = 0

    def extend(self, values: Sequence[_Amounts]) -> None:
        listed = [dict(value) for value in values]
        for name in {*self.by_name, *(name for amounts in listed for name in amounts if resources.is_scheduled(name))}:
            before = self.by_name.get(name, np.zeros(self._size))
            after = [resources.amount(name, amounts.get(name, 0)) for amounts in listed]
            self.by_name[name] = np.concatenate([before, np.array(after, np.float64)])
        self._size += len(values)


def _numbers(group: PodGroup) -> _Numbers:
    status = group.status
    return group.spec.min_member, status.running, status.succeeded, status.failed


def _amounts(group: PodGroup) -> _Amounts:
    return tuple((group.spec.min_resources or {}).items())
