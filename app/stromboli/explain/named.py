"""Jobs by the names that users gave them: of a PodGroup, or of its workload."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stromboli.api.crds import PodGroup
from stromboli.api.pod_state import PodState
from stromboli.api.validation import nearest
from stromboli.framework.cluster.view import View
from stromboli.framework.session.session import Session
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord

#: the suffix of pod names after the name of their owner: a number, random characters, or both
_NUMBER = r"(-[0-9]{1,6})?(-[bcdfghjklmnpqrstvwxz2456789]{5})?"


def job_called(view: View, key: str) -> str:
    """The key of the job that users know by the name in `key`; `key` itself if there is none.

    A PodGroup of that name comes first, then the workload of that name, of whose jobs the first waiting one by key is
    taken, then the job whose pods are named so with a suffix.
    """
    if key in view.jobs:
        return key
    namespace, _, name = key.partition("/")
    mine = [group.key for group in _groups_in(view, namespace) if name in group.names]
    waiting = [each for each in mine if each in view.jobs and view.jobs[each].counts[PodState.Pending]]
    return min(waiting or mine, default="") or _of_pods_called(view.pods.records, key) or key


def _of_pods_called(records: Iterable[PodRecord | None], key: str) -> str:
    """The key of the only job whose pods belong to an owner of that name; empty if there is none or more than one."""
    numbered = re.compile(re.escape(key) + _NUMBER)
    found = {pod.job for pod in records if pod is not None and pod.key.startswith(key) and numbered.fullmatch(pod.key)}
    return found.pop() if len(found) == 1 else ""


def jobs_meant(state: ClusterState, kind: str, key: str) -> set[str]:
    """The keys of the jobs that a question about a pod or a job may refer to; a key of no job for other kinds."""
    if kind == "pod":
        record = state.record(key)
        return {record.job if record is not None else ""}
    namespace, _, name = key.partition("/")
    groups = (group for group in state.jobs.pod_groups if group is not None and group.metadata.namespace == namespace)
    found = {group.key for group in groups if name in group.names}
    return {key} | (found or {_of_pods_called(state.pods.records, key)})


def keys_in(session: Session, kind: str, namespace: str | None = None) -> set[str]:
    """The keys of the pods or jobs (`kind`) of a namespace, or of all, by the names of workloads, too."""
    groups = (group for group in session.view.snapshot.pod_groups if group is not None)
    if kind == "pod":
        found = {pod.key for pod in session.view.pods.records if pod is not None}
    else:
        found = {*session.view.jobs, *(f"{each.metadata.namespace}/{name}" for each in groups for name in each.names)}
    return {key for key in found if namespace in (None, key.partition("/")[0])}


def near_key(key: str, keys: Iterable[str]) -> str:
    """The key that is most similar to one, by names alone; empty for none.

    What is in one namespace, or in another, is no likeness; of those of one name that in the namespace counts, and of
    several in others none.
    """
    namespace, _, name = key.partition("/")
    by_name: dict[str, str] = {}
    for each in sorted(keys, key=lambda each: each.partition("/")[0] == namespace):
        of, _, called = each.partition("/")
        by_name[called] = each if of == namespace or called not in by_name else ""
    near = nearest(name, [each for each, known in by_name.items() if known])
    return by_name[near] if near else ""


def _groups_in(view: View, namespace: str) -> list[PodGroup]:
    """The PodGroups of a namespace."""
    return [group for group in view.snapshot.pod_groups if group is not None and group.metadata.namespace == namespace]
