"""Made-up clusters and workloads, for benchmarks and demos."""

from __future__ import annotations

from enum import StrEnum

from stromboli.api import crds, objects
from stromboli.state.cluster import ClusterState

_CREATED = "2024-01-01T00:00:00Z"


class Shape(StrEnum):
    """What the pods of a workload have in common."""

    #: gangs of identical pods that start together
    gang = "gang"
    #: jobs that start with one pod and grow, of five sizes
    elastic = "elastic"
    #: every pod with a request of its own, and a selector for one of eight node pools
    distinct = "distinct"


def cluster(nodes: int, pods: int, gangs: int, shape: Shape) -> ClusterState:
    """Equal nodes (32 cpu, 256 Gi, 110 pods) and `pods` pending pods in `gangs` PodGroups of one queue."""
    state = ClusterState(("stromboli",))
    state.upsert("Queue", queue("default"))
    for number in range(nodes):
        state.upsert("Node", node(f"node-{number:05}", {"pool": str(number % 8)}))
    per_gang = max(1, pods // gangs)
    for number in range(gangs):
        name = f"gang-{number:04}"
        minimum = 1 if shape is Shape.elastic else per_gang
        state.upsert("PodGroup", pod_group(name, minimum))
        for index in range(per_gang):
            state.upsert("Pod", _pod(name, number, index, shape))
    return state


def queue(name: str, weight: int = 1) -> crds.Queue:
    """An open queue."""
    return crds.Queue(
        metadata=crds.Metadata(name=name), spec=crds.QueueSpec(weight=weight), status=crds.QueueStatus(state="Open")
    )


def pod_group(name: str, min_member: int, queue: str = "default") -> crds.PodGroup:
    """An admitted PodGroup in namespace default."""
    return crds.PodGroup(
        metadata=crds.Metadata(name=name, namespace="default"),
        spec=crds.PodGroupSpec(min_member=min_member, queue=queue),
        status=crds.PodGroupStatus(phase="Inqueue"),
    )


def node(name: str, labels: dict[str, str]) -> objects.Node:
    """A node of the size that the published comparisons use."""
    amounts: objects.ResourceList = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    return objects.Node(
        metadata=objects.Metadata(name=name, labels={"kubernetes.io/hostname": name, **labels}),
        status=objects.NodeStatus(allocatable=amounts, capacity=amounts),
    )


def _pod(gang: str, number: int, index: int, shape: Shape) -> objects.Pod:
    cpu, memory, selector = "1", "2Gi", None
    if shape is Shape.elastic:
        cpu, memory = f"{500 * (1 + number % 5)}m", f"{1 + number % 5}Gi"
    elif shape is Shape.distinct:
        serial = number * 1_000 + index
        cpu, memory, selector = f"{500 + serial % 1_500}m", f"{512 + serial}Mi", {"pool": str(serial % 8)}
    requests: objects.ResourceList = {"cpu": cpu, "memory": memory}
    return objects.Pod(
        metadata=objects.Metadata(
            name=f"{gang}-{index}",
            namespace="default",
            uid=f"{gang}-{index}",
            creation_timestamp=_CREATED,
            annotations={"scheduling.k8s.io/group-name": gang},
        ),
        spec=objects.PodSpec(
            scheduler_name="stromboli",
            node_selector=selector,
            containers=[objects.Container(name="main", resources=objects.ResourceRequirements(requests=requests))],
        ),
        status=objects.PodStatus(phase="Pending"),
    )
