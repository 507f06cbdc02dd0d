"""numa-aware: processors next to each other."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stromboli.plugins.numaaware.kinds import REFUSED, UNCLEAR, kind_of
from stromboli.plugins.numaaware.topology import parse_cpus, read
from tests.builders import node, pod, pod_group
from tests.plugins.sessions import bound, policy


def topology(name: str, policy: str = "single-numa-node", free: str = "0-7", **spec: Any) -> dict[str, Any]:
    """Two NUMA nodes with two cores of two threads each."""
    return {
        "metadata": {"name": name},
        "spec": {
            "policies": {"CPUManagerPolicy": spec.pop("manager", "static"), "TopologyManagerPolicy": policy},
            "numares": {"cpu": {"allocatable": free, "capacity": 8}},
            "cpuDetail": {str(i): {"numa": i // 4, "socket": i // 4, "core": i // 2} for i in range(8)},
            **spec,
        },
    }


def aligned(name: str, cpus: str, wanted: str = "single-numa-node", job: str = "job"):
    amounts = {"cpu": cpus, "memory": "1Gi"}
    return pod(
        name,
        job,
        annotations={"volcano.sh/numa-topology-policy": wanted} if wanted else {},
        containers=[{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
    )


def place(*pods: Any, topologies: list[dict[str, Any]], nodes: int = 1) -> dict[str, str]:
    objects = [node(f"n{i + 1}", cpu="16") for i in range(nodes)]
    return bound(*objects, pod_group("job"), *pods, by=policy("numa-aware"), objects={"Numatopology": topologies})


@pytest.mark.parametrize(("cpus", "fits"), [("4", True), ("5", False), ("1500m", True)])
def test_a_pod_must_fit_on_one_numa_node(cpus: str, fits: bool) -> None:
    assert bool(place(aligned("job-0", cpus), topologies=[topology("n1")])) == fits


@pytest.mark.parametrize(
    ("policy_", "free", "fits"),
    [
        ("restricted", "0-7", True),
        ("restricted", "0-2,4-6", False),
        ("best-effort", "0-2,4-6", True),
        ("single-numa-node", "0-2,4-6", False),
    ],
)
def test_what_a_policy_admits(policy_: str, free: str, fits: bool) -> None:
    """4 cpus would fit on one NUMA node if all were free, so two are not preferred."""
    placed = place(aligned("job-0", "4", policy_), topologies=[topology("n1", policy_, free)])
    assert bool(placed) == fits


@pytest.mark.parametrize(
    "report",
    [
        topology("n1", "restricted"),
        topology("n1", manager="none"),
        topology("other"),
        topology("n1", free=""),
        topology("n1", free="one"),
    ],
)
def test_the_node_must_have_the_policy(report: dict[str, Any]) -> None:
    assert place(aligned("job-0", "1"), topologies=[report]) == {}


def test_pods_without_a_policy_or_guarantee_are_free() -> None:
    assert place(aligned("job-0", "8", ""), topologies=[topology("n1", "none")]) == {"job-0": "n1"}
    assert place(aligned("job-0", "5", ""), topologies=[topology("n1")]) == {}
    burstable = pod("job-0", "job", cpu="5", annotations={"volcano.sh/numa-topology-policy": "single-numa-node"})
    assert place(burstable, topologies=[topology("n1")]) == {"job-0": "n1"}


def test_what_was_placed_before_is_taken() -> None:
    pods = [aligned(f"job-{i}", "3") for i in range(3)]
    assert len(place(*pods, topologies=[topology("n1")])) == 2


def test_fewer_numa_nodes_are_preferred() -> None:
    reports = [topology("n1", "best-effort", "0-2,4-6"), topology("n2", "best-effort")]
    assert place(aligned("job-0", "4", "best-effort"), topologies=reports, nodes=2) == {"job-0": "n2"}


def test_cores_are_taken_whole_where_possible() -> None:
    known = read(topology("n1", resReserved={"cpu": "1"}))
    assert known is not None
    assert len(known.reserved) == 1
    assert known.take(frozenset({1, 2, 3, 4}), 2) == {2, 3}
    assert known.take(frozenset(range(8)), 4) == {0, 1, 2, 3}
    assert known.take(frozenset({1, 4, 6, 7}), 3) == {4, 6, 7}


def test_lists_of_processors() -> None:
    assert parse_cpus("0-2,5") == {0, 1, 2, 5}
    assert parse_cpus("") == frozenset()
    with pytest.raises(ValueError, match="'a' is not a CPU number"):
        parse_cpus("a-b")


@pytest.mark.parametrize("policy_", ["best-effort", "restricted", "single-numa-node"])
def test_numbers_of_free_processors_say_what_trying_every_container_says(policy_: str) -> None:
    chance = random.Random(5)
    for _ in range(150):
        cells, free = chance.choice((1, 2, 4)), {cpu for cpu in range(16) if chance.random() < 0.7}
        detail = {str(cpu): {"numa": cpu * cells // 16, "socket": cpu // 8, "core": cpu // 2} for cpu in range(16)}
        manifest = topology("n1", policy_, ",".join(map(str, sorted(free))), cpuDetail=detail)
        manifest["spec"]["resReserved"] = {"cpu": str(chance.randrange(3))}
        known = read(manifest)
        assert known is not None
        wanted = tuple(chance.choice((1, 2, 3, 5, 9)) for _ in range(chance.randrange(1, 4)))
        taken: frozenset[int] | None = frozenset()
        for count in wanted:
            cpus = known.assign(count, known.free - taken)
            taken = None if cpus is None else taken | cpus
            if taken is None:
                break
        said = kind_of(known, known.free).spread(wanted)
        if said != UNCLEAR:
            assert said == (REFUSED if taken is None else known.numa_nodes(taken)), (wanted, known)
