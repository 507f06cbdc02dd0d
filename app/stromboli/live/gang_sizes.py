"""Whether the PodGroup of a gang says how many pods it has by now, when one of them comes."""

from __future__ import annotations

from stromboli.api import objects
from stromboli.api.pod_state import PodState
from stromboli.state.cluster import ClusterState
from stromboli.workloads import Family
from stromboli.workloads.paths import Object, at

SUCCEEDED = (PodState.Succeeded,)
#: states of pods that no others come in place of
THERE = (PodState.Pending, PodState.Binding, PodState.Bound, PodState.Running)


def may_have_changed(state: ClusterState, family: Family, owner: Object | None, key: str, pod: objects.Pod) -> bool:
    """Whether a new pod may be of a larger or smaller gang than the PodGroup with a key says.

    The pod says of another size, there are as many pods already as there were to be, or there are to be fewer since
    some that succeeded are gone, as with a node on which nothing ran any longer. `owner` is the workload as it was
    seen last.
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
    dwindles = family.workload.dwindles and bool(at(owner, "status.succeeded"))
    return dwindles and not state.has_pods(key, (*THERE, *SUCCEEDED), least - 1)
