"""Kubernetes' own PodGroups (`scheduling.k8s.io`) as the core's PodGroups, and what is written to their status.

Versions differ in the names of fields and of the condition; the reader accepts all of them. A group has no queue of its
own: a label or annotation names it. A hard topology constraint stands for the tier of HyperNodes of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from stromboli.api import keys
from stromboli.api.crds import (
    GROUP_CLAIMS,
    PART_OF,
    PRIORITY,
    SCHEDULING,
    WORKLOAD,
    PodGroup,
    PodGroupPhase,
    PodGroupStatus,
)
from stromboli.api.errors import InvalidObjectError
from stromboli.api.keys import NATIVE_GROUP, inner_name, outer_name
from stromboli.api.objects import Pod
from stromboli.api.validation import shown
from stromboli.framework.diagnosis.ignored import CONDITION as FIELD_IGNORED
from stromboli.policy.queue_rules import QueueRule
from stromboli.state.pods import EVICTED_TOGETHER, GROUP_ANNOTATION
from stromboli.workloads import said
from stromboli.workloads.assignment import assigned, made_by
from stromboli.workloads.paths import Object, at, count, described, items, mapping, text

#: versions, the newest first
VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")
_CONDITIONS = {"v1alpha2": "PodGroupScheduled"}
_CONDITION = "PodGroupInitiallyScheduled"
#: an annotation of a group as the core knows it: whether pods are evicted for it
_PREEMPTION = "stromboli.io/preemption-policy"
#: fields of a group by the annotation that stands for each in the core
_NOTED = {_PREEMPTION: "preemptionPolicy", PART_OF: "parentCompositePodGroupName"}
_OURS = frozenset((*_NOTED, PRIORITY, GROUP_CLAIMS))
#: the API server refuses longer messages
_LONGEST = 32_768


def is_native(manifest: object) -> bool:
    """Whether a manifest is one of Kubernetes' own PodGroups."""
    version = manifest.get("apiVersion") if isinstance(manifest, dict) else None
    return isinstance(version, str) and version.partition("/")[0] == NATIVE_GROUP and at(manifest, "kind") == "PodGroup"


def group_of(pod: Pod) -> str:
    """The name under which the core knows the group that a pod's spec names; empty for none."""
    group = pod.spec.scheduling_group
    return inner_name(group.pod_group_name) if group is not None and group.pod_group_name else ""


def in_native_group(pod: Pod, known: Callable[[str], PodGroup | None]) -> Pod:
    """A pod as the core sees it: in the group that its spec names, whatever an annotation says.

    `known` finds groups by their keys. The pods of one that does not preempt evict no others.
    """
    name = group_of(pod)
    if not name:
        return pod
    annotations = {**(pod.metadata.annotations or {}), GROUP_ANNOTATION: name}
    group = known(keys.key(pod.metadata.namespace or "default", name))
    spec = replace(pod.spec, preemption_policy="Never") if group is not None and never_preempts(group) else pod.spec
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations), spec=spec)


def never_preempts(group: PodGroup) -> bool:
    """Whether no pod is evicted for those of a group."""
    return group.metadata.annotations.get(_PREEMPTION) == "Never"


def as_pod_group(native: Object) -> Object:
    """The PodGroup that the core sees in place of a native one.

    Raises InvalidObjectError for a policy or number that cannot be read.
    """
    meta, name = native["metadata"], text(native, "metadata.name")
    noted = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in _OURS}
    noted[WORKLOAD] = f"PodGroup/{name}"
    mode = at(native, "spec.disruptionMode")
    if mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode):
        noted[EVICTED_TOGETHER] = "true"
    for key, field in _NOTED.items():
        if text(native, f"spec.{field}"):
            noted[key] = text(native, f"spec.{field}")
    claims = [text(each, "name") for _, each in items(native, "spec.resourceClaims") if _is_made_for_group(each)]
    if claims:
        noted[GROUP_CLAIMS] = ", ".join(claims)
    metadata: Object = {**meta, "name": inner_name(name), "annotations": noted}
    spec: Object = {"minMember": _min_count(native)}
    queue, priority = said.first([native], said.QUEUE), text(native, "spec.priorityClassName")
    run_time = said.first([native], said.RUN_TIME)
    if run_time:
        noted[said.RUN_TIME[0]] = run_time
    if queue:
        spec["queue"] = queue
    if priority:
        spec["priorityClassName"] = priority
    # Admission puts 0 where there is neither a class nor a default; then that of its pods counts.
    if isinstance(number := at(native, "spec.priority"), int) and (priority or number):
        noted[PRIORITY] = str(number)
    topology = said.network_topology([native])
    if topology:
        spec["networkTopology"] = topology
    return {"apiVersion": SCHEDULING, "kind": "PodGroup", "metadata": metadata, "spec": spec, "status": _seen(native)}


@dataclass(frozen=True, slots=True)
class OfPods:
    """Values of a group's pods for what it leaves open: the priority of the most important one, and a queue."""

    priority: int = 0
    priority_class: str = ""
    queue: str = ""

    def seen(self, pod: Pod) -> OfPods:
        """These values with one more pod; the first one that names a queue counts."""
        own, found = (self.priority, self.priority_class), (pod.spec.priority or 0, pod.spec.priority_class_name or "")
        like: Object = {"metadata": {"labels": pod.metadata.labels, "annotations": pod.metadata.annotations}}
        return OfPods(*(max(own, found) if found[1] else own), self.queue or said.first([like], said.QUEUE))


def completed(group: PodGroup, namespace: Object, pods: OfPods, rules: Sequence[QueueRule] = ()) -> PodGroup:
    """A group with its open fields filled in by its pods, or its namespace; `rules`, if any, say the queue."""
    spec: dict[str, Any] = {}
    queue = pods.queue or said.first([namespace], said.QUEUE)
    named = group.spec.queue if "queue" in group.spec.model_fields_set else queue
    if rules:
        shown = {"namespace", "labels", "annotations"}
        like: Object = {"metadata": group.metadata.model_dump(mode="json", include=shown)}
        spec["queue"] = assigned(rules, [like], made_by([like]), namespace, named).queue
    elif named:
        spec["queue"] = named
    if pods.priority_class and not group.spec.priority_class_name:
        spec["priority_class_name"] = pods.priority_class
    return group.model_copy(update={"spec": group.spec.model_copy(update=spec)}) if spec else group


def conditions(decided: PodGroupStatus, shown: Object, version: str) -> list[Object]:
    """The conditions to write to a native group, besides those that it shows and that may stay.

    The condition of its start becomes true once all pods that start together are bound, and stays true; while they wait
    it is false, with the reason. Another one lists the fields without effect.
    """
    before = {text(each, "type"): each for _, each in items(shown, "status.conditions")}
    said = {each.type: each for each in decided.conditions}
    type = _CONDITIONS.get(version, _CONDITION)
    found: list[Object] = []
    if at(before.get(type), "status") != "True":
        if decided.phase in (PodGroupPhase.Running, PodGroupPhase.Completed):
            found.append({"type": type, "status": "True", "reason": "Scheduled", "message": ""})
        elif (why := said.get("Unschedulable")) is not None and why.status == "True":
            message = why.message[:_LONGEST]
            found.append({"type": type, "status": "False", "reason": "Unschedulable", "message": message})
    if (ignored := said.get(FIELD_IGNORED)) is not None and (ignored.status == "True" or FIELD_IGNORED in before):
        message = ignored.message[:_LONGEST]
        found.append({"type": ignored.type, "status": ignored.status, "reason": ignored.reason, "message": message})
    return [each for each in found if {**before.get(each["type"], {}), **each} != before.get(each["type"])]


def _seen(native: Object) -> dict[str, Any]:
    """The status of a group that no session has decided on, by what its conditions say."""
    types = (_CONDITION, *_CONDITIONS.values())
    conditions = [each for _, each in items(native, "status.conditions") if each.get("type") in types]
    begun = any(each.get("status") == "True" for each in conditions)
    return {"phase": PodGroupPhase.Running} if begun else {}


def _is_made_for_group(claim: Object) -> bool:
    """Whether there is a claim of its own for the group, and not one that its pods name themselves."""
    return bool(text(claim, "resourceClaimTemplateName"))


def _min_count(native: Object) -> int:
    policy = mapping(native, "spec.schedulingPolicy")
    if policy.get("gang") is not None and policy.get("basic") is not None:
        raise InvalidObjectError(described(native), "spec.schedulingPolicy", "should be gang or basic, not both")
    if isinstance(policy.get("gang"), dict):
        least = count(native, native, "spec.schedulingPolicy.gang.minCount")
        if not least:
            raise InvalidObjectError(described(native), "spec.schedulingPolicy.gang.minCount", "should be at least 1")
        return least
    if "basic" in policy:
        return 1
    found = shown(at(native, "spec.schedulingPolicy"))
    raise InvalidObjectError(described(native), "spec.schedulingPolicy", f"should be gang or basic, not {found}")


def native_key(key: str) -> bool:
    """Whether a key is that of a native group in the core."""
    return outer_name(key) is not None
