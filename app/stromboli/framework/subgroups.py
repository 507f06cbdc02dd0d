"""Sub groups of a job: which pods are placed together.

The first `subGroupPolicy` that selects a pod and whose matchLabelKeys it carries decides; pods with the same values
are one group. Everything else, and every pod of a job without policies, is in the default group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from stromboli.api import crds
from stromboli.api.status import STATES, PodState
from stromboli.framework.job import Job, SubJob
from stromboli.state.pods import PodRecord


def make_sub_jobs(job: Job) -> Iterator[tuple[SubJob, list[int]]]:
    """The groups of a job, each with the rows of its pods (none for the only group of a job without policies)."""
    policies = job.pod_group.spec.sub_group_policy
    if not policies:
        yield _default(job, job.counts.copy(), job.pending_best_effort, job.min_available), []
        return
    groups: defaultdict[tuple[int, tuple[str, ...]], list[PodRecord]] = defaultdict(list)
    for pod in job.members(job):
        groups[_group_of(pod, policies)].append(pod)
    for (index, values), pods in groups.items():
        counts, pending_best_effort = _counts(job, pods)
        rows = [pod.row for pod in pods]
        if index < 0:
            yield _default(job, counts, pending_best_effort, 1), rows
            continue
        policy = policies[index]
        yield (
            SubJob(
                job=job,
                uid=f"{job.key}/{policy.name}-{'-'.join(values)}",
                policy=policy.name,
                values=values,
                min_available=policy.sub_group_size,
                priority=max((pod.priority for pod in pods), default=0),
                network_topology=policy.network_topology,
                counts=counts,
                pending_best_effort=pending_best_effort,
            ),
            rows,
        )


def _default(job: Job, counts: list[int], pending_best_effort: int, min_available: int) -> SubJob:
    return SubJob(
        job=job,
        uid=job.key,
        policy="",
        values=(),
        min_available=min_available,
        network_topology=job.pod_group.spec.network_topology,
        counts=counts,
        pending_best_effort=pending_best_effort,
    )


def _group_of(pod: PodRecord, policies: list[crds.SubGroupPolicy]) -> tuple[int, tuple[str, ...]]:
    for index, policy in enumerate(policies):
        values = tuple(pod.labels.get(key, "") for key in policy.match_label_keys)
        if values and all(values) and selects(policy.label_selector, pod):
            return index, values
    return -1, ()


def selects(selector: crds.LabelSelector | None, pod: PodRecord) -> bool:
    """Whether a PodGroup's selector selects a pod; no selector selects all."""
    if selector is None:
        return True
    labels = pod.labels
    return all(labels.get(k) == v for k, v in selector.match_labels.items()) and all(
        _holds(requirement, labels.get(requirement.key)) for requirement in selector.match_expressions
    )


def _holds(requirement: crds.LabelRequirement, value: str | None) -> bool:
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None


def _counts(job: Job, pods: list[PodRecord]) -> tuple[list[int], int]:
    counts, best_effort = [0] * STATES, 0
    for pod in pods:
        state = job.state_of(pod.row)
        counts[state] += 1
        best_effort += state == PodState.Pending and pod.pod_class.best_effort
    return counts, best_effort
