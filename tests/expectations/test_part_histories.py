"""What holds in any history of jobs in equal parts, as JobSets and LeaderWorkerSets have them: a part starts whole.

A job starts with some of its parts and grows by others; each may have to lie in one rack. `STROMBOLI_HISTORIES` and the
rest as for the other histories.
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
from tests.builders import pod_group
from tests.expectations.test_histories import (
    HISTORIES,
    PHASES,
    RACKS,
    Histories,
    begins_with,
    engine,
    few_jobs,
    jobs,
)
from tests.expectations.world import Job, World

#: the label by which pods of a part are known
PART = "example.com/part"
RACK_OF = {node: rack for rack, nodes in RACKS.items() for node in nodes}


@dataclass
class PartedJob(Job):
    """A job whose pods are parts of equal size; one of size 0 is not divided."""

    #: pods of a part, and how many parts it starts with
    size: int = 0
    parts: int = 0
    #: whether each part has to lie in one rack
    close: bool = False

    def part(self, pod: str) -> int:
        return self.ordinals[pod] // self.size

    def running_parts(self) -> Counter[int]:
        """How many pods of each part run."""
        return Counter(self.part(pod) for pod, node in self.pods.items() if node)


@dataclass
class PartedWorld(World):
    """Jobs are divided."""

    def objects(self) -> list[Any]:
        by_name: dict[str, Any] = {job.name: job for job in self.jobs}
        by_pod = {name: job for job in self.jobs for name in job.pods}
        by_pod |= {name: job for name, (job, _, _) in self.leaving.items()}
        return [_told(each, by_name, by_pod) for each in super().objects()]

    def session(self) -> tuple[Counter[str], SessionResult]:
        divided: list[Any] = [job for job in self.jobs if job.size]
        before = [(job, set(job.running_parts())) for job in divided if _is_whole(job)]
        changes, result = super().session()
        for job, had in before:
            assert _is_whole(job), f"{job.name} runs in part: {job.running_parts()}, {had} ran"
        for job in divided:
            for part in job.running_parts() if job.close else ():
                racks = {RACK_OF[node] for pod, node in job.pods.items() if node and job.part(pod) == part}
                assert len(racks) == 1, f"part {part} of {job.name} lies in {racks}"
        return changes, result


def _is_whole(job: Any) -> bool:
    """Whether all parts of a job run whole or not at all, and enough of them or none."""
    running = job.running_parts()
    whole = all(count == job.size for count in running.values())
    return whole and (not running or len(running) >= job.parts)


def _told(each: Any, by_name: dict[str, Any], by_pod: dict[str, Any]) -> Any:
    match each:
        case crds.PodGroup() if (job := by_name[each.metadata.name]).size:
            policy = {"name": "parts", "subGroupSize": job.size, "minSubGroups": job.parts, "matchLabelKeys": [PART]}
            near = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}} if job.close else {}
            each.spec.sub_group_policy = pod_group(job.name, subGroupPolicy=[policy | near]).spec.sub_group_policy
        case objects.Pod() if (job := by_pod[each.metadata.name]).size:
            labels = {**each.metadata.labels, PART: str(job.part(each.metadata.name))}
            return with_fields(each, metadata=with_fields(each.metadata, labels=labels))
    return each


jobs_with_parts = st.tuples(
    jobs, st.integers(0, 3), st.integers(1, 3), st.integers(0, 2), st.booleans(), st.sampled_from([0, 0, 1])
).map(lambda drawn: drawn[0] | (_parted(*drawn[1:]) if drawn[1] else {}))


def _parted(size: int, parts: int, more: int, close: bool, besides: int) -> dict[str, Any]:
    """Jobs of some parts, and more that they can do without, unless they start with more pods than of their parts."""
    count = size * (parts + more)
    return {
        "count": count,
        "least": min(count, size * parts + besides),
        "size": size,
        "parts": parts,
        "close": close,
        "best_effort": 0,
        "tight": False,
    }


class PartHistories(Histories):
    """A cluster whose jobs are divided into parts."""

    make_world = PartedWorld
    make_job = PartedJob

    @begins_with(jobs_with_parts)
    def begin(self, **drawn: Any) -> None:
        super().begin(**drawn)

    @few_jobs
    @rule(drawn=jobs_with_parts)
    def a_job_comes(self, drawn: dict[str, Any]) -> None:
        super().a_job_comes(drawn)


@pytest.mark.exhaustive
def test_histories_of_parts() -> None:
    run_state_machine_as_test(
        PartHistories,
        settings=settings(max_examples=HISTORIES, stateful_step_count=8, phases=PHASES, deadline=None),
    )


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize("free", [1, 2])
def test_a_part_waits_for_the_last_of_its_victims(action: str, free: int) -> None:
    """Some of its places are free before."""
    queues = {name: {"deserved": {"cpu": cpu, "memory": "99Gi"}} for name, cpu in (("mine", "6"), ("theirs", "0"))}
    nodes = {"n0": (3, 9), "n1": (free, 9), "n2": (3 - free, 9)}
    world = PartedWorld(engine(("allocate", action, "backfill"), "capacity"), nodes, queues, patience=2)
    begins = {"queue": "mine", "cpu": 1, "size": 3, "parts": 1}
    world.jobs = [PartedJob("j", count=6, least=3, **begins), PartedJob("v", "theirs", 3 - free, 1, 1)]
    for node, job, pods in (("n0", world.jobs[0], 3), ("n2", world.jobs[1], 3 - free)):
        job.pods |= dict.fromkeys(list(job.pods)[:pods], node)
    for _ in range(5):
        world.session()
    assert world.jobs[0].running == 6
