"""Who can change what keeps a job waiting, and what a person would do: one situation for each cause."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from stromboli.api.crds import PodGroup
from stromboli.api.objects import Metadata, PriorityClass
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, gang, hyper_node, node, pod, pod_group, policy, queue, state
from tests.explain.asking import said, why

JOB = "job default/train"
CAPACITY = policy("priority gang", "predicates capacity", actions="enqueue, allocate, reclaim")
TREE = CAPACITY.replace("- name: capacity", "- name: capacity\n    enableHierarchy: true")
PREEMPTING = policy("priority gang conformance", "predicates", actions="allocate, preempt")
RACKS = policy("gang", "predicates network-topology-aware")
CORDON = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
TEAM = {"key": "team", "value": "vision", "effect": "NoSchedule"}
PORT = {"hostPort": 8080, "containerPort": 8080}
LOST = [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]
HIGH, LOW = (PriorityClass(metadata=Metadata(name=name), value=value) for name, value in (("high", 10), ("low", 1)))


@dataclass(frozen=True)
class Case:
    """A situation, and what is said of it."""

    made: Callable[[], ClusterState]
    reason: str
    who: str
    #: parts of what would help
    helps: tuple[str, ...]
    #: what none may advise
    silly: tuple[str, ...] = ()
    #: what else is said
    says: tuple[str, ...] = ()
    policy: str = DEFAULT_POLICY


def one(*others: Any, **pods: Any) -> ClusterState:
    """A job of one pod."""
    return state(queue("default"), *others, pod_group("train"), gang("train", 1, **pods))


def two(*others: Any, **group: Any) -> ClusterState:
    """A gang of two pods."""
    return state(queue("default"), *others, pod_group("train", 2, **group), gang("train", 2))


def _large(name: str) -> list[Any]:
    """A job that runs elsewhere and holds more than others."""
    return [pod_group(name, phase="Running"), pod(f"{name}-0", name, cpu="4", node="other")]


def _ran(name: str, seconds: int) -> list[Any]:
    """A gang of two that has run for a while."""
    began = datetime.fromtimestamp(NOON - seconds, UTC).isoformat()
    group = pod_group(name, 2, phase="Running", priorityClassName="low")
    return [group, *(pod(f"{name}-{at}", name, node="n", status={"startTime": began}) for at in range(2))]


def _limited(plugin: str, actions: str = "allocate", **arguments: Any) -> str:
    """A policy with a plugin that has arguments."""
    named = json.dumps([{"name": "predicates"}, {"name": plugin, "arguments": arguments}])
    return f"{policy('priority gang conformance', actions=actions)}\n- plugins: {named}"


def _in_pools(names: str) -> PodGroup:
    """The PodGroup of a job that may use some node pools."""
    group = pod_group("train")
    group.metadata.annotations["stromboli.io/pools"] = names
    return group


def full(queue_name: str = "default", count: int = 8, least: int = 1, **group: Any) -> list[Any]:
    """A job that holds node n."""
    return [pod_group("runs", least, queue_name, phase="Running", **group), *gang("runs", count, node="n")]


def with_objects(cluster: ClusterState, **objects: dict[str, Any]) -> ClusterState:
    """A cluster with manifests, by kind."""
    for kind, manifest in objects.items():
        cluster.upsert(kind, manifest)
    return cluster


def claiming(name: str = "data") -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def claim(storage_class: str, volume: str = "", mode: str = "ReadWriteOnce") -> dict[str, Any]:
    """A claim of volumes; it is bound to one by name."""
    spec = {"accessModes": [mode], "storageClassName": storage_class, "resources": {"requests": {"storage": "1Gi"}}}
    metadata: dict[str, Any] = {"name": "data", "namespace": "default"}
    if volume:
        metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        spec["volumeName"] = volume
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Bound" if volume else "Pending"}}


VOLUME = {
    "metadata": {"name": "disk"},
    "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"]},
    "status": {"phase": "Bound"},
}
FAST = {"metadata": {"name": "fast"}, "provisioner": "disks.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
CARDS = {"resourceClaims": [{"name": "cards", "resourceClaimName": "cards"}]}


def cards(device_class: str) -> dict[str, Any]:
    requests = [{"name": "card", "exactly": {"deviceClassName": device_class}}]
    return {"metadata": {"name": "cards", "namespace": "default"}, "spec": {"devices": {"requests": requests}}}


def zone(value: str, key: str = "zone") -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def beside(app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def volume(storage_class: str, phase: str, zone: str = "") -> dict[str, Any]:
    """A volume of a claim that is gone, or one in a zone."""
    spec: dict[str, Any] = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    spec["storageClassName"] = storage_class
    if zone:
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    else:
        spec["claimRef"] = {"namespace": "default", "name": "old", "uid": "old"}
    return {"metadata": {"name": "disk"}, "spec": spec, "status": {"phase": phase}}


CASES = {
    "volume kept for a claim that is gone": Case(
        lambda: with_objects(
            one(node("n"), **claiming()), PersistentVolumeClaim=claim(""), PersistentVolume=volume("", "Released")
        ),
        "NoMatchingNode",
        "user",
        ("remove spec.claimRef of PersistentVolume disk, which is Released",),
    ),
    "volume in a zone without nodes": Case(
        lambda: with_objects(
            one(node("n", labels={"zone": "a"}), **claiming()),
            PersistentVolumeClaim=claim("", "disk"),
            PersistentVolume=volume("", "Bound", zone="b"),
        ),
        "NoMatchingNode",
        "user",
        ("add 1 node like n with zone: b, where PersistentVolume disk of PersistentVolumeClaim default/data is",),
    ),
    "volume that is gone": Case(
        lambda: with_objects(one(node("n"), **claiming()), PersistentVolumeClaim=claim("fast", "gone")),
        "NoMatchingNode",
        "admin",
        ("delete PersistentVolumeClaim default/data and create it again",),
        ("StorageClass",),
    ),
    "claim template missing": Case(
        lambda: one(node("n"), resourceClaims=[{"name": "cards", "resourceClaimTemplateName": "cards"}]),
        "NoMatchingNode",
        "user",
        ("create ResourceClaimTemplate default/cards",),
    ),
    "more cards than a gang finds, and a launcher without": Case(
        lambda: state(
            *(queue("default"), node("n", cpu="16"), node("cards", resources={"example.com/card": "2"})),
            *(pod_group("train", 3), pod("launcher", "train")),
            *(pod(f"w-{at}", "train", resources={"example.com/card": "2"}) for at in range(2)),
        ),
        "NeverFits",
        "user",
        ("add 1 node like cards",),
    ),
    "elastic job that has grown as far as it can": Case(
        lambda: state(
            *(queue("default"), node("n", cpu="4"), pod_group("train", 2, phase="Running")),
            *(pod(f"runs-{at}", "train", node="n") for at in range(4)),
            pod("waits", "train"),
        ),
        "ClusterFull",
        "admin",
        ("add 1 node like n",),
        says=("its other pods would find no places even if all other jobs were gone",),
    ),
    "cordon": Case(
        lambda: one(node("n", unschedulable=True, taints=CORDON)), "NoMatchingNode", "admin", ("uncordon node n",)
    ),
    "cordon of the last node for a gang": Case(
        lambda: two(node("n", unschedulable=True, taints=CORDON), node("small", cpu="1")),
        "CannotBePlacedTogether",
        "admin",
        ("uncordon node n",),
    ),
    "fewer rooms than pods on the nodes that are left": Case(
        lambda: state(
            *(
                queue("default"),
                node("n", cpu="4"),
                node("m", cpu="4"),
                node("x", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
            ),
            *(pod_group("train", 3), gang("train", 3, cpu="3")),
        ),
        "CannotBePlacedTogether",
        "user",
        ("set minMember: 2",),
        says=("cpu: 3 pods request 3 each, and nodes that take one have room for 2",),
    ),
    "cordon of the only node that is large enough": Case(
        lambda: one(node("n", unschedulable=True), node("small", cpu="0")), "NeverFits", "admin", ("uncordon node n",)
    ),
    "cordon of a node that is too small beside one that is not the pod's": Case(
        lambda: one(node("n", cpu="0", unschedulable=True), node("m", taints=[{"key": "gpu", "effect": "NoSchedule"}])),
        "NoMatchingNode",
        "user",
        ("tolerate taint gpu:NoSchedule",),
    ),
    "several cordons": Case(
        lambda: two(*(node(f"n{i}", cpu="1", unschedulable=True) for i in range(2))),
        "NoMatchingNode",
        "admin",
        ("uncordon nodes n0, n1",),
    ),
    "cordon of a node that is none of the job's": Case(
        lambda: one(node("n", unschedulable=True), node("m"), nodeSelector={"disk": "ssd"}),
        "NoMatchingNode",
        "user",
        ("drop disk: ssd",),
    ),
    "not ready": Case(
        lambda: one(node("n", ready="False")), "NoMatchingNode", "admin", ("bring back node n (Ready is False)",)
    ),
    "unreachable": Case(
        lambda: one(node("n", ready="Unknown", taints=LOST)), "NoMatchingNode", "admin", ("bring back node n",)
    ),
    "no nodes": Case(one, "NoNodes", "admin", ("add 1 node with 1 cpu, 1Gi memory",)),
    "typo in the required affinity": Case(
        lambda: one(node("n", labels={"zone": "eu-1"}), **zone("eu1")),
        "NoMatchingNode",
        "user",
        ("correct zone: eu1 to eu-1 in the required node affinity",),
    ),
    "typo in a key of the affinity": Case(
        lambda: one(node("n", labels={"zone": "eu-1"}), **zone("eu-1", "zonne")),
        "NoMatchingNode",
        "user",
        ("correct zonne: eu-1 to zone: eu-1 in the required node affinity",),
    ),
    "a node by name that is not there": Case(
        lambda: one(node("n"), nodeSelector={"kubernetes.io/hostname": "other"}),
        "NoMatchingNode",
        "user",
        ("drop kubernetes.io/hostname: other",),
        ("label node",),
    ),
    "a resource of which no node has any": Case(
        lambda: one(node("n", resources={"hugepages-2Mi": "0"}), resources={"hugepages-2Mi": "64Mi"}),
        "NeverFits",
        "user",
        ("ask for no hugepages-2Mi",),
        ("no more than 0",),
    ),
    "a card that no node has, in a full cluster": Case(
        lambda: one(node("n"), full(), resources={"example.com/card": "1"}),
        "NeverFits",
        "user",
        ("ask for no example.com/card, and wait until default/runs ends",),
    ),
    "storage class missing": Case(
        lambda: with_objects(one(node("n"), **claiming()), PersistentVolumeClaim=claim("fast")),
        "NoMatchingNode",
        "admin",
        ("create StorageClass fast",),
        says=('storageclass "fast" not found',),
    ),
    "storage class misspelt": Case(
        lambda: with_objects(one(node("n"), **claiming()), StorageClass=FAST, PersistentVolumeClaim=claim("fats")),
        "NoMatchingNode",
        "admin",
        ("set storageClassName: fast in PersistentVolumeClaim default/data",),
    ),
    "no volume": Case(
        lambda: with_objects(
            one(node("n"), **claiming()),
            StorageClass={**FAST, "provisioner": "kubernetes.io/no-provisioner"},
            PersistentVolumeClaim=claim("fast"),
        ),
        "NoMatchingNode",
        "admin",
        ("provide volumes for PersistentVolumeClaim default/data",),
    ),
    "a volume that another pod has for itself": Case(
        lambda: with_objects(
            one(
                node("n"),
                pod_group("runs", phase="Running"),
                pod("runs-0", "runs", node="n", **claiming()),
                **claiming(),
            ),
            PersistentVolume=VOLUME,
            PersistentVolumeClaim=claim("", "disk", "ReadWriteOncePod"),
        ),
        "NoMatchingNode",
        "wait",
        ("wait until default/runs ends",),
        ("provide volumes",),
    ),
    "device class missing": Case(
        lambda: with_objects(one(node("n"), **CARDS), ResourceClaim=cards("gpu.example.com")),
        "NoMatchingNode",
        "admin",
        ("create DeviceClass gpu.example.com, and devices of it",),
    ),
    "no devices": Case(
        lambda: with_objects(
            one(node("n"), **CARDS),
            DeviceClass={"metadata": {"name": "gpu.example.com"}, "spec": {}},
            ResourceClaim=cards("gpu.example.com"),
        ),
        "NoMatchingNode",
        "admin",
        ("provide devices for ResourceClaim default/cards",),
    ),
    "guarantees of others": Case(
        lambda: one(node("n"), queue("kept", guarantee={"resource": {"cpu": "8"}})),
        "QueueShareExceeded",
        "admin",
        ("lower the guarantee of queue kept to 7 cpu",),
        says=("queue kept holds 0 of 8 cpu, guaranteed 8",),
    ),
    "a limit on lending": Case(
        lambda: state(
            *(node("n"), queue("root"), queue("a", parent="root", deserved={"cpu": "2"})),
            queue("b", parent="root", deserved={"cpu": "6"}, lendingLimit={"cpu": "1"}),
            *(full("a", 3), pod_group("train", queue="a"), gang("train", 1)),
        ),
        "QueueCapabilityExceeded",
        "wait",
        ("raise lendingLimit of queue b to 2 cpu",),
        says=("may have 3 as other queues hold the rest or keep it",),
        policy=TREE,
    ),
    "a limit on lending, of a gang": Case(
        lambda: state(
            *(node("n"), queue("a"), queue("b", deserved={"cpu": "6"}, lendingLimit={"cpu": "2"})),
            *(pod_group("train", 5, queue="a"), gang("train", 5)),
        ),
        "QueueCapabilityExceeded",
        "admin",
        ("raise lendingLimit of queue b to 3 cpu",),
        policy=CAPACITY,
    ),
    "victims that do not suffice, and others that run for their minimum": Case(
        lambda: state(
            *(HIGH, LOW, node("n", cpu="4"), queue("default", preemptMinRuntime="10m")),
            *(_ran("young", 60), _ran("old", 6_000)),
            *(pod_group("train", 3, priorityClassName="high"), gang("train", 3)),
        ),
        "Unschedulable",
        "wait",
        ("wait until 2023-11-14T22:22:20+00:00, when the minimum run time of default/young", "in queue default"),
        says=("2 of 3 pods fit; their minimum run time protects default/young until 2023-11-14T22:22:20+00:00",),
        policy=policy("priority gang conformance", "predicates minruntime", actions="allocate, preempt"),
    ),
    "a limit by user, of a gang": Case(
        lambda: state(node("n"), queue("default"), pod_group("train", 3), gang("train", 3, cpu="2")),
        "NeverFits",
        "user",
        ("raise maxPods to 3 and resources to 6 cpu in limits[0] of plugin userlimits in the policy",),
        policy=_limited("userlimits", limits=[{"maxPods": 2, "resources": {"cpu": 3}}]),
    ),
    "a limit by user, of one pod more": Case(
        lambda: state(node("n"), queue("default"), pod_group("train"), gang("train", 3)),
        "UserLimitReached",
        "admin",
        ("raise maxPods to 3 in limits[1] of plugin userlimits in the policy",),
        ("resources",),
        policy=_limited("userlimits", limits=[{"users": ["ann"]}, {"maxPods": 2, "resources": {"cpu": 3}}]),
    ),
    "node pools without nodes": Case(
        lambda: state(node("n"), queue("default"), _in_pools("spot"), gang("train", 1)),
        "NoMatchingNode",
        "user",
        ("drop the annotation stromboli.io/pools of PodGroup default/train, so that all nodes may be used",),
        policy=_limited("nodepools", pools=[{"name": "spot", "nodeSelector": {"capacity": "spot"}}]),
    ),
    "a minimum run time of a priority class": Case(
        lambda: state(
            *(HIGH, LOW, node("n", cpu="2"), queue("default"), _ran("young", 60)),
            *(pod_group("train", 2, priorityClassName="high"), gang("train", 2)),
        ),
        "Unschedulable",
        "wait",
        ("wait until 2023-11-14T22:43:20+00:00", "set priorityClasses.low.preemptMinRuntime: 0s for plugin minruntime"),
        policy=_limited("minruntime", "allocate, preempt", priorityClasses={"low": {"preemptMinRuntime": "31m"}}),
    ),
    "a parent misspelt": Case(
        lambda: state(
            *(node("n"), queue("root"), queue("team"), queue("dev", parent="tema")),
            *(pod_group("train", queue="dev"), gang("train", 1)),
        ),
        "QueueMisconfigured",
        "admin",
        ("set parent: team in queue dev",),
        policy=TREE,
    ),
    "a role without pods": Case(
        lambda: state(
            *(node("n"), queue("default"), pod_group("train", 2, minTaskMember={"worker": 1, "ps": 1})),
            [pod(f"train-{i}", "train", annotations={"volcano.sh/task-spec": "worker"}) for i in range(2)],
        ),
        "NotEnoughPodsOfTask",
        "user",
        ("create 1 more pod of role ps in PodGroup default/train",),
        ("minMember",),
    ),
    "a role misspelt": Case(
        lambda: state(
            *(node("n"), queue("default"), pod_group("train", 2, minTaskMember={"worker": 1, "server": 1})),
            *(
                pod(f"train-{role}", "train", annotations={"volcano.sh/task-spec": role})
                for role in ("worker", "severs")
            ),
        ),
        "NotEnoughPodsOfTask",
        "user",
        ("set the annotation volcano.sh/task-spec: server on the pods of role severs",),
    ),
    "a priority class misspelt": Case(
        lambda: state(
            *(HIGH, LOW, node("n"), queue("default"), full(priorityClassName="low")),
            *(pod_group("train", priorityClassName="hihg"), gang("train", 1)),
        ),
        "Unschedulable",
        "wait",
        ("set priorityClassName: high in PodGroup default/train",),
        policy=PREEMPTING,
    ),
    "a priority class of the pods alone": Case(
        lambda: state(
            *(HIGH, LOW, node("n"), queue("default"), full(priorityClassName="low"), pod_group("train")),
            gang("train", 1, priorityClassName="high"),
        ),
        "Unschedulable",
        "wait",
        ("set priorityClassName: high in PodGroup default/train",),
        policy=PREEMPTING,
    ),
    "pods that never preempt": Case(
        lambda: state(
            *(HIGH, node("n"), queue("default"), full(), pod_group("train", priorityClassName="high")),
            gang("train", 1, preemptionPolicy="Never"),
        ),
        "Unschedulable",
        "wait",
        ("give the pods a priority class whose preemptionPolicy is not Never",),
        policy=PREEMPTING,
    ),
    "behind another job": Case(
        lambda: state(
            *(node("n"), queue("f", dequeueStrategy="fifo"), full("f", 1), pod_group("first", queue="f")),
            *(gang("first", 1, cpu="8"), pod_group("train", queue="f", created=5), gang("train", 1)),
        ),
        "BehindInQueue",
        "wait",
        ("wait until default/first ends",),
    ),
    "racks in use": Case(
        lambda: state(
            *(node(name, cpu="2") for name in ("a1", "a2", "b1", "b2")),
            *(hyper_node("ra", 1, "Node", ["a1", "a2"]), hyper_node("rb", 1, "Node", ["b1", "b2"])),
            *(queue("default"), pod_group("runs", phase="Running")),
            *(pod(f"runs-{name}", "runs", node=name) for name in ("a1", "b1")),
            pod_group("train", 4, networkTopology={"mode": "hard", "highestTierAllowed": 1}),
            gang("train", 4),
        ),
        "NoHyperNodeFits",
        "wait",
        ("wait until default/runs ends",),
        policy=RACKS,
    ),
    "no HyperNodes": Case(
        lambda: state(
            *(node("n0"), node("n1"), queue("default")),
            pod_group("train", 12, networkTopology={"mode": "hard", "highestTierName": "rack"}),
            gang("train", 12),
        ),
        "NoHyperNode",
        "admin",
        ("create HyperNodes of tier rack", "set networkTopology mode: soft"),
        says=("12 of the 12 that wait would fit now, wherever HyperNodes are",),
        policy=RACKS,
    ),
    "pods to be near that are not there": Case(
        lambda: one(node("n"), affinity=beside("cache")),
        "NoMatchingNode",
        "user",
        ("drop the required pod affinity (app=cache by kubernetes.io/hostname)",),
    ),
    "pods to be near that are misspelt": Case(
        lambda: one(node("n"), pod("web", node="n", labels={"app": "cache"}), affinity=beside("cahce")),
        "NoMatchingNode",
        "user",
        ("correct app: cahce to cache in the required pod affinity",),
    ),
    "a toleration whose value is misspelt": Case(
        lambda: one(node("n", taints=[TEAM]), tolerations=[{"key": "team", "value": "visoin", "effect": "NoSchedule"}]),
        "NoMatchingNode",
        "user",
        ("correct the toleration of team=visoin:NoSchedule to team=vision:NoSchedule",),
    ),
    "a toleration whose key is misspelt": Case(
        lambda: one(node("n", taints=[TEAM]), tolerations=[{"key": "teem", "operator": "Exists"}]),
        "NoMatchingNode",
        "user",
        ("correct the toleration of teem to team=vision:NoSchedule",),
    ),
    "a toleration of another effect": Case(
        lambda: one(
            node("n", taints=[{"key": "maintained", "effect": "NoExecute"}]),
            tolerations=[{"key": "maintained", "operator": "Exists", "effect": "NoSchedule"}],
        ),
        "NoMatchingNode",
        "user",
        ("correct the toleration of maintained:NoSchedule to maintained:NoExecute",),
    ),
    "a toleration that is right for other nodes": Case(
        lambda: one(
            *(node("n", taints=[TEAM]), node("full", cpu="1", taints=[{**TEAM, "value": "speech"}])),
            *(pod_group("runs", phase="Running"), pod("runs-0", "runs", node="full")),
            tolerations=[{"key": "team", "value": "speech", "effect": "NoSchedule"}],
        ),
        "Unschedulable",
        "wait",
        ("tolerate taint team=vision:NoSchedule", "wait until default/runs ends"),
        ("correct the toleration",),
    ),
    "an image for another architecture": Case(
        lambda: one(node("n", labels={"kubernetes.io/arch": "amd64"}), nodeSelector={"kubernetes.io/arch": "arm64"}),
        "NoMatchingNode",
        "user",
        ("add 1 node with kubernetes.io/arch: arm64",),
        ("to amd64", "drop kubernetes.io/arch"),
    ),
    "an architecture that is misspelt": Case(
        lambda: one(node("n", labels={"kubernetes.io/arch": "amd64"}), nodeSelector={"kubernetes.io/arch": "amd46"}),
        "NoMatchingNode",
        "user",
        ("correct kubernetes.io/arch: amd46 to amd64 in nodeSelector",),
    ),
    "a large init container": Case(
        lambda: one(node("n"), initContainers=[{"name": "prepare", "resources": {"requests": {"cpu": "20"}}}]),
        "NeverFits",
        "user",
        ("ask for no more than 8 cpu a pod (init container prepare asks for more)",),
        says=("asks for 20, the largest node has 8",),
    ),
    "a sidecar that is too much": Case(
        lambda: one(
            node("n"),
            cpu="6",
            initContainers=[{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "4"}}}],
        ),
        "NeverFits",
        "user",
        ("ask for no more than 8 cpu a pod",),
    ),
    "one large pod of a gang": Case(
        lambda: state(
            *(node("n"), node("m"), queue("default"), pod_group("train", 2)),
            *(pod("train-0", "train"), pod("train-1", "train", cpu="30")),
        ),
        "NeverFits",
        "user",
        ("ask for no more than 8 cpu a pod",),
        ("set minMember",),
        ("a pod asks for 30 cpu",),
    ),
    "one pod of a gang that its nodes cannot hold": Case(
        lambda: state(
            *(node("n", labels={"pool": "a"}), node("m", labels={"pool": "a"}), node("large", cpu="100")),
            *(queue("default"), pod_group("train", 2)),
            pod("train-0", "train", nodeSelector={"pool": "a"}),
            pod("train-1", "train", cpu="30", nodeSelector={"pool": "a"}),
        ),
        "NeverFits",
        "user",
        ("ask for no more than 8 cpu a pod",),
        ("set minMember",),
        ("a pod asks for 30 cpu", "cpu: asks for 30, the largest node that it may use has 8"),
    ),
    "a port that one of many jobs has": Case(
        lambda: state(
            *(node("n", cpu="64"), node("other", cpu="64", labels={"only": "others"}), queue("default")),
            *(each for number in range(8) for each in _large(f"large-{number}")),
            *(pod_group("web", phase="Running"), pod("web-0", "web", node="n", ports=[PORT])),
            *(pod_group("train"), pod("train-0", "train", ports=[PORT], nodeSelector={"kubernetes.io/hostname": "n"})),
        ),
        "NoMatchingNode",
        "wait",
        ("wait until default/web ends",),
    ),
    "pods that request nothing": Case(
        lambda: one(node("n"), cpu="", memory=""),
        "NoAction",
        "admin",
        ("add backfill to the actions of the policy",),
        policy=policy("gang", "predicates", actions="enqueue, allocate"),
    ),
    "victims that are a gang": Case(
        lambda: state(
            *(node("n"), queue("root"), queue("a", deserved={"cpu": "4"}), queue("b", deserved={"cpu": "4"})),
            *(full("b", least=8), pod_group("train", queue="a"), gang("train", 1)),
        ),
        "Unschedulable",
        "wait",
        ("wait until default/runs ends",),
        says=("default/runs would be left with 4 of the 8 pods that it starts with",),
        policy=CAPACITY,
    ),
}


@pytest.mark.one_in(13)
@pytest.mark.parametrize("name", CASES)
def test_what_a_person_would_do_is_told(name: str) -> None:
    case = CASES[name]
    found, text = why(case.made(), JOB, case.policy), said(case.made(), JOB, case.policy)
    assert (found.reason, found.who) == (case.reason, case.who), text
    changes = [remedy.change for remedy in found.remedies]
    assert [each for each in case.helps if not any(each in change for change in changes)] == [], text
    assert [each for each in case.silly if any(each in change for change in changes)] == [], text
    assert [each for each in case.says if each not in text] == [], text


def test_others_are_not_in_the_way_of_what_never_fits() -> None:
    found = why(CASES["a card that no node has, in a full cluster"].made(), JOB)
    assert (found.holders, found.ahead) == ([], [])
    assert [each.effect for each in found.remedies if each.who == "user"] == ["1 pod bound"]


@pytest.mark.parametrize("deserved", ["0", "4"])
def test_why_nothing_is_taken_back_says_once_who_can_change_it(deserved: str) -> None:
    cluster = state(
        *(node("n"), queue("a", deserved={"cpu": deserved}), queue("b", guarantee={"resource": {"cpu": "8"}})),
        *(full("b"), pod_group("train", queue="a"), gang("train", 1)),
    )
    told = {each.action: each for each in why(cluster, JOB, CAPACITY).evictions}
    assert (told["reclaim"].reason, told["reclaim"].who) == ("MayNotReclaim", "admin")
    assert "can change this" not in told["reclaim"].detail


def test_a_queue_of_a_tree_says_what_others_leave_it() -> None:
    made = CASES["a limit on lending"].made
    text = said(made(), "queue a", TREE)
    assert "gets no more than 3 cpu, as others hold the rest or keep it: queue b keeps 5" in text
    assert "a cpu: holds 3, requests 4, deserves 2, may have 3" in text
    assert "gets nothing more" not in text


@pytest.mark.parametrize("by", ["capacity", "proportion"])
def test_what_gets_nothing_yet_is_said_to_borrow_only_where_it_may(by: str) -> None:
    shared = policy("gang", f"predicates {by}", actions="enqueue, allocate")
    waits = pod_group("train", phase="Pending", minResources={"cpu": "99"}), gang("train", 1)
    text = said(state(node("n"), queue("default"), *waits), "queue default", shared)
    assert ("borrowed from others" in text) is (by == "capacity")


def test_the_root_is_not_said_to_deserve_nothing() -> None:
    text = said(CASES["victims that are a gang"].made(), "queue a", CAPACITY)
    assert "root cpu: holds 8, requests 9" in text
    assert "root cpu: holds 8, requests 9, deserves" not in text
    for by in (CAPACITY, DEFAULT_POLICY):
        of_root = said(CASES["victims that are a gang"].made(), "queue root", by)
        assert [word for word in ("deserves nothing", "borrowed", "has no jobs") if word in of_root] == []


@pytest.mark.parametrize(
    ("phases", "says"), [("SS", "2 of 2 pods succeeded"), ("SF", "1 of 2 pods succeeded, 1 failed")]
)
def test_a_job_that_has_finished_says_so(phases: str, says: str) -> None:
    names = {"S": "Succeeded", "F": "Failed"}
    pods = [pod(f"train-{i}", "train", node="n", phase=names[phase]) for i, phase in enumerate(phases)]
    assert said(state(node("n"), queue("default"), pod_group("train", phase="Completed"), pods), JOB) == (
        f"Job default/train: it has finished: {says}"
    )


TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TOLERATE = "tolerate taint nvidia.com/gpu=present:NoSchedule -> 1 pod bound"


@pytest.mark.parametrize(
    ("resource", "says", "change"),
    [
        (
            "nvidia.com/gpu",
            "asks for 1, the largest node that it may use has 0, and one that it may not use has 8",
            f"user: {TOLERATE}",
        ),
        (
            "nvidia.com/gpus",
            "nvidia.com/gpus: asks for 1, and no node offers it, did you mean 'nvidia.com/gpu'?",
            f"user: ask for nvidia.com/gpu instead of nvidia.com/gpus, and {TOLERATE}",
        ),
    ],
)
def test_cards_on_tainted_nodes_are_not_advised_to_be_done_without(resource: str, says: str, change: str) -> None:
    asks = {"requests": {"cpu": "1", resource: "1"}, "limits": {resource: "1"}}
    waits = pod("job-0", "job", containers=[{"name": "main", "image": "x", "resources": asks}])
    cards = node("gpu", taints=[TAINT], resources={"nvidia.com/gpu": "8"})
    text = said(state(node("n"), cards, queue("default"), pod_group("job"), waits), "job default/job")
    assert says in text
    assert change in text
    assert "ask for no" not in text
    assert "add 1 node" not in text
