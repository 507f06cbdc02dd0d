"""Manifests and dumps (`kubectl get podgroups,pods,jobs -A -o json`) as a workload.

| of the objects | becomes |
|---|---|
| a PodGroup, or what a workload or a lone pod gets | a job |
| `metadata.creationTimestamp` of the PodGroup, else of its first pod | the arrival, from the first job's |
| no such time, as in manifests that no cluster has seen | the arrival is that of the first job |
| `stromboli.io/run-time` of the PodGroup, or of what owns its pods | the declared run time |
| or the longest `spec.activeDeadlineSeconds` of its pods if all have one, the shorter of both | the declared run time |
| how long the longest of its pods ran, from `startTime` until its last container ended, if all are over | run time |
| else the declared run time, else the one that is given | the run time |
| `spec.queue`, `spec.minMember` and the pods | queue and gang |
| a pod that failed, where what manages it made another one afterwards | nothing: the other one stands for it |
| a workload that is suspended, and has no pods | nothing |
| the namespace | the user |
| the value of its PriorityClass | the priority |

Pods start anew: on which nodes they were does not count. Nodes and queues are not part of
the workload; `Cluster` reads them from the same files.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import BinaryIO

import msgspec
import numpy as np

from stromboli.api import crds, keys, objects
from stromboli.api.crds import RUN_TIME
from stromboli.lab.workload import Gang, Job, Task, Workload, in_order
from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import load
from stromboli.state.cluster import object_key
from stromboli.state.pods import GROUP_ANNOTATION, seconds
from stromboli.workloads.groups import controller

_SCHEDULER = "stromboli"
#: phases of pods that are over
_FINISHED = ("Succeeded", "Failed")


def read_manifests(paths: Sequence[str], stdin: BinaryIO, run_time: float = math.nan) -> Workload:
    """Read the jobs of files; `run_time` is that of those that declare none, which are left out and named if it is NaN.

    What is wrong is in the workload's problems.
    """
    loaded = load(list(paths), stdin, lenient=True)
    tried_again = _tried_again([obj for kind, obj in loaded.objects if kind == "Pod"])
    # Jobs come one after the other: what a quota leaves to all of them at once says nothing.
    loaded.objects = [
        (kind, obj)
        for kind, obj in loaded.objects
        if kind != "ResourceQuota" and (kind != "Pod" or object_key(obj) not in tried_again)
    ]
    ran: dict[str, float] = {}
    for place, (kind, obj) in enumerate(loaded.objects):
        if kind == "Pod":
            ran[object_key(obj)] = _ran(obj.status)
            loaded.objects[place] = kind, _anew(obj)
    admitted = admit(loaded, (_SCHEDULER,))
    classes = {obj.metadata.name: obj.value for kind, obj in admitted if kind == "PriorityClass"}
    pods: defaultdict[str, list[objects.Pod]] = defaultdict(list)
    for kind, obj in admitted:
        if kind == "Pod" and (group := (obj.metadata.annotations or {}).get(GROUP_ANNOTATION)):
            pods[keys.key(obj.metadata.namespace or "default", group)].append(obj)
    gangs: dict[bytes, Gang] = {}
    jobs, problems = [], list(loaded.problems)
    for kind, group in admitted:
        if kind != "PodGroup" or not pods[group.key]:
            continue
        declared = declared_run_time(group, pods[group.key])
        # NaN where one of them is not over
        known = float(np.max([ran.get(object_key(pod), math.nan) for pod in pods[group.key]]))
        length = next((each for each in (known, declared) if not math.isnan(each)), run_time)
        if math.isnan(length):
            problems.append(f"PodGroup {group.key}: does not say for how long it runs ({RUN_TIME})")
            continue
        gang = gang_of(pods[group.key], group.spec.min_member, gangs)
        priority = classes.get(group.spec.priority_class_name, 0)
        created = group.metadata.created or seconds(pods[group.key][0].metadata.creation_timestamp)
        namespace, _, name = group.key.partition("/")
        jobs.append(Job(created, length, gang, declared, group.queue, namespace, priority, name))
    first = min((job.arrival for job in jobs if job.arrival > 0), default=0.0)
    return in_order([job if job.arrival > 0 else Job(first, *job[1:]) for job in jobs], problems)


def _tried_again(pods: Sequence[objects.Pod]) -> set[str]:
    """The keys of pods that failed and in whose place what manages them made others, so that both are never there."""
    made: defaultdict[str, list[float]] = defaultdict(list)
    failed: list[tuple[float, str, objects.Pod]] = []
    for pod in pods:
        if (manager := controller(pod)) is not None:
            made[manager.uid].append(seconds(pod.metadata.creation_timestamp))
            if pod.status.phase == "Failed" and (end := _end(pod.status)):
                failed.append((end, manager.uid, pod))
    found = set()
    for end, uid, pod in sorted(failed, key=lambda each: each[0]):
        later = min((time for time in made[uid] if time >= end), default=None)
        if later is not None:
            made[uid].remove(later)
            found.add(object_key(pod))
    return found


def _end(status: objects.PodStatus) -> float:
    """Time when the last container of a pod ended, 0 if unknown."""
    states = [each.state for each in status.container_statuses or () if each.state is not None]
    return max((seconds(state.terminated.finished_at) for state in states if state.terminated is not None), default=0.0)


def _ran(status: objects.PodStatus) -> float:
    """The seconds that a pod ran that is over, NaN if it is not, or does not say when it began and ended."""
    begin, end = seconds(status.start_time), _end(status)
    return max(0.0, end - begin) if status.phase in _FINISHED and begin and end else math.nan


def _anew(pod: objects.Pod) -> objects.Pod:
    """A pod as it was before it had a node."""
    spec = msgspec.structs.replace(pod.spec, node_name=None)
    return msgspec.structs.replace(pod, spec=spec, status=objects.PodStatus(phase="Pending"))


def declared_run_time(group: crds.PodGroup | None, pods: Sequence[objects.Pod]) -> float:
    """The seconds that a job says it runs for, NaN if it says nothing."""
    deadlines = (float(pod.spec.active_deadline_seconds or 0) for pod in pods)
    said = crds.longest_run(None if group is None else group.run_time, deadlines)
    return math.nan if said is None else said


def gang_of(pods: Sequence[objects.Pod], min_member: int, known: dict[bytes, Gang]) -> Gang:
    """The gang of some pods; those that are alike are one task, and gangs that are alike one gang."""
    tasks: dict[bytes, Task] = {}
    for pod in pods:
        spec = msgspec.structs.replace(pod.spec, priority=None, scheduler_name=_SCHEDULER, active_deadline_seconds=None)
        own = (GROUP_ANNOTATION, RUN_TIME)
        annotations = {key: text for key, text in (pod.metadata.annotations or {}).items() if key not in own}
        labels = dict(pod.metadata.labels or {})
        kind = msgspec.json.encode([spec, labels, annotations], order="deterministic")
        count = tasks[kind].count if kind in tasks else 0
        tasks[kind] = Task(count + 1, spec, labels, annotations)
    made = Gang(tuple(tasks.values()), min_member)
    text = b"".join(b"%d %b" % (task.count, kind) for kind, task in tasks.items())
    return known.setdefault(b"%d %b" % (min_member, text), made)
