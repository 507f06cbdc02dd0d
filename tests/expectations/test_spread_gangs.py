"""Gangs whose pods spread, with few domains, ports and selectors: what fits in any order starts, nothing else does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind
from stromboli.engine import DEFAULT_POLICY, Engine
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.fuzz import tried

_ENGINE = Engine(DEFAULT_POLICY.replace("enqueue, allocate, backfill", "allocate"))
_ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True)
class Node:
    """A node of a zone."""

    zone: str
    cpu: int
    fast: bool
    #: how many pods with the gang's label run there
    others: int


@dataclass(frozen=True)
class Gang:
    """Pods that all start or none, by their CPUs and whether they take the same port."""

    pods: tuple[tuple[int, bool], ...]
    most_skew: int
    least_domains: int | None
    #: whether they only may use fast nodes
    fast: bool
    key: str

    @property
    def constraint(self) -> dict[str, Any]:
        of = {"labelSelector": {"matchLabels": {"app": "g"}}, "whenUnsatisfiable": "DoNotSchedule"}
        least = {"minDomains": self.least_domains} if self.least_domains else {}
        return {"topologyKey": self.key, "maxSkew": self.most_skew, **of, **least}


nodes_of = st.lists(
    st.builds(Node, st.sampled_from("abc"), st.integers(1, 4), st.booleans(), st.sampled_from([0, 0, 0, 1, 2])),
    min_size=1,
    max_size=4,
)
gangs = st.builds(
    Gang,
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([False, False, True])), min_size=1, max_size=4).map(tuple),
    st.integers(1, 2),
    st.sampled_from([None, None, 2, 3]),
    st.booleans(),
    st.sampled_from([_ZONE, _ZONE, "kubernetes.io/hostname"]),
)


def fits(nodes: Sequence[Node], gang: Gang) -> bool:
    """Whether the pods find places in some order, each as kube-scheduler would let it be placed then."""
    may = [at for at, each in enumerate(nodes) if each.fast or not gang.fast]
    domain = [each.zone if gang.key == _ZONE else str(at) for at, each in enumerate(nodes)]
    domains = {domain[at] for at in may}
    too_few = gang.least_domains is not None and len(domains) < gang.least_domains

    @cache
    def ends(left: tuple[tuple[int, bool], ...], placed: tuple[tuple[int, int, bool], ...]) -> bool:
        if not left:
            return True
        count = Counter(dict.fromkeys(domains, 0))
        for at in may:
            count[domain[at]] += nodes[at].others
        for at, _, _ in placed:
            count[domain[at]] += 1
        least = 0 if too_few else min(count.values(), default=0)
        for number, (cpu, port) in enumerate(left):
            for at in may:
                free = nodes[at].cpu - sum(took for on, took, _ in placed if on == at)
                taken = port and any(on == at and had for on, _, had in placed)
                if cpu <= free and not taken and count[domain[at]] + 1 - least <= gang.most_skew:
                    rest = (*left[:number], *left[number + 1 :])
                    if ends(rest, tuple(sorted((*placed, (at, cpu, port))))):
                        return True
        return False

    return ends(tuple(sorted(gang.pods)), ())


def check(nodes: Sequence[Node], gang: Gang) -> None:
    objs: list[Any] = [queue("default"), pod_group("g", len(gang.pods)), pod_group("others", 1, phase="Running")]
    for at, each in enumerate(nodes):
        labels = {_ZONE: each.zone, "speed": "fast" if each.fast else "slow"}
        objs.append(node(f"n{at}", cpu=str(each.cpu), labels=labels))
        on = {"node": f"n{at}", "labels": {"app": "g"}, "cpu": "", "memory": "1Mi"}
        objs += [pod(f"others-{at}-{number}", "others", **on) for number in range(each.others)]
    more: dict[str, Any] = {"topologySpreadConstraints": [gang.constraint]}
    more |= {"nodeSelector": {"speed": "fast"}} if gang.fast else {}
    for number, (cpu, port) in enumerate(gang.pods):
        ports = [{"containerPort": 80, "hostPort": 80}] if port else []
        objs.append(pod(f"g-{number}", "g", cpu=str(cpu), labels={"app": "g"}, ports=ports, **more))
    decisions = _ENGINE.decide(state(objs).snapshot(), now=NOON).decisions
    bound = sum(isinstance(each, Bind) for each in decisions)
    assert bound == (len(gang.pods) if fits(nodes, gang) else 0)


@tried(30)
@given(nodes=nodes_of, gang=gangs)
def test_gangs_that_spread_start_where_they_fit(nodes: list[Node], gang: Gang) -> None:
    check(nodes, gang)


@pytest.mark.exhaustive
@tried(150)
@given(nodes=nodes_of, gang=gangs)
def test_gangs_that_spread_start_in_many_clusters(nodes: list[Node], gang: Gang) -> None:
    check(nodes, gang)
