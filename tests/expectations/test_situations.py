"""Small situations whose outcome an operator would name, under every way to share the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.expectations.test_histories import SHARES, engine
from tests.expectations.world import GPU, Job, World

ENGINES = {
    (actions, shares): engine(("allocate", *actions.split(", "), "backfill"), shares)
    for actions in ("preempt, reclaim", "gangpreempt, gangreclaim")
    for shares in SHARES
}
EVERY = pytest.mark.parametrize("key", ENGINES, ids=" ".join)


def settled(key: tuple[str, str], nodes: dict[str, tuple[int, ...]], *jobs: tuple[Job, str]) -> dict[str, int]:
    """How many pods of each job run after four sessions; a job's pods run on the nodes that are named first."""
    deserved = {"deserved": {"cpu": "16", "memory": "64Gi", GPU: "4"}}
    queues: dict[str, Any] = {"a": deserved | ({"parent": "root"} if key[1].endswith("tree") else {})}
    world = World(ENGINES[key], nodes, {"root": {}} | queues if key[1].endswith("tree") else queues)
    for created, (job, on) in enumerate(jobs):
        job.created, job.phase = created, "Running" if on else "Inqueue"
        job.pods.update(zip(job.pods, on, strict=False))
        world.jobs.append(job)
    for _ in range(4):
        world.session()
    return {job.name: job.running for job, _ in jobs}


@EVERY
def test_who_holds_the_scarce_resource_goes(key: tuple[str, str]) -> None:
    high = Job("high", "a", 1, 1, cpu=1, gpu=2, priority="high")
    jobs = (Job("cpus", "a", 4, 1, cpu=1), "nnnn"), (Job("gpus", "a", 2, 1, cpu=1, gpu=2), "nn"), (high, "")
    assert settled(key, {"n": (16, 64, 4)}, *jobs) == {"cpus": 4, "gpus": 1, "high": 1}


@EVERY
def test_nobody_goes_where_it_does_not_help(key: tuple[str, str]) -> None:
    """Two of four CPUs are held by what is never evicted, and three are needed."""
    high = Job("high", "a", 3, 3, cpu=1, priority="high")
    jobs = (Job("kept", "a", 2, 2, cpu=1, priority="critical"), "nn"), (Job("low", "a", 2, 1, cpu=1), "nn"), (high, "")
    assert settled(key, {"n": (4, 64)}, *jobs) == {"kept": 2, "low": 2, "high": 0}


@EVERY
def test_a_gang_that_lost_a_pod_is_completed_before_another_begins(key: tuple[str, str]) -> None:
    jobs = (Job("new", "a", 1, 1, cpu=1), ""), (Job("old", "a", 4, 4, cpu=1), "nnn")
    assert settled(key, {"n": (4, 64)}, *jobs) == {"new": 0, "old": 4}
