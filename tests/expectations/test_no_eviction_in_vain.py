"""Pods that are evicted or moved make room for a job that then starts, whatever the order of actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from stromboli.api.pod_state import PodState
from stromboli.framework.cluster.reservation import Place, Reservation
from tests.expectations.test_histories import RACKS, SHARES, engine
from tests.expectations.world import GPU, Job, World, evictions

EVERY = pytest.mark.parametrize("shares", SHARES)
FLAT = pytest.mark.parametrize("shares", ["proportion", "capacity", "fairshare"])


def deserves(cpu: int) -> dict[str, Any]:
    return {"deserved": {"cpu": str(cpu), "memory": "32Gi"}}


def orders(*names: str) -> Any:
    """Every order of allocate with some actions."""
    found = [("allocate", *names), *permutations(("allocate", *names))]
    return pytest.mark.parametrize("order", list(dict.fromkeys(found)), ids=" ".join)


def running(name: str, queue: str, *on: str, least: int = 1, cpu: int = 1, **more: Any) -> Job:
    """A job with a pod on each of some nodes."""
    job = Job(name, queue, len(on), least, cpu=cpu, phase="Running", **more)
    job.pods.update(zip(job.pods, on, strict=True))
    return job


def world(order: Sequence[str], shares: str, nodes: dict[str, tuple[int, ...]], *jobs: Job, **more: Any) -> World:
    queues: dict[str, dict[str, Any]] = more.pop("queues", {"rich": deserves(2), "poor": deserves(2)})
    if shares.endswith("tree"):
        queues = {"root": {}} | {name: spec | {"parent": "root"} for name, spec in queues.items()}
    for created, job in enumerate(jobs):
        job.created = created
    return World(engine(tuple(order), shares), nodes, queues, [*jobs], **more)


def lived(live: World, sessions: int = 8) -> Counter[str]:
    """What came and went in some sessions; afterwards nothing is promised any more."""
    total: Counter[str] = Counter()
    for _ in range(sessions):
        changes, result = live.session()
        total += changes
    assert not (result.session.view.pods.state == PodState.Pipelined).any()
    assert result.environment.reservations == {}
    return total


# -- gangs that have to be near each other ----------------------------------------------------------------------------


@FLAT
@pytest.mark.parametrize("action", ["reclaim", "gangreclaim", "preempt", "gangpreempt"])
@pytest.mark.parametrize("patience", [0, 3])
@pytest.mark.parametrize("first", [True, False], ids=["before allocate", "after allocate"])
@pytest.mark.one_in(13)
def test_a_hard_gang_of_4_of_24_starts_in_one_rack(action: str, shares: str, patience: int, first: bool) -> None:
    """In neither rack all 24 have room, and in the first one half is taken by pods that must stay."""
    other = "poor" if "preempt" in action else "rich"
    nodes = {f"n{i}": (4, 64) for i in range(4)}
    jobs = (
        running("stays", "poor", "n0", "n0", "n1", "n1", "n1", "n1", priority="critical"),
        running("uses", other, *["n0", "n0", *["n2"] * 4, *["n3"] * 4]),
        Job("wants", "poor", 24, 4, cpu=1, tight=True, priority="middle"),
    )
    order = (action, "allocate") if first else ("allocate", action)
    queues = {"rich": {"deserved": {"cpu": "4"}}, "poor": {"deserved": {"cpu": "12"}, "weight": 3}}
    live = world(order, shares, nodes, *jobs, patience=patience, racks=RACKS, queues=queues)
    total = lived(live, 12)
    wants = live.jobs[-1]
    assert wants.running >= 4
    assert total["evicted"] <= wants.running
    assert {node for node in wants.pods.values() if node} <= {"n2", "n3"}


# -- what is reserved -------------------------------------------------------------------------------------------------


def reserved(live: World, job: Job, *nodes: str) -> None:
    """Reserve a place for a pod of a job on each of some nodes."""
    request = {"cpu": job.cpu * 1000.0, "memory": job.memory * 2.0**30, "pods": 1.0}
    places = tuple(Place(node, request, f"uid-{name}") for node, name in zip(nodes, job.pods, strict=False))
    known = Reservation("", places, live.now, live.now + 300)
    live.environment = replace(live.environment, reservations={f"default/{job.name}": known})


@EVERY
@pytest.mark.parametrize("tight", [False, True])
def test_reserved_places_that_are_free_are_taken_at_once(shares: str, tight: bool) -> None:
    wants = Job("wants", "poor", 24, 4, cpu=1, tight=tight)
    nodes = {f"n{i}": (4, 64) for i in range(4)}
    live = world(["reclaim", "allocate"], shares, nodes, wants, racks=RACKS)
    reserved(live, wants, *["n0"] * 4, *["n1"] * 4)
    assert live.session()[0]["bound"] >= 8
    assert not live.environment.reservations


@EVERY
def test_places_that_are_lost_are_given_back(shares: str) -> None:
    """The gang of four was promised three places that are there, and one on a node that is gone."""
    wants, other = Job("wants", "poor", 4, 4, cpu=2), Job("other", "rich", 2, 2, cpu=3)
    live = world(["reclaim", "allocate"], shares, {"n0": (6, 64)}, wants, other)
    reserved(live, wants, "n0", "n0", "n0", "n9")
    live.session()
    assert (wants.running, other.running) == (0, 2)
    assert not live.environment.reservations


@EVERY
@orders("reclaim")
def test_no_pod_of_another_queue_takes_the_room(order: Sequence[str], shares: str) -> None:
    queues = {"rich": deserves(4), "poor": deserves(4), "late": deserves(4) | {"priority": 9}}
    live = world(order, shares, {"n0": (8, 64)}, running("uses", "rich", *["n0"] * 8), queues=queues, patience=2)
    wants = Job("wants", "poor", 2, 2, cpu=1, created=1)
    live.jobs.append(wants)
    assert live.session()[0]["evicted"] == 2
    live.jobs.append(Job("late", "late", 2, 2, cpu=1, created=2, priority="middle"))
    for _ in range(3):
        live.session()
    assert wants.running == 2


# -- gangs with pods that request nothing -----------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize("pods", [1, 2])
@pytest.mark.parametrize("patience", [1, 3])
@pytest.mark.one_in(7)
def test_a_share_that_grows_while_a_victim_is_away_costs_no_place(
    action: str, shares: str, pods: int, patience: int
) -> None:
    """The other queue requests nothing until its pod is back; more pods of this one start, and its share shrinks."""
    urgent = Job("urgent", "poor", pods, pods, cpu=5, priority="high", best_effort=pods - 1)
    uses = running("uses", "rich", "n0", "n1", cpu=6, best_effort=1)
    jobs, nodes = (uses, urgent, Job("small", "poor", 4, 1, cpu=1)), {"n0": (6, 64), "n1": (4, 64)}
    queues = {"rich": deserves(5), "poor": deserves(5)}
    live = world([action, "allocate"], shares, nodes, *jobs, patience=patience, queues=queues)
    assert lived(live, 12)["evicted"] == 1
    assert urgent.running == pods


@EVERY
@pytest.mark.parametrize("action", ["preempt", "gangpreempt", "reclaim", "gangreclaim"])
@pytest.mark.parametrize("best_effort", [1, 2])
@pytest.mark.one_in(13)
def test_a_gang_with_best_effort_pods_evicts_once(action: str, shares: str, best_effort: int) -> None:
    other = "poor" if "preempt" in action else "rich"
    wants = Job("wants", "poor", 1 + best_effort, 1 + best_effort, cpu=2, best_effort=best_effort, priority="middle")
    live = world(["allocate", action, "backfill"], shares, {"n0": (4, 64)}, running("uses", other, *["n0"] * 4), wants)
    assert lived(live, 12)["evicted"] == 2
    assert wants.running == wants.count


# -- more important jobs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", ["proportion", "capacity", "capacity tree"])
@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.one_in(13)
def test_a_more_important_job_takes_the_room_that_is_made(action: str, shares: str, count: int, first: bool) -> None:
    order = (action, "allocate") if first else ("allocate", action)
    live = world(order, shares, {"n0": (count, 64)}, running("low", "poor", *["n0"] * count), patience=3)
    middle = Job("middle", "poor", count, count, cpu=1, priority="middle", created=1)
    live.jobs.append(middle)
    assert live.session()[0]["evicted"] == count
    high = Job("high", "poor", count, count, cpu=1, priority="high", created=2)
    live.jobs.append(high)
    assert lived(live)["evicted"] == 0
    assert (middle.running, high.running) == (0, count)


@pytest.mark.one_in(13)
@FLAT
@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("tight", [True, False])
def test_a_more_important_hard_gang_takes_the_room_that_is_made(
    action: str, shares: str, first: bool, tight: bool
) -> None:
    """Both need a rack, or only the more important one, in which all the pods terminate."""
    order = (action, "allocate") if first else ("allocate", action)
    nodes = {f"n{i}": (2, 64) for i in range(4)}
    kept = running("kept", "poor", "n2", "n2", priority="critical")
    low = running("low", "poor", "n0", "n0", "n1", "n1", "n3", "n3")
    middle = Job("middle", "poor", 4, 4, cpu=1, tight=tight, priority="middle")
    live = world(order, shares, nodes, kept, low, middle, patience=3, racks=RACKS, queues={"poor": deserves(8)})
    assert live.session()[0]["evicted"] == 4
    assert {node for _, node, _ in live.leaving.values()} == {"n0", "n1"}
    high = Job("high", "poor", 4, 4, cpu=1, tight=True, priority="high", created=3)
    live.jobs.append(high)
    assert lived(live)["evicted"] == 0
    assert (middle.running, high.running) == (0, 4)


@FLAT
@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("phase", ["", "Pending", "Inqueue"])
@pytest.mark.one_in(5)
def test_no_others_go_for_a_more_important_job_that_may_take_room_that_is_made(
    action: str, shares: str, phase: str, first: bool
) -> None:
    """Pods that only the more important job might evict stay, whether it has been admitted already or is new."""
    order = (action, "allocate") if first else ("allocate", action)
    equal = running("equal", "poor", "n0", "n0", priority="middle")
    low = running("low", "poor", "n0", "n0")
    nodes = {"n0": (4, 64), "without-memory": (8, 0)}
    live = world(order, shares, nodes, equal, low, patience=3, queues={"poor": deserves(12)})
    middle = Job("middle", "poor", 2, 2, cpu=1, priority="middle", created=2)
    live.jobs.append(middle)
    assert live.session()[0]["evicted"] == 2
    high = Job("high", "poor", 2, 2, cpu=1, priority="high", created=3, phase=phase)
    live.jobs.append(high)
    assert lived(live, 10)["evicted"] == 0
    assert (equal.running, middle.running, high.running) == (2, 0, 2)


@FLAT
@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@pytest.mark.parametrize("phase", ["", "Inqueue"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.one_in(5)
def test_no_others_go_for_a_more_important_job_that_may_take_host_ports_that_become_free(
    action: str, shares: str, phase: str, count: int
) -> None:
    """Each node has free cpu and one host port; those of half of the nodes terminate with the pods that hold them."""
    nodes = {f"n{i}": (8, 64) for i in range(2 * count)}
    equal = running("equal", "poor", *list(nodes)[:count], priority="middle", port=True)
    low = running("low", "poor", *list(nodes)[count:], port=True)
    live = world(["allocate", action], shares, nodes, equal, low, patience=3, queues={"poor": deserves(32)})
    middle = Job("middle", "poor", count, count, cpu=1, priority="middle", created=2, port=True)
    live.jobs.append(middle)
    assert live.session()[0]["evicted"] == count
    high = Job("high", "poor", count, count, cpu=1, priority="high", created=3, phase=phase, port=True)
    live.jobs.append(high)
    assert lived(live, 10)["evicted"] == 0
    assert (equal.running, middle.running, high.running) == (count, 0, count)


@FLAT
def test_what_a_more_important_job_does_not_need_stays_reserved(shares: str) -> None:
    live = world(["allocate", "preempt"], shares, {"n0": (4, 64)}, running("low", "poor", *["n0"] * 3), patience=3)
    middle = Job("middle", "poor", 2, 2, cpu=1, priority="middle", created=1)
    live.jobs.append(middle)
    assert live.session()[0]["evicted"] == 1
    live.nodes["n1"] = (1, 64)
    high = Job("high", "poor", 1, 1, cpu=1, priority="high", created=2)
    live.jobs.append(high)
    assert lived(live)["evicted"] == 0
    assert (middle.running, high.running) == (2, 1)


# -- what terminating pods hold beside amounts ------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@pytest.mark.parametrize("first", [True, False])
def test_one_pod_goes_for_a_host_port(action: str, first: bool) -> None:
    order = (action, "allocate") if first else ("allocate", action)
    nodes = {"n0": (8, 64), "n1": (8, 64)}
    high = Job("high", "poor", 1, 1, cpu=1, port=True, priority="high")
    live = world(order, "proportion", nodes, running("low", "poor", "n0", "n1", port=True), high, patience=3)
    assert lived(live, 12)["evicted"] == 1
    assert high.running == 1


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_no_pod_goes_for_a_host_port_that_becomes_free(action: str) -> None:
    """Its holder on one of the nodes terminates already."""
    nodes = {"n0": (8, 64), "n1": (8, 64)}
    ends, high = running("ends", "poor", "n0", port=True), Job("high", "poor", 1, 1, cpu=1, port=True, priority="high")
    live = world(["allocate", action], "proportion", nodes, ends, running("low", "poor", "n1", port=True), high)
    live.delete_pods(ends, 3)
    live.jobs.remove(ends)
    live.jobs.append(ends)
    total = lived(live, 10)
    assert (total["evicted"], high.running) == (0, 1)


# -- consolidation ----------------------------------------------------------------------------------------------------


@EVERY
@orders("consolidation", "backfill")
@pytest.mark.parametrize("patience", [0, 2])
@pytest.mark.one_in(13)
def test_moved_pods_are_back_and_the_job_that_they_moved_for_runs(
    order: Sequence[str], shares: str, patience: int
) -> None:
    nodes = {"n0": (3, 64), "n1": (5, 64)}
    wants = Job("wants", "poor", 1, 1, cpu=4)
    moves = running("moves", "poor", "n1", "n1", "n1", least=3)
    live = world(order, shares, nodes, moves, wants, patience=patience)
    assert lived(live)["evicted"] == 3
    assert (moves.running, wants.running) == (3, 1)


@EVERY
def test_what_is_left_of_a_gang_below_its_minimum_is_not_moved(shares: str) -> None:
    rest = running("rest", "rich", "n1", "n1", least=2, cpu=2)
    wants = Job("wants", "poor", 1, 1, cpu=5)
    live = world(["allocate", "consolidation"], shares, {"n0": (4, 64), "n1": (5, 64)}, rest, wants)
    rest.count = rest.least = 3
    rest.replace_pods()
    live.queues["rich"]["capability"] = {"cpu": "4"}
    assert lived(live)["evicted"] == 0
    assert (rest.running, wants.running) == (2, 0)


def test_a_gang_that_is_evicted_as_one_of_its_pods_moves_keeps_no_place() -> None:
    """What moved could not start without the others; when all are there again, without places, others take the room."""
    gang = running("gang", "rich", "n0", "n0", "n0", "n1", least=3, priority="middle")
    wide, wants = Job("wide", "rich", 1, 1, cpu=2), Job("wants", "poor", 3, 3, cpu=1)
    queues = {"rich": {"guarantee": {"resource": {"cpu": "1"}}}, "poor": deserves(4)}
    nodes = {"n0": (4, 64), "n1": (2, 64), "n2": (1, 64)}
    live = world(["consolidation", "gangreclaim", "allocate"], "capacity", nodes, gang, wide, wants, queues=queues)
    _, result = live.session()
    assert {each.action for each in evictions(result)} == {"consolidation", "gangreclaim"}
    lived(live, 3)
    assert (wide.running, wants.running, gang.running) == (1, 3, 0)


# -- cards ------------------------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize("said", [{GPU: "0"}, {}], ids=["no cards", "cards not named"])
@pytest.mark.parametrize("own", [0, 6])
@pytest.mark.one_in(13)
def test_a_queue_that_deserves_no_cards_gives_them_back(
    action: str, shares: str, said: dict[str, str], own: int
) -> None:
    """It holds less of all else than it deserves, and the other queue has a larger share of that."""
    cpus = {"cpu": "8", "memory": "32Gi"}
    queues = {"rich": {"deserved": cpus | said}, "poor": {"deserved": cpus | {GPU: "4"}}}
    uses, wants = running("uses", "rich", *["n0"] * 4, gpu=1), Job("wants", "poor", 2, 2, cpu=1, gpu=1)
    jobs = (uses, *([running("own", "poor", *["n0"] * own)] if own else []), wants)
    live = world(["allocate", action], shares, {"n0": (16, 64, 4)}, *jobs, queues=queues)
    assert lived(live)["evicted"] == 2
    assert (uses.running, wants.running) == (2, 2)


@pytest.mark.parametrize("shares", ["capacity", "capacity tree", "fairshare", "fairshare tree"])
@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize("resource", ["cpu", "memory", GPU])
@pytest.mark.parametrize("wanted", [1, 2])
@pytest.mark.one_in(13)
def test_a_queue_that_deserves_none_of_a_resource_gives_all_of_it_back(
    action: str, shares: str, resource: str, wanted: int
) -> None:
    """Of the rest it deserves more than it holds."""
    has = {"cpu": 16, "memory": 16, GPU: 4}
    due = {name: f"{amount}Gi" if name == "memory" else str(amount) for name, amount in has.items()}
    of_each = {name: has[name] // 2 if name == resource else 1 for name in has}
    cpu, memory, gpu = of_each.values()
    uses = running("uses", "rich", "n0", "n0", cpu=cpu, memory=memory, gpu=gpu)
    wants = Job("wants", "poor", wanted, wanted, cpu=cpu, memory=memory, gpu=gpu)
    queues = {"rich": {"deserved": due | {resource: "0"}}, "poor": {"deserved": due}}
    live = world(["allocate", action], shares, {"n0": (16, 16, 4)}, uses, wants, queues=queues)
    assert lived(live)["evicted"] == wanted
    assert (uses.running, wants.running) == (2 - wanted, wanted)


def test_an_eviction_names_the_job_that_starts() -> None:
    wants = Job("wants", "poor", 2, 2, cpu=1)
    live = world(["allocate", "reclaim"], "proportion", {"n0": (4, 64)}, running("uses", "rich", *["n0"] * 4), wants)
    assert {each.beneficiary for each in evictions(live.session()[1])} == {"default/wants"}
