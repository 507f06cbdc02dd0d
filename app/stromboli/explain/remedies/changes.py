"""Changes to a cluster's state that several kinds of remedies make."""

from __future__ import annotations

from msgspec.structs import replace

from stromboli.api import crds, objects
from stromboli.explain.rehearsal import Change, pod_of
from stromboli.explain.remedies.case import Case
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord
from stromboli.workloads.amounts import min_resources
from stromboli.workloads.names import is_by_hand


def group_of(state: ClusterState, key: str) -> crds.PodGroup:
    """An existing PodGroup."""
    group = state.pod_group(key)
    assert group is not None
    return group


def set_group(key: str, **spec: object) -> Change:
    """Change fields of a PodGroup's spec."""

    def change(state: ClusterState) -> None:
        group = group_of(state, key)
        state.upsert("PodGroup", group.model_copy(update={"spec": group.spec.model_copy(update=spec)}))

    return change


def set_queue(name: str, **spec: object) -> Change:
    """Change fields of a queue's spec."""

    def change(state: ClusterState) -> None:
        queue = state.queues[name]
        state.upsert("Queue", queue.model_copy(update={"spec": queue.spec.model_copy(update=spec)}))

    return change


def put_node(node: objects.Node) -> Change:
    """Put a node in the place of the one of its name."""
    return lambda state: state.upsert("Node", node)


def respec(case: Case, **spec: object) -> Change:
    """Change the spec of the pods that wait and say the same there as the first of them."""

    def said(record: PodRecord) -> list[object]:
        return [getattr(record.pod_class.spec, name) for name in spec]

    def change(state: ClusterState) -> None:
        for record in (each for each in case.pods if said(each) == said(case.pods[0])):
            pod = pod_of(record, "", objects.PodStatus(phase="Pending"))
            state.upsert("Pod", replace(pod, spec=replace(pod.spec, **spec)))
        first = case.pods[0]
        group = state.pod_group(first.job)
        alike = all(each.pod_class is first.pod_class for each in case.pods)
        if alike and group is not None and group.spec.min_resources and not is_by_hand(group):
            # What made the group follows its pods.
            asked = min_resources(replace(first.pod_class.spec, **spec), group.spec.min_member)
            set_group(first.job, min_resources=asked)(state)

    return change
