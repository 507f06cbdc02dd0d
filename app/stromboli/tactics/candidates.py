"""Who may be evicted at all, in what order and at what price; and who may evict others."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import partial, total_ordering
from typing import Any

import numpy as np

from stromboli.api import crds
from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.job import Job, Queue
from stromboli.framework.jobs import Jobs
from stromboli.framework.operation import Operation
from stromboli.framework.session import Session
from stromboli.state.pod_facts import PodFacts
from stromboli.state.pods import PREEMPTABLE, PodRecord

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
#: states in which a pod can be evicted
HELD = (PodState.Running, PodState.Bound)
#: the priority of the class system-cluster-critical
_CRITICAL = 2_000_000_000
#: how often a search for victims looks at each node
_SEARCH = 20
#: what makes priorities of pods positive, so that fewer victims weigh less whatever their priority
LIFT = 2**31

#: what a set of victims weighs, the less the better
Weight = tuple[float, float, float, float]


@total_ordering
class Reversed:
    """A key that sorts the other way round."""

    __slots__ = ("_key",)

    def __init__(self, key: Any) -> None:
        self._key = key

    def __lt__(self, other: Reversed) -> bool:
        return bool(other._key < self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reversed) and bool(self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)


def began(pod: PodRecord) -> float:
    """When a pod began to run, infinite where that is not known: it counts as the last."""
    return pod.started or math.inf


def beginnings(facts: PodFacts) -> Vector:
    """The same of all pods, by row."""
    column = facts.column("started", lambda pod: pod.started)
    found: Vector = np.array([*column.values[:], 0.0])[column.numbers]
    found[found == 0] = math.inf
    return found


def priorities(facts: PodFacts) -> Rows:
    """The priority in the specs of all pods, by row."""
    column = facts.column("spec priority", lambda pod: pod.spec_priority)
    found: Rows = np.array([*column.values[:], 0], np.intp)[column.numbers]
    return found


def priority_places(facts: PodFacts) -> Rows:
    """The place of each pod's priority among all that there are, by row."""
    column = facts.column("spec priority", lambda pod: pod.spec_priority)
    places: Rows = np.unique([*column.values[:], 0], return_inverse=True)[1].astype(np.intp)
    return places[column.numbers]


def distinct(numbers: Rows, below: int) -> tuple[Rows, Rows]:
    """The different ones of some numbers that are all less than something, in order, and the place of each of them."""
    if below > 4 * len(numbers):
        found, places = np.unique(numbers, return_inverse=True)
        return found, places.astype(np.intp)
    there = np.bincount(numbers, minlength=below) > 0
    return np.flatnonzero(there), (np.cumsum(there) - 1)[numbers]


def victim_queue_key(session: Session, queue: Queue, beneficiary: Queue) -> tuple[object, ...]:
    """Smaller gives way first: the queue served last, unless a plugin knows better."""
    return *session.ask.victim_queue_order(queue, beneficiary), Reversed(session.ask.queue_key(queue))


def victim_key(session: Session, pod: PodRecord, beneficiary: Queue) -> tuple[object, ...]:
    """Smaller is evicted first: of the queue that gives way first its last job, of which the last pod goes first."""
    job, ask = session.view.jobs[pod.job], session.ask
    of_queue = victim_queue_key(session, job.queue, beneficiary)
    return *of_queue, Reversed(ask.job_order(job)), Reversed(ask.task_key(pod))


def preemptable(of: PodRecord | crds.Metadata) -> bool:
    """Whether a pod, or a PodGroup by its metadata, agrees to be evicted. Without a word it does."""
    said = of.annotations.get(PREEMPTABLE, of.labels.get(PREEMPTABLE))
    return said is None or said in _TRUE


def kind(session: Session, job: Job, pod: PodRecord, point: str) -> Hashable:
    """What decides, beside the session, which places can be found for a pod; `point` is where plugins are asked."""
    own = job.key if session.ask.by_share(point) else ""
    return own, job.queue.index, job.priority, pod.priority, pod.role, session.kernel.identity(pod)


def agreeing(jobs: Jobs) -> Mask:
    """Which jobs agree to be evicted as their PodGroups say, shape (jobs,)."""
    return jobs.holds("preemptable", lambda group: preemptable(group.metadata))


def agrees(session: Session, pod: PodRecord) -> bool:
    """Whether a pod agrees to be evicted; under Volcano's rules its PodGroup has no say, unless gangs are asked."""
    if not preemptable(pod) or pod.job in session.aside:
        return False
    job = session.view.jobs.get(pod.job) if session.rules.veto else None
    return job is None or preemptable(job.pod_group.metadata)


def critical(pod: PodRecord) -> bool:
    """Whether the cluster itself needs a pod; only the system's own priority classes reach such a priority."""
    return pod.namespace == "kube-system" or (pod.spec_priority or 0) >= _CRITICAL


def search_steps(session: Session) -> int:
    """What the search for victims takes beside what the kernel does, in steps, see `Turns`."""
    return _SEARCH * len(session.view.nodes)


def starving(session: Session, *, among_others: bool = False, by_share: bool = False) -> dict[str, list[Job]]:
    """The jobs that may evict others, by queue; `among_others` adds the queues whose jobs all have what they need.

    With `by_share` every job whose pods wait starves: its queue's share says how much it may take.
    """
    found: dict[str, list[Job]] = {}
    jobs, behind = session.view.jobs, session.behind | session.view.trace.not_reached
    for job in jobs.where(jobs.count(PodState.Pending) > 0):
        if job.key in behind or not job.counts[PodState.Pending]:
            continue
        if session.attempt(job, partial(_starves, session, job, by_share), False):
            found.setdefault(job.queue.name, []).append(job)
    if among_others:
        for queue in session.view.queues.values():
            if queue.name not in found and any(_competes(session, jobs.at(index)) for index in queue.indices.tolist()):
                found[queue.name] = []
    return found


def preempting(session: Session) -> dict[str, list[Job]]:
    """The jobs that may evict less important ones, by queue.

    For pods that kube-scheduler binds it evicts others itself: if sessions did so, too, each such pod would cost two.
    """
    found = starving(session)
    if not session.view.snapshot.bound_elsewhere:
        return found
    own = {name: [job for job in jobs if not _is_bound_elsewhere(session, job)] for name, jobs in found.items()}
    return {name: jobs for name, jobs in own.items() if jobs}


def _is_bound_elsewhere(session: Session, job: Job) -> bool:
    """Whether kube-scheduler binds the pods of a job that wait."""
    names = session.view.snapshot.bound_elsewhere
    return any(pod.scheduler_name in names for pod in session.view.pending(job))


def _starves(session: Session, job: Job, by_share: bool) -> bool:
    """Whether a job whose pods wait may evict others."""
    return _competes(session, job) and (by_share or session.ask.job_starving(job))


def _competes(session: Session, job: Job) -> bool:
    """Whether a job is admitted and can be scheduled."""
    if job.pending_phase or session.ask.closed(job.queue) is not None:
        return False
    return session.attempt(job, lambda: session.ask.job_valid(job) is None, otherwise=False)


def weight(evictions: Sequence[Operation]) -> tuple[int, int, int, float]:
    """How much victims matter, the less the better: the highest priority, the sum, the number, who started last."""
    if not evictions:
        return (-LIFT - 1, 0, 0, 0.0)
    victims = [placement.pods[0] for placement in evictions]
    priorities = [pod.spec_priority or 0 for pod in victims]
    highest = max(priorities)
    oldest = min(began(pod) for pod in victims if (pod.spec_priority or 0) == highest)
    return highest, sum(priorities) + LIFT * len(victims), len(victims), -oldest
