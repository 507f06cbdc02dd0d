"""timeouts: evicts gangs whose pods do not become ready in time, and jobs that exceed their maximum run time.

A gang whose pods are bound wastes its places while fewer than its minimum are ready, because an image cannot be pulled
or a node starts no containers. All its pods are evicted, and it is tried again after a pause that doubles each time. A
job that ran for too long is not placed again. Both are recorded in the condition `TimedOut` of the PodGroup, for a
restarted service or another replica.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api import duration
from stromboli.api.crds import PodGroup, PodGroupCondition
from stromboli.api.duration import Duration
from stromboli.api.pod_state import HELD, PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import Mask
from stromboli.api.words import counted
from stromboli.eviction.eligibility import critical
from stromboli.framework.action import Action
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.jobs import HELD_BACK
from stromboli.framework.cluster.started import scheduled, started_or_scheduled, times_of_held
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord, seconds, timestamp

#: annotation of a PodGroup, which outweighs the argument
_MAX_RUN_TIME = "stromboli.io/max-run-time"
#: why a job is not placed that ran for too long, and a gang that did not get ready
EXCEEDED = "MaximumRunTimeExceeded"
UNREADY = "PodsNotReady"
_CONDITION = "TimedOut"
#: message of the condition of a gang that did not get ready
_TOLD = re.compile(r"timed out (\d{1,9}) times?, and is tried (?:no more|again at (\S{1,40}))")
#: the pause does not double more often
_MOST_DOUBLINGS = 30


#: number of timeouts of each gang that did not get ready since, and the end of its pause, by its key and uid
Tries: TypeAlias = dict[tuple[str, str], tuple[int, float]]


class TimeoutsArguments(Arguments):
    """Arguments of timeouts."""

    ready: Duration = Field(default=0.0, alias="podsReadyTimeout", ge=0)
    """Time for which fewer pods of a gang than its minimum may be ready while they have nodes; 0 is for ever."""
    base: Duration = Field(default=60.0, alias="backoffBase", ge=0)
    """Time for which a gang that timed out is not tried; it doubles with each timeout."""
    longest: Duration = Field(default=3600.0, alias="backoffMax", ge=0)
    """The longest of these pauses."""
    limit: int | None = Field(default=None, alias="backoffLimitCount", ge=0)
    """Number of times that a gang is tried again; unlimited without it."""
    run: Duration = Field(default=0.0, alias="maxRunTime", ge=0)
    """Maximum run time of jobs whose PodGroup has no annotation `stromboli.io/max-run-time`; 0 is for ever."""


class Timeouts(Action):
    name = "timeouts"
    Arguments: ClassVar[type[BaseModel]] = TimeoutsArguments

    def run(self, session: Session) -> None:
        arguments = session.policy.action_arguments.get(self.name, TimeoutsArguments())
        assert isinstance(arguments, TimeoutsArguments)
        self._run_times(session, arguments)
        if arguments.ready:
            session.actions_left[self.name] = self._ready(session, arguments)

    # -- pods that do not get ready --------------------------------------------------------------------------------

    def _ready(self, session: Session, arguments: TimeoutsArguments) -> Tries:
        """Evict gangs that timed out, and hold those back whose pause is not over."""
        view, jobs = session.view, session.view.jobs
        told, lacking = jobs.of(jobs.holds("timed out", _has_timed_out)), _lacking(view, arguments.ready)
        before: Tries | None = view.environment.left.get(self.name)
        if before is None:
            # The first session of a service: the state that another one left is in conditions only.
            before = {(job.key, job.pod_group.metadata.uid): _recalled(job.pod_group) for job in told}
        if not before and not told and lacking is None:
            return {}
        now, tries = view.time(), _not_ready_again(view, before, lacking)
        for job in jobs.of(lacking.late) if lacking is not None else ():
            this = job.key, job.pod_group.metadata.uid
            count, until = tries.get(this, (0, now))
            # Pods whose eviction was refused are evicted again, which is no further time-out.
            if session.attempt(job, partial(self._evict, session, job), otherwise=False) and until <= now:
                pause = arguments.base * 2.0 ** min(count, _MOST_DOUBLINGS)
                tries[this] = count + 1, now + min(pause, arguments.longest)
        for (key, _), (count, until) in tries.items():
            over = arguments.limit is not None and count > arguments.limit
            why = _not_ready(jobs[key], count, until, over=over)
            said = PodGroupCondition(type=_CONDITION, status="True", reason=UNREADY, message=why.detail)
            session.report.condition(jobs[key], said)
            if over or now < until:
                self._hold_back(session, jobs[key], why)
        for job in told:
            if (job.key, job.pod_group.metadata.uid) not in tries:
                session.report.condition(job, PodGroupCondition(type=_CONDITION, status="False", reason=UNREADY))
        return tries

    # -- jobs that run for too long --------------------------------------------------------------------------------

    def _run_times(self, session: Session, arguments: TimeoutsArguments) -> None:
        """Evict jobs that ran for longer than they may, and hold them back from then on."""
        view, jobs = session.view, session.view.jobs
        given, numbers = jobs.said("maximum run time", _max_run_time)
        most = np.array([arguments.run if each < 0 else each for each in given], np.float64)[numbers]
        most[most <= 0] = math.inf
        exceeded = jobs.holds("ran for too long", _has_exceeded)
        running = np.isfinite(most) & (jobs.count(*HELD) > 0)
        if running.any():
            now = view.time(math.inf)
            of, at = times_of_held(view, "started or scheduled", started_or_scheduled, now, unknown=math.inf)
            of, ends = of[running[of]], (at + most[of])[running[of]]
            # A start that lies in the future is not known yet.
            view.time(float(ends[ends > now].min(initial=math.inf)) if np.isfinite(ends).all() else -math.inf)
            # One pod is enough: a member that was made anew does not begin the time again.
            exceeded |= np.bincount(of[ends <= now], minlength=len(jobs)) > 0
        before: dict[tuple[str, str], bool] = view.environment.left.get(EXCEEDED, {})
        for key, uid in before:
            job = jobs.get(key)
            if job is not None and job.pod_group.metadata.uid == uid:
                exceeded[job.index] = True
        found = jobs.of(exceeded)
        if found or before:
            # The condition is written a while after it was reported, and a restart of the service has nothing else.
            session.actions_left[EXCEEDED] = {(job.key, job.pod_group.metadata.uid): True for job in found}
        for job in found:
            # It may have been given more time since.
            words = _told_of_run(job) or f"{job.title} ran for longer than {most[job.index]:g} s, the most that it may"
            session.attempt(job, partial(self._evict, session, job), otherwise=False)
            said = PodGroupCondition(type=_CONDITION, status="True", reason=EXCEEDED, message=words)
            session.report.condition(job, said)
            self._hold_back(session, job, Reason(Stage.Admission, EXCEEDED, words, Actionable.User))

    # -- both ------------------------------------------------------------------------------------------------------

    def _evict(self, session: Session, job: Job) -> bool:
        """Evict all pods of a job, unless the cluster itself needs one of them; whether that was decided."""
        held = [pod for pod in session.view.members(job) if session.view.pods.state[pod.row] in HELD]
        if not held or any(map(critical, held)):
            return False
        statement = session.statement()
        for pod in held:
            statement.evict(pod, self.name)
        statement.commit()
        return True

    def _hold_back(self, session: Session, job: Job, reason: Reason) -> None:
        """Keep later actions from placing a job's pods, and the job from claiming resources that others could use."""
        session.aside.add(job.key)
        session.view.trace.job(job.key, reason)
        session.actions_left.setdefault(HELD_BACK, {})[job.key, job.pod_group.metadata.uid] = True
        if job.phase == "Inqueue" and not job.allocated_count:
            job.phase = "Pending"


def paused_until(session: Session, job: Job) -> float:
    """Until when a job that timed out is not tried; 0 if it does not pause, or is tried no more."""
    tries: Tries = session.actions_left.get(Timeouts.name, {})
    arguments = session.policy.action_arguments.get(Timeouts.name)
    count, until = tries.get((job.key, job.pod_group.metadata.uid), (0, 0.0))
    limit = arguments.limit if isinstance(arguments, TimeoutsArguments) else None
    return 0.0 if limit is not None and count > limit else float(math.ceil(until))


class Lacking(NamedTuple):
    """Jobs with their minimum of pods on nodes but fewer of them ready, shape (jobs,)."""

    now: Mask
    #: those for which that has been so for the time that they have
    late: Mask


def _lacking(view: View, patience: float) -> Lacking | None:
    """The jobs that lack ready pods; None where all pods are ready, so that the session does not depend on the time."""
    jobs = view.jobs
    column = view.snapshot.pod_facts.column("not ready since", _not_ready_since)
    ready = np.array([value == math.inf for value in column.values] + [True])[column.numbers]
    if ready[np.isin(view.pods.state, HELD)].all():
        return None
    of, at = times_of_held(view, "not ready since", _not_ready_since, view.time(), unknown=math.inf)
    needed = jobs.min_available - jobs.count(PodState.Succeeded)
    spare = np.bincount(of, minlength=len(jobs)) - needed
    complete = (needed >= 1) & (spare >= 0)
    now, late = (
        complete & (np.bincount(of[at <= until], minlength=len(jobs)) > spare)
        for until in (view.time() + duration.CLOCK_STEP, view.time() - patience)
    )
    return Lacking(now, late)


def _not_ready_again(view: View, before: Tries, lacking: Lacking | None) -> Tries:
    """The timeouts of earlier sessions, for gangs that still exist and are not ready."""
    tries = {}
    for (key, uid), known in before.items():
        job = view.jobs.get(key)
        if job is None or job.pod_group.metadata.uid != uid:
            continue
        if job.ready_count < job.min_available or (lacking is not None and lacking.now[job.index]):
            tries[key, uid] = known
    return tries


def _not_ready_since(pod: PodRecord) -> float:
    """Since when a pod is not ready, at the earliest since it was scheduled; infinite if it is, 0 if unknown."""
    said = next((each for each in pod.conditions if each.type == "Ready"), None)
    if said is None:
        return scheduled(pod)
    return math.inf if said.status == "True" else max(seconds(said.last_transition_time), scheduled(pod))


def _not_ready(job: Job, count: int, until: float, *, over: bool) -> Reason:
    times = f"timed out {counted(count, 'time')}"
    message = f"the pods of {job.title} did not get ready in time, and gave their places back"
    if over:
        return Reason(Stage.Admission, UNREADY, message, Actionable.User, f"it {times}, and is tried no more")
    detail = f"it {times}, and is tried again at {timestamp(math.ceil(until))}"
    return Reason(Stage.Admission, UNREADY, message, Actionable.Wait, detail)


def _has_timed_out(pod_group: PodGroup) -> bool:
    return _told(pod_group) is not None


def _told(pod_group: PodGroup) -> re.Match[str] | None:
    """The matched message of the condition of a gang that timed out and was not ready since."""
    said = next((each for each in pod_group.status.conditions if each.type == _CONDITION), None)
    return _TOLD.search(said.message) if said is not None and (said.status, said.reason) == ("True", UNREADY) else None


def _recalled(pod_group: PodGroup) -> tuple[int, float]:
    """Number of times that a gang timed out, and the end of its pause, from its condition; zeros without one."""
    told = _told(pod_group)
    return (int(told[1]), seconds(told[2] or "")) if told else (0, 0.0)


def _max_run_time(pod_group: PodGroup) -> float:
    """The maximum run time of a PodGroup's annotation, 0 for any; negative without a valid one."""
    try:
        return max(0.0, duration.parse(pod_group.metadata.annotations.get(_MAX_RUN_TIME, "")))
    except ValueError:
        return -1.0


def _has_exceeded(pod_group: PodGroup) -> bool:
    return any(each.type == _CONDITION and each.reason == EXCEEDED for each in pod_group.status.conditions)


def _told_of_run(job: Job) -> str:
    """The message of a job's condition about its maximum run time; empty without one."""
    said = job.pod_group.status.conditions
    return next((each.message for each in said if (each.type, each.reason) == (_CONDITION, EXCEEDED)), "")
