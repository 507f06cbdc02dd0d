"""Preemption makes room for more than amounts: whatever a pod of lower priority holds and the preemptor needs."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api import objects
from stromboli.api.decisions import Evict
from stromboli.policy.document import DEFAULT_POLICY
from tests.actions.evictions import nominated
from tests.builders import decide, node, pod, pod_group, queue, state
from tests.kube import test_dra as dra
from tests.kube import test_volumes as volumes
from tests.plugins.test_deviceshare import NUMBER, gpu_node, user

PRIORITIES = {"low": 10, "middle": 50, "high": 100}
CLASSES = [objects.PriorityClass(metadata=objects.Metadata(name=n), value=v) for n, v in PRIORITIES.items()]
HOST = "kubernetes.io/hostname"
PORT = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
LABELS = {"labels": {"app": "db"}}


def terms(kind: str, key: str) -> dict[str, Any]:
    """A required term of affinity or anti-affinity to pods of the app."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": LABELS["labels"]}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(skew: int) -> dict[str, Any]:
    constraint = {
        "maxSkew": skew,
        "topologyKey": HOST,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": LABELS["labels"]},
    }
    return LABELS | {"topologySpreadConstraints": [constraint]}


def apart(key: str) -> dict[str, Any]:
    return terms("podAntiAffinity", key)


def of(priority: str, name: str, on: str = "", **more: Any) -> Any:
    return pod(name, priority, cpu="100m", memory="", node=on, priority=PRIORITIES[priority], **more)


def attached(name: str) -> list[dict[str, Any]]:
    driver = {"csi": {"driver": "csi.example.com", "volumeHandle": name}}
    return [volumes.volume(f"pv-{name}", **driver), volumes.claim(name, volume=f"pv-{name}")]


def zone(name: str) -> Any:
    return node(name, labels={"zone": "z"})


def mounts(name: str) -> dict[str, Any]:
    return {"volumes": volumes.pod_volumes(name)}


DEVICES = dra.device_class(), dra.resource_slice("n0", dra.device("gpu-0"))


def device(name: str, on: str = "", **more: Any) -> list[dict[str, Any]]:
    """A claim for a device, which holds one if a pod with it is on a node."""
    if not on:
        return [dra.claim(name, **more)]
    status = dra.allocation(on, "gpu-0") | {"reservedFor": [{"resource": "pods", "name": "v", "uid": "uid-v"}]}
    return [dra.claim(name, status=status)]


def claims(name: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": name, "resourceClaimName": name}]}


def card(name: str, on: str = "", priority: str = "high") -> Any:
    made = {"volcano.sh/gpu-index": "0"} if on else {}
    return user(name, {NUMBER: "1"}, on, priority, annotations=made, priority=PRIORITIES[priority])


#: what there is, what of low priority holds what is needed, and who needs it
SCENES: dict[str, tuple[list[Any], list[Any], Any]] = {
    "a device": (
        [
            node("n0"),
            dra.device_class(),
            dra.resource_slice("n0", dra.device("gpu-0")),
            *device("a", "n0"),
            *device("b"),
        ],
        [of("low", "v", "n0", **claims("a"))],
        of("high", "p", **claims("b")),
    ),
    "a host port": ([node("n0")], [of("low", "v", "n0", **PORT)], of("high", "p", **PORT)),
    "its own anti-affinity": ([node("n0")], [of("low", "v", "n0", **LABELS)], of("high", "p", **apart(HOST))),
    "the victim's anti-affinity": ([node("n0")], [of("low", "v", "n0", **apart(HOST))], of("high", "p", **LABELS)),
    "its own anti-affinity in a zone": (
        [zone("n0"), node("n1", cpu="0", labels={"zone": "z"})],
        [of("low", "v", "n0", **LABELS)],
        of("high", "p", **apart("zone")),
    ),
    "spread": ([node("n0"), node("n1", cpu="0")], [of("low", "v", "n0", **LABELS)], of("high", "p", **spread(1))),
    "one place on a node": ([node("n0", pods="1")], [of("low", "v", "n0")], of("high", "p")),
    "an attached volume": (
        [node("n0"), volumes.csi_node("n0", 1), *attached("a"), *attached("b")],
        [of("low", "v", "n0", **mounts("a"))],
        of("high", "p", **mounts("b")),
    ),
    "a card": ([gpu_node("n0", 8, 1)], [card("v", "n0", "low")], card("p")),
}


def evicted(objs: list[Any], action: str, plugins: str = "") -> tuple[list[str], dict[str, str]]:
    text = DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}, backfill")
    cluster = state(CLASSES, queue("default"))
    for each in objs:
        cluster.upsert(each["kind"] if isinstance(each, dict) else type(each).__name__, each)
    result = decide(cluster, text + plugins)
    return sorted(d.name for d in result.decisions if isinstance(d, Evict)), nominated(result)


CARDS = "  - {name: deviceshare, arguments: {deviceshare.GPUNumberEnable: true}}\n"
GROUPS = [
    pod_group("low", 0, phase="Running", priorityClassName="low"),
    pod_group("high", 1, priorityClassName="high"),
]
BOTH = pytest.mark.parametrize("action", ["preempt", "gangpreempt"])


@BOTH
@pytest.mark.parametrize("needed", SCENES)
def test_what_a_less_important_pod_holds_is_made_free(needed: str, action: str) -> None:
    cluster, victims, preemptor = SCENES[needed]
    gone, promised = evicted([*cluster, *GROUPS, *victims, preemptor], action, CARDS)
    assert gone == ["v"]
    assert promised.keys() == {"p"}


@BOTH
@pytest.mark.parametrize("needed", SCENES)
def test_no_more_goes_than_is_in_the_way(needed: str, action: str) -> None:
    cluster, victims, preemptor = SCENES[needed]
    if needed != "one place on a node":
        victims = [*victims, of("low", "bystander", "n0")]
    assert evicted([*cluster, *GROUPS, *victims, preemptor], action, CARDS)[0] == ["v"]


@BOTH
@pytest.mark.parametrize("needed", SCENES)
def test_pods_of_the_same_priority_stay(needed: str, action: str) -> None:
    cluster, victims, preemptor = SCENES[needed]
    equal = [pod_group("low", 0, phase="Running", priorityClassName="high"), GROUPS[1]]
    assert evicted([*cluster, *equal, *victims, preemptor], action, CARDS) == ([], {})


@BOTH
@pytest.mark.parametrize("needed", SCENES)
def test_no_more_important_pod_goes_on_a_node_where_nothing_else_is_in_the_way(needed: str, action: str) -> None:
    cluster, victims, preemptor = SCENES[needed]
    full = [
        node("other", cpu="100m"),
        pod_group("middle", 0, phase="Running", priorityClassName="middle"),
        of("middle", "m", "other"),
    ]
    assert evicted([*cluster, *full, *GROUPS, *victims, preemptor], action, CARDS)[0] == ["v"]
