"""Each victim is needed: no evicted pod, and no broken gang, could have stayed beside all that gets places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind, Evict, Nominate
from stromboli.api.pod_state import PodState
from stromboli.engine import DEFAULT_POLICY, Engine
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.expectations.world import CLASSES
from tests.fuzz import tried

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


# -- with unlike pods, ports and anti-affinity -------------------------------------------------------------------------

SHARES = DEFAULT_POLICY.replace("name: proportion", "name: capacity")
EVICTING = {action: Engine(SHARES.replace("allocate, backfill", f"allocate, {action}")) for action in ACTIONS}
ALLOCATE = Engine(SHARES.replace("allocate, backfill", "allocate"))

#: CPUs and Gi of a pod
sizes = st.tuples(st.integers(1, 4), st.integers(1, 4))
#: whether pods take a port of their nodes, and whether they keep away from each other
rules = st.sampled_from([(False, False)] * 4 + [(True, False), (False, True)])
priorities = st.sampled_from(["low", "low", "middle"])
#: jobs that run: the size of their pods, rules, priority, least and nodes
kinds_of_jobs = st.lists(
    st.tuples(sizes, rules, priorities, st.integers(0, 4), st.lists(st.integers(0, 2), min_size=1, max_size=4)),
    min_size=1,
    max_size=5,
)
#: the sizes of the pods of a gang, its rules, and how many of them it does without
unlike_gangs = st.tuples(st.lists(sizes, min_size=1, max_size=4), rules, st.integers(0, 2))
Running = tuple[tuple[int, int], tuple[bool, bool], str, int, list[int]]
Unlike = tuple[list[tuple[int, int]], tuple[bool, bool], int]


def _pod(name: str, job: str, size: tuple[int, int], rules: tuple[bool, bool], node: str = "", **more: Any) -> Any:
    port, apart = rules
    if port:
        more["ports"] = [{"containerPort": 80, "hostPort": 80}]
    if apart:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job": job}}}
        more["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod(name, job, cpu=str(size[0]), memory=f"{size[1]}Gi", node=node, labels={"job": job}, **more)


def filled(theirs: str, jobs: Sequence[Running], gang: Unlike) -> tuple[list[Any], dict[str, int]]:
    """Three nodes that are filled in order beside a gang that waits, and the least of each job that runs."""
    objs: list[Any] = [*CLASSES, *(node(f"n{number}", cpu="8", memory="8Gi") for number in range(3))]
    objs += [queue("mine", deserved={"cpu": "24", "memory": "24Gi"}), queue("theirs", deserved={"cpu": "0"})]
    free, ports = {number: [8, 8] for number in range(3)}, set[int]()
    least_of = {}
    for number, (size, (port, apart), priority, least, wanted) in enumerate(jobs):
        name, placed = f"j{number}", list[int]()
        for at in wanted:
            taken = (port and at in ports) or ((apart or port) and at in placed)
            if not taken and all(have >= want for have, want in zip(free[at], size, strict=True)):
                free[at] = [have - want for have, want in zip(free[at], size, strict=True)]
                placed.append(at)
        ports |= {*placed} if port else set()
        least_of[name] = max(1, min(least, len(placed)))
        objs.append(pod_group(name, least_of[name], theirs, "Running", created=number, priorityClassName=priority))
        values = {"low": 10, "middle": 50}
        objs += [
            _pod(f"{name}-{each}", name, size, (port, apart), f"n{at}", priority=values[priority])
            for each, at in enumerate(placed)
        ]
    sizes_of, rules_of, spare = gang
    objs.append(pod_group("g", max(1, len(sizes_of) - spare), "mine", created=99, priorityClassName="high"))
    objs += [_pod(f"g-{each}", "g", size, rules_of, priority=100) for each, size in enumerate(sizes_of)]
    return objs, least_of


def started(objs: Sequence[Any], gone: set[str]) -> int:
    """How many pods of the gang get places once some pods are gone, without any eviction."""
    left = [each for each in objs if each.metadata.name not in gone]
    decisions = ALLOCATE.decide(state(left).snapshot(), now=NOON).decisions
    return sum(isinstance(each, Bind) for each in decisions)


def check_none_could_stay(objs: Sequence[Any], least_of: Mapping[str, int], gone: set[str], places: int) -> None:
    """With one eviction less, or as many less as its gang needs to run, fewer pods than `places` would start."""
    for name, least in least_of.items():
        lost = sorted(each for each in gone if each.startswith(f"{name}-"))
        held = sum(each.metadata.name.startswith(f"{name}-") for each in objs)
        back = max(1, least - (held - len(lost)))
        for stay in combinations(lost, back) if lost else ():
            assert started(objs, gone - {*stay}) < places, f"{stay} of {gone} could have stayed"


def check_each_is_needed(action: str, jobs: Sequence[Running], gang: Unlike) -> None:
    objs, least_of = filled("theirs" if "reclaim" in action else "mine", jobs, gang)
    result = EVICTING[action].decide(state(objs).snapshot(), now=NOON)
    gone = {each.name for each in result.decisions if isinstance(each, Evict)}
    if not gone:
        return
    job = result.session.view.jobs["default/g"]
    places = job.size - job.counts[PodState.Pending]
    assert started(objs, gone) >= places, "what fits does not start"
    check_none_could_stay(objs, least_of, gone, places)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("action", ACTIONS)
@tried(8)
@given(jobs=kinds_of_jobs, gang=unlike_gangs)
def test_each_victim_is_needed_whatever_keeps_pods_apart(action: str, jobs: list[Running], gang: Unlike) -> None:
    check_each_is_needed(action, jobs, gang)


@pytest.mark.exhaustive
@pytest.mark.parametrize("action", ACTIONS)
@tried(100)
@given(jobs=kinds_of_jobs, gang=unlike_gangs)
def test_each_victim_is_needed_in_many_scenes(action: str, jobs: list[Running], gang: Unlike) -> None:
    check_each_is_needed(action, jobs, gang)


# -- what is left ------------------------------------------------------------------------------------------------------


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
