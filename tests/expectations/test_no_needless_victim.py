"""Whoever is evicted is needed: no evicted pod, and no broken gang, could have stayed beside all that gets places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind, Evict, Nominate
from stromboli.engine import DEFAULT_POLICY, Engine
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.expectations.world import CLASSES

CPUS = 6
ACTIONS = ("preempt", "gangpreempt", "reclaim", "gangreclaim")
#: by action the engine; jobs of other queues are reclaimed from
ENGINES = {action: Engine(DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}")) for action in ACTIONS}

#: jobs that run: the least that each needs, and the nodes of its pods
running = st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(0, 2), min_size=1, max_size=5)), max_size=4)
#: the CPUs of the pods of a gang that is to start
gangs = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def decided(action: str, jobs: Sequence[tuple[int, list[int]]], gang: Sequence[int]) -> tuple[Any, dict[str, int]]:
    """What is decided on nodes that are filled in order, and the nodes of the pods that run."""
    objs: list[Any] = [*CLASSES, *(node(f"n{number}", cpu=str(CPUS)) for number in range(3))]
    objs += [queue("mine", deserved={"cpu": "18"}), queue("theirs", deserved={"cpu": "0"}), queue("default")]
    theirs = "theirs" if "reclaim" in action else "mine"
    full, at = Counter[int](), dict[str, int]()
    for number, (least, places) in enumerate(jobs):
        objs.append(pod_group(f"j{number}", min(least, len(places)), theirs, "Running", created=number))
        for each, place in enumerate(places):
            if full[place] < CPUS:
                full[place] += 1
                at[f"j{number}-{each}"] = place
                objs.append(pod(f"j{number}-{each}", f"j{number}", node=f"n{place}", priority=1))
    objs.append(pod_group("g", len(gang), "mine", created=99, priorityClassName="high"))
    objs += [pod(f"g-{each}", "g", cpu=str(cpu), priority=9) for each, cpu in enumerate(gang)]
    return ENGINES[action].decide(state(objs).snapshot(), now=NOON).decisions, at


@pytest.mark.one_in(2)
@pytest.mark.parametrize("action", ACTIONS)
@given(jobs=running, gang=gangs)
def test_all_are_needed(action: str, jobs: list[tuple[int, list[int]]], gang: list[int]) -> None:
    decisions, at = decided(action, jobs, gang)
    free, placed = left_free(decisions, at, gang)
    for node_of, cpu in placed:
        free[node_of] -= cpu
    assert min(free.values()) >= 0
    for lost, least in may_return(decisions, at, jobs):
        back = (Counter(at[name] for name in lost) & free).total()
        assert back < least, f"{back} of {lost} could have stayed"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("action", ACTIONS)
@given(jobs=running, gang=st.lists(st.integers(1, 4), min_size=1, max_size=2))
@example(jobs=[(3, [0, 0, 1, 1, 1]), (1, [2]), (3, [0, 0, 2]), (2, [1])], gang=[3, 4])
def test_all_are_needed_wherever_the_pods_go(action: str, jobs: list[tuple[int, list[int]]], gang: list[int]) -> None:
    decisions, at = decided(action, jobs, gang)
    free, placed = left_free(decisions, at, gang)
    cpus = [cpu for _, cpu in placed]
    for lost, least in may_return(decisions, at, jobs):
        for back in combinations(lost, least):
            rest = Counter(free)
            rest.subtract(at[name] for name in back)
            fits = any(all(rest[node_of] >= cpu for node_of, cpu in together(nodes, cpus)) for nodes in ways(cpus))
            assert min(rest.values()) < 0 or not fits, f"{back} could have stayed"


def left_free(decisions: Any, at: dict[str, int], gang: Sequence[int]) -> tuple[Counter[int], list[tuple[int, int]]]:
    """What those that still run leave free on each node, and the nodes and CPUs of the pods of the gang."""
    gone = {each.name for each in decisions if isinstance(each, Evict)}
    free = Counter(dict.fromkeys(range(3), CPUS))
    free.subtract(place for name, place in at.items() if name not in gone)
    placed = [each for each in decisions if isinstance(each, Bind | Nominate) and each.name.startswith("g-")]
    return free, [(int(each.node[1:]), gang[int(each.name[2:])]) for each in placed]


def may_return(
    decisions: Any, at: dict[str, int], jobs: Sequence[tuple[int, list[int]]]
) -> Iterator[tuple[list[str], int]]:
    """What each job lost, and how much of that at least it would have to keep to run."""
    gone = {each.name for each in decisions if isinstance(each, Evict)}
    for job, held in Counter(name.partition("-")[0] for name in at).items():
        lost = sorted(name for name in gone if name.startswith(f"{job}-"))
        if lost:
            least, places = jobs[int(job[1:])]
            yield lost, max(1, min(least, len(places)) - (held - len(lost)))


def ways(cpus: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The nodes that pods can be given."""
    return product(range(3), repeat=len(cpus))


def together(nodes: Sequence[int], cpus: Sequence[int]) -> Iterable[tuple[int, int]]:
    """What pods request of each node."""
    taken = Counter[int]()
    for node_of, cpu in zip(nodes, cpus, strict=True):
        taken[node_of] += cpu
    return taken.items()
