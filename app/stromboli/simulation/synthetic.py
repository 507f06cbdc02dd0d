"""Made-up clusters and workloads, for benchmarks and demos."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from stromboli.api import crds, objects
from stromboli.api.decisions import Decision, SetPodGroupStatus, SetQueueStatus
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from stromboli.state.reads import Reads

_CREATED = "2024-01-01T00:00:00Z"
_NODES_PER_RACK, _RACKS_PER_SPINE = 20, 25
#: number of leaves below a queue of each level of the tree
_LEVELS = (100, 10, 1)


class Shape(StrEnum):
    """The properties shared by the pods of a workload."""

    #: gangs of identical pods that start together
    gang = "gang"
    #: jobs that start with one pod and grow, of five sizes
    elastic = "elastic"
    #: every pod with a request of its own, and a selector for one of eight node pools
    distinct = "distinct"
    #: gangs that must stay within a rack of 20 nodes; 25 racks are a spine
    topology = "topology"
    #: gangs in a tree of queues of depth 3, one for each leaf
    queues = "queues"
    #: gangs that run already: there is nothing to decide
    idle = "idle"
    #: gangs that have to evict what fills the nodes: eight pods of lower priority on each
    preempt = "preempt"
    #: gangs of that number of queues; each deserves its part of what one queue has filled
    reclaim = "reclaim"
    #: gangs for which no pod may be evicted, on nodes that are full
    stuck = "stuck"


#: shapes with full nodes
_FULL = (Shape.preempt, Shape.reclaim, Shape.stuck)
#: pods on each full node, and what they request
_ON_EACH = 8
_FILLER: objects.ResourceList = {"cpu": "4", "memory": "32Gi"}


def policy(shape: Shape) -> str:
    """The built-in policy, with the plugin that a shape is about."""
    if shape is Shape.queues:
        return DEFAULT_POLICY.replace("- name: proportion\n", "- name: capacity\n    enableHierarchy: true\n")
    if shape in _FULL:
        actions = "reclaim" if shape is Shape.reclaim else "preempt" if shape is Shape.preempt else "preempt, reclaim"
        text = DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {actions}, backfill")
        return text.replace("- name: proportion", "- name: capacity") if shape is Shape.reclaim else text
    return DEFAULT_POLICY


@contextmanager
def undisturbed() -> Iterator[None]:
    """Measure the body with the garbage collector out of the way, as a server has it most of the time."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def cluster(
    nodes: int, pods: int, gangs: int, shape: Shape, *, leaves: int = 0, reads: Reads | None = None
) -> ClusterState:
    """Equal nodes (32 cpu, 256 Gi, 110 pods) and `pods` pods in `gangs` PodGroups.

    All are in queue `default`, in shape `queues` in the `leaves` of a tree, by default one for each gang. `reads` is
    what plugins read of pods, by default those that are installed.
    """
    state = ClusterState(("stromboli",), reads=discover().reads if reads is None else reads)
    per_gang = max(1, pods // gangs)
    in_tree = shape is Shape.queues
    leaves = leaves or gangs
    for each in _queues(shape, nodes, leaves, pods / leaves):
        state.upsert("Queue", each)
    names = [f"node-{number:05}" for number in range(nodes)]
    for number, name in enumerate(names):
        state.upsert("Node", node(name, {"pool": str(number % 8)}))
    if shape is Shape.topology:
        for hyper_node in racks_and_spines(names):
            state.upsert("HyperNode", hyper_node)
    if shape in _FULL:
        _fill(state, names, shape)
    for number in range(gangs):
        group = pod_group(
            f"gang-{number:04}",
            1 if shape is Shape.elastic else per_gang,
            _leaf(number % leaves) if in_tree or shape is Shape.reclaim else "default",
            tier=1 if shape is Shape.topology else None,
            priority="high" if shape is Shape.preempt else "low" if shape in _FULL else "",
        )
        state.upsert("PodGroup", group)
        for index in range(per_gang):
            where = names[(number * per_gang + index) % nodes] if shape is Shape.idle else None
            state.upsert("Pod", _pod(group.metadata.name, number, index, shape, where))
    if shape is Shape.idle:
        write_statuses(state, Engine().unbounded().decide(state.snapshot(), now=0.0).decisions)
    return state


def queue(name: str, weight: int = 1, parent: str = "", deserved: objects.ResourceList | None = None) -> crds.Queue:
    """An open queue."""
    return crds.Queue(
        metadata=crds.Metadata(name=name),
        spec=crds.QueueSpec(weight=weight, parent=parent, deserved=deserved or {}),
        status=crds.QueueStatus(state="Open"),
    )


def _queues(shape: Shape, nodes: int, leaves: int, pods_per_leaf: float) -> Iterable[crds.Queue]:
    if shape is Shape.queues:
        return _tree(leaves, pods_per_leaf)
    if shape is Shape.reclaim:
        cpus = max(1, 32 * nodes // leaves)
        deserved: objects.ResourceList = {"cpu": str(cpus), "memory": f"{8 * cpus}Gi"}
        return [queue("default"), *(queue(_leaf(number), deserved=deserved) for number in range(leaves))]
    return [queue("default")]


def _fill(state: ClusterState, nodes: list[str], shape: Shape) -> None:
    """Fill nodes with the pods of elastic jobs, one job for each of eight pods."""
    for name, value in (("low", 10), ("high", 100)):
        state.upsert("PriorityClass", objects.PriorityClass(metadata=objects.Metadata(name=name), value=value))
    for number, name in enumerate(nodes):
        group = pod_group(f"filler-{number:05}", 1, phase="Running", priority="low")
        state.upsert("PodGroup", group)
        for index in range(_ON_EACH):
            state.upsert("Pod", _of_gang(group.metadata.name, index, _FILLER, name))


def pod_group(
    name: str,
    min_member: int,
    queue: str = "default",
    tier: int | None = None,
    *,
    phase: str = "Inqueue",
    priority: str = "",
) -> crds.PodGroup:
    """An admitted PodGroup in namespace default; `tier` is the highest of a HyperNode that it may spread over."""
    topology = None if tier is None else crds.NetworkTopology(mode="hard", highest_tier_allowed=tier)
    return crds.PodGroup(
        metadata=crds.Metadata(name=name, namespace="default"),
        spec=crds.PodGroupSpec(
            min_member=min_member, queue=queue, network_topology=topology, priority_class_name=priority
        ),
        status=crds.PodGroupStatus.model_validate({"phase": phase}),
    )


def node(name: str, labels: dict[str, str]) -> objects.Node:
    """A node of the size that the published comparisons use."""
    amounts: objects.ResourceList = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    return objects.Node(
        metadata=objects.Metadata(name=name, labels={"kubernetes.io/hostname": name, **labels}),
        status=objects.NodeStatus(allocatable=amounts, capacity=amounts),
    )


def hyper_node(name: str, tier: int, kind: str, members: Iterable[str]) -> crds.HyperNode:
    """A HyperNode of members (Node or HyperNode) by name."""
    return crds.HyperNode.parse(
        {
            "metadata": {"name": name},
            "spec": {
                "tier": tier,
                "members": [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members],
            },
        }
    )


def racks_and_spines(nodes: list[str]) -> Iterator[crds.HyperNode]:
    racks = {f"rack-{at:03}": part for at, part in enumerate(_parts(nodes, _NODES_PER_RACK))}
    for name, members in racks.items():
        yield hyper_node(name, 1, "Node", members)
    for number, part in enumerate(_parts(list(racks), _RACKS_PER_SPINE)):
        yield hyper_node(f"spine-{number:02}", 2, "HyperNode", part)


def _parts(names: list[str], size: int) -> list[list[str]]:
    return [names[at : at + size] for at in range(0, len(names), size)]


def _tree(leaves: int, pods_per_leaf: float) -> Iterator[crds.Queue]:
    """The root and the queues below it; each deserves a cpu for half of its pods."""
    yield queue("root")
    parent_level = 0
    for level in _LEVELS:
        for first in range(0, leaves, level):
            parent = f"queue-{parent_level}-{first // parent_level}" if parent_level else "root"
            cpus = max(1, round(min(level, leaves - first) * pods_per_leaf / 2))
            name = f"queue-{level}-{first // level}"
            yield queue(name, parent=parent, deserved={"cpu": str(cpus), "memory": f"{2 * cpus}Gi"})
        parent_level = level


def _leaf(number: int) -> str:
    return f"queue-1-{number}"


def _pod(gang: str, number: int, index: int, shape: Shape, node: str | None) -> objects.Pod:
    """A pod that asks for a place, or runs on a node."""
    cpu, memory, selector = "1", "2Gi", None
    if shape is Shape.elastic:
        cpu, memory = f"{500 * (1 + number % 5)}m", f"{1 + number % 5}Gi"
    elif shape is Shape.distinct:
        serial = number * 1_000 + index
        cpu, memory, selector = f"{500 + serial % 1_500}m", f"{512 + serial}Mi", {"pool": str(serial % 8)}
    elif shape is Shape.topology:
        # A rack takes no more than two gangs of 64: most of those that were tried first are full.
        cpu, memory = "4", "8Gi"
    elif shape in _FULL:
        return _of_gang(gang, index, _FILLER, node)
    return _of_gang(gang, index, {"cpu": cpu, "memory": memory}, node, selector)


def _of_gang(
    gang: str, index: int, requests: objects.ResourceList, node: str | None, selector: dict[str, str] | None = None
) -> objects.Pod:
    return objects.Pod(
        metadata=objects.Metadata(
            name=f"{gang}-{index}",
            namespace="default",
            uid=f"{gang}-{index}",
            creation_timestamp=_CREATED,
            annotations={"scheduling.k8s.io/group-name": gang},
        ),
        spec=objects.PodSpec(
            node_name=node,
            scheduler_name="stromboli",
            node_selector=selector,
            containers=[objects.Container(name="main", resources=objects.ResourceRequirements(requests=requests))],
        ),
        status=objects.PodStatus(phase="Running" if node else "Pending"),
    )


def write_statuses(state: ClusterState, decisions: Iterable[Decision]) -> None:
    """Put the decided statuses into the state, as the API server would return them."""
    for decision in decisions:
        match decision:
            case SetPodGroupStatus(status=status):
                group = state.pod_group(decision.key)
                assert group is not None
                state.upsert("PodGroup", group.model_copy(update={"status": status}))
            case SetQueueStatus(name, allocated, conditions):
                queue = state.queues[name]
                said = {} if conditions is None else {"conditions": conditions}
                shown = queue.status.model_copy(update={"allocated": allocated, **said})
                state.upsert("Queue", queue.model_copy(update={"status": shown}))
