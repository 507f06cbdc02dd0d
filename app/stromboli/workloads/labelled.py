"""Groups that labels of pods name: Kueue's groups of plain pods, and those of the coscheduling plugin.

A label has no effect on pods of a workload whose pods start together anyway. A label that names an object, a PodGroup
of `scheduling.x-k8s.io`, makes that the workload of the pods; with other labels the pods say how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stromboli.api import keys, objects, readers
from stromboli.api.crds import PodGroup
from stromboli.api.errors import InvalidObjectError
from stromboli.api.validation import field_path, shown
from stromboli.workloads.model import Starts
from stromboli.workloads.paths import Object
from stromboli.workloads.readers import GROUP_INDEX
from stromboli.workloads.table import Kinds

KUEUE = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT = "kueue.x-k8s.io/pod-group-total-count"
#: with these the pods of a group start as they come
ONE_BY_ONE = ("kueue.x-k8s.io/pod-group-fast-admission", "kueue.x-k8s.io/pod-group-serving")
LIGHT = "pod-group.scheduling.sigs.k8s.io/name"
LIGHT_COUNT = "pod-group.scheduling.sigs.k8s.io/min-available"
#: the kind that a label names an object of
OBJECTS: Mapping[str, str] = {
    "scheduling.x-k8s.io/pod-group": "scheduling.x-k8s.io/v1alpha1",
    "pod-group.scheduling.sigs.k8s.io": "scheduling.sigs.k8s.io/v1alpha1",
}
KIND = "PodGroup"
#: the labels that name groups, the first one counts
KEYS = (KUEUE, *OBJECTS, LIGHT)
#: prefix of the names of PodGroups that no object owns
_NAMES = {KUEUE: "podgroup-kueue-", LIGHT: "podgroup-light-"}


@dataclass(frozen=True, slots=True)
class Label:
    """The group that a label of a pod names."""

    key: str
    name: str
    namespace: str

    @property
    def group_name(self) -> str:
        """The name of the PodGroup, where no object owns it."""
        return f"{_NAMES[self.key]}{self.name}"

    @property
    def id(self) -> str:
        """A key that distinguishes it from other groups, and from uids."""
        return keys.key(self.namespace, self.group_name if self.reference is None else f"{self.key}/{self.name}")

    @property
    def reference(self) -> objects.OwnerReference | None:
        """The object that it names, whose uid is not known; None where it names none."""
        version = OBJECTS.get(self.key)
        return objects.OwnerReference(api_version=version, kind=KIND, name=self.name) if version else None


def label_of(pod: objects.Pod, kinds: Kinds) -> Label | None:
    """The label that puts a pod into a group; None where none does, or its owner's kind starts pods together.

    Kueue writes its own as an annotation, too, which comes first.
    """
    said, noted = pod.metadata.labels or {}, pod.metadata.annotations or {}
    if noted.get(KUEUE):
        said = {**said, KUEUE: noted[KUEUE]}
    key = next((key for key in KEYS if said.get(key)), None)
    if key is None or _starts_together(pod, kinds):
        return None
    return Label(key, said[key], pod.metadata.namespace or "default")


def stands_for_label(name: str) -> bool:
    """Whether a PodGroup of this name is of pods with a label, whichever pod comes first."""
    return name.startswith(tuple(_NAMES.values()))


def id_of(owner: Object) -> str:
    """The `id` of the label that names an object; empty where none does."""
    version, metadata = owner.get("apiVersion"), owner["metadata"]
    key = next((key for key, each in OBJECTS.items() if owner.get("kind") == KIND and each == version), None)
    return Label(key, metadata["name"], metadata.get("namespace") or "default").id if key else ""


def object_of(group: PodGroup) -> Object | None:
    """The object that labels name and that a PodGroup was made for, as far as the PodGroup says; None for others."""
    for owner in group.metadata.owner_references:
        if owner.get("kind") == KIND and owner.get("apiVersion") in OBJECTS.values():
            metadata = {"name": owner.get("name"), "namespace": group.metadata.namespace, "uid": owner.get("uid")}
            return {**owner, "metadata": metadata, "spec": {"minMember": group.spec.min_member}}
    return None


def least_of(pod: objects.Pod, label: Label) -> int:
    """Number of pods of a group that start together, by what a pod of it says. Raises InvalidObjectError."""
    if not keys.is_name(label.name):
        raise InvalidObjectError(f"Pod {pod.metadata.key}", label.key, f"should be a name, not {shown(label.name)}")
    if label.key == LIGHT:
        at, number = ("labels", LIGHT_COUNT), (pod.metadata.labels or {}).get(LIGHT_COUNT)
    else:
        at, number = ("annotations", KUEUE_COUNT), (pod.metadata.annotations or {}).get(KUEUE_COUNT)
    found = readers.count(number)
    if not found:
        where = field_path(("metadata", *at))
        problem = f"should be a number from 1 to {readers.INT32}, not {shown(number)}"
        raise InvalidObjectError(f"pods of {label.key} {keys.key(label.namespace, label.name)}", where, problem)
    said = pod.metadata.annotations or {}
    return 1 if label.key == KUEUE and any(said.get(key) == "true" for key in ONE_BY_ONE) else found


def _starts_together(pod: objects.Pod, kinds: Kinds) -> bool:
    """Whether a pod is one of a gang by its owner: that of a LeaderWorkerSet is a StatefulSet between the two."""
    if GROUP_INDEX in (pod.metadata.labels or {}):
        return True
    manager = next((each for each in pod.metadata.owner_references or () if each.controller), None)
    kind = kinds.get(manager.api_version, manager.kind) if manager is not None else None
    return kind is not None and kind.row.starts is Starts.together
