"""Remedies at the cost of others: evictions that the policy does not make, and jobs that end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from stromboli.actions.timeouts import Timeouts
from stromboli.api.pod_state import PodState
from stromboli.api.resources import PODS
from stromboli.api.validation import nearest
from stromboli.api.words import by_number
from stromboli.explain.answers import Holding
from stromboli.explain.competitors import in_jobs
from stromboli.explain.evictions import PREEMPTING, RECLAIMING, candidates
from stromboli.explain.places import holders
from stromboli.explain.rehearsal import Change, remove
from stromboli.explain.remedies.case import Candidate, Case
from stromboli.explain.remedies.changes import respec, set_group, set_queue
from stromboli.framework.cluster.job import Job, called
from stromboli.state.cluster import ClusterState
from stromboli.workloads.names import said_by


def actions(case: Case) -> Iterator[Candidate]:
    """Actions that are not in the policy, and queues that give nothing back."""
    actions, engine = case.session.policy.actions, case.rehearsal.engine
    for action in ("enqueue", "allocate"):
        if action not in actions:
            # Those that lead to admission come first, then those that lead to places; what is held back stays so.
            first = tuple(name for name in (Timeouts.name, "enqueue", "allocate") if name in (*actions, action))
            rest = tuple(name for name in actions if name not in first)
            words = f"add {action} to the actions of the policy"
            yield Candidate(words, "admin", engine=engine.acting(first + rest))
    if case.reason == "NoAction" and "backfill" not in actions and "backfill" in engine.registry.actions:
        yield Candidate(
            "add backfill to the actions of the policy", "admin", engine=engine.acting((*actions, "backfill"))
        )
    evicts = [action for action in (*PREEMPTING, *RECLAIMING) if action in actions]
    if case.stage == "Admission" and evicts and "enqueue" in actions and _goes_before_some(case):
        words = (
            f"take enqueue out of the actions of the policy, so that {evicts[0]} sees jobs that are not admitted yet"
        )
        yield Candidate(words, "admin", engine=engine.acting(tuple(name for name in actions if name != "enqueue")))
    if case.stage not in ("Placement", "Gang"):
        return
    for action in ("preempt", "reclaim"):
        if action not in actions and action in engine.registry.actions:
            words = f"add {action} to the actions of the policy"
            yield Candidate(words, "admin", engine=engine.acting((*actions, action)))
    for queue in case.session.view.queues.values():
        if queue.spec.reclaimable is False and queue.has_jobs and "reclaim" in actions:
            yield Candidate(
                f"set reclaimable: true in queue {queue.name}", "admin", set_queue(queue.name, reclaimable=True)
            )


def priorities(case: Case) -> Iterator[Candidate]:
    """Remedies where a job's priority evicts nothing: its class is misspelt, only its pods', or never preempts."""
    if case.job is None or not set(PREEMPTING) & set(case.session.policy.actions):
        return
    key, name = case.job.key, case.job.pod_group.spec.priority_class_name
    classes = case.session.view.snapshot.priority_classes
    if name:
        meant = "" if name in classes else nearest(name, sorted(classes))
    else:
        meant = (case.pods and case.pods[0].pod_class.spec.priority_class_name) or ""
    if meant:
        words = f"set priorityClassName: {meant} in {said_by(case.job.pod_group)}"
        yield Candidate(words, "user", set_group(key, priority_class_name=meant))
    if case.pods and case.pods[0].pod_class.spec.preemption_policy == "Never":
        words = "give the pods a priority class whose preemptionPolicy is not Never"
        yield Candidate(words, "user", respec(case, preemption_policy=None))


def _goes_before_some(case: Case) -> bool:
    """Whether pods of lower priority run in the job's queue, or any in others: without them nothing can be evicted."""
    job, session = case.job, case.session
    if job is None:
        return False
    preempting = bool(set(PREEMPTING) & set(session.policy.actions))
    lower = (session.view.jobs[pod.job].priority < job.priority for pod in candidates(session, job, "preemptable"))
    return (preempting and any(lower)) or (not preempting and bool(candidates(session, job, "reclaimable")))


def ends(case: Case) -> Iterator[Candidate]:
    """The fewest jobs that have to end first: one of those that hold what is missing, or the largest together."""
    holding = [*case.answer.holders, *case.answer.ahead]
    if case.job is not None and (case.stage in ("Admission", "QueueShare", "Gang") or not case.answer.holders):
        # Where shares are divided, a queue that wants less leaves more to others.
        columns = np.flatnonzero(case.asked > 0).tolist()
        holding = [*_in_the_way(case), *holding]
        holding += in_jobs(case.session, case.session.view.jobs.values(), columns, claimed=True)
    named = list(dict.fromkeys(f"{each.namespace}/{each.name}" for each in holding if each.name))
    ours = {case.job.key} | _owners(case.job) if case.job is not None else set()
    jobs = case.session.view.jobs
    # Other parts of the same workload end together with it.
    named = [key for key in named if ours.isdisjoint({key} | _owners(jobs.get(key)))]
    groups: list[Sequence[str]] = [[key] for key in reversed(named)]
    groups += [named[:count] for count in range(2, len(named) + 1)]
    for group in groups:
        words = f"{' and '.join(called(jobs, key) for key in group)} {by_number(len(group), 'ends', 'end')}"
        yield Candidate(f"wait until {words}", "wait", _without(set(group).__contains__), jobs=group)


def _owners(job: Job | None) -> set[str]:
    """The uids of the owners of a job, except pods."""
    references = job.pod_group.metadata.owner_references if job is not None else ()
    return {str(owner["uid"]) for owner in references if owner.get("uid") and owner.get("kind") != "Pod"}


def _in_the_way(case: Case) -> list[Holding]:
    """Jobs with pods where nothing but pods keeps the first one away: by a port, a volume, or a rule between pods."""
    if not case.pods or case.job is None or case.stage != "Placement":
        return []
    kernel, pod = case.session.kernel, case.pods[0]
    nodes = kernel.feasible(pod, hopeful=True) & ~kernel.feasible(pod)
    return holders(case.session, nodes, [PODS], case.job) if nodes.any() else []


def none_waiting(job: str, keys: Collection[str]) -> Change:
    """Remove all pending pods but those of a job, empty for none, and some others; placed pods and jobs stay."""

    def change(state: ClusterState) -> None:
        pods = state.pods
        waiting = np.flatnonzero(pods.state[: pods.size] == PodState.Pending).tolist()
        records = [record for row in waiting if (record := pods.records[row]) is not None]
        for record in records:
            if record.key not in keys and not (job and record.job == job):
                state.delete("Pod", record.key)
        left = {record.job for record in pods.records if record is not None}
        for group in [group.key for group in state.jobs.pod_groups if group is not None]:
            if group not in left and group != job:
                state.delete("PodGroup", group)

    return change


def all_gone(job: str) -> Change:
    """All jobs end but one; pods in no job, such as those of DaemonSets, stay."""
    return _without(lambda key: key not in ("", job))


def _without(ended: Callable[[str], bool]) -> Change:
    """Jobs whose keys are such end, with their pods."""

    def change(state: ClusterState) -> None:
        for pod in [pod.key for pod in state.pods.records if pod is not None and ended(pod.job)]:
            remove(state, pod)
        for group in [group.key for group in state.jobs.pod_groups if group is not None and ended(group.key)]:
            state.delete("PodGroup", group)

    return change
