"""gang: pods of a job start together or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from stromboli.api.crds import PodGroup, PodGroupCondition
from stromboli.api.pod_state import READY_STATES, PodState
from stromboli.api.reasons import Actionable, OncePerReason, Reason, Stage
from stromboli.api.resources import Mask, Rows
from stromboli.api.words import by_number, counted
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job, SubJob
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin, Vote
from stromboli.framework.plugin.report import Report
from stromboli.state.pods import PodRecord

_SCHEDULED = PodGroupCondition(type="Scheduled", status="True", reason="tasks in gang are ready to be scheduled")
_NOT_UNSCHEDULABLE = PodGroupCondition(type="Unschedulable", status="False", reason="EnoughResources")
_NOT_SCHEDULED = PodGroupCondition(type="Scheduled", status="False", reason="NotEnoughResources")
#: PodGroups that were not looked into, and say in a session what keeps them, where its work is bounded
_MOST_RENEWED = 500


class Gang(Plugin):
    name = "gang"

    def open(self, view: View) -> None:
        self._view = view
        #: whether pending best-effort pods count as placed
        self._generous = not view.rules.readiness
        if view.rules.whole_gang_eviction:
            # A gang that would fall below its minimum is then evicted as a whole, or not at all.
            self.silent = frozenset(("preemptable", "reclaimable"))

    # -- readiness -------------------------------------------------------------------------------------------------

    def job_valid(self, job: Job) -> Reason | None:
        lacking = self._lacking_roles(job)
        if lacking:
            return Reason(
                Stage.Gang,
                "NotEnoughPodsOfTask",
                f"{job.title} has fewer pods of some role than minTaskMember",
                Actionable.User,
                lacking,
            )
        for policy in job.pod_group.spec.sub_group_policy:
            found = sum(sub_job.policy == policy.name for sub_job in job.sub_jobs.values())
            if found < policy.min_sub_groups:
                return Reason(
                    Stage.Gang,
                    "NotEnoughPodsOfTask",
                    f"{job.title} needs {policy.min_sub_groups} sub groups of {policy.name}",
                    Actionable.User,
                    f"it has {found}",
                )
        if job.valid_count < job.min_available:
            return Reason(
                Stage.Gang,
                "NotEnoughPods",
                f"{job.title} lacks pods: {job.pod_group.least}",
                Actionable.User,
                f"it has {job.valid_count}",
            )
        return None

    def job_missing(self, job: Job) -> int:
        missing = job.min_available - self._held(job)
        roles = job.min_by_role
        if roles:
            held = job.held_by_role(best_effort=self._generous)
            missing = max(missing, sum(max(0, need - held.get(role, 0)) for role, need in roles.items()))
        if job.divided:
            missing = max(missing, self._missing_groups(job, promised=False))
        return missing

    def sub_job_missing(self, sub_job: SubJob) -> int:
        return sub_job.min_available - self._held(sub_job)

    def job_pipelined(self, job: Job) -> Vote:
        enough = self._held(job) + job.waiting_count >= job.min_available
        roles = job.min_by_role
        if enough and roles:
            held = job.held_by_role(best_effort=self._generous, promised=True)
            enough = all(held.get(role, 0) >= need for role, need in roles.items())
        if enough and job.divided:
            enough = self._missing_groups(job, promised=True) <= 0
        return Vote.Permit if enough else Vote.Reject

    def sub_job_pipelined(self, sub_job: SubJob) -> Vote:
        held = self._held(sub_job) + sub_job.counts[PodState.Pipelined]
        return Vote.Permit if held >= sub_job.min_available else Vote.Reject

    def job_starving(self, job: Job) -> bool:
        if job.waiting_count + job.ready_count < job.min_available:
            return True
        # Its minimum in all is no start while a role or sub groups lack theirs.
        parts = self._view.rules.readiness and (job.divided or bool(job.min_by_role))
        return parts and self.job_pipelined(job) is Vote.Reject

    # -- victims ---------------------------------------------------------------------------------------------------

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        held: dict[str, int] = {}
        victims = []
        for candidate in candidates:
            job = self._view.jobs[candidate.job]
            left = held.setdefault(job.key, job.ready_count)
            if left > job.min_available:
                held[job.key] = left - 1
                victims.append(candidate)
        return victims

    reclaimable = preemptable

    def gang_preemptable(self, job: Job, candidates: Sequence[PodRecord]) -> Sequence[PodRecord]:
        """Gangs are offered as bundles, which leave them their minimum or nothing."""
        return candidates

    gang_reclaimable = gang_preemptable

    # -- order -----------------------------------------------------------------------------------------------------

    def job_order(self, job: Job) -> int:
        """Gangs below their minimum come first, starting with those that already hold nodes they cannot use yet."""
        held = self._held(job)
        begun = self._view.rules.begun_first and held > 0
        return 2 * (held >= job.min_available) + (not begun)

    def job_orders(self) -> Rows:
        jobs, best_effort = self._view.jobs, self._view.membership.pending_best_effort
        held = jobs.now(jobs.count(*READY_STATES) + (best_effort if self._generous else 0), self._held)
        begun = self._view.rules.begun_first & (held > 0)
        orders: Rows = 2 * (held >= jobs.min_available) + ~begun
        return orders

    def sub_job_order(self, sub_job: SubJob) -> bool:
        return self.sub_job_missing(sub_job) <= 0

    # -- conditions ------------------------------------------------------------------------------------------------

    def close(self, report: Report) -> None:
        if not report.tells:
            self._mark_blocked()
            return
        blocked = OncePerReason(partial(reasons.unschedulable, self._view.rules))
        for job in _unlike_shown(self._view, self._may_have_news()):
            if not any(job.counts):
                self._close_empty(report, job)
            elif self._held(job) >= job.min_available:
                report.condition(job, _SCHEDULED)
                self._contradict(report, job, _NOT_UNSCHEDULABLE)
            elif self._view.rules.conditions and _is_over(job):
                self._lift(report, job)
            elif job.key in self._view.trace.not_reached:
                # The result of an earlier session stands.
                continue
            elif self._only_waits_for_release(job):
                continue
            else:
                why = report.why(job) or self._view.reason(job) or self.job_valid(job) or reasons.gang_blocked(job)
                report.unschedulable(job, blocked[why])
                self._contradict(report, job, _NOT_SCHEDULED)

    def _mark_blocked(self) -> None:
        """Say which jobs are blocked with pods that run, from which their phase follows; no condition is written."""
        jobs, not_reached = self._view.jobs, self._view.trace.not_reached
        running = jobs.count(PodState.Running)
        for job in jobs.where((running > 0) & (jobs.count(*READY_STATES) < jobs.min_available)):
            if job.counts[PodState.Running] and self._held(job) < job.min_available and job.key not in not_reached:
                job.unschedulable = not self._only_waits_for_release(job)

    def _may_have_news(self) -> Mask:
        """Jobs whose conditions would be wrong if they were left unchanged."""
        jobs, membership = self._view.jobs, self._view.membership
        held = jobs.count(*READY_STATES) + (membership.pending_best_effort if self._generous else 0)
        says_ready = jobs.holds("its condition says that the gang is ready", _says_ready)
        says_blocked = jobs.holds("its condition says that the gang is blocked", _says_blocked)
        waiting = (held < jobs.min_available) | ~says_ready | says_blocked
        news: Mask = np.where(membership.empty, says_blocked | jobs.aside, waiting)
        return news

    def _close_empty(self, report: Report, job: Job) -> None:
        """A PodGroup whose pods are created after its admission has a condition that says why it is not admitted;
        Volcano writes none."""
        if not self._view.rules.conditions:
            return
        why = self._view.reason(job)
        if why is not None:
            report.unschedulable(job, reasons.unschedulable(self._view.rules, why))
        else:
            self._lift(report, job)

    def _lift(self, report: Report, job: Job) -> None:
        """Update the condition of a job that waits for nothing, if it still shows that it waits."""
        if any(c.type == "Unschedulable" and c.status == "True" for c in job.conditions):
            report.condition(job, _NOT_UNSCHEDULABLE)

    def _contradict(self, report: Report, job: Job, condition: PodGroupCondition) -> None:
        """Set a condition that no longer holds to False."""
        if len(job.conditions) < 2 or not self._view.rules.conditions:
            return
        if any(c.type == condition.type and c.status != condition.status for c in job.conditions):
            report.condition(job, condition)

    def _held(self, of: Job | SubJob) -> int:
        return of.ready_count + (of.pending_best_effort if self._generous else 0)

    def _missing_groups(self, job: Job, *, promised: bool) -> int:
        """The number of sub groups that must still become ready."""
        ready: dict[str, int] = {}
        for sub_job in job.sub_jobs.values():
            held = self._held(sub_job) + (sub_job.counts[PodState.Pipelined] if promised else 0)
            ready[sub_job.policy] = ready.get(sub_job.policy, 0) + (held >= sub_job.min_available)
        return sum(
            max(0, policy.min_sub_groups - ready.get(policy.name, 0)) for policy in job.pod_group.spec.sub_group_policy
        )

    def _lacking_roles(self, job: Job) -> str:
        roles = job.min_by_role
        if not roles:
            return ""
        have = job.valid_by_role()
        lacking = [
            f"role {role} needs {counted(need, 'pod')} and has {have.get(role, 0)}"
            for role, need in roles.items()
            if have.get(role, 0) < need
        ]
        others = [
            f"{counted(number, 'pod')} {by_number(number, 'is', 'are')} of role {role}"
            for role, number in have.items()
            if role and role not in roles
        ]
        return ", ".join(lacking + others if lacking else lacking)

    def _only_waits_for_release(self, job: Job) -> bool:
        """Whether only terminating pods keep the job below its minimum."""
        releasing = job.counts[PodState.Releasing]
        if not releasing or job.counts[PodState.Pending] or job.counts[PodState.Pipelined]:
            return False
        return job.scheduled_count >= job.min_available


def _says_ready(pod_group: PodGroup) -> bool:
    for condition in pod_group.status.conditions:
        if condition.type == _SCHEDULED.type:
            return condition.shown == _SCHEDULED.shown
    return False


def _says_blocked(pod_group: PodGroup) -> bool:
    return any(c.type == "Unschedulable" and c.status != "False" for c in pod_group.status.conditions)


def _unlike_shown(view: View, jobs: Mask) -> list[Job]:
    """Jobs whose PodGroups may have to show another reason for not running than they do.

    These are all jobs that were looked into. Jobs that the budget did not reach keep showing what they do; of the
    others with a known reason a bounded number is refreshed per session, those first that show none.
    """
    shown = OncePerReason(lambda reason: reasons.unschedulable(view.rules, reason).shown)
    said, numbers = view.jobs.said("why it is blocked", _why_blocked)
    silent: list[int] = []
    stale: list[int] = []
    others: list[int] = []
    unmade = np.flatnonzero(jobs & view.jobs.unmade)
    for index, key in zip(unmade.tolist(), view.jobs.keys_of(unmade), strict=True):
        reason = view.trace.jobs.get(key)
        if reason is None or reason.stage > Stage.Placement:
            others.append(index)
        elif key not in view.trace.not_reached:
            shows = said[numbers[index]]
            if shows != shown[reason]:
                (stale if shows else silent).append(index)
    first = (silent + stale)[: _MOST_RENEWED if view.bounded else None]
    mask = np.zeros(len(view.jobs), np.bool_)
    mask[first + others] = True
    return view.jobs.where(mask)


def _is_over(job: Job) -> bool:
    """Whether all pods of a job have ended, and it had as many as it starts with."""
    ended = job.counts[PodState.Succeeded] + job.counts[PodState.Failed]
    return ended == job.size >= job.min_available


def _why_blocked(pod_group: PodGroup) -> tuple[str, ...]:
    """The reason that a PodGroup shows why it does not run; empty if there is none."""
    for condition in pod_group.status.conditions:
        if condition.type == "Unschedulable":
            return condition.shown
    return ()
