"""Nodes that differ from each other: by taints, labels, images, NUMA nodes and racks."""

from __future__ import annotations

from dataclasses import replace

from stromboli.bench.trial import Fields, Objects, Trial
from stromboli.simulation import synthetic


def owned(number: int) -> Fields:
    return {"taints": [{"key": "owner", "value": f"team-{number}", "effect": "NoSchedule"}]}


def above(number: int) -> Fields:
    terms = [
        {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": [str(number * 31 + at)]}]} for at in range(20)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def images(number: int) -> Fields:
    names = (f"registry.example.com/image-{(number * 7 + at) % 500}:1" for at in range(50))
    return {"images": [{"names": [name], "sizeBytes": 500_000_000} for name in names]}


def numa(nodes: int) -> Objects:
    for number in range(nodes):
        detail = {str(cpu): {"numa": cpu // 16, "socket": cpu // 16, "core": cpu // 2} for cpu in range(32)}
        policies = {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"}
        free = f"{number % 16}-{31 - number % 5}"
        spec = {"cpuDetail": detail, "policies": policies, "numares": {"cpu": {"allocatable": free}}}
        yield "Numatopology", {"metadata": {"name": f"node-{number:05}"}, "spec": spec}


def _racks(nodes: int) -> Objects:
    names = [f"node-{number:05}" for number in range(nodes)]
    for each in synthetic.racks_and_spines(names):
        yield "HyperNode", each


ALIGNED = {"volcano.sh/numa-topology-policy": "single-numa-node"}
_CLOSE = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
IN_RACKS = Trial(
    group=lambda _: _CLOSE,
    running_group=lambda _: _CLOSE,
    objects=_racks,
    plugins={"network-topology-aware": {}},
    per_node=20,
    per_group=20,
    pods=320,
    groups=10,
)
LABELLED_RACKS = replace(
    IN_RACKS,
    objects=Trial().objects,
    node=lambda number: {"labels": {"spine": str(number // 200), "rack": str(number // 20)}},
    settings={"topology": {"levels": [{"nodeLabel": "spine"}, {"nodeLabel": "rack"}]}},
)
PARTS = {
    "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
    "subGroupPolicy": [
        {
            "name": "part",
            "subGroupSize": 8,
            "matchLabelKeys": ["part"],
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        }
    ],
}
