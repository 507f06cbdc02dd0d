"""The features that cost something, each as the trial that shows it, with the milliseconds that it may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stromboli.bench import claims
from stromboli.bench.trial import HOSTNAME, Fields, Objects, Trial, container
from stromboli.simulation import synthetic
from stromboli.simulation.manifests import decode

_GPU_MEMORY, _GPU_NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
_VGPU = {"volcano.sh/vgpu-number": "100", "volcano.sh/vgpu-memory": "1000000", "volcano.sh/vgpu-cores": "800"}
_FULL = {"containers": [container({"cpu": "4", "memory": "4Gi"})]}
_NEARLY_FULL = {"containers": [container({"cpu": "28", "memory": "4Gi"})]}
#: pods that wait share the budget of sessions
_BOUNDED: Mapping[str, Any] = {"bounded": True, "always_vain": True, "queues": 2}
_ROLE = "volcano.sh/task-spec"
_ZONE = "topology.kubernetes.io/zone"
_HALF_A_GIGABYTE = {"mebibytes": 512.0}


@dataclass(frozen=True, slots=True)
class Feature:
    """A trial and, by figure, the most that it may take on 5,000 nodes."""

    trial: Trial
    bars: Mapping[str, float] = field(default_factory=dict)


# -- devices ---------------------------------------------------------------------------------------------------------


def _limits(**amounts: str) -> Fields:
    named = {"memory": "1Gi", "cpu": "1"} | {name.replace("_", "-"): amount for name, amount in amounts.items()}
    named = {f"volcano.sh/{name}" if "gpu" in name else name: amount for name, amount in named.items()}
    return {"containers": [{"name": "main", "resources": {"requests": named, "limits": named}}]}


def _cards(number: int) -> Fields:
    cards = "".join(f"card-{number}-{card},10,32000,NVIDIA-A100,true,hami-core:" for card in range(8))
    gpus = {_GPU_MEMORY: "256000", _GPU_NUMBER: "8"}
    return {"annotations": {"volcano.sh/node-vgpu-register": cards}, "amounts": _VGPU | gpus}


def _sharer(number: int) -> Fields:
    """A pod that holds a part of a card, as each way of sharing writes it."""
    ids = f"card-{number}-0,NVIDIA,100,0:"
    return {
        "annotations": {"volcano.sh/gpu-index": str(number % 8), "volcano.sh/vgpu-ids-new": ids},
        **_limits(gpu_memory="100", vgpu_memory="100"),
    }


def _sharing(way: str, pod: Any, weight: int = 0) -> Trial:
    policy = {"deviceshare.SchedulePolicy": "binpack", "deviceshare.ScheduleWeight": weight} if weight else {}
    plugins = {"deviceshare": {f"deviceshare.{way}": True, **policy}}
    return Trial(pod=pod, placed=_sharer, node=_cards, plugins=plugins)


# -- nodes and other pods --------------------------------------------------------------------------------------------


def _half(large: int) -> Callable[[int], Fields]:
    """Running pods that leave some nodes with 16 CPUs and all others with 8."""
    return lambda number: {"containers": [container({"cpu": "16" if number < large else "24"})]}


def _unlike(number: int) -> Fields:
    """Of 64 pods the second half asks for more than most nodes have left; the first would take their nodes."""
    gang, at = divmod(number, 64)
    milli = (8_200 if at >= 32 else 4_100) + 7 * at + gang
    return {"containers": [container({"cpu": f"{milli}m"})]}


def _anti_affinity(labels: dict[str, str]) -> Fields:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": labels}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"labels": labels, "affinity": {"podAntiAffinity": required}}


def _spread(labels: dict[str, str]) -> Fields:
    constraint = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
    selected = {"labelSelector": {"matchLabels": labels}}
    return {"labels": labels, "topologySpreadConstraints": [constraint | selected]}


def _by_zone(labels: dict[str, str]) -> Fields:
    constraint = {"maxSkew": 1, "topologyKey": _ZONE, "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor"}
    counted = {"labelSelector": {}, "matchLabelKeys": ["app"]}
    return {"labels": labels, "topologySpreadConstraints": [constraint | counted]}


def _in_zone(number: int) -> Fields:
    return {"labels": {_ZONE: f"zone-{number % 20}"}}


def _near_app(number: int, how: str) -> Fields:
    """Near the pods of one of a thousand apps, by their zone."""
    term = {"topologyKey": _ZONE, "labelSelector": {"matchLabels": {"app": f"app-{number % 1_000}"}}}
    terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": [term],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm": term}],
    }
    return {"labels": {"app": "new"}, "affinity": {"podAffinity": {how: terms[how]}}}


def _beside_apps(how: str) -> Trial:
    """Pods near those of an app, on nodes that lie in zones."""
    return Trial(pod=lambda n: _near_app(n, how), placed=_of_app, node=_in_zone, per_node=20)


def _alone(labels: dict[str, str]) -> Fields:
    """Far from whoever is none of its own or of those that are everywhere."""
    others = [{"key": key, "operator": "NotIn", "values": [value, "everywhere"]} for key, value in labels.items()]
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchExpressions": others}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"labels": labels, "affinity": {"podAntiAffinity": required}}


def _of_app(number: int) -> Fields:
    return {"labels": {"app": f"app-{number % 1_000}"}}


def _rather_alone(labels: dict[str, str]) -> Fields:
    """Rather far from whoever is none of its own, wherever that is."""
    others = [{"key": key, "operator": "NotIn", "values": [value]} for key, value in labels.items()]
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchExpressions": others}, "namespaceSelector": {}}
    weighted = [{"weight": 10, "podAffinityTerm": term}]
    return {
        "labels": labels,
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}},
    }


def _port(number: int) -> Fields:
    return {"containers": [container(ports=[{"containerPort": 80, "hostPort": 1 + number % 65_000}])]}


def _address(number: int) -> Fields:
    """The same port of an address of its own."""
    address = f"10.{number // 65_536 % 256}.{number // 256 % 256}.{number % 256}"
    return {"containers": [container(ports=[{"containerPort": 80, "hostPort": 80, "hostIP": address}])]}


def _owned(number: int) -> Fields:
    return {"taints": [{"key": "owner", "value": f"team-{number}", "effect": "NoSchedule"}]}


def _above(number: int) -> Fields:
    terms = [
        {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": [str(number * 31 + at)]}]} for at in range(20)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def _images(number: int) -> Fields:
    names = (f"registry.example.com/image-{(number * 7 + at) % 500}:1" for at in range(50))
    return {"images": [{"names": [name], "sizeBytes": 500_000_000} for name in names]}


def _numa(nodes: int) -> Objects:
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


_ALIGNED = {"volcano.sh/numa-topology-policy": "single-numa-node"}
_CLOSE = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
_IN_RACKS = Trial(
    group=lambda _: _CLOSE,
    running_group=lambda _: _CLOSE,
    objects=_racks,
    plugins={"network-topology-aware": {}},
    per_node=20,
    per_group=20,
    pods=320,
    groups=10,
)
_PARTS = {
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


def _own_size(number: int) -> Fields:
    return {"containers": [container({"cpu": f"{500 + number % 1_500}m", "memory": f"{512 + number}Mi"})]}


def _of_five_sizes(number: int) -> Fields:
    """A pod of one of a hundred jobs, of which every fifth has the same size."""
    size = 1 + number // 10 % 5
    return {"containers": [container({"cpu": f"{500 * size}m", "memory": f"{size}Gi"})]}


def _larger_than_is_left(number: int) -> Fields:
    return {"containers": [container({"cpu": f"{5_000 + number}m"})]}


def _in_part(number: int) -> Fields:
    return {"labels": {"part": str(number // 8)}}


# -- queues ----------------------------------------------------------------------------------------------------------


def _groups(number: int) -> Fields:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": [f"g{number}" for number in range(500)]}
    return {"affinity": {"nodeGroupAffinity": affinity}}


def _in_tree(number: int) -> Fields:
    path = f"root/part-{number % 10}/team-{number}"
    return {"annotations": {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": "1/2/8"}}


_HDRF = Trial(queue=_in_tree, hierarchy="drf", without="proportion", queues=1_000, groups=1_000, pods=1_000)


# -- evictions -------------------------------------------------------------------------------------------------------


def _classes(_: int) -> Objects:
    for name, value in (("low", 10), ("high", 1_000)):
        yield "PriorityClass", _decoded("PriorityClass", {"metadata": {"name": name}, "value": value})


def _decoded(kind: str, manifest: dict[str, Any]) -> Any:
    return decode(kind, manifest, manifest["metadata"]["name"])


def _evictable(number: int) -> Fields:
    return {
        **_FULL,
        "annotations": {"volcano.sh/preemptable": "true"},
        "labels": {"app": f"app-{number % 1_000}"},
        "priority": 10,
        "priorityClassName": "low",
    }


def _above_others(_: int) -> Fields:
    return {**_FULL, "priority": 1_000, "priorityClassName": "high"}


def _as_others(_: int) -> Fields:
    return {**_FULL, "priority": 10, "priorityClassName": "low"}


def _unlike_others(number: int) -> Fields:
    requests = {"cpu": f"{3_000 + number % 1_000}m", "memory": f"{1_024 + number}Mi"}
    return {**_above_others(number), "containers": [container(requests)]}


def _unwilling(number: int) -> Fields:
    return {**_evictable(number), "annotations": {"volcano.sh/preemptable": "false"}}


def _important(_: int) -> Fields:
    return {"priorityClassName": "high"}


def _budgets(nodes: int) -> Objects:
    yield from _classes(nodes)
    for number in range(1_000):
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": f"app-{number}"}}}
        status = {"disruptionsAllowed": 5, "currentHealthy": 6, "desiredHealthy": 1, "expectedPods": 6}
        metadata = {"name": f"budget-{number}", "namespace": "default"}
        yield "PodDisruptionBudget", {"metadata": metadata, "spec": spec, "status": status}


def _evicting(action: str, *, vain: bool = False, queues: int = 1, **more: Any) -> Trial:
    """Eight running pods fill each node; gangs of eight want their places.

    Those of another queue want to take back what is theirs; in vain they are worth no more than who is there, or
    nobody agrees to go.
    """
    reclaiming = "reclaim" in action
    queues = max(queues, 1 + reclaiming)
    unwilling = vain and reclaiming

    def group(number: int) -> Fields:
        queue = {"queue": f"queue-{1 + number % (queues - 1)}"} if reclaiming else {}
        return {"priorityClassName": "low" if vain else "high", **queue}

    usual: dict[str, Any] = {
        "pod": _as_others if vain else _above_others,
        "placed": lambda number: {**_evictable(number), **({"annotations": {}} if unwilling else {})},
        "group": group,
        "queue": lambda number: {"reclaimable": number > 0 or not unwilling},
        # It would let nobody go who has less than the newcomers get.
        "without": "drf",
        "always_vain": vain,
        "objects": _classes,
    }
    return Trial(
        running_group=lambda _: {"priorityClassName": "low", "queue": "queue-0"},
        actions=f"enqueue, allocate, {action}",
        queues=queues,
        per_node=8,
        per_group=8,
        pods=64,
        groups=8,
        **{**usual, **more},
    )


# -- the table -------------------------------------------------------------------------------------------------------

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
    "default, distinct, no node has room": Feature(
        Trial(pod=_larger_than_is_left, placed=lambda _: _FULL, per_node=7, always_vain=True), {"vain": 0.5}
    ),
    "default, 5,000 distinct pods wait": Feature(
        Trial(pod=_larger_than_is_left, placed=lambda _: _NEARLY_FULL, per_node=1, pods=5_000, **_BOUNDED),
        {"vain": 0.1, "again": 0.06},
    ),
    "64 unlike pods that fit in another order": Feature(
        Trial(pod=_unlike, placed=_half(32), per_node=1, pods=64, without="binpack"), {"success": 500 / 64}
    ),
    "64 unlike pods that do not fit": Feature(
        Trial(pod=_unlike, placed=_half(31), per_node=1, pods=64, groups_in_vain=1, always_vain=True),
        {"vain": 2_000 / 64, "again": 0.3},
    ),
    "100 gangs of 64 unlike pods that do not fit": Feature(
        Trial(pod=_unlike, placed=_half(31), per_node=1, pods=6_400, groups_in_vain=100, always_vain=True),
        {"again": 0.1},
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
        _sharing("VGPUEnable", lambda n: _limits(vgpu_number="1", vgpu_memory="4000")), {"success": 0.2, "tick": 15}
    ),
    "vGPU, distinct": Feature(
        _sharing("VGPUEnable", lambda n: _limits(vgpu_number="1", vgpu_memory=str(1_000 + n))), {"success": 1}
    ),
    "vGPU, distinct, with score": Feature(
        _sharing("VGPUEnable", lambda n: _limits(vgpu_number="1", vgpu_memory=str(1_000 + n)), 1), {"success": 1}
    ),
    "gpu-memory, gang": Feature(
        _sharing("GPUSharingEnable", lambda n: _limits(gpu_memory="4000")), {"success": 0.2, "tick": 15}
    ),
    "gpu-memory, distinct": Feature(
        _sharing("GPUSharingEnable", lambda n: _limits(gpu_memory=str(1_000 + n))), {"success": 1}
    ),
    "gpu-number, gang": Feature(_sharing("GPUNumberEnable", lambda n: _limits(gpu_number="1")), {"success": 0.2}),
    "numa-aware, distinct": Feature(
        Trial(
            pod=lambda n: _limits(memory=f"{n + 1}Mi", cpu=str(1 + n % 8)),
            plugins={"numa-aware": {}},
            objects=_numa,
            annotations=_ALIGNED,
            per_node=20,
        ),
        {"success": 0.5, "tick": 15},
    ),
    "hard topology": Feature(_IN_RACKS, {"success": 0.5, "tick": 15}),
    "hard topology with sub groups": Feature(
        replace(
            _IN_RACKS,
            pod=_in_part,
            placed=_in_part,
            group=lambda _: _PARTS,
            running_group=lambda _: _PARTS,
            per_group=64,
            groups=5,
        ),
        {"success": 0.5, "tick": 15, "idle": 15},
    ),
    "hard topology, one node changed": Feature(replace(_IN_RACKS, changing=1), {"tick": 15}),
    "a taint of its own on each node": Feature(
        Trial(pod=lambda n: {"tolerations": [{"key": "owner", "value": f"team-{n}"}]}, node=_owned), {"success": 0.2}
    ),
    "Gt on a unique label, 20 terms": Feature(
        Trial(pod=_above, node=lambda n: {"labels": {"rank": str(n)}}), {"success": 0.5}
    ),
    "anti-affinity of its own": Feature(
        Trial(
            pod=lambda n: _anti_affinity({"app": f"new-{n}"}),
            placed=lambda n: _anti_affinity({"app": f"app-{n}"}),
            per_node=20,
        ),
        {"success": 0.2, "tick": 20, **_HALF_A_GIGABYTE},
    ),
    "kept away by those of its app": Feature(
        Trial(pod=_of_app, placed=lambda n: _anti_affinity({"app": f"app-{n % 1_000}"}), per_node=20),
        {"success": 0.2, "tick": 20},
    ),
    "far from all but its own": Feature(
        Trial(
            pod=lambda n: _alone({"app": f"new-{n}"}),
            placed=lambda n: {"labels": {"app": "everywhere"}},
            per_node=20,
        ),
        {"success": 0.2, "tick": 20},
    ),
    "near an app": Feature(
        _beside_apps("requiredDuringSchedulingIgnoredDuringExecution"), {"success": 0.2, "tick": 20}
    ),
    "rather near an app": Feature(
        _beside_apps("preferredDuringSchedulingIgnoredDuringExecution"), {"success": 0.2, "tick": 20}
    ),
    "spread over a label of its own": Feature(
        Trial(
            pod=lambda n: _spread({"app": f"new-{n}"}), placed=lambda n: {"labels": {"app": f"app-{n}"}}, per_node=20
        ),
        {"success": 0.2, "tick": 20},
    ),
    "a host port of its own": Feature(Trial(pod=_port, placed=_port, per_node=20), {"success": 0.2, "tick": 20}),
    "one host port, an address of its own": Feature(
        Trial(pod=lambda n: _address(1_000_000 + n), placed=_address, per_node=20), {"success": 0.5, "tick": 20}
    ),
    "rather far from all but its own": Feature(
        Trial(
            pod=lambda n: _rather_alone({"app": f"new-{n}"}),
            placed=lambda n: _rather_alone({"app": f"app-{n}"}),
        ),
        {"success": 1, "tick": 20},
    ),
    "spread over 500 zones by a label of its own": Feature(
        Trial(
            pod=lambda n: _by_zone({"app": f"new-{n}"}),
            placed=lambda n: _by_zone({"app": f"app-{n}"}),
            node=lambda n: {"labels": {_ZONE: f"zone-{n % 500}"}},
            per_node=20,
        ),
        {"success": 0.5, "tick": 20},
    ),
    "nodegroup, 500 groups": Feature(
        Trial(
            node=lambda n: {"labels": {"volcano.sh/nodegroup-name": f"g{n % 500}"}},
            plugins={"nodegroup": {}},
            queue=_groups,
            pod=_own_size,
        ),
        {"success": 0.2},
    ),
    "images, 100 nodes changed of 50 images each": Feature(Trial(node=_images, changing=100), {"tick": 10}),
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
    "preempt": Feature(_evicting("preempt"), {"success": 0.5}),
    "preempt, in vain": Feature(_evicting("preempt", vain=True), {"vain": 1}),
    "preempt, drf decides": Feature(_evicting("preempt", without="priority"), {"success": 2}),
    "preempt, in vain, a request of its own each": Feature(
        _evicting("preempt", pod=_unlike_others, placed=_unwilling, group=_important, always_vain=True), {"vain": 5}
    ),
    "preempt, topology-aware": Feature(
        _evicting("preempt", configurations={"preempt": {"enableTopologyAwarePreemption": True}}), {"success": 2}
    ),
    "preempt, 1,000 budgets": Feature(_evicting("preempt", objects=_budgets, plugins={"pdb": {}}), {"success": 1}),
    "reclaim": Feature(_evicting("reclaim"), {"success": 0.5}),
    "reclaim, in vain": Feature(_evicting("reclaim", vain=True), {"vain": 1}),
    "reclaim under capacity, in vain, a request of its own each": Feature(
        _evicting(
            "reclaim",
            pod=_unlike_others,
            queue=lambda _: {"deserved": {"cpu": "1000000"}},
            plugins={"capacity": {}},
            without="drf proportion",
            always_vain=True,
        ),
        {"vain": 5},
    ),
    "reclaim, 200 queues": Feature(_evicting("reclaim", queues=200), {"success": 0.5}),
    "gangpreempt": Feature(_evicting("gangpreempt"), {"success": 5 / 8}),
    "gangpreempt, in vain": Feature(_evicting("gangpreempt", vain=True), {"vain": 5}),
    "gangpreempt, 1,000 budgets": Feature(
        _evicting("gangpreempt", objects=_budgets, plugins={"pdb": {}}), {"success": 10 / 8}
    ),
    "gangreclaim": Feature(_evicting("gangreclaim"), {"success": 5 / 8}),
    "gangreclaim, in vain": Feature(_evicting("gangreclaim", vain=True), {"vain": 5}),
    "shuffle": Feature(_evicting("shuffle", plugins={"rescheduling": {}}), {}),
    **{
        f"plugin {name}": Feature(Trial(pod=_own_size, plugins={name: {}}, **more), {})
        for name, more in _PLUGINS.items()
    },
}
