"""A job that takes back its queue's share for pods that spread, stay near or keep apart evicts no pod too many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stromboli.api.decisions import Evict
from stromboli.api.pod_state import PodState
from stromboli.engine import Engine
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.expectations.test_no_needless_victim import SHARES, check_none_could_stay
from tests.expectations.world import CLASSES
from tests.fuzz import tried

_BY = {action: Engine(SHARES.replace("allocate, backfill", action)) for action in ("reclaim", "gangreclaim")}
_ZONE, _HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_OF = {"labelSelector": {"matchLabels": {"app": "g"}}}
#: how many CPUs each of three nodes has
_CPUS = 6


def _spread(key: str, skew: int) -> dict[str, Any]:
    constraint = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", **_OF}
    return {"topologySpreadConstraints": [constraint]}


def _term(kind: str, key: str) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, **_OF}]}}}


_RULES: dict[str, dict[str, Any]] = {
    "": {},
    "even on hosts": _spread(_HOSTNAME, 1),
    "nearly even on hosts": _spread(_HOSTNAME, 2),
    "even in zones": _spread(_ZONE, 1),
    "near": _term("podAffinity", _ZONE),
    "apart": _term("podAntiAffinity", _HOSTNAME),
    "port": {"ports": [{"containerPort": 80, "hostPort": 80}]},
}
#: of each job that runs, how many pods it does without, and the nodes and CPUs of its pods
others = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=4)),
    min_size=1,
    max_size=4,
)
Others = Sequence[tuple[int, Sequence[tuple[int, int]]]]


def _cluster(jobs: Others, first: int, more: Sequence[int], rule: str) -> tuple[list[Any], dict[str, int]]:
    """A job with one pod, which waits for more of its pods, among others; and the least of each of these."""
    objs: list[Any] = [*CLASSES, queue("theirs", deserved={"cpu": "0", "memory": "0"})]
    objs += [queue("mine", deserved={"cpu": f"{3 * _CPUS}", "memory": "64Gi"})]
    objs += [node(f"n{number}", cpu=f"{_CPUS}", labels={_ZONE: f"z{number % 2}"}) for number in range(3)]
    asks: dict[str, Any] = {"labels": {"app": "g"}, "priority": 100, **_RULES[rule]}
    objs += [pod_group("g", 1, "mine", "Running", created=99, priorityClassName="high")]
    objs += [pod("g-0", "g", cpu=f"{first}", node="n0", **asks)]
    objs += [pod(f"g-{number}", "g", cpu=f"{cpu}", **asks) for number, cpu in enumerate(more, 1)]
    free, least_of = [_CPUS - first, _CPUS, _CPUS], {}
    for number, (spare, pods) in enumerate(jobs):
        placed = []
        for at, cpu in pods:
            if cpu <= free[at]:
                free[at] -= cpu
                placed.append((at, cpu))
        least = least_of[f"j{number}"] = max(1, len(placed) - spare)
        objs.append(pod_group(f"j{number}", least, "theirs", "Running", created=number))
        objs += [
            pod(f"j{number}-{each}", f"j{number}", cpu=f"{cpu}", node=f"n{at}", priority=10)
            for each, (at, cpu) in enumerate(placed)
        ]
    return objs, least_of


def check(action: str, jobs: Others, first: int, more: Sequence[int], rule: str) -> None:
    objs, least_of = _cluster(jobs, first, more, rule)
    result = _BY[action].decide(state(objs).snapshot(), now=NOON)
    gone = {each.name for each in result.decisions if isinstance(each, Evict)}
    places = len(more) - result.session.view.jobs["default/g"].counts[PodState.Pending]
    check_none_could_stay(objs, least_of, gone, places)


scenes = given(
    jobs=others,
    first=st.integers(1, 2),
    more=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    rule=st.sampled_from(sorted(_RULES)),
)


@pytest.mark.parametrize("action", _BY)
@tried(10)
@scenes
@example(jobs=[(0, [(1, 2)]), (0, [(1, 2)])], first=1, more=[3, 1, 4], rule="even in zones")
@example(
    jobs=[(3, [(1, 2), (1, 2), (0, 1), (1, 1)]), (0, [(1, 1)])],
    first=2,
    more=[3, 3, 1],
    rule="apart",
)
@example(
    jobs=[(2, [(1, 3), (2, 3), (0, 2)]), (0, [(2, 2), (1, 1)]), (1, [(0, 3), (1, 1)])],
    first=1,
    more=[1, 3, 1],
    rule="even in zones",
)
def test_no_pod_too_many_goes(action: str, jobs: Others, first: int, more: list[int], rule: str) -> None:
    check(action, jobs, first, more, rule)


@pytest.mark.exhaustive
@pytest.mark.parametrize("action", _BY)
@tried(100)
@scenes
def test_no_pod_too_many_goes_in_many_clusters(
    action: str, jobs: Others, first: int, more: list[int], rule: str
) -> None:
    check(action, jobs, first, more, rule)
