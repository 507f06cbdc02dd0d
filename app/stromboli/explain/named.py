"""Jobs by the names that people gave them: of a PodGroup, or of the workload that it is for."""

from __future__ import annotations

from stromboli.api.crds import PodGroup
from stromboli.api.pod_state import PodState
from stromboli.framework.cluster.view import View
from stromboli.framework.session.session import Session
from stromboli.state.cluster import ClusterState


def job_called(view: View, key: str) -> str:
    """The key of the job that people call so, in the namespace of the key; the key itself where there is none.

    A PodGroup of that name comes first. Of several jobs of one workload it is one that waits, by key.
    """
    if key in view.jobs:
        return key
    namespace, _, name = key.partition("/")
    mine = [group.key for group in _groups_in(view, namespace) if name in (each for _, each in group.owners)]
    waiting = [each for each in mine if each in view.jobs and view.jobs[each].counts[PodState.Pending]]
    return min(waiting or mine, default=key)


def jobs_meant(state: ClusterState, kind: str, key: str) -> set[str]:
    """The keys of the jobs that a question about a pod or a job may be about; one of no job for other kinds."""
    if kind == "pod":
        record = state.record(key)
        return {record.job if record is not None else ""}
    namespace, _, name = key.partition("/")
    groups = (group for group in state.jobs.pod_groups if group is not None and group.metadata.namespace == namespace)
    return {key} | {group.key for group in groups if name in (each for _, each in group.owners)}


def names_in(session: Session, kind: str, namespace: str) -> set[str]:
    """The names of the pods or jobs (`kind`) of a namespace, those of workloads among them."""
    view = session.view
    if kind == "pod":
        return {pod.name for pod in view.pods.records if pod is not None and pod.namespace == namespace}
    groups = _groups_in(view, namespace)
    return {group.metadata.name for group in groups} | {name for group in groups for _, name in group.owners}


def _groups_in(view: View, namespace: str) -> list[PodGroup]:
    """The PodGroups of a namespace."""
    return [group for group in view.snapshot.pod_groups if group is not None and group.metadata.namespace == namespace]
