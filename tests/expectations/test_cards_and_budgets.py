"""Gangs of pods with and without cards, beside disruption budgets: what brute force finds places for starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind, Evict, Nominate
from stromboli.engine import DEFAULT_POLICY, Engine
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.expectations.test_no_needless_victim import ACTIONS
from tests.expectations.world import CLASSES, GPU
from tests.fuzz import tried


def _engine(action: str, pdb: bool) -> Engine:
    policy = DEFAULT_POLICY.replace("name: proportion", "name: capacity").replace(
        "allocate, backfill", f"allocate, {action}"
    )
    return Engine(policy.replace("name: conformance", "name: conformance\n  - name: pdb") if pdb else policy)


_BY = {(action, pdb): _engine(action, pdb) for action in ACTIONS for pdb in (False, True)}
#: CPUs and cards
Amounts = tuple[int, int]


@dataclass(frozen=True)
class Running:
    """A job whose pods request a CPU each."""

    least: int
    cards: int
    budget: int | None
    #: the nodes of its pods, where these have room
    wanted: tuple[int, ...]


jobs_of = st.lists(
    st.builds(
        Running,
        st.integers(1, 3),
        st.integers(0, 1),
        st.sampled_from([None, None, 0, 1, 2]),
        st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple),
    ),
    max_size=3,
)
gangs = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1)), min_size=1, max_size=3)


class Scene:
    """Nodes, jobs as far as they have room, and a gang that waits."""

    def __init__(self, nodes: Sequence[Amounts], jobs: Sequence[Running], gang: Sequence[Amounts], least: int) -> None:
        self.nodes, self.jobs, self.gang, self.least = nodes, jobs, gang, min(least, len(gang))
        self.free, self.at = [[*each] for each in nodes], list[list[int]]()
        for job in jobs:
            placed = list[int]()
            for at in job.wanted:
                if at < len(nodes) and self.free[at][0] >= 1 and self.free[at][1] >= job.cards:
                    self._take(self.free, at, (1, job.cards))
                    placed.append(at)
            self.at.append(placed)

    @staticmethod
    def _take(free: list[list[int]], at: int, amounts: Amounts) -> None:
        free[at] = [have - want for have, want in zip(free[at], amounts, strict=True)]

    def needs(self, number: int) -> int:
        """How many pods a job needs to run."""
        return min(self.jobs[number].least, len(self.at[number]))

    def state(self, theirs: str) -> ClusterState:
        none = {"cpu": "0", "memory": "0", GPU: "0"}
        made = state(*CLASSES, queue("mine", deserved={"cpu": "99", "memory": "99Gi", GPU: "9"}))
        made.upsert("Queue", queue("theirs", deserved=none))
        for at, (cpu, cards) in enumerate(self.nodes):
            made.upsert("Node", node(f"n{at}", cpu=str(cpu), resources={GPU: str(cards)}))
        for number, (job, places) in enumerate(zip(self.jobs, self.at, strict=True)):
            if places:
                made.upsert("PodGroup", pod_group(f"j{number}", self.needs(number), theirs, "Running"))
            for each, at in enumerate(places):
                more = {"node": f"n{at}", "priority": 10, "labels": {"job": f"j{number}"}}
                made.upsert("Pod", _pod(f"j{number}-{each}", f"j{number}", (1, job.cards), **more))
            if job.budget is not None:
                spec = {"selector": {"matchLabels": {"job": f"j{number}"}}, "maxUnavailable": job.budget}
                budget = {"metadata": {"name": f"j{number}", "namespace": "default"}, "spec": spec}
                made.upsert("PodDisruptionBudget", budget | {"status": {"disruptionsAllowed": job.budget}})
        made.upsert("PodGroup", pod_group("g", self.least, "mine", created=9, priorityClassName="high"))
        for each, amounts in enumerate(self.gang):
            made.upsert("Pod", _pod(f"g-{each}", "g", amounts, priority=100))
        return made

    def may_go(self, number: int, count: int) -> bool:
        """Whether so many pods of a job may be evicted."""
        job, held = self.jobs[number], len(self.at[number])
        return (job.budget is None or count <= job.budget) and (
            held - count >= self.needs(number) or count in (0, held)
        )

    def rooms(self) -> Iterator[list[list[int]]]:
        """What is free once pods are gone that may go."""
        of_jobs = [
            [gone for count in range(len(at) + 1) if self.may_go(number, count) for gone in combinations(at, count)]
            for number, at in enumerate(self.at)
        ]
        for gone in product(*of_jobs):
            free = [[*each] for each in self.free]
            for job, nodes in zip(self.jobs, gone, strict=True):
                for at in nodes:
                    self._take(free, at, (-1, -job.cards))
            yield free

    def fits(self) -> bool:
        """Whether as many pods as the gang needs find places beside what stays."""
        return any(
            self._packs(free, chosen, nodes)
            for free in self.rooms()
            for chosen in combinations(self.gang, self.least)
            for nodes in product(range(len(self.nodes)), repeat=self.least)
        )

    def _packs(self, free: list[list[int]], pods: Sequence[Amounts], nodes: Sequence[int]) -> bool:
        left = [[*each] for each in free]
        for at, amounts in zip(nodes, pods, strict=True):
            self._take(left, at, amounts)
        return min(min(each) for each in left) >= 0


def _pod(name: str, job: str, amounts: Amounts, **more: Any) -> Any:
    cpu, cards = amounts
    return pod(name, job, cpu=str(cpu), resources={GPU: str(cards)} if cards else None, **more)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("pdb", [False, True], ids=["pdb off", "pdb on"])
@pytest.mark.parametrize("action", ACTIONS)
@tried(10)
@given(
    nodes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=3),
    jobs=jobs_of,
    gang=gangs,
    least=st.integers(1, 3),
)
@example(nodes=[(2, 1), (3, 1)], jobs=[Running(1, 0, None, (1,))], gang=[(3, 0), (1, 1), (3, 0)], least=2)
def test_what_brute_force_places_starts(
    action: str, pdb: bool, nodes: list[Amounts], jobs: list[Running], gang: list[Amounts], least: int
) -> None:
    scene = Scene(nodes, jobs, gang, least)
    made = scene.state("theirs" if "reclaim" in action else "mine")
    decisions = _BY[action, pdb].decide(made.snapshot(), now=NOON).decisions
    gone = [each.name for each in decisions if isinstance(each, Evict)]
    places = sum(isinstance(each, Bind | Nominate) for each in decisions)
    assert (places >= scene.least) == scene.fits()
    assert places or not gone, "they went in vain"
    for name, count in Counter(name.partition("-")[0] for name in gone).items():
        assert scene.may_go(int(name[1:]), count), f"{count} pods of {name} went"
