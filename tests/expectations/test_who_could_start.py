"""Who waits could not start: not even with all that is less important gone, as trying every placement shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.expectations.test_histories import RACKS, engine, jobs, sizes
from tests.expectations.world import GPU, VALUES, Job, Size, World
from tests.fuzz import tried

#: sessions after which so small a cluster has come to rest
ENOUGH = 30
#: a pod's job, its name, and its node
Placed = tuple[Job, str, str]
MINE: Mapping[str, Any] = {"deserved": {"cpu": "99", "memory": "999Gi", GPU: "99"}}


def at_rest(order: tuple[str, ...], nodes: list[tuple[int, ...]], drawn: list[dict[str, Any]]) -> World:
    """A cluster of one queue to which jobs came one after the other, those that may be evicted first."""
    sized = {f"n{i}": size for i, size in enumerate(nodes)}
    live = World(engine(order, "capacity"), sized, {"mine": dict(MINE)}, racks=RACKS)
    for number, each in enumerate(sorted(drawn, key=lambda each: VALUES[each["priority"]])):
        count = min(each["count"], 3)
        within = {"least": min(each["least"], count), "best_effort": min(each["best_effort"], count - 1)}
        said = each | within | {"queue": "mine", "count": count, "budget": None}
        live.jobs.append(Job(f"j{number}", created=number, **said))
        live.session()
    for _ in range(ENOUGH):
        changes, _ = live.session()
        if not changes and not live.leaving:
            return live
    raise AssertionError("pods still come and go")


def ways(live: World, job: Job) -> Iterator[list[Placed]]:
    """Every placement of as many pods of a job as it starts with."""
    for pods in combinations(job.pods, job.least):
        for on in product(live.nodes, repeat=job.least):
            yield [(job, name, node) for name, node in zip(pods, on, strict=True)]


def holds(live: World, placed: list[Placed]) -> bool:
    """Whether nodes can take all of it, and each job may lie where it does."""
    for name, size in live.nodes.items():
        has, on = Size(*size), [(job, pod) for job, pod, node in placed if node == name]
        for resource, most in (("cpu", has.cpu), ("memory", has.memory), (GPU, has.gpu)):
            if sum(job.asked(pod).get(resource, 0) for job, pod in on) > most:
                return False
        apart = [job.name for job, _ in on if job.apart]
        if len(on) > has.pods or sum(job.port for job, _ in on) > 1 or len(apart) > len({*apart}):
            return False
    for tight in {job.name for job, _, _ in placed if job.tight}:
        used = {node for job, _, node in placed if job.name == tight}
        if not any(used <= {*rack} for rack in live.racks.values()):
            return False
    return True


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "order", [("allocate", "preempt", "backfill"), ("gangpreempt", "allocate", "backfill")], ids=" ".join
)
@given(nodes=st.lists(sizes, min_size=1, max_size=3), drawn=st.lists(jobs, min_size=2, max_size=5))
@tried(20)
def test_who_waits_could_not_start_in_place_of_what_is_less_important(
    order: tuple[str, ...], nodes: list[tuple[int, ...]], drawn: list[dict[str, Any]]
) -> None:
    live = at_rest(order, nodes, drawn)
    for waits in (job for job in live.jobs if not job.running):
        stays = [
            (job, name, node)
            for job in live.jobs
            if VALUES[job.priority] >= VALUES[waits.priority]
            for name, node in job.pods.items()
            if node
        ]
        found = next((way for way in ways(live, waits) if holds(live, stays + way)), None)
        assert found is None, f"{waits.name} could start: {[(name, node) for _, name, node in found or ()]}"
