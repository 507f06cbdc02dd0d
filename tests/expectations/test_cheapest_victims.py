"""The victims on one node for one pod cost least, in the documented order; a job that grows shares victims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stromboli.api.decisions import Evict, Nominate
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.expectations.test_no_needless_victim import ACTIONS, EVICTING
from tests.expectations.world import CLASSES, VALUES
from tests.fuzz import tried

#: CPUs and Gi of the node
HAS = 8, 8


class Running(NamedTuple):
    """A job on the node."""

    cpu: int
    memory: int
    pods: int
    least: int
    priority: str = "low"


running = st.builds(
    Running,
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["low", "middle"]),
)


def decided(action: str, jobs: Sequence[Running], cpu: int, memory: int) -> tuple[set[str], int]:
    """The pods that are evicted for another one, and how many places it gets."""
    theirs = "theirs" if "reclaim" in action else "mine"
    has = {"cpu": str(HAS[0]), "memory": f"{HAS[1]}Gi"}
    cluster: list[Any] = [
        *CLASSES,
        node("n", cpu=has["cpu"], memory=has["memory"]),
        queue("mine", deserved=has),
        queue("theirs", deserved={"cpu": "0"}),
    ]
    for number, job in enumerate(jobs):
        cluster.append(
            pod_group(f"j{number}", job.least, theirs, "Running", created=number, priorityClassName=job.priority)
        )
        asks = str(job.cpu), f"{job.memory}Gi", "n"
        value = VALUES[job.priority]
        cluster += [pod(f"j{number}-{each}", f"j{number}", *asks, priority=value) for each in range(job.pods)]
    cluster.append(pod_group("g", 1, "mine", created=99, priorityClassName="high"))
    cluster.append(pod("g-0", "g", f"{cpu}", f"{memory}Gi", priority=VALUES["high"]))
    decisions = EVICTING[action].decide(state(cluster).snapshot(), now=NOON).decisions
    places = sum(isinstance(each, Nominate) for each in decisions)
    return {each.name for each in decisions if isinstance(each, Evict)}, places


def fitting(drawn: Iterable[Running]) -> list[Running]:
    """The jobs as far as they fit on the node together, none without its least."""
    free, jobs = list(HAS), list[Running]()
    for job in drawn:
        count = min(job.pods, free[0] // job.cpu, free[1] // job.memory)
        if count:
            free = [free[0] - count * job.cpu, free[1] - count * job.memory]
            jobs.append(job._replace(pods=count, least=min(count, job.least)))
    return jobs


def cost(jobs: Sequence[Running], gone: Iterable[str]) -> tuple[int, int, int]:
    """What a set of victims costs: the highest priority, how many gangs are broken, and how many pods go."""
    lost = Counter(int(name.partition("-")[0][1:]) for name in gone)
    broken = sum(jobs[at].pods - count < jobs[at].least for at, count in lost.items())
    return max((VALUES[jobs[at].priority] for at in lost), default=0), broken, lost.total()


def sets_that_suffice(jobs: Sequence[Running], cpu: int, memory: int) -> Iterator[Sequence[str]]:
    """The sets of victims beside which a pod fits, gangs whole or above their least."""
    free = HAS[0] - sum(job.cpu * job.pods for job in jobs), HAS[1] - sum(job.memory * job.pods for job in jobs)
    names = [f"j{at}-{each}" for at, job in enumerate(jobs) for each in range(job.pods)]
    for gone in chain.from_iterable(combinations(names, count) for count in range(len(names) + 1)):
        lost = Counter(int(name.partition("-")[0][1:]) for name in gone)
        cpus = sum(jobs[at].cpu * count for at, count in lost.items())
        memories = sum(jobs[at].memory * count for at, count in lost.items())
        runs = all(count == jobs[at].pods or jobs[at].pods - count >= jobs[at].least for at, count in lost.items())
        if runs and free[0] + cpus >= cpu and free[1] + memories >= memory:
            yield gone


@pytest.mark.one_in(2)
@pytest.mark.parametrize("action", ACTIONS)
@tried(20)
@given(drawn=st.lists(running, min_size=2, max_size=5), cpu=st.integers(1, 8), memory=st.integers(1, 8))
@example(drawn=[Running(2, 2, 3, 1, "middle"), Running(2, 1, 1, 1)], cpu=4, memory=2)
@example(drawn=[Running(1, 1, 3, 2), Running(2, 3, 2, 2), Running(1, 2, 1, 1)], cpu=3, memory=4)
def test_no_other_victims_cost_less(action: str, drawn: list[Running], cpu: int, memory: int) -> None:
    jobs = fitting(drawn)
    gone, places = decided(action, jobs, cpu, memory)
    if gone:
        assert places == 1
        assert cost(jobs, gone) == min(cost(jobs, each) for each in sets_that_suffice(jobs, cpu, memory))


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize("large", ["n0", "n1"])
@pytest.mark.parametrize("least", [1, 2])
def test_one_victim_makes_room_for_all_by_which_a_job_grows(action: str, large: str, least: int) -> None:
    """A pod of the other node makes room for one."""
    cluster: list[Any] = [*CLASSES, queue("mine", deserved={"cpu": "12"}), queue("theirs", deserved={"cpu": "0"})]
    for name in ("n0", "n1"):
        cpu = 3 if name == large else 1
        cluster += [node(name, cpu="6"), pod_group(f"on-{name}", 1, "theirs", "Running")]
        cluster += [pod(f"on-{name}-{at}", f"on-{name}", f"{cpu}", f"{cpu}Gi", node=name) for at in range(6 // cpu)]
    cluster.append(pod_group("g", least, "mine", created=99))
    cluster += [pod(f"g-{at}", "g") for at in range(3)]
    decisions = EVICTING[action].decide(state(cluster).snapshot(), now=NOON).decisions
    assert [each.name for each in decisions if isinstance(each, Evict)] == [f"on-{large}-1"]
    assert sum(isinstance(each, Nominate) for each in decisions) == 3
