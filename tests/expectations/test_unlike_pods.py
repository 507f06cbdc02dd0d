"""A gang of unlike pods starts wherever evictions make room for it, though it has to be packed tightly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind, Nominate
from stromboli.engine import DEFAULT_POLICY, Engine
from tests.builders import NOON, hyper_node, node, pod, pod_group, queue, state
from tests.expectations.test_no_needless_victim import CPUS, ENGINES, decided, gangs, running, ways
from tests.expectations.world import CLASSES


def packs(gang: Sequence[int]) -> bool:
    """Whether a gang fits on empty nodes."""
    sums = (
        [sum(cpu for at, cpu in zip(nodes, gang, strict=True) if at == node) for node in nodes] for nodes in ways(gang)
    )
    return any(max(each) <= CPUS for each in sums)


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@given(jobs=running, gang=gangs)
@example(jobs=[(2, [1]), (0, [0, 1]), (1, [1, 0, 1, 0])], gang=[4, 3, 3, 4])
@example(jobs=[(0, [0, 1, 0, 2]), (4, [2, 2, 0, 2])], gang=[3, 3, 4, 4])
def test_what_fits_once_all_are_evicted_starts(action: str, jobs: list[tuple[int, list[int]]], gang: list[int]) -> None:
    decisions, _ = decided(action, jobs, gang)
    placed = [each for each in decisions if isinstance(each, Bind | Nominate) and each.name.startswith("g-")]
    assert len(placed) == (len(gang) if packs(gang) else 0)


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@pytest.mark.parametrize(
    "gang",
    [
        [(5, 2), (4, 3), (1, 3), (5, 4), (2, 2)],
        [(1, 4), (5, 2), (3, 3), (2, 4), (3, 2)],
        [(3, 5), (4, 2), (3, 2), (2, 4), (3, 4)],
        # Packed so tightly that no order of pods, one after the other, leads to places for all.
        [(4, 4), (2, 5), (2, 2), (2, 2), (1, 3)],
        [(5, 2), (2, 2), (4, 4), (3, 4), (3, 1)],
    ],
)
def test_what_fits_by_cpu_and_memory_starts(action: str, gang: list[tuple[int, int]]) -> None:
    objs = [*CLASSES, queue("mine"), queue("default"), pod_group("low", 1, "mine", "Running")]
    for number in range(3):
        objs.append(node(f"n{number}", cpu="6", memory="6Gi"))
        objs += [pod(f"low-{number}-{at}", "low", memory="1Gi", node=f"n{number}", priority=1) for at in range(6)]
    objs.append(pod_group("g", len(gang), "mine", created=99, priorityClassName="high"))
    objs += [pod(f"g-{at}", "g", cpu=f"{cpu}", memory=f"{gi}Gi", priority=9) for at, (cpu, gi) in enumerate(gang)]
    decisions = ENGINES[action].decide(state(objs).snapshot(), now=NOON).decisions
    assert len([each for each in decisions if isinstance(each, Bind | Nominate)]) == len(gang)


# -- pods that differ in more than amounts -----------------------------------------------------------------------------

#: by action the engine; what a queue deserves is what its `deserved` says
_BY_CAPACITY = {
    action: Engine(
        DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}").replace("proportion", "capacity")
    )
    for action in ("allocate", *ENGINES)
}
_HOSTNAME = "kubernetes.io/hostname"


def _term(kind: str, labels: dict[str, str], key: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


#: what a pod of the gang, or one that runs, may ask for beside amounts
_ASKED: dict[str, dict[str, Any]] = {
    "": {},
    "port": {"ports": [{"containerPort": 80, "hostPort": 80}]},
    "zone": {"nodeSelector": {"zone": "z1"}},
    "alone": _term("podAntiAffinity", {"app": "g"}, _HOSTNAME),
    "near": _term("podAffinity", {"gang": "g"}, "zone"),
    "even": {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": _HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
            | {"labelSelector": {"matchLabels": {"gang": "g"}}}
        ]
    },
}
_OF_RUNNING = ("", "", "port", "alone")

#: least, whether it is as important as the gang, and each pod's node, CPUs, memory, what it asks for, and its label
_jobs = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(0, 4).map(lambda number: not number),
        st.lists(
            st.tuples(
                st.integers(0, 3),
                st.integers(1, 3),
                st.integers(1, 2),
                st.sampled_from(_OF_RUNNING),
                st.sampled_from(["", "g"]),
            ),
            min_size=1,
            max_size=5,
        ),
    ),
    min_size=1,
    max_size=4,
)
_gangs = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.sampled_from(sorted(_ASKED))), min_size=2, max_size=5
)


@pytest.mark.exhaustive
@given(action=st.sampled_from(sorted(ENGINES)), jobs=_jobs, gang=_gangs, spare=st.integers(0, 1), in_rack=st.booleans())
@example(  # only two of the three that take the port have places in a rack
    action="gangpreempt",
    jobs=[(3, False, [(3, 2, 1, "port", ""), (1, 2, 2, "port", ""), (2, 1, 2, "port", "")])],
    gang=[(1, 1, "port"), (1, 1, ""), (1, 1, "port"), (3, 1, "port"), (2, 1, "")],
    spare=1,
    in_rack=True,
)
@example(  # all four are too large for a rack
    action="preempt",
    jobs=[(2, True, [(0, 1, 2, "", ""), (1, 2, 2, "", "")]), (0, False, [(0, 3, 1, "", ""), (1, 3, 1, "", "")])],
    gang=[(4, 1, ""), (4, 1, ""), (2, 1, ""), (3, 1, "")],
    spare=1,
    in_rack=True,
)
def test_what_starts_without_the_pods_that_may_be_evicted_starts_by_evictions(
    action: str, jobs: Any, gang: list[tuple[int, int, str]], spare: int, in_rack: bool
) -> None:
    racks = [hyper_node(f"r{number}", 1, "Node", [f"n{2 * number}", f"n{2 * number + 1}"]) for number in range(2)]
    hosts = [
        node(f"n{number}", cpu="6", memory="6Gi", labels={"zone": f"z{number // 2}", _HOSTNAME: f"n{number}"})
        for number in range(4)
    ]
    queues = [
        queue("mine", deserved={"cpu": "24", "memory": "24Gi"}),
        queue("theirs", deserved={"cpu": "0", "memory": "0"}),
    ]
    stay, leave = _running(jobs, "theirs" if "reclaim" in action else "mine")
    least = max(2, len(gang) - spare)
    tight = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}} if in_rack else {}
    starts = [pod_group("g", least, "mine", created=99, priorityClassName="high", **tight)]
    labels = {"app": "g", "gang": "g"}
    starts += [
        pod(f"g-{at}", "g", cpu=f"{cpu}", memory=f"{gi}Gi", priority=9, labels=labels, **_ASKED[asked])
        for at, (cpu, gi, asked) in enumerate(gang)
    ]
    cluster = [*CLASSES, *hosts, *racks, *queues, *stay]
    without = _BY_CAPACITY["allocate"].decide(state(cluster, starts).snapshot(), now=NOON)
    evicting = _BY_CAPACITY[action].decide(state(cluster, leave, starts).snapshot(), now=NOON)
    assert (_placed(evicting.decisions) >= least) == (_placed(without.decisions) >= least)


def _running(jobs: Any, queue_name: str) -> tuple[list[Any], list[Any]]:
    """What runs, in two parts: what may not be evicted, and what may."""
    stay, leave = list[Any](), list[Any]()
    full, ports = Counter[tuple[int, str]](), set[int]()
    for number, (least, important, pods) in enumerate(jobs):
        parts = [pod_group(f"j{number}", min(least, len(pods)), queue_name, "Running", created=number)]
        for at, (host, cpu, gi, asked, app) in enumerate(pods):
            if full[host, "cpu"] + cpu > CPUS or full[host, "gi"] + gi > CPUS or (asked == "port" and host in ports):
                continue
            full[host, "cpu"] += cpu
            full[host, "gi"] += gi
            if asked == "port":
                ports.add(host)
            annotations = {"volcano.sh/preemptable": "false"} if important else {}
            amounts = {"cpu": f"{cpu}", "memory": f"{gi}Gi"}
            more = {"labels": {"app": app}, "annotations": annotations, **_ASKED[asked]}
            parts.append(pod(f"j{number}-{at}", f"j{number}", node=f"n{host}", priority=1, **amounts, **more))
        (stay if important else leave).extend(parts)
    return stay, leave


def _placed(decisions: Iterable[Any]) -> int:
    return sum(isinstance(each, Bind | Nominate) and each.name.startswith("g-") for each in decisions)
