"""Whether the PodGroup of a gang has its current number of pods, when one of them comes."""

from __future__ import annotations

from stromboli.api import objects
from stromboli.api.crds import PodGroup, PodGroupPhase
from stromboli.api.pod_state import PodState
from stromboli.state.cluster import ClusterState
from stromboli.workloads import Family
from stromboli.workloads.paths import Object, at, items

SUCCEEDED = (PodState.Succeeded,)
PLACED = (PodState.Bound, PodState.Running)
#: states of pods that are not replaced
THERE = (PodState.Pending, PodState.Binding, PodState.Bound, PodState.Running)


def may_have_changed(state: ClusterState, family: Family, owner: Object | None, key: str, pod: objects.Pod) -> bool:
    """Whether a new pod may belong to a gang of another size than its PodGroup declares.

    That is so if the pod declares another size; if there are as many pods already as there should be; if fewer are
    needed, since some that succeeded are gone, as after the loss of a node; or if all are needed again, since the
    workload starts over. `owner` is the workload as last seen, which may be outdated if its kind is not watched.
    """
    gang = family.workload.gang(family.part(pod), pod.metadata.annotations)
    group = state.pod_group(key)
    if gang is None or group is None or not family.may_start_together:
        return False
    if family.workload.size(pod.metadata.annotations).items() - group.metadata.annotations.items():
        return True
    most, least = max(gang.pods, gang.at_first or 0), group.spec.min_member
    if most > 0 and state.has_pods(key, THERE, most):
        return True
    succeeded = _some_succeeded(owner)
    if not succeeded and owner is not None and family.workload.done > 0:
        return True
    lacks = family.workload.dwindles and not state.has_pods(key, (*THERE, *SUCCEEDED), least - 1)
    return lacks and (succeeded or state.has_pods(key, PLACED, 1))


def has_completed(state: ClusterState, key: str, group: PodGroup) -> bool:
    """Whether as many pods of a group have succeeded as started together."""
    return group.status.phase == PodGroupPhase.Completed or state.has_pods(key, SUCCEEDED, group.spec.min_member)


def _some_succeeded(owner: Object | None) -> bool:
    """Whether pods of a Job, or Jobs of a JobSet, have succeeded."""
    jobs = (each for _, each in items(owner, "status.replicatedJobsStatus"))
    return bool(at(owner, "status.succeeded")) or any(each.get("succeeded") for each in jobs)
