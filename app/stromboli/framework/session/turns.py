"""Turns: how an action shares its work among tenants, so that a flood from one does not delay the others.

An action of a session has a budget in steps, a measure of work that is the same on every machine: roughly, nodes looked
at. In each round every queue gets an equal part of it, and every namespace an equal part of its queue's; a tenant whose
part is used up is deferred until the others have had theirs, and then shares what they left. A turn that has begun is
completed unless it is too long (`long_turns`): the excess over its tenant's part is a debt of its queue, which waits in
the next sessions until the others have had as much.

What the budget does not reach is remembered. In the next session those jobs of a queue come first that have had no turn
yet, so that all jobs of a queue have one before any has its second. Among them the policy's order holds, and while a
job of some priority is deferred, no job of a lower priority goes before it in its queue. Queues that serve strictly in
order keep that order.

If there are more jobs than the budget can reach, only the first in this order are looked at, and nothing is computed
for the others (`line_up`): what a session costs follows from its budget, whatever waits. If the budget suffices for all
that wait, it changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stromboli.api.resources import Mask, Rows
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.jobs import Jobs
from stromboli.framework.session.long_turns import LONGEST, LongTurns

#: steps of a turn besides those for its nodes, and of finding out why it placed nothing
TURN, TOLD = 800, 8_000
#: in a session; each hands on what tenants left of the one before
_MOST_ROUNDS = 16

#: a queue, and a namespace in it
_Tenant = tuple[str, str]
#: the place of a job in its queue
_Order = Callable[[Job], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Beyond:
    """Jobs that a session cannot reach, by queue: nothing is known of them but their columns."""

    #: in no order
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: the highest priority of those that had no turn yet, in queues that do not serve strictly in order
    priority: Mapping[str, int] = field(default_factory=dict)


def line_up(
    jobs: Jobs, order: Rows, most: int, left: Mapping[str, Any], queues: Mapping[str, bool]
) -> tuple[Rows, Beyond]:
    """The jobs, by index, that may have their turns in this session, `most` at most, and the others.

    `order` has all waiting jobs in the policy's order, and `queues` says which of them serve strictly in order. Queues
    share the places equally, and within a queue its namespaces do, as far as debts, priorities and earlier turns
    permit.
    """
    names, strict = list(queues), np.array(list(queues.values()), np.bool_)
    queue, had = jobs.queue[order], _had(jobs, order, left.get("had", {}), names)
    rank = np.where(strict[queue], 0, -jobs.priority[order])
    group = _numbered(queue, had, rank)
    namespace = np.where(strict[queue], np.arange(len(order)), jobs.namespace[order])
    by_namespace = np.where(strict[queue], 0, places(_numbered(group, namespace)))
    in_queue = np.lexsort((np.arange(len(order)), by_namespace, group))
    place = np.empty(len(order), np.intp)
    place[in_queue] = places(queue[in_queue])
    owed = left.get("owed", {})
    place += np.array([int(owed.get(name, 0.0)) // TURN for name in names], np.intp)[queue]
    first = np.lexsort((queue, place))
    chosen, others = np.sort(first[:most]), np.sort(first[most:])
    keys: defaultdict[str, list[str]] = defaultdict(list)
    for at, key in zip(queue[others].tolist(), jobs.keys_of(order[others]), strict=True):
        keys[names[at]].append(key)
    unserved = others[~had[others] & ~strict[queue[others]]]
    highest = np.full(len(names), np.iinfo(np.intp).min)
    np.maximum.at(highest, queue[unserved], jobs.priority[order[unserved]])
    priority = {names[at]: int(highest[at]) for at in np.unique(queue[unserved]).tolist()}
    return order[chosen], Beyond(keys, priority)


def _had(jobs: Jobs, indices: Rows, had: Mapping[str, frozenset[str]], names: Sequence[str]) -> Mask:
    """Mask of jobs that had a turn in earlier sessions, while others of their queue had none."""
    out = np.zeros(len(indices), np.bool_)
    queue = jobs.queue[indices]
    for number, name in enumerate(names):
        if name in had:
            at = np.flatnonzero(queue == number)
            out[at] = [key in had[name] for key in jobs.keys_of(indices[at])]
    return out


def _numbered(*columns: Rows | Mask) -> Rows:
    """A number for each distinct row of some columns, in ascending order."""
    order = np.lexsort(columns[::-1])
    numbers = np.zeros(len(order), np.intp)
    if len(order):
        begins = np.logical_or.reduce([np.diff(column[order].astype(np.intp)) != 0 for column in columns])
        numbers[order[1:]] = np.cumsum(begins)
    return numbers


def places(groups: Rows) -> Rows:
    """Number of earlier elements of the same group, for each."""
    order = np.argsort(groups, kind="stable")
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    places = np.empty(len(groups), np.intp)
    sizes = np.diff(np.append(begins, len(groups)))
    places[order] = np.arange(len(groups)) - np.repeat(begins, sizes)
    return places


class Turns:
    """The turns of one action in one session. Without a limit every job gets as many turns as it needs.

    While less was taken than any tenant's part, turns are only noted down: no job can have to wait.
    """

    def __init__(
        self,
        limit: int | None,
        left: Mapping[str, Any],
        jobs: Mapping[str, Sequence[Job]],
        beyond: Beyond,
        *,
        divided: bool,
        time: Callable[[], float] = float,
    ) -> None:
        """`left` is the state of the same action from the session before; `jobs` are those that wait, by queue.

        While the limit is enough for all of them it is not `divided`, and no job waits for others to have their turns.
        """
        #: steps for all turns of the session; None for as many as they take
        self.limit = limit
        #: whether some job may have to wait for others to have their turns
        self.scarce = False
        #: lengths that turns may have
        self.long = LongTurns(limit or 0, left, time)
        #: debts of the sessions before
        self._owed: Mapping[str, float] = left.get("owed", {})
        # Among tenants that wait, one in debt comes last even where the budget is enough for all.
        self._divided = divided = divided or not self._owed.keys().isdisjoint(jobs)
        self._beyond = beyond
        #: turns that are not in the accounts yet: jobs and steps
        self._noted: list[tuple[Job, int]] = []
        #: steps that are left until some tenant may have used up its part
        self._ample = float(limit or 0)
        #: keys of jobs that had a turn in earlier sessions, by queue, while others there had none
        self._had: Mapping[str, frozenset[str]] = left.get("had", {}) if limit is not None and divided else {}
        #: jobs that had no turn in this session, by queue and key
        self._without: dict[str, dict[str, None]] = {}
        self._tried: defaultdict[str, set[str]] = defaultdict(set)
        self._known: dict[str, frozenset[str]] = {}
        self._spent = self._rounds = 0
        #: remaining parts of queues and tenants; negative is a debt
        self._queues: dict[str, float] = {}
        self._tenants: dict[_Tenant, float] = {}
        #: the highest priority that is put off in each queue, until its next round
        self._barred: dict[str, int] = {}
        if limit is not None:
            self._begin(jobs)

    def _begin(self, jobs: Mapping[str, Sequence[Job]]) -> None:
        """Open the accounts, and the first round."""
        for name, of_queue in jobs.items():
            self._without[name] = dict.fromkeys(job.key for job in of_queue)
        for name, keys in self._beyond.keys.items():
            self._without.setdefault(name, {}).update(dict.fromkeys(keys))
        self._known = {name: frozenset(of_queue) for name, of_queue in self._without.items()}
        self._queues = {name: -owed for name, owed in self._owed.items()}
        self.begin_round({name: of_queue for name, of_queue in jobs.items() if of_queue})
        if self._divided:
            self._ample = min(self._tenants.values(), default=0.0)
            self.scarce = self._ample <= 0 or bool(self._beyond.priority)

    def begin_round(self, jobs: Mapping[str, Sequence[Job]]) -> bool:
        """Divide the rest of the budget among the queues of jobs that wait; whether there is a round."""
        if self.limit is None or not jobs or self._spent >= self.limit or self._rounds == _MOST_ROUNDS:
            return False
        self._rounds += 1
        if not self._divided:
            return True
        part, highest = (self.limit - self._spent) / len(jobs), max(self._queues.get(name, 0.0) for name in jobs)
        if highest + part <= 0:
            if self._spent:
                # What others were given need not wait until their turns are over, too.
                return False
            # If all are in debt, those with the smallest debts continue.
            part = 1.0 - highest
        for name, of_queue in jobs.items():
            self._queues[name] = account = self._queues.get(name, 0.0) + part
            tenants = {(name, job.namespace) for job in of_queue}
            self._tenants |= dict.fromkeys(tenants, account / len(tenants))
        self._barred = dict(self._beyond.priority)
        return True

    # -- order -------------------------------------------------------------------------------------------------------

    def job_key(self, job: Job, key: tuple[object, ...]) -> tuple[object, ...]:
        """The place in its queue of a job whose place by the policy is `key`."""
        had = self._had.get(job.queue.name)
        return (job.key in had, *key) if had else key

    def by(self, key: _Order) -> _Order:
        """The sort key of jobs in their queues, given the policy's `key`."""
        return (lambda job: self.job_key(job, key(job))) if self._had else key

    def in_order(self, jobs: Iterable[Job], key: _Order) -> list[Job]:
        """Jobs of a queue in the order of their turns; `key` gives their places by the policy."""
        return sorted(jobs, key=self.by(key))

    # -- turns -------------------------------------------------------------------------------------------------------

    def puts_off_queue(self, queue: Queue) -> bool:
        """Whether a queue has to wait for the next round."""
        if self.limit is None or not self.scarce:
            return False
        over = self._spent >= self.limit and (self._rounds > 1 or not self._divided)
        return over or (self._divided and self._queues.get(queue.name, 1.0) <= 0)

    def puts_off(self, job: Job) -> bool:
        """Whether a job has to wait for the next round of its queue, whose turn it is."""
        if not self.scarce:
            return False
        name = job.queue.name
        if job.priority < self._barred.get(name, job.priority):
            return True
        if self._tenants.get((name, job.namespace), 1.0) > 0:
            return False
        self._barred[name] = max(job.priority, self._barred.get(name, job.priority))
        return True

    def had(self, job: Job, steps: int) -> None:
        """Record that a job had a turn, which took `steps` steps."""
        if self.limit is None:
            return
        if steps > self.long.free:
            self.long.took(job, steps)
        steps += TURN
        if self.scarce:
            self._count(job, steps)
            return
        self._noted.append((job, steps))
        self._ample -= steps
        if self._ample <= 0:
            # From here on the accounts are kept with each turn.
            self.scarce = True
            self._count_noted()

    def _count_noted(self) -> None:
        """Bring the accounts up to date."""
        for job, steps in self._noted:
            self._count(job, steps)
        self._noted.clear()

    def _count(self, job: Job, steps: int) -> None:
        name = job.queue.name
        self._spent += steps
        self._queues[name] = self._queues.get(name, 0.0) - steps
        if self._divided:
            tenant = name, job.namespace
            self._tenants[tenant] = self._tenants.get(tenant, 0.0) - steps
        self._without.get(name, {}).pop(job.key, None)
        self._tried[name].add(job.key)

    def drop(self, jobs: Iterable[Job]) -> None:
        """Record that some jobs need no turn, since they wait for something other than the budget."""
        for job in jobs:
            self._without.get(job.queue.name, {}).pop(job.key, None)

    def need_none(self, jobs: Iterable[Job]) -> None:
        """Treat some lined-up jobs as if they had had their turns, since they wait for something else."""
        if self.limit is not None:
            for job in jobs:
                self._tried[job.queue.name].add(job.key)

    def drop_queue(self, queue: Queue) -> list[str]:
        """Drop the pending turns of a queue; returns the keys of the jobs that had none in this session."""
        self._count_noted()
        return list(self._without.pop(queue.name, ()))

    # -- after the turns ---------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether every job that needs a turn had one."""
        if self.limit is None:
            return True
        had = {job.key for job, _ in self._noted}
        return all(had.issuperset(of_queue) for of_queue in self._without.values())

    @property
    def waiting(self) -> list[str]:
        """The queues with jobs that have had no turn, neither in this session nor in earlier ones."""
        self._count_noted()
        return [name for name, of_queue in self._without.items() if of_queue.keys() - self._had.get(name, ())]

    def without(self) -> list[tuple[str, bool]]:
        """The jobs that the budget did not reach, by key, and whether they had a turn in an earlier session."""
        self._count_noted()
        return [(key, key in self._had.get(name, ())) for name, of_queue in self._without.items() for key in of_queue]

    def left(self, strict: Iterable[str] = ()) -> dict[str, Any]:
        """The state for the next session; queues in `strict` order keep theirs."""
        had, owed = self._had_turns(strict), self._debts()
        out: dict[str, Any] = {name: each for name, each in (("had", had), ("owed", owed)) if each}
        return out | self.long.left(self._waited)

    def _waited(self, key: str) -> bool:
        """Whether a job waited when this session began."""
        return any(key in keys for keys in self._known.values())

    def _debts(self) -> dict[str, float]:
        """The debts of queues after this session, including payments of queues that did not wait."""
        if not self.scarce and not self._owed:
            return {}
        self._count_noted()
        limit = float(self.limit or 0)
        paying = self._known.keys() if self._divided else ()
        owed = {
            name: min(-account, LONGEST * limit) - (0.0 if name in paying else limit)
            for name, account in sorted(self._queues.items())
        }
        return {name: debt for name, debt in owed.items() if debt > 0}

    def _had_turns(self, strict: Iterable[str]) -> dict[str, frozenset[str]]:
        """Jobs that had their turns, by queue, where others had none; without queues in `strict` order."""
        ordered = set(strict)
        had = {
            name: self._had.get(name, frozenset()) & self._known[name] | self._tried[name]
            for name in self.waiting
            if name not in ordered
        }
        return {name: keys for name, keys in had.items() if keys}
