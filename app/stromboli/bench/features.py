"""The features that cost something, each as the trial that shows it, with the milliseconds that it may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stromboli.bench import claims, devices, evictions, neighbours, nodes, queues
from stromboli.bench.trial import Fields, Trial, container

_NEARLY_FULL = {"containers": [container({"cpu": "28", "memory": "4Gi"})]}
#: pods that wait share the budget of sessions
_BOUNDED: Mapping[str, Any] = {"bounded": True, "always_vain": True, "queues": 2}
_ROLE = "volcano.sh/task-spec"
_HALF_A_GIGABYTE = {"mebibytes": 512.0}


@dataclass(frozen=True, slots=True)
class Feature:
    """A trial and, by figure, the most that it may take on 5,000 nodes."""

    trial: Trial
    bars: Mapping[str, float] = field(default_factory=dict)


def _half(large: int) -> Callable[[int], Fields]:
    """Running pods that leave some nodes with 16 CPUs and all others with 8."""
    return lambda number: {"containers": [container({"cpu": "16" if number < large else "24"})]}


def _unlike(number: int) -> Fields:
    """64 pods, the second half too large for most nodes; placed in order, the first half would take their nodes."""
    gang, at = divmod(number, 64)
    milli = (8_200 if at >= 32 else 4_100) + 7 * at + gang
    return {"containers": [container({"cpu": f"{milli}m"})]}


def _unlike_and_large(number: int) -> Fields:
    """Pods too large for two on a node, for one node fewer than a gang has pods."""
    containers = [container({"cpu": f"{16_100 + 7 * (number % 64)}m"})]
    return {"containers": containers, "nodeSelector": {"pool": "large"}}


def _own_size(number: int) -> Fields:
    return {"containers": [container({"cpu": f"{500 + number % 1_500}m", "memory": f"{512 + number}Mi"})]}


def _of_five_sizes(number: int) -> Fields:
    """A pod of one of a hundred jobs; every fifth has the same size."""
    size = 1 + number // 10 % 5
    return {"containers": [container({"cpu": f"{500 * size}m", "memory": f"{size}Gi"})]}


def _larger_than_is_left(number: int) -> Fields:
    return {"containers": [container({"cpu": f"{5_000 + number}m"})]}


def _in_part(number: int) -> Fields:
    return {"labels": {"part": str(number // 8)}}


def _groups(number: int) -> Fields:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": [f"g{number}" for number in range(500)]}
    return {"affinity": {"nodeGroupAffinity": affinity}}


_POOLS = Trial(
    groups=10,
    queues=10,
    node=lambda n: {"labels": {"pool": str(n % len(queues.POOLS))}},
    queue=queues.of_pools,
    group=queues.in_pools,
    plugins={"nodepools": {"pools": queues.POOLS}},
)
_HDRF = Trial(queue=queues.in_tree, hierarchy="drf", without="proportion", queues=1_000, groups=1_000, pods=1_000)

_UNDER_CAPACITY: dict[str, Any] = {"plugins": {"capacity": {}}, "without": "drf proportion"}

_PLUGINS: dict[str, dict[str, Any]] = {
    "capacity": {"without": "proportion"},
    "cdp": {},
    "fairshare": {"without": "proportion drf"},
    "pdb": {},
    "rescheduling": {},
    "resource-strategy-fit": {},
    "resourcequota": {},
    "sla": {},
    "tdm": {},
}

FEATURES: Mapping[str, Feature] = {
    "default, gang": Feature(Trial(per_node=20), {"tick": 5}),
    "default, distinct": Feature(Trial(pod=_own_size), {"success": 0.2}),
    "default, 10,000 distinct": Feature(Trial(pod=_own_size, pods=10_000, groups=100), _HALF_A_GIGABYTE),
    "default, distinct, no pod fits": Feature(
        Trial(pod=_larger_than_is_left, placed=lambda _: evictions.FULL, per_node=7, always_vain=True), {"vain": 0.5}
    ),
    "default, 5,000 distinct pods wait": Feature(
        Trial(pod=_larger_than_is_left, placed=lambda _: _NEARLY_FULL, per_node=1, pods=5_000, **_BOUNDED),
        {"vain": 0.1, "again": 0.06},
    ),
    "64 unlike pods that fit in another order": Feature(
        Trial(pod=_unlike, placed=_half(32), per_node=1, pods=64, without="binpack"), {"success": 500 / 64}
    ),
    # That there are no places now is proven in these two, and in the next one that there never are.
    "64 unlike pods that do not fit": Feature(
        Trial(pod=_unlike, placed=_half(31), per_node=1, pods=64, groups_in_vain=1, always_vain=True),
        {"vain": 2_000 / 64, "again": 0.3},
    ),
    "100 gangs of 64 unlike pods that do not fit": Feature(
        Trial(pod=_unlike, placed=_half(31), per_node=1, pods=6_400, groups_in_vain=100, always_vain=True),
        {"again": 0.1},
    ),
    "64 unlike pods that never fit": Feature(
        Trial(
            pod=_unlike_and_large,
            node=lambda number: {"labels": {"pool": "large" if number < 63 else "small"}},
            placed=lambda _: {"containers": [container({"cpu": "16"})]},
            per_node=1,
            pods=64,
            groups_in_vain=1,
            always_vain=True,
        ),
        {"vain": 2_000 / 64, "again": 0.3},
    ),
    "default, elastic": Feature(Trial(pods=1_000, groups=100, group=lambda _: {"minMember": 1}), {"success": 0.03}),
    "default, elastic, five sizes": Feature(
        Trial(pod=_of_five_sizes, pods=1_000, groups=100, group=lambda _: {"minMember": 1}), {"success": 0.03}
    ),
    "best effort": Feature(Trial(pod=lambda _: {"containers": [{"name": "main"}]}), {}),
    "local volumes, one a node": Feature(claims.LOCAL, {"success": 1}),
    "WaitForFirstConsumer, 10,000 bound volumes of the class": Feature(claims.BOUND, {"success": 0.2}),
    "attach limits, 10,000 placed pods with claims": Feature(claims.ATTACHED, {"success": 0.5}),
    "attach limits, none placed": Feature(claims.ATTACHED_NONE, {"success": 0.5}),
    "attach limits, each placed pod with a claim": Feature(claims.ATTACHED_ALL, {"tick": 30, **_HALF_A_GIGABYTE}),
    "device claims, a selector of its own each": Feature(claims.SELECTED, {"success": 2}),
    "device claims, 128 devices on all nodes": Feature(claims.EVERYWHERE, {"success": 2}),
    "device claims, each placed pod with one": Feature(claims.SELECTED_ALL, {"tick": 30, **_HALF_A_GIGABYTE}),
    "device claims, one slice changed": Feature(claims.SELECTED_CHANGED, {"tick": 15}),
    "vGPU, gang": Feature(
        devices.sharing("VGPUEnable", lambda n: devices.limits(vgpu_number="1", vgpu_memory="4000")),
        {"success": 0.2, "tick": 15},
    ),
    "vGPU, distinct": Feature(
        devices.sharing("VGPUEnable", lambda n: devices.limits(vgpu_number="1", vgpu_memory=str(1_000 + n))),
        {"success": 1},
    ),
    "vGPU, distinct, with score": Feature(
        devices.sharing("VGPUEnable", lambda n: devices.limits(vgpu_number="1", vgpu_memory=str(1_000 + n)), 1),
        {"success": 1},
    ),
    "gpu-memory, gang": Feature(
        devices.sharing("GPUSharingEnable", lambda n: devices.limits(gpu_memory="4000")), {"success": 0.2, "tick": 15}
    ),
    "gpu-memory, distinct": Feature(
        devices.sharing("GPUSharingEnable", lambda n: devices.limits(gpu_memory=str(1_000 + n))), {"success": 1}
    ),
    "gpu-number, gang": Feature(
        devices.sharing("GPUNumberEnable", lambda n: devices.limits(gpu_number="1")), {"success": 0.2}
    ),
    "numa-aware, distinct": Feature(
        Trial(
            pod=lambda n: devices.limits(memory=f"{n + 1}Mi", cpu=str(1 + n % 8)),
            plugins={"numa-aware": {}},
            objects=nodes.numa,
            annotations=nodes.ALIGNED,
            per_node=20,
        ),
        {"success": 0.5, "tick": 15},
    ),
    "hard topology": Feature(nodes.IN_RACKS, {"success": 0.5, "tick": 15}),
    "hard topology with sub groups": Feature(
        replace(
            nodes.IN_RACKS,
            pod=_in_part,
            placed=_in_part,
            group=lambda _: nodes.PARTS,
            running_group=lambda _: nodes.PARTS,
            per_group=64,
            groups=5,
        ),
        {"success": 0.5, "tick": 15, "idle": 15},
    ),
    "hard topology, one node changed": Feature(replace(nodes.IN_RACKS, changing=1), {"tick": 15}),
    "hard topology from labels": Feature(nodes.LABELLED_RACKS, {"success": 0.3, "tick": 15}),
    "a taint of its own on each node": Feature(
        Trial(pod=lambda n: {"tolerations": [{"key": "owner", "value": f"team-{n}"}]}, node=nodes.owned),
        {"success": 0.2},
    ),
    "Gt on a unique label, 20 terms": Feature(
        Trial(pod=nodes.above, node=lambda n: {"labels": {"rank": str(n)}}), {"success": 0.5}
    ),
    "anti-affinity of its own": Feature(
        Trial(
            pod=lambda n: neighbours.anti_affinity({"app": f"new-{n}"}),
            placed=lambda n: neighbours.anti_affinity({"app": f"app-{n}"}),
            per_node=20,
        ),
        {"success": 0.2, "tick": 20, **_HALF_A_GIGABYTE},
    ),
    "kept away by those of its app": Feature(
        Trial(
            pod=neighbours.of_app, placed=lambda n: neighbours.anti_affinity({"app": f"app-{n % 1_000}"}), per_node=20
        ),
        {"success": 0.2, "tick": 20},
    ),
    "far from all but its own": Feature(
        Trial(
            pod=lambda n: neighbours.alone({"app": f"new-{n}"}),
            placed=lambda n: {"labels": {"app": "everywhere"}},
            per_node=20,
        ),
        {"success": 0.2, "tick": 20},
    ),
    "near an app": Feature(
        neighbours.beside_apps("requiredDuringSchedulingIgnoredDuringExecution"), {"success": 0.2, "tick": 20}
    ),
    "rather near an app": Feature(
        neighbours.beside_apps("preferredDuringSchedulingIgnoredDuringExecution"), {"success": 0.2, "tick": 20}
    ),
    "spread over a label of its own": Feature(
        Trial(
            pod=lambda n: neighbours.spread({"app": f"new-{n}"}),
            placed=lambda n: {"labels": {"app": f"app-{n}"}},
            per_node=20,
        ),
        {"success": 0.2, "tick": 20},
    ),
    "a host port of its own": Feature(
        Trial(pod=neighbours.port, placed=neighbours.port, per_node=20), {"success": 0.2, "tick": 20}
    ),
    "one host port, an address of its own": Feature(
        Trial(pod=lambda n: neighbours.address(1_000_000 + n), placed=neighbours.address, per_node=20),
        {"success": 0.5, "tick": 20},
    ),
    "rather far from all but its own": Feature(
        Trial(
            pod=lambda n: neighbours.rather_alone({"app": f"new-{n}"}),
            placed=lambda n: neighbours.rather_alone({"app": f"app-{n}"}),
        ),
        {"success": 1, "tick": 20},
    ),
    "spread over 500 zones by a label of its own": Feature(
        Trial(
            pod=lambda n: neighbours.by_zone({"app": f"new-{n}"}),
            placed=lambda n: neighbours.by_zone({"app": f"app-{n}"}),
            node=lambda n: {"labels": {neighbours.ZONE: f"zone-{n % 500}"}},
            per_node=20,
        ),
        {"success": 0.5, "tick": 20},
    ),
    "queues for namespaces, by label and name": Feature(
        Trial(pod=_own_size, queue=queues.for_namespaces, queues=100, groups=10),
        {"success": 0.3},
    ),
    "limits by user, 1,000 users": Feature(
        Trial(
            pod=_own_size,
            groups=10,
            queues=10,
            group=queues.of_users,
            running_group=queues.of_users,
            per_group=10,
            plugins={
                "userlimits": {"limits": [{"groups": ["board"]}, {"resources": {"cpu": "1000000"}, "maxPods": 1_000}]}
            },
        ),
        {"success": 0.3},
    ),
    "node pools, eight with shares": Feature(replace(_POOLS, pod=_own_size), {"success": 0.3}),
    "node pools, gangs": Feature(_POOLS, {"success": 0.3, "tick": 15}),
    "nodegroup, 500 groups": Feature(
        Trial(
            node=lambda n: {"labels": {"volcano.sh/nodegroup-name": f"g{n % 500}"}},
            plugins={"nodegroup": {}},
            queue=_groups,
            pod=_own_size,
        ),
        {"success": 0.2},
    ),
    "images, 100 nodes changed of 50 images each": Feature(Trial(node=nodes.images, changing=100), {"tick": 10}),
    "usage": Feature(Trial(plugins={"usage": {}}, per_node=20), {"tick": 15}),
    "hdrf, 1,000 queues and jobs": Feature(_HDRF, {"success": 0.2}),
    "minTaskMember, one job of 8,000": Feature(
        Trial(
            pods=8_000,
            annotations={_ROLE: "worker"},
            group=lambda _: {"minTaskMember": {"worker": 1}, "minMember": 1},
        ),
        {"success": 0.1},
    ),
    "task-topology, one job of 2,000": Feature(
        Trial(
            pods=2_000,
            pod=lambda n: {"annotations": {_ROLE: ("ps", "worker")[n % 2]}},
            group=lambda _: {
                "annotations": {
                    "volcano.sh/task-topology-affinity": "ps,worker",
                    "volcano.sh/task-topology-anti-affinity": "ps",
                }
            },
            plugins={"task-topology": {}},
        ),
        {"success": 0.1},
    ),
    "PodGroups of one pod": Feature(Trial(per_node=20, per_group=1), {"tick": 30, "idle": 30}),
    "time-outs, gangs of 20": Feature(
        Trial(
            actions="timeouts, enqueue, allocate, backfill",
            configurations={"timeouts": {"podsReadyTimeout": "5m", "maxRunTime": "1000000h"}},
            per_node=20,
            per_group=20,
        ),
        {"success": 0.3},
    ),
    "preempt": Feature(evictions.evicting("preempt"), {"success": 0.5}),
    "preempt, in vain": Feature(evictions.evicting("preempt", vain=True), {"vain": 1}),
    # drf takes from jobs that keep as much as the preemptor's gets: they are twice as large.
    "preempt, drf decides": Feature(evictions.evicting("preempt", without="priority", per_group=16), {"success": 2}),
    "preempt, in vain, a request of its own each": Feature(
        evictions.evicting(
            "preempt",
            pod=evictions.unlike_others,
            placed=evictions.unwilling,
            group=evictions.important,
            always_vain=True,
        ),
        {"vain": 5},
    ),
    "preempt, topology-aware": Feature(
        evictions.evicting("preempt", configurations={"preempt": {"enableTopologyAwarePreemption": True}}),
        {"success": 2},
    ),
    "preempt, 1,000 budgets": Feature(
        evictions.evicting("preempt", objects=evictions.budgets, plugins={"pdb": {}}), {"success": 1}
    ),
    "preempt, minimum run times that have passed": Feature(
        evictions.evicting(
            "preempt",
            placed=evictions.for_a_minute,
            queue=lambda _: {"preemptMinRuntime": "30s"},
            plugins={"minruntime": {}},
        ),
        {"success": 0.5},
    ),
    "preempt, in vain, minimum run times": Feature(
        evictions.evicting(
            "preempt",
            placed=evictions.for_a_minute,
            group=evictions.important,
            running_group=lambda _: {"priorityClassName": "low", "queue": "queue-0", "minMember": 8},
            queue=lambda _: {"preemptMinRuntime": "1h"},
            plugins={"minruntime": {}},
            always_vain=True,
        ),
        {"vain": 1},
    ),
    "reclaim": Feature(evictions.evicting("reclaim"), {"success": 0.5}),
    "reclaim, in vain": Feature(evictions.evicting("reclaim", vain=True), {"vain": 1}),
    "reclaim under capacity, in vain, a request of its own each": Feature(
        evictions.evicting(
            "reclaim",
            pod=evictions.unlike_others,
            queue=lambda _: {"deserved": {"cpu": "1000000"}},
            always_vain=True,
            **_UNDER_CAPACITY,
        ),
        {"vain": 5},
    ),
    # Together these two show the cost of the limits.
    "reclaim under capacity": Feature(
        evictions.evicting("reclaim", queue=queues.deserving, **_UNDER_CAPACITY), {"success": 0.5}
    ),
    "reclaim, limits on borrowing and lending": Feature(
        evictions.evicting("reclaim", queue=queues.limited, **_UNDER_CAPACITY), {"success": 0.5}
    ),
    "reclaim, 200 queues": Feature(evictions.evicting("reclaim", queues=200), {"success": 0.5}),
    "gangpreempt": Feature(evictions.evicting("gangpreempt"), {"success": 5 / 8}),
    "gangpreempt, in vain": Feature(evictions.evicting("gangpreempt", vain=True), {"vain": 5}),
    "gangpreempt, 1,000 budgets": Feature(
        evictions.evicting("gangpreempt", objects=evictions.budgets, plugins={"pdb": {}}), {"success": 10 / 8}
    ),
    "gangreclaim": Feature(evictions.evicting("gangreclaim"), {"success": 5 / 8}),
    "gangreclaim, in vain": Feature(evictions.evicting("gangreclaim", vain=True), {"vain": 5}),
    "shuffle": Feature(evictions.evicting("shuffle", plugins={"rescheduling": {}}), {}),
    **{
        f"plugin {name}": Feature(Trial(pod=_own_size, plugins={name: {}}, **more), {})
        for name, more in _PLUGINS.items()
    },
}
