"""Workloads that make some of their pods when others are ready, as labels of those that there are show.

A group that was written by hand for all of their pods never starts: the others come when these run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Labels: TypeAlias = Mapping[str, str]

_ORDINAL = re.compile(r"-[0-9]+$")
_KUBEFLOW = "training.kubeflow.org"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A kind of workload that may make its pods one after the other."""

    kind: str
    #: the label of its pods with its name; of a StatefulSet, with that of the pod
    label: str
    #: which pods it makes when
    why: str
    #: the setting that has all of them made at once
    instead: str
    #: the labels of those that come first
    first: Labels = field(default_factory=dict)

    def name(self, labels: Labels) -> str:
        """The name of the workload of a pod that comes first; empty for another pod."""
        return labels[self.label] if self.label in labels and self.first.items() <= labels.items() else ""


_STATEFUL_SET = _Rule(
    "StatefulSet",
    "statefulset.kubernetes.io/pod-name",
    "makes each pod when the one before it is ready, unless its podManagementPolicy is Parallel",
    "create {workload} again with podManagementPolicy: Parallel",
)
#: the first one whose label pods have counts: a LeaderWorkerSet has StatefulSets
_RULES = (
    _Rule(
        "LeaderWorkerSet",
        "leaderworkerset.sigs.k8s.io/name",
        "makes workers when their leader is ready if its startupPolicy is LeaderReady, and when their leader is placed "
        "if it is annotated with exclusive-topology",
        "set startupPolicy: LeaderCreated in {workload}, without exclusive-topology",
        {"leaderworkerset.sigs.k8s.io/worker-index": "0"},
    ),
    _Rule(
        "JobSet",
        "jobset.sigs.k8s.io/jobset-name",
        "makes Jobs when those before them are ready if its startupPolicyOrder is InOrder or they depend on these, and "
        "pods of a Job when its first one is placed if it is annotated with exclusive-topology",
        "set startupPolicyOrder: AnyOrder in {workload}, without dependsOn and exclusive-topology",
    ),
    _Rule(
        "MPIJob",
        f"{_KUBEFLOW}/job-name",
        "makes its launcher when the workers are ready if its launcherCreationPolicy is WaitForWorkersReady",
        "set launcherCreationPolicy: AtStartup in {workload}",
        {f"{_KUBEFLOW}/operator-name": "mpi-operator", f"{_KUBEFLOW}/job-role": "worker"},
    ),
    _Rule(
        "Job",
        "volcano.sh/job-name",
        "makes the pods of a task when those of the tasks that it depends on run",
        "leave dependsOn out of the tasks of {workload}",
    ),
    _Rule(
        "SparkApplication",
        "spark-app-name",
        "makes its executors when the driver runs",
        "leave the driver of {workload} out of this PodGroup",
        {"spark-role": "driver"},
    ),
    _STATEFUL_SET,
)


@dataclass(frozen=True, slots=True)
class Ordered:
    """A workload with only its first pods."""

    #: why there are no more pods
    why: str
    #: the setting that has all of them made at once
    instead: str
    #: whether that is all there is to do: with a smaller gang those that come later would start one by one
    only: bool = False


def labelled(kind: str, workload: str, pod: str) -> dict[str, str]:
    """The labels of a pod that comes first, by which its workload is known."""
    rule = next((rule for rule in _RULES if rule.kind == kind), None)
    return {} if rule is None else {rule.label: pod if rule is _STATEFUL_SET else workload, **rule.first}


def ordered(namespace: str, waiting: Sequence[Labels], train_job: str = "") -> Ordered | None:
    """The workload whose next pods wait for all of these, by their labels; None where none does.

    `train_job` names the TrainJob for which the trainer made their PodGroup.
    """
    rule = next((rule for rule in _RULES if any(rule.label in labels for labels in waiting)), None)
    names = {rule.name(labels) for labels in waiting} if rule is not None else set()
    # Of a StatefulSet that makes its pods in order one waits.
    if rule is None or len(names) != 1 or "" in names or (rule is _STATEFUL_SET and len(waiting) > 1):
        return None
    name = names.pop()
    workload = f"{rule.kind} {namespace}/{_ORDINAL.sub('', name) if rule is _STATEFUL_SET else name}"
    if train_job:
        instead = f"leave podGroupPolicy out of the runtime of TrainJob {namespace}/{train_job}, so that what starts"
        return Ordered(f"{workload} {rule.why}", f"{instead} first is a gang of its own", only=True)
    return Ordered(f"{workload} {rule.why}", rule.instead.format(workload=workload))
