"""Jobs that could not run even on the empty cluster: a pod larger than any node, a gang larger than all nodes, or one
that its queue may never hold.

Such jobs are not admitted and claim nothing. Every session judges anew, so larger nodes or another capability suffice
to admit them. A rejection is certain: only amounts are compared, and a gang whose pods might be packed passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from msgspec.structs import replace

from stromboli.api.pod_state import READY_STATES, PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import PODS, TOLERANCE, UNKNOWN, Mask, Matrix, Rows, Vector, amounts, told, told_quantity
from stromboli.api.validation import did_you_mean
from stromboli.api.words import counted
from stromboli.framework.cluster.job import Job, Queue, lineage
from stromboli.framework.cluster.jobs import Jobs
from stromboli.framework.cluster.view import View
from stromboli.framework.reasons import resource_name
from stromboli.framework.session.empty_nodes import EmptyNodes
from stromboli.state.nodes import devices_lost
from stromboli.state.pods import PodRecord

#: phases in which a job waits, or may have to wait again
_WAITING = ("", "Pending", "Inqueue", "Running", "Unknown")
#: a job with a pod in one of these states is no longer judged
_BEGUN = (PodState.Pipelined, *READY_STATES)
#: more kinds of pods than that are not compared with each other
_MANY_KINDS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """The jobs and pods that can never run."""

    #: by key of the job
    reasons: dict[str, Reason]
    #: by row, of pods that other jobs have
    pods: dict[int, Reason]
    #: requests of pods that hold a place or could get one, shape (jobs, dimensions)
    requested: Matrix
    #: the jobs that have reasons, shape (jobs,)
    jobs: Mask


def judge(
    view: View,
    ceiling: Callable[[Queue], Vector | None],
    own: Mapping[str, Sequence[tuple[Vector, str]]] = MappingProxyType({}),
    *,
    gangs: bool = True,
) -> Judgement:
    """Find the jobs that can never run; `ceiling` gives the most that a queue may ever hold, shape (dimensions,).

    `own` has the most that single jobs may hold, by key, with words for a job that starts with more.

    Without `gangs` each pod of a job may run alone. If the cluster has no nodes, only limits are checked.
    """
    return _Judge(view, ceiling, own, gangs=gangs).judge()


def anything_waits(view: View) -> bool:
    """Whether there is anything to judge: pods without a place, or jobs that wait for their pods."""
    pods, _ = view.membership.all_pending()
    return len(pods.rows) > 0 or bool(_waiting(view.jobs).any())


def _waiting(jobs: Jobs) -> Mask:
    """The jobs that wait and have not begun, shape (jobs,)."""
    waiting: Mask = jobs.in_phase(*_WAITING) & (jobs.count(*_BEGUN) == 0)
    return waiting


def larger_than_any_node(view: View, pod: PodRecord, whole: Matrix, nodes: dict[str, int] | None = None) -> Reason:
    """The reason why a pod fits on none of some nodes, even empty ones; `whole` are their allocatable amounts."""
    request, largest = view.request(pod), whole.max(axis=1)
    lacking = np.flatnonzero(request > largest).tolist()
    names = [resource_name(view.dimensions, pod, column) for column in lacking]
    numbers = (_too_large(view, pod, *of, largest) for of in zip(names, lacking, strict=True))
    unwell = any(view.nodes.facts.without_devices(name) for name in names)
    who = Actionable.Admin if unwell else Actionable.User
    message = f"no node is large enough in {', '.join(names)}" if names else "no node is large enough"
    return Reason(Stage.Placement, "NeverFits", message, who, "; ".join(numbers), nodes or {}, scalable=True)


def _too_large(view: View, pod: PodRecord, name: str, column: int, largest: Vector) -> str:
    """A pod's request for a resource next to what nodes have, with those that the pod may not use."""
    request, elsewhere = view.request(pod), float(view.nodes.allocatable[column].max())
    overhead, who = pod.pod_class.spec.overhead or {}, f"role {pod.role} " if pod.role else ""
    asks = f"{name}: {who}asks for {told(name, request[column])}"
    if name in overhead:
        above = told_quantity(name, overhead[name])
        asks = f"{asks}, {above} of it the overhead of its RuntimeClass"
    if elsewhere < request[column] and (unwell := view.nodes.facts.without_devices(name)):
        first, *others = unwell
        more = f", and {counted(len(others), 'more node')} like it" if others else ""
        return f"{asks}, node {first.name} has {devices_lost(first, name)}{more}: is its device plugin well?"
    if view.dimensions[column] == UNKNOWN:
        return f"{asks}, and no node offers it{did_you_mean(name, view.dimensions)}"
    if elsewhere >= request[column]:
        most, other = told(name, largest[column]), told(name, elsewhere)
        return f"{asks}, the largest node that it may use has {most}, and one that it may not use has {other}"
    return f"{asks}, the largest node has {told(name, largest[column])}"


class _Judge:
    def __init__(
        self,
        view: View,
        ceiling: Callable[[Queue], Vector | None],
        own: Mapping[str, Sequence[tuple[Vector, str]]],
        *,
        gangs: bool,
    ) -> None:
        self._view = view
        self._own = own
        self._empty_nodes = EmptyNodes(view)
        self._pending, self._job_of = view.membership.all_pending()
        self._rows = self._pending.rows
        #: class of each pending pod, job by job, and whether a class fits on some node
        self._class = view.pods.pod_class[self._rows].astype(np.intp)
        self._requests = view.snapshot.requests[:, : len(view.dimensions)]
        self._fits = np.ones(len(self._requests), np.bool_)
        used = np.unique(self._class)
        self._has_nodes = len(view.nodes) > 0
        if self._has_nodes:
            self._fits[used] = self._empty_nodes.holds(self._requests[used])
        #: by index
        self._queues = list(view.queues.values())
        self._ceilings = {queue.name: ceiling(queue) for queue in view.queues.values() if queue.has_jobs}
        self._copies: dict[int, float] = {}
        self._too_large: dict[tuple[int, str], Reason] = {}
        least = np.maximum(view.jobs.min_available, 1)
        #: number of pods that each job starts with, shape (jobs,)
        self._need: Rows = least if gangs else np.ones_like(least)
        #: gangs of equal pods that could run: class, number and queue, plus the job if it has its own limit
        self._possible: set[tuple[int, int, str, str]] = set()

    def judge(self) -> Judgement:
        jobs, never = self._view.jobs, ~self._fits[self._class]
        found = self._judge_jobs(never)
        aside = np.zeros(len(jobs), np.bool_)
        indices = np.array(sorted(found), np.intp)
        aside[indices] = True
        reasons = {key: found[at] for at, key in zip(indices.tolist(), jobs.keys_of(indices), strict=True)}
        others = np.flatnonzero(never & ~aside[self._job_of]).tolist()
        pods = {int(self._rows[at]): self._larger_than_any_node(at) for at in others}
        return Judgement(reasons, pods, self._requested(never | aside[self._job_of]), aside)

    def _judge_jobs(self, never: Mask) -> dict[int, Reason]:
        """Why jobs can never run, by index; `never` are the pending pods that fit on no node."""
        doubtful = self._doubtful()
        if not doubtful.any():
            return {}
        lacking, firsts = self._lacking(doubtful, never)
        found = {index: self._larger_than_any_node(at) for index, at in firsts.items()}
        asked = np.flatnonzero(doubtful & ~lacking)
        for index in asked[~self._surely_fits(asked)].tolist():
            why = self._why(index, *self._pending.span(index))
            if why is not None:
                found[index] = why
        return found

    def _lacking(self, doubtful: Mask, never: Mask) -> tuple[Mask, dict[int, int]]:
        """The jobs that have their pods, and with those that fit on some node fewer than they start with.

        `never` are the pending pods that do not fit. Also the first of them, by index of the job.
        """
        size = len(doubtful)
        if not never.any():
            return np.zeros(size, np.bool_), {}
        waiting, large = (np.bincount(rows, minlength=size) for rows in (self._job_of, self._job_of[never]))
        lacking: Mask = doubtful & (waiting >= self._need) & (waiting - large < self._need)
        at = np.flatnonzero(never)
        jobs, first = np.unique(self._job_of[at], return_index=True)
        known = dict(zip(jobs.tolist(), at[first].tolist(), strict=True))
        return lacking, {index: known[index] for index in np.flatnonzero(lacking).tolist()}

    def _surely_fits(self, asked: Rows) -> Mask:
        """Mask of jobs that certainly fit, pods unseen: even their largest requests fit often enough."""
        view, jobs = self._view, self._view.jobs
        begins = np.flatnonzero(np.diff(self._job_of, prepend=-1))
        largest = np.zeros((len(jobs), len(view.dimensions)))
        if len(begins):
            largest[self._job_of[begins]] = np.maximum.reduceat(self._requests[self._class], begins)
        largest, need, queue = largest[asked], self._need[asked], jobs.queue[asked]
        complete = np.bincount(self._job_of, minlength=len(jobs))[asked] >= need
        ceilings = [self._ceilings.get(name) for name in view.queues]
        most = np.full((len(ceilings), len(view.dimensions)), np.inf)
        for row, ceiling in enumerate(ceilings):
            if ceiling is not None:
                most[row] = ceiling
        minima, own = jobs.min_resources[asked], largest * need[:, None]
        sure = (minima <= most[queue]).all(axis=1) & (~complete | (own <= most[queue]).all(axis=1))
        if self._has_nodes:
            sure &= np.where(complete, self._empty_nodes.hold(largest, need), (minima <= view.total).all(axis=1))
        if self._own:
            sure &= ~np.isin(asked, [jobs[key].index for key in self._own])
        return sure

    def _doubtful(self) -> Mask:
        """The waiting jobs that may be too large: gangs, jobs with limits, and single pods that no node can hold."""
        jobs = self._view.jobs
        # Jobs that get nothing in any case show that as their reason, not a lack of nodes.
        doubtful = _waiting(jobs) & ~self._view.shut
        waiting = np.flatnonzero(doubtful)
        limited = np.array([self._ceilings.get(name) is not None for name in self._view.queues], np.bool_)
        large = np.zeros(len(jobs), np.bool_)
        large[[jobs[key].index for key in self._own]] = True
        large[self._job_of[~self._fits[self._class]]] = True
        gangs, minima = jobs.min_available[waiting] > 1, jobs.has_min_resources[waiting]
        doubtful[waiting] = large[waiting] | gangs | minima | limited[jobs.queue[waiting]]
        return doubtful

    def _requested(self, never: Mask) -> Matrix:
        """Amounts that jobs hold and may get, without pods that can `never` run, a mask of shape (pending pods,)."""
        never = never & ~self._view.quiet[self._job_of]
        if not never.any():
            return self._view.job_requested
        requested = self._view.job_requested.copy()
        np.subtract.at(requested, self._job_of[never], self._requests[self._class[never]])
        return requested

    # -- one job -----------------------------------------------------------------------------------------------------

    def _why(self, index: int, start: int, end: int) -> Reason | None:
        """Why a job that holds nothing can never run; its pending pods are those from `start` to `end`."""
        need, least = int(self._need[index]), self._view.jobs.min_resources[index]
        if end - start < need:
            # The pods are still to come, so that nodes would stand idle: only their minimum is known.
            # There may be thousands of such jobs, so no Job objects are created for them.
            why = self._beyond_queue(index, least) or self._beyond_cluster(index, least)
            return replace(why, scalable=False) if why is not None else None
        job = self._view.jobs.at(index)
        classes = self._class[start:end]
        first = int(classes[0])
        if end - start > 1 and (classes != first).any():
            return self._beyond_queue(job.index, least) or self._why_mixed(job, start, classes, need)
        gang = (first, need, job.queue.name, job.key if job.key in self._own else "")
        if gang not in self._possible:
            # A queue's limit comes first: no node helps against it.
            why = self._beyond_queue(job.index, need * self._requests[first])
            if why is None and not self._fits[first]:
                why = self._larger_than_any_node(start)
            why = why or self._beyond_cluster(job.index, need * self._requests[first])
            why = why or self._beyond_nodes_alone(job, need, self._copies_of(first))
            if why is not None:
                return why
            self._possible.add(gang)
        return self._beyond_queue(job.index, least)

    def _why_mixed(self, job: Job, start: int, classes: Rows, need: int) -> Reason | None:
        fitting = self._fits[classes]
        if fitting.sum() < need:
            return self._larger_than_any_node(start + int(np.argmin(fitting)))
        kinds, counts = np.unique(classes[fitting], return_counts=True)
        bounded = self._ceilings[job.queue.name] is not None or job.key in self._own
        if not bounded and self._empty_nodes.copies(self._requests[kinds].max(axis=0)) >= need:
            return None
        least = self._least_amount(kinds, counts, need)
        return (
            self._beyond_queue(job.index, least)
            or self._beyond_cluster(job.index, least)
            or self._beyond_nodes_alone(job, need, self._most_of(kinds, counts, need))
            or self._beyond_nodes(job, kinds, counts, need)
        )

    def _beyond_nodes(self, job: Job, kinds: Rows, counts: Rows, need: int) -> Reason | None:
        """Why pods that are all needed do not fit side by side though their sum does."""
        if counts.sum() != need or not self._has_nodes or self._empty_nodes.pack(self._requests[kinds], counts):
            return None
        message = f"{_starts_with(job, need)}, which the empty nodes cannot hold side by side"
        detail = "all nodes together have as much as they ask for, but the pods cannot be divided among the nodes"
        return Reason(Stage.Placement, "NeverFits", message, Actionable.User, detail, scalable=True)

    def _larger_than_any_node(self, at: int) -> Reason:
        pod = self._view.record(int(self._rows[at]))
        known = pod.pod_class.id, pod.role
        if known not in self._too_large:
            self._too_large[known] = larger_than_any_node(self._view, pod, self._empty_nodes.amounts)
        return self._too_large[known]

    def _beyond_nodes_alone(self, job: Job, need: int, copies: float) -> Reason | None:
        if copies >= need or not self._has_nodes:
            return None
        message = f"{_starts_with(job, need)}, and even the empty cluster fits fewer"
        detail = f"it fits {copies:.0f} of them"
        return Reason(Stage.Placement, "NeverFits", message, Actionable.User, detail, scalable=True)

    def _beyond_cluster(self, index: int, amount: Vector) -> Reason | None:
        total = self._view.total
        columns = np.flatnonzero(amount > total + TOLERANCE).tolist()
        if not columns or not self._has_nodes:
            return None
        title, names = self._view.jobs.title(index), self._names(columns)
        message = f"{title} starts with more than the whole cluster has in {names}"
        detail = self._compared(columns, amount, "the cluster has", total)
        return Reason(Stage.Placement, "NeverFits", message, Actionable.User, detail, scalable=True)

    def _beyond_queue(self, index: int, amount: Vector) -> Reason | None:
        """Why a job may never hold what it starts with: its queue may not, or it itself."""
        key, queue = self._view.jobs.key(index), self._queues[self._view.jobs.queue[index]]
        own = [(most, words, "it") for most, words in self._own.get(key, ())]
        of_queue = self._ceilings[queue.name], "starts with more than {queue} may ever hold", "the queue"
        for most, words, who in (of_queue, *own):
            if most is None:
                continue
            above = amount > most
            if who != "it" and not self._view.counts_pods:
                above[PODS] = False
            if above.any():
                columns = np.flatnonzero(above).tolist()
                words = words.replace("{queue}", self._limiting(queue, columns[0], most[columns[0]]))
                message = f"{self._view.jobs.title(index)} {words} in {self._names(columns)}"
                detail = self._compared(columns, amount, f"{who} may have", most)
                return Reason(Stage.QueueShare, "NeverFits", message, Actionable.User, detail)
        return None

    def _limiting(self, queue: Queue, column: int, most: float) -> str:
        """A queue, or the one above it whose capability limits what it may hold of a resource."""
        name = self._view.dimensions[column]
        for each in lineage(queue, self._view.queues):
            if amounts(each.spec.capability).get(name) == most:
                return f"queue {each.name}" + (f" above queue {queue.name}" if each is not queue else "")
        return f"queue {queue.name}"

    def _names(self, columns: list[int]) -> str:
        return ", ".join(self._view.dimensions[column] for column in columns)

    def _compared(self, columns: list[int], asked: Vector, verb: str, bound: Vector) -> str:
        return "; ".join(
            f"{name}: asks for {told(name, asked[c])}, {verb} {told(name, bound[c])}"
            for c, name in ((c, self._view.dimensions[c]) for c in columns)
        )

    # -- bounds ------------------------------------------------------------------------------------------------------

    def _copies_of(self, pod_class: int) -> float:
        found = self._copies.get(pod_class)
        if found is None:
            found = self._copies[pod_class] = self._empty_nodes.copies(self._requests[pod_class])
        return found

    def _most_of(self, kinds: Rows, counts: Rows, need: int) -> float:
        """Upper bound on the number of pods of several kinds that fit on all nodes together."""
        copies = np.array([self._copies_of(kind) for kind in kinds.tolist()])
        most = float(np.minimum(copies, counts).sum())
        if len(kinds) > _MANY_KINDS:
            return most
        requests, size = self._requests[kinds], int(counts.sum())
        for kind, request in enumerate(requests):
            # Where this kind does not fit, none fits that asks for as much or more of everything.
            as_large = int(counts[(requests >= request).all(axis=1)].sum())
            most = min(most, size - as_large + float(copies[kind]))
        return most if most < need else float(need)

    def _least_amount(self, kinds: Rows, counts: Rows, need: int) -> Vector:
        """The least that `need` pods of several kinds request, whichever pods they are."""
        requests = self._requests[kinds]
        least = np.zeros(requests.shape[1])
        for column, asked in enumerate(requests.T):
            order = np.argsort(asked, kind="stable")
            taken = np.diff(np.minimum(np.cumsum(counts[order]), need), prepend=0)
            least[column] = asked[order] @ taken
        return least


def _starts_with(job: Job, pods: int) -> str:
    return f"{job.title} starts with {counted(pods, 'pod')} together"
