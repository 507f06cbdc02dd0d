"""What holds in any history of gangs as people write them: a leader, workers of another size, some of them spare.

A gang needs its leader and some workers by `minTaskMember`, or only so many pods. At times its pods are to lie near
each other, on one node or in one zone, or are spread over nodes. `STROMBOLI_HISTORIES` and the rest as for the other
histories.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from msgspec.structs import replace as with_fields

from stromboli.api import crds, objects
from stromboli.engine import SessionResult
from stromboli.state.pods import ROLE_ANNOTATION
from tests.expectations.test_histories import (
    HISTORIES,
    PHASES,
    Histories,
    begins_with,
    few_jobs,
    jobs,
)
from tests.expectations.world import Job, World

LEADER, WORKER = "leader", "worker"
HOST, ZONE, SPREAD = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "spread"


@dataclass
class RoleJob(Job):
    """A job whose first pod leads the others."""

    #: the CPUs of its leader
    lead: int = 1
    #: whether it needs its leader, or only so many pods
    by_role: bool = False
    #: the label of nodes that its pods have in common; empty for none
    near: str = ""
    #: whether its pods are spread over nodes evenly
    spread: bool = False

    def asked(self, pod: str) -> dict[str, int]:
        amounts = super().asked(pod)
        return {**amounts, "cpu": self.lead} if amounts and self.ordinals[pod] == 0 else amounts

    @property
    def least_amounts(self) -> dict[str, int]:
        amounts = super().least_amounts
        return amounts | ({"cpu": amounts["cpu"] - self.cpu + self.lead} if self.by_role and amounts["cpu"] else {})

    def role(self, pod: str) -> str:
        return WORKER if self.ordinals[pod] else LEADER


@dataclass
class RoleWorld(World):
    """Pods have roles, and nodes zones."""

    def objects(self) -> list[Any]:
        by_name = {job.name: job for job in self.jobs}
        of_pods = {name: job for job in self.jobs for name in job.pods}
        of_pods |= {name: job for name, (job, _, _) in self.leaving.items()}
        return [_told(each, by_name, of_pods) for each in super().objects()]

    def session(self) -> tuple[Counter[str], SessionResult]:
        before = [job for job in self.jobs if _runs_whole(job) or not job.running]
        changes, result = super().session()
        for job in before:
            assert _runs_whole(job) or not job.running, f"{job.name} runs without what it needs"
        for job in self.jobs:
            nodes = {node for node in job.pods.values() if node}
            places = nodes if job.near == HOST else {zone(node) for node in nodes} if job.near else {""}
            assert len(places) <= 1, f"{job.name} lies in {places}"
        return changes, result


def _runs_whole(job: Any) -> bool:
    """Whether the leader and enough workers of a job run, or enough pods where it needs no leader."""
    roles = Counter(job.role(name) for name, node in job.pods.items() if node)
    led = not job.by_role or (roles[LEADER] == 1 and roles[WORKER] >= job.least - 1)
    return led and roles.total() >= job.least


def zone(node: str) -> str:
    return f"z{int(node[1:]) // 2}"


def _told(each: Any, jobs_by_name: dict[str, Any], of_pods: dict[str, Any]) -> Any:
    match each:
        case crds.PodGroup() if (job := jobs_by_name[each.metadata.name]).by_role:
            each.spec.min_task_member.update({LEADER: 1, WORKER: job.least - 1})
        case objects.Node():
            labels = {**each.metadata.labels, ZONE: zone(each.metadata.name)}
            return with_fields(each, metadata=with_fields(each.metadata, labels=labels))
        case objects.Pod():
            return _with_role(each, of_pods[each.metadata.name])
    return each


def _with_role(pod: objects.Pod, job: RoleJob) -> objects.Pod:
    notes = {**pod.metadata.annotations, ROLE_ANNOTATION: job.role(pod.metadata.name)}
    pod = with_fields(pod, metadata=with_fields(pod.metadata, annotations=notes))
    selector = objects.LabelSelector(match_labels={"job": job.name})
    if job.spread:
        even = objects.TopologySpreadConstraint(
            max_skew=1, topology_key=HOST, when_unsatisfiable="DoNotSchedule", label_selector=selector
        )
        return with_fields(pod, spec=with_fields(pod.spec, topology_spread_constraints=[even]))
    if not job.near:
        return pod
    term = objects.PodAffinityTerm(topology_key=job.near, label_selector=selector)
    near = objects.PodAffinity(required=[term])
    affinity = with_fields(pod.spec.affinity or objects.Affinity(), pod_affinity=near)
    return with_fields(pod, spec=with_fields(pod.spec, affinity=affinity))


def _with_roles(job: dict[str, Any], lead: int, by_role: bool, near: str) -> dict[str, Any]:
    alone = job["apart"] or job["port"]
    return job | {
        "lead": lead,
        "by_role": by_role and not job["best_effort"],
        "near": "" if alone or near == SPREAD else near,
        "spread": near == SPREAD,
    }


jobs_with_roles = st.builds(
    _with_roles, jobs, st.integers(1, 5), st.booleans(), st.sampled_from(["", "", "", ZONE, HOST, SPREAD])
)


class RoleHistories(Histories):
    """A cluster whose gangs have leaders."""

    make_world = RoleWorld
    make_job = RoleJob

    @begins_with(jobs_with_roles)
    def begin(self, **drawn: Any) -> None:
        super().begin(**drawn)

    @few_jobs
    @rule(drawn=jobs_with_roles)
    def a_job_comes(self, drawn: dict[str, Any]) -> None:
        super().a_job_comes(drawn)


@pytest.mark.exhaustive
def test_histories_of_roles() -> None:
    run_state_machine_as_test(
        RoleHistories,
        settings=settings(max_examples=HISTORIES, stateful_step_count=8, phases=PHASES, deadline=None),
    )
