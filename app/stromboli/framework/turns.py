"""Turns: how an action shares its work among tenants, so that the mass of one does not delay the others.

An action of a session has a budget in steps, a measure of work that is the same on every machine: about a node looked
at. In a round each queue gets an equal part of it, and in the queue each namespace; a tenant whose part is used up is
put off until the others had theirs, and then shares what they left. A turn that has begun is taken to its end: what it
takes beyond its tenant's part is a debt that counts in the next session.

What the budget does not reach is remembered. In the next session those jobs of a queue come first that had no turn
yet: all jobs of a queue have one before any has its second. The order among them stays that of the policy, and while a
job of some priority is put off no job of a lower one goes before it in its queue. In queues that serve strictly in
order nothing of this changes the order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stromboli.framework.job import Job, Queue

#: what a turn takes beside the nodes that it looks at, in steps
_TURN = 5_000
#: in a session; each hands on what tenants left of the one before
_MOST_ROUNDS = 16

#: a queue, and a namespace in it
_Tenant = tuple[str, str]


class Turns:
    """The turns of one action in one session. Without a limit every job has all the turns that it takes."""

    def __init__(self, limit: int | None, left: Mapping[str, Any], jobs: Mapping[str, Sequence[Job]]) -> None:
        """`left` is what the same action left in the session before; `jobs` are those that wait, by queue."""
        self._limit = limit
        #: keys of jobs that had a turn in earlier sessions, by queue, while others there had none
        self._had: Mapping[str, frozenset[str]] = {} if limit is None else left.get("had", {})
        #: jobs that had no turn in this session, by queue and key
        self._without: dict[str, dict[str, Job]] = {}
        self._tried: defaultdict[str, set[str]] = defaultdict(set)
        self._known: dict[str, frozenset[str]] = {}
        self._spent = self._rounds = 0
        #: what is left of the parts of queues and tenants; negative is a debt
        self._queues: dict[str, float] = {}
        self._tenants: dict[_Tenant, float] = {}
        #: the highest priority that is put off in each queue, until its next round
        self._barred: dict[str, int] = {}
        if limit is not None:
            self._without = {name: {job.key: job for job in of_queue} for name, of_queue in jobs.items() if of_queue}
            self._queues = {name: -owed for name, owed in left.get("owed", {}).items() if name in self._without}
            self._known = {name: frozenset(of_queue) for name, of_queue in self._without.items()}
            self.begin_round({name: list(of_queue.values()) for name, of_queue in self._without.items()})

    def begin_round(self, jobs: Mapping[str, Sequence[Job]]) -> bool:
        """Divide what is left of the budget among the queues of jobs that wait; whether there is a round."""
        if self._limit is None or not jobs or self._spent >= self._limit or self._rounds == _MOST_ROUNDS:
            return False
        self._rounds += 1
        # Where all are in debt, those with the smallest go on.
        least = 1.0 - max(self._queues.get(name, 0.0) for name in jobs)
        part = max(least, (self._limit - self._spent) / len(jobs))
        for name, of_queue in jobs.items():
            self._queues[name] = account = self._queues.get(name, 0.0) + part
            tenants = {(name, job.namespace) for job in of_queue}
            self._tenants |= dict.fromkeys(tenants, account / len(tenants))
        self._barred.clear()
        return True

    # -- order -------------------------------------------------------------------------------------------------------

    def job_key(self, job: Job, key: tuple[object, ...]) -> tuple[object, ...]:
        """The place in its queue of a job whose place by the policy is `key`."""
        had = self._had.get(job.queue.name)
        return (job.key in had, *key) if had else key

    def in_order(self, jobs: Iterable[Job], key: Callable[[Job], tuple[object, ...]]) -> list[Job]:
        """Jobs of a queue in the order of their turns; `key` gives their places by the policy."""
        return sorted(jobs, key=lambda job: self.job_key(job, key(job)))

    # -- turns -------------------------------------------------------------------------------------------------------

    def puts_off_queue(self, queue: Queue) -> bool:
        """Whether a queue has to wait for the next round."""
        if self._limit is None:
            return False
        over = self._rounds > 1 and self._spent >= self._limit
        return over or self._queues.get(queue.name, 1.0) <= 0

    def puts_off(self, job: Job) -> bool:
        """Whether a job has to wait for the next round of its queue, whose turn it is."""
        if self._limit is None:
            return False
        name = job.queue.name
        if job.priority < self._barred.get(name, job.priority):
            return True
        if self._tenants.get((name, job.namespace), 1.0) > 0:
            return False
        self._barred[name] = max(job.priority, self._barred.get(name, job.priority))
        return True

    def had(self, job: Job, steps: int) -> None:
        """A job had a turn, in which it took so many steps."""
        if self._limit is None:
            return
        name, steps = job.queue.name, steps + _TURN
        self._spent += steps
        self._queues[name] = self._queues.get(name, 0.0) - steps
        tenant = name, job.namespace
        self._tenants[tenant] = self._tenants.get(tenant, 0.0) - steps
        self._without.get(name, {}).pop(job.key, None)
        self._tried[name].add(job.key)

    def drop(self, jobs: Iterable[Job]) -> None:
        """Some jobs need no turn: they wait for something else than the budget."""
        for job in jobs:
            self._without.get(job.queue.name, {}).pop(job.key, None)

    # -- what is left ------------------------------------------------------------------------------------------------

    def without(self) -> list[tuple[Job, bool]]:
        """The jobs that the budget did not reach, and whether they had a turn in an earlier session."""
        return [
            (job, key in self._had.get(name, ()))
            for name, of_queue in self._without.items()
            for key, job in of_queue.items()
        ]

    def left(self, strict: Iterable[str] = ()) -> dict[str, Any]:
        """What the next session has to know; queues in `strict` order keep theirs. Empty when all had their turns."""
        waiting = [name for name, of_queue in self._without.items() if of_queue.keys() - self._had.get(name, ())]
        if not waiting:
            return {}
        ordered = set(strict)
        had = {
            name: self._had.get(name, frozenset()) & self._known[name] | self._tried[name]
            for name in waiting
            if name not in ordered
        }
        owed = {name: -account for name, account in sorted(self._queues.items()) if account < 0}
        return {
            "had": {name: keys for name, keys in had.items() if keys},
            "owed": {name: min(debt, float(self._limit or 0)) for name, debt in owed.items()},
        }
