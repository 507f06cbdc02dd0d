"""userlimits: what one user may hold in a queue, as pods and as amounts.

The user who created a job is in the annotation `stromboli.io/user` of its PodGroup, which the chart guards. The first
limit that matches a queue and a user counts, for each such user separately. Jobs of unknown users count together, as
those of one user. A pod that another user put into the job counts for that user as well, so that no user exceeds a
limit through another user's job. Pods that terminate count until they are gone, as long as their PodGroup is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field

from stromboli.api.crds import PodGroup
from stromboli.api.crds.base import ResourceList
from stromboli.api.patterns import any_matches
from stromboli.api.pod_state import ALLOCATED_STATES, PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import PODS, TOLERANCE, Mask, Matrix, Rows, Vector, exact, told
from stromboli.fairness.limits import tried
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin, Verdict, Vote
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.framework.reasons import column_name
from stromboli.state.pods import USER_ANNOTATION, USER_GROUPS_ANNOTATION, PodRecord
from stromboli.state.reads import Reads


class Limit(Arguments):
    """The limits of some users in some queues, for each user and queue."""

    queues: list[str] = Field(default_factory=list)
    """Names of queues, or patterns such as `team-*`; all when absent."""
    users: list[str] = Field(default_factory=list)
    """Names of users, or patterns; all when absent, as far as `groups` does not say otherwise."""
    groups: list[str] = Field(default_factory=list)
    """Groups whose users it is for, or patterns."""
    max_pods: int | None = Field(default=None, alias="maxPods", ge=0)
    """The most pods; absent for any number."""
    resources: ResourceList = Field(default_factory=dict)
    """The most of each resource; one that is not listed is unlimited."""


class UserLimitsArguments(Arguments):
    limits: list[Limit] = Field(default_factory=list)
    """The limits in order: `queues`, `users` and `groups` that they are for, `maxPods` and `resources`."""


@dataclass(slots=True, eq=False)
class Account:
    """Holdings and limits of a user in a queue; vectors have one entry more than there are dimensions: pods."""

    user: str
    queue: str
    most: Vector
    held: Vector
    #: amounts that terminating pods hold besides, without those promised to others that start when they are gone
    ending: Vector
    #: amounts that admitted jobs may still take of their minimum
    claimed: Vector = field(init=False)

    def __post_init__(self) -> None:
        self.claimed = np.zeros_like(self.held)

    @property
    def told(self) -> str:
        """The user, in words."""
        return _told(self.user)


class UserLimits(Plugin):
    name = "userlimits"
    Arguments = UserLimitsArguments
    counts_pods = True
    reads = Reads(annotations=(USER_ANNOTATION, USER_GROUPS_ANNOTATION))

    def job_ceilings(self, view: View) -> Mapping[str, tuple[Vector, str]]:
        """Limit of each job that asks for more than its user may hold in its queue."""
        jobs, queues = view.jobs, list(view.queues)
        asked = np.maximum(view.job_requested, jobs.min_resources)
        waiting = np.flatnonzero(jobs.count(PodState.Pending) > 0)
        found: dict[str, tuple[Vector, str]] = {}
        users, made_by = jobs.said("user", _made_by)
        pairs, pair_of = np.unique(np.stack([jobs.queue, made_by])[:, waiting], axis=1, return_inverse=True)
        for at, (queue, number) in enumerate(pairs.T.tolist()):
            limit = self._limit(queues[queue], *users[number])
            if limit is None:
                continue
            most = self._most_by(view, self._limits[limit])
            most[PODS] = min(most[PODS], most[-1])
            of_pair = waiting[pair_of.reshape(-1) == at]
            beyond = of_pair[(asked[of_pair] > most[:-1]).any(axis=1)]
            words = f"starts with more than queue {queues[queue]} ever lets {_told(users[number][0])} hold"
            found |= dict.fromkeys(jobs.keys_of(beyond), (most[:-1], words))
        return found

    def open(self, view: View) -> None:
        self._view = view
        #: by queue, user and limit
        self._accounts: dict[tuple[int, str, int], Account] = {}
        #: the account of each job, by index; None where nothing limits it
        self._of_job: dict[int, Account | None] = {}
        #: the most by each limit
        self._most = [self._most_by(view, limit) for limit in self._limits]
        self._queues = list(view.queues.values())
        jobs = view.jobs
        users, numbers = jobs.said("user", _made_by)
        keys, number_of = np.unique(np.stack([jobs.queue, numbers]), axis=1, return_inverse=True)
        holds = np.column_stack([view.job_allocated, jobs.count(*ALLOCATED_STATES)])
        sums, ends = (np.zeros((keys.shape[1], holds.shape[1])) for _ in range(2))
        np.add.at(sums, number_of.reshape(-1), holds)
        ending, of = self._ending()
        np.add.at(ends, number_of.reshape(-1)[of], ending)
        #: what jobs held at the start, and pods that terminate, by queue and user: with each set of groups of the user
        self._held_before: defaultdict[tuple[int, str], list[tuple[str, Vector, Vector]]] = defaultdict(list)
        for (queue, number), held, left in zip(keys.T.tolist(), sums, ends, strict=True):
            user, groups = users[number]
            self._held_before[queue, user].append((groups, held, left))
        self._count_guests([user for user, _ in users[:]], numbers)
        for job in view.jobs.of(jobs.in_phase("Inqueue")):
            account = self._account_of(job)
            if account is not None:
                account.claimed += np.maximum(self._minimum(job) - self._held(job), 0)

    def job_enqueueable(self, job: Job) -> Verdict:
        account = self._account_of(job)
        if account is None:
            return Vote.Abstain
        more = np.maximum(self._minimum(job) - self._held(job), 0)
        exceeded = account.held + account.claimed + more > account.most + TOLERANCE
        return self._reached(account, exceeded, more, Stage.Admission) if exceeded.any() else Vote.Abstain

    def job_enqueued(self, job: Job) -> None:
        account = self._account_of(job)
        if account is not None:
            account.claimed += np.maximum(self._minimum(job) - self._held(job), 0)

    def allocatable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        job, reason = self._view.job_of(pod), None
        for account in self._accounts_of(pod, job) if job is not None else ():
            request = np.append(self._view.request(pod), 1.0)
            allowed = _copies(account.most - account.held, request, count)
            if allowed < count:
                exceeded = account.held + (allowed + 1) * request > account.most + TOLERANCE
                reason = self._reached(account, exceeded & (request > 0), request, Stage.QueueShare, job)
                count = allowed
        return count, reason

    def startable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        job, reason = self._view.job_of(pod), None
        for account in self._accounts_of(pod, job) if job is not None else ():
            request = np.append(self._view.request(pod), 1.0)
            allowed = _copies(account.most - account.held - account.ending, request, count)
            if allowed < count and account.ending.any():
                message = f"{account.told} may not hold more in queue {account.queue} until pods of it have terminated"
                reason = Reason(Stage.QueueShare, "UserLimitReached", message, Actionable.Wait)
                count = allowed
        return count, reason

    def on_allocate(self, operation: Operation) -> None:
        self._move(operation, 1)

    def on_deallocate(self, operation: Operation) -> None:
        self._move(operation, -1)

    def _move(self, operation: Operation, sign: int) -> None:
        for account in () if operation.job is None else self._accounts_of(operation.pods[0], operation.job):
            amount = sign * np.append(operation.total, len(operation.pods))
            account.held += amount
            if operation.kind is not Kind.Allocate and self._view.rules.terminating:
                # An evicted pod counts until it is gone, a pod that is promised its place does not yet.
                account.ending -= amount

    def _raised_for(self, job: Job) -> tuple[int, Limit] | None:
        account, pods = self._account_of(job), self._view.pending(job)
        number = None if account is None else self._limit(account.queue, *_made_by(job.pod_group))
        if account is None or number is None:
            return None
        one = np.append(self._view.request(pods[0]), 1.0) if pods else np.zeros_like(account.held)
        missing = max(1, job.min_available - job.allocated_count)
        needed = account.held + np.maximum(one * missing, self._minimum(job) - self._held(job))
        short = needed > account.most + TOLERANCE
        limit, names = self._limits[number], self._view.dimensions
        resources = {names[at]: exact(names[at], needed[at]) for at in np.flatnonzero(short[:-1]).tolist()}
        most = {"max_pods": int(needed[-1])} if short[-1] else {}
        return number, limit.model_copy(update={"resources": {**limit.resources, **resources}, **most})

    @property
    def _limits(self) -> Sequence[Limit]:
        limits: Sequence[Limit] = self.arguments.limits
        return limits

    def _accounts_of(self, pod: PodRecord, job: Job) -> Iterator[Account]:
        """The accounts on which a pod counts: that of its job, and that of the user who made it if that is another."""
        account = self._account_of(job)
        if account is not None:
            yield account
        said = pod.pod_class.reads.annotations
        user = said.get(USER_ANNOTATION, "") if said else ""
        if user and user != _made_by(job.pod_group)[0]:
            guest = self._account(job.queue.index, user, said.get(USER_GROUPS_ANNOTATION, ""))
            if guest is not None:
                yield guest

    def _count_guests(self, users: Sequence[str], made_by: Rows) -> None:
        """Count pods that a user put into the job of another for that user; `made_by` has the number of each job's."""
        view = self._view
        column = view.snapshot.pod_facts.column("made by", _made_pod)
        said = [*column.values[:], ("", "")]
        named = np.array([bool(user) for user, _ in said])
        if not named.any():
            return
        rows, state = np.flatnonzero(named[column.numbers]), view.pods.state
        rows = rows[view.membership.index_of[view.pods.job[rows]] >= 0]
        held = np.isin(state[rows], list(ALLOCATED_STATES))
        ends = (state[rows] == PodState.Releasing) & (view.pods.node[rows] >= 0) & view.rules.terminating
        for row, ending in zip(rows[held | ends].tolist(), ends[held | ends].tolist(), strict=True):
            (user, groups), job = said[column.numbers[row]], int(view.membership.index_of[view.pods.job[row]])
            if user != users[made_by[job]]:
                amount = np.append(view.requests(np.array([row]))[0], 1.0)
                nothing = np.zeros_like(amount)
                pair = (nothing, amount) if ending else (amount, nothing)
                self._held_before[int(view.jobs.queue[job]), user].append((groups, *pair))

    def _account_of(self, job: Job) -> Account | None:
        if job.index not in self._of_job:
            self._of_job[job.index] = self._account(job.queue.index, *_made_by(job.pod_group))
        return self._of_job[job.index]

    def _account(self, queue: int, user: str, groups: str) -> Account | None:
        """The holdings of a user with some groups in a queue; None if no limit applies."""
        name = self._queues[queue].name
        number = self._limit(name, user, groups)
        if number is None:
            return None
        if (queue, user, number) not in self._accounts:
            held, ending = (np.zeros(len(self._view.dimensions) + 1) for _ in range(2))
            account = Account(user, name, self._most[number], held, ending)
            for others, holds, ends in self._held_before[queue, user]:
                if others == groups or self._limit(name, user, others) == number:
                    account.held += holds
                    account.ending += ends
            self._accounts[queue, user, number] = account
        return self._accounts[queue, user, number]

    def _limit(self, queue: str, user: str, groups: str) -> int | None:
        """The number of the limit that is for a user in a queue."""
        for number, limit in enumerate(self._limits):
            everyone = not (limit.users or limit.groups)
            meant = everyone or any_matches(limit.users, [user]) or any_matches(limit.groups, groups.split("\n"))
            if meant and (not limit.queues or any_matches(limit.queues, [queue])):
                return number
        return None

    def _most_by(self, view: View, limit: Limit) -> Vector:
        most = view.vector(limit.resources, np.inf)
        return np.append(most, np.inf if limit.max_pods is None else limit.max_pods)

    def _minimum(self, job: Job) -> Vector:
        least = self._view.vector(None) if job.min_resources is None else job.min_resources
        return np.append(least, job.min_available)

    def _held(self, job: Job) -> Vector:
        return np.append(job.allocated, job.allocated_count)

    def _ending(self) -> tuple[Matrix, Rows]:
        """The amounts that terminating pods hold, and the job index of each."""
        view = self._view
        ends = (view.pods.state == PodState.Releasing) & (view.pods.node >= 0) & view.rules.terminating
        rows = np.flatnonzero(ends & (view.membership.index_of[view.pods.job] >= 0))
        return np.column_stack([view.requests(rows), np.ones(len(rows))]), view.membership.index_of[view.pods.job[rows]]

    def _reached(
        self, account: Account, exceeded: Mask, more: Vector, stage: Stage, placing: Job | None = None
    ) -> Reason:
        """The reason, for a job being placed by all pods that it starts with."""
        dimensions, held = self._view.dimensions, account.held
        claimed = np.zeros_like(held) if placing is not None else account.claimed
        if placing is not None:
            got = tried(self._view, placing)
            given = np.append(0.0 * more[:-1] if got is None else got.amount, placing.counts[PodState.Allocated])
            lacks = self._minimum(placing) - np.append(placing.allocated, placing.allocated_count - given[-1])
            held, more = held - given, np.maximum(lacks, more)
            exceeded = exceeded | (held + more > account.most + TOLERANCE)
        names = [*(column_name(dimensions, at) for at in range(len(dimensions))), "pods"]
        columns = np.flatnonzero(exceeded).tolist()
        numbers = [
            f"{names[at]}: holds {_amount(names[at], held[at])}, "
            f"{f'{_amount(names[at], claimed[at])} more claimed by admitted jobs, ' if claimed[at] else ''}"
            f"may have {_amount(names[at], account.most[at])}, {_amount(names[at], more[at])} more requested"
            for at in columns
        ]
        never = bool((more > account.most + TOLERANCE).any())
        if never:
            numbers.append("it is more than the user may have even when nothing runs")
        message = f"{account.told} may not hold more in queue {account.queue}: {', '.join(names[at] for at in columns)}"
        actionable = Actionable.User if never else Actionable.Wait
        return Reason(stage, "UserLimitReached", message, actionable, "; ".join(numbers))


def raised_for(plugin: UserLimits, job: Job) -> tuple[int, Limit] | None:
    """The limit that is for a job, by its place in the policy, raised so that the job starts or has one pod more.

    None if no limit applies.
    """
    return plugin._raised_for(job)


def _told(user: str) -> str:
    return f"user {user}" if user else "a user who is not known"


def _amount(resource: str, amount: float) -> str:
    return f"{amount:.0f}" if resource == "pods" else told(resource, amount)


def _copies(left: Vector, request: Vector, count: int) -> int:
    """Number of copies of a request, `count` at most, that fit into what is left."""
    return int(min(count, max(0.0, np.floor(((left + TOLERANCE)[request > 0] / request[request > 0]).min()))))


def _made_pod(pod: PodRecord) -> tuple[str, str]:
    said = pod.pod_class.reads.annotations
    return said.get(USER_ANNOTATION, ""), said.get(USER_GROUPS_ANNOTATION, "")


def _made_by(group: PodGroup) -> tuple[str, str]:
    notes = group.metadata.annotations
    return notes.get(USER_ANNOTATION, ""), notes.get(USER_GROUPS_ANNOTATION, "")
