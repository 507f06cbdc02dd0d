"""reservation: reserves places for a gang that has waited long, at the earliest time at which it will fit (EASY
backfill).

Large gangs starve if small jobs keep arriving, since never enough is free at once. Among the gangs that found no
places, would fit if all jobs ended, and have waited for longer than `after`, the most important one gets a reservation:
the earliest time at which its pods fit, by the declared run times of running jobs, and the places that it takes then.
Other pods may still go anywhere if their jobs end by that time, and otherwise wherever enough is left beside the
reservation. So the gang starts by then at the latest, if no job exceeds its declared run time, and little stays idle
for it.

A job declares its run time by `stromboli.io/run-time` on its PodGroup, which the service copies from the owner of its
pods, or by `activeDeadlineSeconds`; the default is `defaultRunTime`. A job that exceeds it is expected to end any
moment: the places that the gang needs of it stay reserved, so that the gang starts as soon as it ends, and the gang's
reasons name it. The reservation is recomputed in each session. While there is one, jobs are admitted if this plugin is
in a tier above those that refuse them, since the gang's claim would otherwise block all others. Rules between pods,
such as anti-affinity, and the gang's queue may still delay it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api.duration import Duration
from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Passage, Stage
from stromboli.api.resources import TOLERANCE, Mask, Matrix, Rows, Vector
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin, Verdict, Vote
from stromboli.framework.plugin.causes import Elsewhere, Filters
from stromboli.framework.plugin.report import Report
from stromboli.framework.session.remarks import amend
from stromboli.kube import node_affinity, taints
from stromboli.placement.earliest import Earliest, Ends, demands_of
from stromboli.state.pods import PodRecord, timestamp

#: numbers of gangs that waited long and are looked at, and of jobs named that should be over
_MOST, _MOST_NAMED = 100, 5
#: where a gang waits that would start if places were free
_STAGES = (Stage.Gang, Stage.Placement)
_OVERCOMMITTED = "ClusterOvercommitted"


class ReservationArguments(Arguments):
    """Arguments of reservation."""

    after: Duration = Field(default=1800.0, alias="after", ge=0)
    """Time that a gang waits before places are reserved for it."""
    default: Duration = Field(default=3600.0, alias="defaultRunTime", gt=0)
    """The assumed run time of jobs that declare none."""


class Reserved(NamedTuple):
    """The state for the next session: the gang, and the time that it was promised in this one, if any."""

    job: str
    #: seconds since the epoch; None while it waits for jobs that should be over
    time: float | None


class Reservation(Plugin):
    name = "reservation"
    Arguments: ClassVar[type[BaseModel]] = ReservationArguments
    left: Reserved | None

    def open(self, view: View) -> None:
        self._view = view
        self._job: Job | None = None if self.left is None else view.jobs.get(self.left.job)
        self._reservation: Earliest | None = None
        #: which jobs are over when the gang starts, shape (jobs,)
        self._early = np.zeros(0, np.bool_)
        #: which jobs should be over, shape (jobs,)
        self._late = np.zeros(0, np.bool_)
        if self._job is None or not self._job.counts[PodState.Pending]:
            self._job = None
            return
        now = view.time(math.inf)
        lengths, began = self._run_times(), self._began()
        ends = np.maximum(np.where(began > 0, began, now) + lengths, now)
        # Over time it only changes for jobs that run longer than declared, or whose start is unknown.
        held = np.unique(view.membership.index_of[view.pods.job[self._rows_held()]])
        self._now, self._late = now, (began > 0) & (began + lengths <= now)
        coming = np.where(began[held] > 0, ends[held], -math.inf)
        view.time(float(coming[coming != now].min(initial=math.inf)))
        self._reservation = Ends(view, ends).earliest(demands_of(view, self._job, partial(_passing, view)), now)
        if self._reservation is not None:
            left: float = self._reservation.time - now + TOLERANCE
            self._early = lengths <= left
            self._used: Matrix = view.nodes.used.copy()

    # -- other jobs keep off ---------------------------------------------------------------------------------------

    def identity(self, pod: PodRecord) -> Hashable:
        return self._keeps_off(pod)

    def varies_on_node(self, pod: PodRecord) -> bool:
        return self._keeps_off(pod)

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        if self._reservation is None or not self._keeps_off(pod):
            return
        request = self._view.request(pod)
        asked = np.flatnonzero(request)
        spare = self._reservation.spare[:, nodes.rows] - (nodes.used - self._used[:, nodes.rows])
        enough: Mask = np.logical_and.reduce(spare[asked] + TOLERANCE >= request[asked, None], axis=0)
        yield Elsewhere("node(s) are kept for a gang that has waited long", self._kept_for), enough

    def _kept_for(self) -> Passage:
        assert self._job is not None
        words = f"places are kept for {self._job.title}"
        return Passage((self._job.namespace,), words, "places are kept for a job of another namespace")

    def _keeps_off(self, pod: PodRecord) -> bool:
        """Whether a pod may not take amounts that the gang will need."""
        if self._reservation is None or self._job is None or pod.job == self._job.key:
            return False
        job = self._view.jobs.get(pod.job)
        return job is None or not self._early[job.index]

    def job_enqueueable(self, job: Job) -> Verdict:
        return Vote.Permit if self._reservation is not None else Vote.Abstain

    # -- times -----------------------------------------------------------------------------------------------------

    def _run_times(self) -> Vector:
        """Maximum run time of each job in seconds, shape (jobs,)."""
        values, numbers = self._view.jobs.said("run time", lambda group: group.run_time or math.inf)
        lengths: Vector = np.minimum(np.array(values[:])[numbers], self._deadlines())
        lengths[np.isinf(lengths)] = self.arguments.default
        return lengths

    def _deadlines(self) -> Vector:
        """Maximum run time of the last pod of each job, shape (jobs,); infinite if one of its pods has no bound."""
        view = self._view
        column = view.snapshot.pod_facts.column("deadline", lambda pod: pod.deadline or math.inf)
        jobs = view.membership.index_of[view.pods.job]
        rows = np.flatnonzero(jobs >= 0)
        longest = np.zeros(len(view.jobs))
        np.maximum.at(longest, jobs[rows], np.array([*column.values[:], math.inf])[column.numbers[rows]])
        return np.where(longest > 0, longest, math.inf)

    def _rows_held(self) -> Rows:
        """The rows of the pods of jobs that have a node."""
        view = self._view
        return np.flatnonzero((view.pods.node >= 0) & (view.membership.index_of[view.pods.job] >= 0))

    def _began(self) -> Vector:
        """Start time of each job's last pod, shape (jobs,), 0 where none started."""
        view, rows = self._view, self._rows_held()
        started = view.snapshot.pod_facts.beginnings()[rows]
        started[np.isinf(started)] = 0.0
        began = np.zeros(len(view.jobs))
        np.maximum.at(began, view.membership.index_of[view.pods.job[rows]], started)
        return began

    # -- who gets one ----------------------------------------------------------------------------------------------

    def close(self, report: Report) -> None:
        """Choose the gang for which the next session keeps places."""
        view = self._view
        waiting = view.jobs.count(PodState.Pending) > 0
        self._next: Job | None = None
        if not waiting.any():
            return
        now, due = view.time(math.inf), view.jobs.created + self.arguments.after
        view.time(float(due[waiting & (due > now)].min(initial=math.inf)))
        waiting &= due <= now
        order = np.lexsort((view.jobs.alphabetical, view.jobs.created, -view.jobs.priority))
        for index in order[waiting[order]][:_MOST].tolist():
            job = view.jobs.at(index)
            lacks = job.counts[PodState.Pending] and job.ready_count < job.min_available and self._lacks_places(job)
            if lacks and self._will_fit(job):
                self._next = job
                if job is not self._job:
                    # The next session is the first that keeps places for it.
                    view.time()
                elif self._reservation is not None:
                    self._tell(job, self._reservation)
                return

    def _tell(self, job: Job, reservation: Earliest) -> None:
        """Add to the reasons of the gang from when on it has places, or which jobs have them that should be over."""
        view, rows = self._view, self._rows_held()
        taken: Mask = np.logical_or.reduce(reservation.taken > 0, axis=0)
        rows = rows[taken[view.pods.node[rows]]]
        late = [view.jobs.at(index) for index in self._late_in(rows)]
        said = [
            Passage(
                (each.namespace,),
                f"places are kept for it that {each.title} has, which runs for longer than it said",
                "places are kept for it that a job of another namespace has, which runs for longer than it said",
            )
            for each in late[:_MOST_NAMED]
        ]
        if reservation.time > self._now and not late:
            said = [Passage((), f"places are kept for it, from {timestamp(reservation.time)} on", "")]
        amend(view, job, lambda reason: reason.saying(job.namespace, said))

    def _late_in(self, rows: Rows) -> list[int]:
        """The jobs of the pods in some rows that should be over."""
        jobs = np.unique(self._view.membership.index_of[self._view.pods.job[rows]])
        late: list[int] = jobs[self._late[jobs]].tolist()
        return late

    def _lacks_places(self, job: Job) -> bool:
        reason = self._view.reason(job)
        return reason is not None and (reason.stage in _STAGES or reason.reason == _OVERCOMMITTED)

    def _will_fit(self, job: Job) -> bool:
        """Whether a gang has places once all jobs are over: one that has none must not keep others from theirs."""
        if job is self._job:
            return self._reservation is not None
        if job.key in self._view.never_fits:
            return False
        everything = Ends(self._view, np.zeros(len(self._view.jobs)))
        return everything.earliest(demands_of(self._view, job, partial(_passing, self._view)), 0.0) is not None

    def leave(self) -> Reserved | None:
        if self._next is None:
            return None
        kept = self._reservation if self._next is self._job else None
        # A mere passing of time is no change for the next session.
        return Reserved(self._next.key, kept.time if kept is not None and kept.time > self._now else None)


def _passing(view: View, pod: PodRecord) -> Mask:
    """The nodes that a pod's spec lets it be on."""
    facts, spec = view.nodes.facts, pod.pod_class.spec
    tolerations = tuple(spec.tolerations or ())
    passing = ~taints.keeping_away(tolerations, facts)
    if not taints.tolerates_unschedulable(tolerations):
        passing &= ~facts.unschedulable
    selected = node_affinity.required_nodes(spec, facts)
    return passing if selected is None else passing & selected
