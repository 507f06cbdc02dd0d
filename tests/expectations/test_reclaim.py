"""What queues take back under default rules: up to what they deserve, for good, from no queue that then lacks it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from stromboli.api.decisions import EmitEvent
from stromboli.engine import Engine
from stromboli.framework.cluster.churn import Churn
from stromboli.framework.cluster.environment import Environment
from stromboli.policy.document import DEFAULT_POLICY
from tests.expectations.test_histories import engine as ordered
from tests.expectations.world import Job, World, evictions

ACTIONS = pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
SHARES = pytest.mark.parametrize("shares", ["proportion", "capacity"])


def engine(action: str, shares: str, **options: Any) -> Engine:
    text = DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}, backfill")
    return Engine(text.replace("name: proportion", f"name: {shares}"), **options)


def deserves(cpu: int, memory: int = 64) -> dict[str, Any]:
    return {"deserved": {"cpu": str(cpu), "memory": f"{memory}Gi"}}


def run(world: World, sessions: int) -> Counter[str]:
    """What came and went in some sessions."""
    total: Counter[str] = Counter()
    for _ in range(sessions):
        total += world.session()[0]
    return total


def full(by: Engine, *jobs: Job, cpu: int = 8, **queues: Any) -> World:
    """One node that `jobs` have filled, the first of them first."""
    world = World(by, {"n": (cpu, 4 * cpu)}, queues or {"rich": deserves(cpu // 2), "poor": deserves(cpu // 2)})
    for job in jobs:
        place = list(job.pods)[: (cpu - sum(j.running * j.cpu for j in world.jobs)) // job.cpu]
        job.pods.update(dict.fromkeys(place, "n"))
        job.phase = "Running" if place else "Inqueue"
        world.jobs.append(job)
    return world


# -- guarantees --------------------------------------------------------------------------------------------------------


@SHARES
@pytest.mark.parametrize(("guaranteed", "evicted"), [(3, 0), (2, 1)])
def test_nobody_gives_what_is_guaranteed_for_something_else(shares: str, guaranteed: int, evicted: int) -> None:
    """`rich` has more memory than it deserves, and all of its CPUs are guaranteed to it or not."""
    by = engine("reclaim", shares)
    queues = {
        "rich": deserves(3, 8) | {"guarantee": {"resource": {"cpu": str(guaranteed)}}},
        "poor": deserves(1, 8),
    }
    world = full(by, Job("some", "rich", 3, 1, cpu=1, memory=4), cpu=4, **queues)
    world.jobs.append(Job("wants", "poor", 1, 1, cpu=1, memory=8))
    assert run(world, 5)["evicted"] == evicted


# -- reclaim and allocate agree ----------------------------------------------------------------------------------------


def circle(by: Engine, churn: Churn | None = None) -> World:
    """q0 has eight times the CPUs that it deserves, less memory than it deserves, and wants more of both."""
    queues = {"default": {}, "q0": deserves(1, 8)}
    world = World(by, {"n": (16, 8)}, queues, environment=Environment(churn=churn))
    world.jobs = [
        Job("a", "q0", 2, 1, cpu=4, memory=1, phase="Running"),
        Job("b", "default", 3, 1, cpu=2, memory=1, phase="Running"),
        Job("c", "q0", 1, 1, cpu=4, memory=4),
    ]
    world.jobs[0].pods = dict.fromkeys(world.jobs[0].pods, "n")
    world.jobs[1].pods = {name: "n" if name != "b-2" else "" for name in world.jobs[1].pods}
    return world


@ACTIONS
def test_nobody_goes_for_a_queue_that_is_not_served_next(action: str) -> None:
    world = circle(engine(action, "capacity"))
    assert run(world, 10)["evicted"] == 0


def test_under_volcanos_rules_the_circle_is_as_recorded() -> None:
    assert run(circle(engine("reclaim", "capacity", compatibility="volcano")), 20)["evicted"] >= 19


def test_the_breaker_ends_a_circle_under_volcanos_rules_too() -> None:
    by = engine("reclaim", "capacity", compatibility="volcano")
    world = circle(by, Churn())
    events: list[EmitEvent] = []
    for _ in range(20):
        _, result = world.session()
        events += [d for d in result.decisions if isinstance(d, EmitEvent) and d.reason == "EvictionsPaused"]
    assert sum(world.evicted_for.values()) == by.policy.evictions.most
    assert [(event.name, event.kind) for event in events] == [("b", "PodGroup")]
    world.now += by.policy.evictions.window
    assert run(world, 1)["evicted"] == 1


@ACTIONS
@SHARES
def test_room_is_kept_for_whom_it_was_made(action: str, shares: str) -> None:
    """While the victim terminates another job comes that would be served first."""
    world = full(engine(action, shares), Job("uses", "rich", 8, 1, cpu=1), Job("wants", "poor", 2, 2, cpu=1))
    assert run(world, 1)["evicted"] == 2
    world.queues["first"] = deserves(8) | {"priority": 9}
    world.jobs.append(Job("late", "first", 2, 2, cpu=1, priority="high"))
    world.session()
    assert {job.name: job.running for job in world.jobs if job.name != "uses"} == {"wants": 2, "late": 0}


def test_room_is_not_kept_for_ever() -> None:
    by = engine("reclaim", "proportion")
    world = full(by, Job("uses", "rich", 8, 1, cpu=1), Job("wants", "poor", 2, 2, cpu=1))
    assert run(world, 1)["evicted"] == 2
    assert set(world.environment.reservations) == {"default/wants"}
    world.now += by.policy.evictions.keep + 1
    world.session()
    assert not world.environment.reservations


def test_room_is_given_up_when_the_job_is_gone() -> None:
    world = full(engine("reclaim", "proportion"), Job("uses", "rich", 8, 1, cpu=1), Job("wants", "poor", 2, 2, cpu=1))
    world.session()
    world.jobs.pop()
    assert run(world, 1)["bound"] == 2
    assert not world.environment.reservations


# -- up to what is deserved --------------------------------------------------------------------------------------------


@ACTIONS
@SHARES
def test_an_elastic_job_at_its_minimum_takes_its_queues_share(action: str, shares: str) -> None:
    world = full(engine(action, shares), Job("wants", "poor", 8, 1, cpu=1), Job("uses", "rich", 8, 1, cpu=1))
    world.jobs[0].pods = {name: "n" if name == "wants-0" else "" for name in world.jobs[0].pods}
    world.jobs[1].pods = {name: "n" if name != "uses-7" else "" for name in world.jobs[1].pods}
    assert run(world, 8)["evicted"] == 3
    assert {job.name: job.running for job in world.jobs} == {"wants": 4, "uses": 4}


@ACTIONS
@SHARES
@pytest.mark.parametrize(("wanted", "gone"), [(4, 4), (5, 0)])
def test_a_gang_gets_its_queues_share_or_nothing(action: str, shares: str, wanted: int, gone: int) -> None:
    jobs = Job("uses", "rich", 8, 1, cpu=1), Job("wants", "poor", wanted, wanted, cpu=1)
    assert run(full(engine(action, shares), *jobs), 4)["evicted"] == gone


@ACTIONS
@SHARES
def test_a_victim_goes_whole_where_its_queue_keeps_its_share(action: str, shares: str) -> None:
    jobs = [Job("one", "rich", 4, 4, cpu=1), Job("two", "rich", 4, 4, cpu=1), Job("wants", "poor", 1, 1, cpu=4)]
    world = full(engine(action, shares), *jobs)
    assert run(world, 3)["evicted"] == 4
    assert sorted(job.running for job in world.jobs) == [0, 1, 4]


@ACTIONS
@SHARES
def test_no_queue_is_left_less_than_its_share(action: str, shares: str) -> None:
    """rich holds 8 CPUs with two pods, and deserves 6."""
    queues = {"rich": deserves(6) | {"weight": 3}, "poor": deserves(2)}
    world = full(engine(action, shares), Job("uses", "rich", 2, 1, cpu=4), Job("wants", "poor", 1, 1, cpu=2), **queues)
    assert run(world, 3)["evicted"] == 0


@ACTIONS
@SHARES
def test_a_place_larger_than_the_share_was_borrowed(action: str, shares: str) -> None:
    world = full(engine(action, shares), Job("uses", "rich", 1, 1, cpu=8), Job("wants", "poor", 1, 1, cpu=2))
    assert run(world, 3)["evicted"] == 1
    assert {job.name: job.running for job in world.jobs} == {"uses": 0, "wants": 1}


@ACTIONS
def test_in_a_tree_nobody_goes_whose_branch_is_served_next(action: str) -> None:
    """a lacks something, but north has more of its share than south."""
    text = DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}, backfill")
    by = Engine(text.replace("name: proportion", "name: capacity\n    enableHierarchy: true"))
    queues: dict[str, Any] = {"root": {}, "north": deserves(4), "south": deserves(8)}
    queues |= {"a": deserves(4) | {"parent": "north"}, "b": deserves(1) | {"parent": "south"}}
    world = full(by, Job("has", "a", 3, 1, cpu=1), Job("uses", "b", 6, 1, cpu=1), **queues)
    world.jobs.append(Job("wants", "a", 1, 1, cpu=1))
    assert run(world, 5)["evicted"] == 0


def test_a_restart_in_between_does_not_start_a_circle() -> None:
    world = full(engine("reclaim", "capacity"), Job("uses", "rich", 8, 1, cpu=1), Job("wants", "poor", 8, 1, cpu=1))
    evicted = 0
    for _ in range(8):
        evicted += world.session()[0]["evicted"]
        world.environment = replace(world.environment, reservations={}, churn=None)
    assert evicted == 4


# -- limits of queues above --------------------------------------------------------------------------------------------


@ACTIONS
@pytest.mark.parametrize("nodes", [{"n": (3, 32)}, {"n": (8, 32)}, {"free": (8, 32), "n": (8, 32)}])
def test_relatives_give_what_a_queue_deserves_of_the_limit_above_them(action: str, nodes: dict[str, Any]) -> None:
    """Whether nodes have free CPUs or not: `rich` holds all three that `parent` may hold, and deserves one."""
    queues: dict[str, Any] = {
        "root": {},
        "parent": {"capability": {"cpu": "3"}},
        "rich": {"parent": "parent", "deserved": {"cpu": "1"}},
        "poor": {"parent": "parent", "deserved": {"cpu": "1"}},
    }
    world = World(engine(action, "capacity\n    enableHierarchy: true"), nodes, queues)
    world.jobs = [Job("some", "rich", 3, 1, cpu=1, phase="Running"), Job("wants", "poor", 1, 1, cpu=1)]
    world.jobs[0].pods = dict.fromkeys(world.jobs[0].pods, "n")
    assert run(world, 6)["evicted"] == 1
    assert [job.running for job in world.jobs] == [2, 1]


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize("shares", ["capacity", "capacity tree"])
@pytest.mark.parametrize("first", ["cpu", "memory"])
def test_queues_that_each_deserve_another_resource_do_not_take_from_each_other(
    action: str, shares: str, first: str
) -> None:
    """Both deserve nothing of what the other deserves, and a pod of each asks for both."""
    queues: dict[str, Any] = {
        "cpu": {"deserved": {"cpu": "4", "memory": "0"}},
        "memory": {"deserved": {"cpu": "0", "memory": "4Gi"}},
    }
    if shares.endswith("tree"):
        queues = {"root": {}} | {name: spec | {"parent": "root"} for name, spec in queues.items()}
    live = World(ordered(("allocate", action, "backfill"), shares), {"n": (3, 16)}, queues)
    runs = Job("runs", first, 1, 1, cpu=3, memory=4)
    live.jobs.append(runs)
    live.session()
    live.jobs.append(Job("waits", "memory" if first == "cpu" else "cpu", 1, 1, cpu=1, memory=3, created=1))
    for _ in range(4):
        assert not list(evictions(live.session()[1]))
    assert runs.running == 1
