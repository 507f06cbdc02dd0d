"""Sub groups of a job: which pods are placed together.

The first `subGroupPolicy` that selects a pod and whose matchLabelKeys it carries decides; pods with the same values
are one group. Everything else, and every pod of a job without policies, is in the default group.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from stromboli.api import crds
from stromboli.api.pod_state import STATES, PodState
from stromboli.framework.cluster.job import Job, SubJob
from stromboli.state.pods import PodRecord
from stromboli.state.selectors import EVERYTHING, Selector, of_model

_PENDING = int(PodState.Pending)
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def make_sub_jobs(job: Job) -> Iterator[tuple[SubJob, list[int]]]:
    """The groups of a job, each with the rows of its pods.

    The only group of a job without policies has no rows, and shares the job's counts.
    """
    policies = job.pod_group.spec.sub_group_policy
    if not policies:
        yield _default(job, job.counts, job.pending_best_effort, job.min_available), []
        return
    selectors = [_selector(policy) for policy in policies]
    groups: defaultdict[tuple[int, tuple[str, ...]], list[PodRecord]] = defaultdict(list)
    read = _keys(policies, selectors)
    known: dict[tuple[str | None, ...], tuple[int, tuple[str, ...]]] = {}
    for pod in job.view.members(job):
        # Pods with the same values of the labels that policies read are in the same group.
        said = tuple(map(pod.labels.get, read))
        group = known.get(said)
        if group is None:
            group = known[said] = _group_of(pod, policies, selectors)
        groups[group].append(pod)
    for (index, values), pods in groups.items():
        counts, pending_best_effort = _counts(job, pods)
        if index < 0:
            sub_job = _default(job, counts, pending_best_effort, 1)
        else:
            sub_job = _of_policy(job, policies[index], values, counts, pending_best_effort)
        sub_job.priority = max([0, *(pod.priority for pod in pods)])
        yield sub_job, [pod.row for pod in pods]


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


def _of_policy(
    job: Job, policy: crds.SubGroupPolicy, values: tuple[str, ...], counts: list[int], pending_best_effort: int
) -> SubJob:
    return SubJob(
        job=job,
        uid=f"{job.key}/{policy.name}-{'-'.join(values)}",
        policy=policy.name,
        values=values,
        min_available=policy.sub_group_size,
        ordinal=int(values[0]) if _NUMBER.fullmatch(values[0]) else 0,
        network_topology=policy.network_topology,
        counts=counts,
        pending_best_effort=pending_best_effort,
    )


def _group_of(
    pod: PodRecord, policies: list[crds.SubGroupPolicy], selectors: list[Selector]
) -> tuple[int, tuple[str, ...]]:
    for index, (policy, selector) in enumerate(zip(policies, selectors, strict=True)):
        values = tuple(pod.labels.get(key, "") for key in policy.match_label_keys)
        if values and all(values) and selector.matches(pod.labels):
            return index, values
    return -1, ()


def _keys(policies: list[crds.SubGroupPolicy], selectors: list[Selector]) -> list[str]:
    """The labels that policies read."""
    of_selectors = (requirement.key for selector in selectors for requirement in selector.requirements)
    return sorted({*of_selectors, *(key for policy in policies for key in policy.match_label_keys)})


def _selector(policy: crds.SubGroupPolicy) -> Selector:
    """The pods that a policy selects; without a selector it selects all pods."""
    return EVERYTHING if policy.label_selector is None else of_model(policy.label_selector)


def _counts(job: Job, pods: list[PodRecord]) -> tuple[list[int], int]:
    counts, best_effort = [0] * STATES, 0
    for pod in pods:
        state = int(job.view.pods.state[pod.row])
        counts[state] += 1
        best_effort += state == _PENDING and pod.pod_class.best_effort
    return counts, best_effort
