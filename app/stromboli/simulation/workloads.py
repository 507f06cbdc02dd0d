"""Expands workloads in files: the pods that controllers create, and the PodGroup if a controller creates one.

Names are those that the controllers give, with numbers instead of random suffixes. An object that an API server has
admitted (with a uid) is not expanded, since its pods are in the files, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeAlias

from stromboli.api import objects
from stromboli.api.errors import InvalidObjectError
from stromboli.api.validation import field_path, shown
from stromboli.simulation.defaults import with_defaults
from stromboli.simulation.schema import converted
from stromboli.state.nodes import NodeFacts
from stromboli.state.pods import GROUP_ANNOTATION
from stromboli.workloads import Gang, Kind, Kinds, Role, Workload, family_of
from stromboli.workloads.amounts import of_roles
from stromboli.workloads.gangs import EACH, by_paths, has_ended, is_suspended
from stromboli.workloads.groups import ROLE_ANNOTATION, manager_of
from stromboli.workloads.in_order import labelled
from stromboli.workloads.labelled import KIND as GROUP
from stromboli.workloads.makers import MAKERS, Surroundings
from stromboli.workloads.paths import Object, at, items, mapping, text

Manifest: TypeAlias = dict[str, Any]

#: pods that the workloads of one run may become: more are a slip of the pen
MOST_PODS = 100_000
#: fields that number the pods of a workload, or of a part of one
_COUNTS = frozenset(("completions", "minAvailable", "minReplicas", "numOfHosts", "parallelism", "replicas", "size"))
#: types in the schema of kinds that are read as they are; those of kinds that a controller knows are named there
_TYPES: Mapping[str, str] = {
    **{kind: f"V1{kind}" for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController")},
    **{kind: kind for kind in ("CronJob", "JobSet", "LeaderWorkerSet", "RayCluster")},
}
#: kinds whose pods or groups another component creates
_TEMPLATES = frozenset(("CompositePodGroup", "PodTemplate", "Workload"))
#: kinds of the table from which nothing is made, and the most frequent other ones
_NO_WORKLOADS = frozenset(("Node", "Pod", "PodGroup"))
#: why nothing is made of a workload
NOT_MADE = "its pods do not follow from it: add what it makes, or its pods"
#: metadata that a workload may set on what it makes
_SAID = ("labels", "annotations")


@dataclass(slots=True)
class Expansion:
    """Makes the objects of workloads, not too many all in all."""

    #: the workloads whose pods were made, by uid
    owners: dict[str, Manifest]
    kinds: Kinds
    #: whether there is a pod of such a key
    is_taken: Callable[[str], bool]
    #: the nodes that there are
    nodes: Callable[[], NodeFacts]
    most: int = MOST_PODS
    pods: int = 0
    #: why pods are not made before others run, by their keys
    later: dict[str, str] = field(default_factory=dict)
    #: kind and key of workloads with pods outside the files
    begun: set[tuple[str, str]] = field(default_factory=set)
    #: why nothing became of workloads, or of parts of them, by key
    empty: dict[str, str] = field(default_factory=dict)
    #: runtimes that workloads name instead of templates of their own, by kind, namespace or none, and name
    runtimes: dict[tuple[str, str, str], Manifest] = field(default_factory=dict)

    def type_of(self, manifest: Manifest) -> str | None:
        """The type in the schema of a workload; None for other objects."""
        kind = self.kinds.of(manifest)
        if kind is None or kind.row.kind == "Pod":
            return None
        if kind.row.group == "batch.volcano.sh":
            return "VolcanoJob" if kind.row.kind == "Job" else "Workload"
        if kind.row.kind == "Job":
            return "V1Job" if kind.row.group == "batch" else "Workload"
        if any(roles.each.endswith("ReplicaSpecs") for roles in kind.row.roles) and kind.row.group == "kubeflow.org":
            return "KubeflowJob"
        return _TYPES.get(kind.row.kind, "Workload")

    def unmade(self, kind: str, manifest: Manifest) -> tuple[str, str] | None:
        """Where in a manifest of no known workload, and why, no pods follow from it; None if it stands for none.

        Objects that an API server has seen come with their pods.
        """
        if kind in _NO_WORKLOADS or at(manifest, "metadata.uid"):
            return None
        if kind in _TEMPLATES:
            return "", NOT_MADE
        version = text(manifest, "apiVersion")
        meant = [each.row.group or "v1" for each in self.kinds if each.row.kind == kind]
        return ("apiVersion", f"should be of {' or '.join(meant)}, not {shown(version)}") if version and meant else None

    def expand(self, manifest: Manifest, where: str) -> Iterator[tuple[str, Manifest]]:
        """The PodGroup and the pods of a workload, as (kind, manifest). Raises InvalidObjectError."""
        uid = manifest["metadata"].get("uid")
        if uid:
            self.owners[uid] = manifest
            return
        kind = self.kinds.of(manifest)
        assert kind is not None
        owner = _owner(manifest)
        manifest = {**manifest, "metadata": {**manifest["metadata"], "uid": owner["uid"]}}
        self.owners[owner["uid"]] = manifest
        found, before = self.kinds.read(manifest), self.pods
        row = kind.row
        if has_ended(manifest):
            self.empty[_key(manifest)] = f"{row.kind} {_key(manifest)} has ended, so it has no pods"
            return
        if not (row.roles or row.makes or row.maker or row.reader or is_suspended(manifest, row)):
            raise InvalidObjectError(where, "", NOT_MADE)
        for part in self._parts(kind, manifest, owner, where, whole=not any(gang.roles for gang in found.gangs)):
            if part["kind"] == "Pod":
                self._count(1, where)
                yield "Pod", part
            elif part["kind"] == GROUP:
                yield GROUP, part
            elif self.type_of(part) is not None:
                yield from self.expand(part, where)
        if not found.gangs:
            found = by_paths(manifest, kind.row) if kind.row.roles else found
        for gang in () if found.suspended else found.gangs:
            for copy in range(gang.copies):
                made = replace(gang, part=str(copy)) if gang.part == EACH else gang
                yield from self._gang(_Making(manifest, kind, found, owner, where), made)
        if self.pods == before and row.kind != GROUP and not is_suspended(manifest, row):
            key = _key(manifest)
            why = "no node is to run one" if row.kind == "DaemonSet" else "it asks for none"
            self.empty[key] = f"{row.kind} {key} has no pods: {why}"

    def _gang(self, making: _Making, gang: Gang) -> Iterator[tuple[str, Manifest]]:
        if gang.ends_first and not self._has_begun(making.manifest):
            self._tell_later(making, gang)
            return
        self._count(gang.pods, making.where)
        named = "" if making.is_named_by_hand(gang) else gang.group_name or making.group_name
        if named:
            yield "PodGroup", making.pod_group(named, self._above(making.manifest), self.kinds, gang)
        first = making.at_first(gang)
        for role in gang.roles if first is None else sorted(gang.roles, key=lambda role: role.later):
            # A Deployment and a StatefulSet may have one name: what stands for a drawn name is not the other's.
            prefix = f"{making.manifest['metadata']['namespace']}/{role.prefix}"
            free = (number for number in itertools.count(role.first) if not self.is_taken(f"{prefix}-{number}"))
            for made, number in enumerate(itertools.islice(free, role.count)):
                if first is not None and made >= first:
                    self.later[f"{prefix}-{number}"] = making.later(role)
                yield "Pod", making.pod(gang, role, number, named, in_order=first is not None and made < first)
            first = None if first is None else max(0, first - role.count)

    def _has_begun(self, manifest: Manifest) -> bool:
        """Whether a workload, or what it was made of, has pods already; some may have completed."""
        each = (manifest, *self._above(manifest))
        return any((one["kind"], _key(one)) in self.begun for one in each)

    def _tell_later(self, making: _Making, gang: Gang) -> None:
        """Tell of pods that are not there together with those that have to complete before."""
        if gang.pods:
            key = _key(making.manifest)
            why = f"has no pods of {gang.part} yet: it makes them when {gang.after} has completed"
            self.empty[f"{key} {gang.part}"] = f"{making.kind.row.kind} {key} {why}"

    def _told_later(self, manifest: Object, name: str, when: str) -> None:
        """Tell of something that a workload makes later."""
        namespace = text(manifest, "metadata.namespace")
        self.empty[f"{namespace}/{name}"] = f"{text(manifest, 'kind')} {_key(manifest)} {when}"

    def _count(self, pods: int, where: str) -> None:
        self.pods += pods
        if self.pods > self.most:
            raise InvalidObjectError(where, "spec", f"would be pod number {self.most:,} and more")

    def _parts(self, kind: Kind, manifest: Object, owner: Manifest, where: str, *, whole: bool) -> Iterator[Manifest]:
        """The objects that a controller makes of a workload: the `whole`, or what is not among its roles.

        Raises InvalidObjectError.
        """
        if is_suspended(manifest, kind.row):
            return
        metadata = {key: manifest["metadata"].get(key) for key in ("name", "namespace", "creationTimestamp")}
        made = [
            {
                "apiVersion": part.api_version,
                "kind": part.kind,
                "metadata": {key: mapping(manifest, f"{part.metadata}.{key}") for key in _SAID if part.metadata},
                "spec": mapping(manifest, part.spec),
            }
            for part in kind.row.makes
            if whole and mapping(manifest, part.spec)
        ]
        made += [
            mapping(entry, part.whole)
            for part in kind.row.makes
            for _, entry in items(manifest, part.each)
            if whole or (part.unless and not entry.get(part.unless))
        ]
        if whole and kind.row.maker:
            try:
                made += MAKERS[kind.row.maker](
                    manifest,
                    Surroundings(
                        partial(self._runtime, metadata["namespace"]), self.nodes, partial(self._told_later, manifest)
                    ),
                )
            except InvalidObjectError as error:
                raise InvalidObjectError(where, error.path, error.problem) from None
        for each in made:
            if isinstance(each.get("kind"), str):
                yield {**each, "metadata": {**metadata, **mapping(each, "metadata"), "ownerReferences": [owner]}}

    def _runtime(self, namespace: str, kind: str, name: str) -> Object | None:
        """Runtime that a workload in a namespace refers to; None if it does not exist."""
        return self.runtimes.get((kind, namespace, name)) or self.runtimes.get((kind, "", name))

    def _above(self, manifest: Manifest) -> Iterator[Manifest]:
        """Owners of a workload, the nearest first."""
        while (reference := manager_of(manifest)) is not None and reference.uid in self.owners:
            manifest = self.owners[reference.uid]
            yield manifest


@dataclass(frozen=True, slots=True)
class _Making:
    """A workload that is made."""

    manifest: Manifest
    kind: Kind
    workload: Workload
    #: the reference of its pods to it
    owner: Manifest
    where: str

    @property
    def group_name(self) -> str:
        """The name of the PodGroup that its controller makes; empty where the service makes it."""
        return self.kind.row.group_name.replace("{name}", self.manifest["metadata"]["name"])

    def is_named_by_hand(self, gang: Gang) -> bool:
        """Whether templates name a group, which controllers leave as it is unless they always make one."""
        if "always" in self.kind.row.made_by:
            return False
        templates = [role.template for role in gang.roles]
        noted = any(mapping(each, "metadata.annotations").get(GROUP_ANNOTATION) for each in templates)
        return noted or any(mapping(each, "spec.schedulingGroup") for each in templates)

    def at_first(self, gang: Gang) -> int | None:
        """Number of a gang's pods that exist before one runs; None for all."""
        if len(self.workload.gangs) == 1:
            return gang.at_first
        return 0 if gang.after else gang.pods if gang.at_first is None else gang.at_first

    def later(self, role: Role) -> str:
        """Why pods of a role are not made at first."""
        after = f"those of {role.after}" if role.after else "others of its pods"
        named = f"pods of {role.name}" if role.name else "pods"
        return f"{self.kind.row.kind} {_key(self.manifest)} makes {named} when {after} run"

    def pod(self, gang: Gang, role: Role, number: int, group: str = "", *, in_order: bool = False) -> Manifest:
        """A pod of a role; `in_order` says that others come once it runs."""
        made, row = self.manifest["metadata"], self.kind.row
        metadata = dict(role.template.get("metadata") or {})
        metadata |= {"name": f"{role.prefix}-{number}", "namespace": made["namespace"], "ownerReferences": [self.owner]}
        metadata["creationTimestamp"] = made.get("creationTimestamp")
        told = {label: role.name for label in row.role_labels[:1] if role.name}
        if self.workload.part_label and gang.part:
            told[self.workload.part_label] = gang.part
        if role.divided:
            label, size = role.divided
            told[label] = str(number // size)
        if in_order:
            told |= labelled(row.kind, made["name"], metadata["name"])
        spec = dict(role.template.get("spec") or {})
        if role.exclusive:
            exclusive, parts = role.exclusive
            # The first pods of all parts come first, and find the domains.
            which = f"{self.owner['uid']} {gang.part if gang.part.isdecimal() else role.name} {number % parts}"
            together = sha256(which.encode()).hexdigest()[:40]
            told |= exclusive.labels(together)
            spec["affinity"] = exclusive.affinity(spec, together)
        if told:
            metadata["labels"] = {**(metadata.get("labels") or {}), **told}
        if row.scheduler_name:
            spec.setdefault("schedulerName", text(self.manifest, row.scheduler_name) or "volcano")
        if group:
            noted = {GROUP_ANNOTATION: group, ROLE_ANNOTATION: role.name}
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **noted}
            priority = text(self.manifest, row.priority_class)
            if priority:
                spec.setdefault("priorityClassName", priority)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def pod_group(self, name: str, above: Iterable[Manifest], kinds: Kinds, gang: Gang) -> Manifest:
        """The PodGroup that its controller makes, which takes over the labels and annotations of the workload.

        `above` is what owns the workload, and so on.
        """
        pod = self.pod(gang, gang.roles[0] if gang.roles else Role("", {}, 0, 0, name), 0)
        sample = with_defaults(converted(pod, objects.Pod, self.where))
        found = family_of(sample, [self.manifest, *above], kinds).manifest(sample)
        made, metadata = self.manifest["metadata"], found["metadata"]
        both = {key: {**(made.get(key) or {}), **(metadata.get(key) or {})} for key in ("labels", "annotations")}
        metadata = {**metadata, **both, "name": name, "creationTimestamp": made.get("creationTimestamp")}
        spec = found["spec"]
        if gang.group_name and not at(self.manifest, self.kind.row.min_resources):
            spec["minResources"] = of_roles(gang.roles, gang.pods, self.where)
        return {**found, "metadata": metadata, "spec": spec, "status": {}}


def check_counts(value: Any, where: str, path: tuple[int | str, ...] = ()) -> None:
    """Raise InvalidObjectError at the first number of pods of a workload that is negative."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        if key in _COUNTS and isinstance(each, int) and each < 0:
            raise InvalidObjectError(where, field_path((*path, key)), f"should be at least 0, not {shown(each)}")
        if key not in ("template", "metadata"):
            check_counts(each, where, (*path, key))


def _key(manifest: Manifest) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


def is_expanded(manifest: Manifest) -> bool:
    """Whether a workload whose pods were made is one that no API server has seen."""
    return bool(manifest["metadata"].get("uid") == _owner(manifest)["uid"])


def _owner(manifest: Manifest) -> Manifest:
    """The reference of a pod to its owner."""
    metadata = manifest["metadata"]
    uid = f"{manifest['kind'].lower()}-{metadata['namespace']}-{metadata['name']}"
    owner = {"apiVersion": manifest.get("apiVersion", ""), "kind": manifest["kind"], "name": metadata["name"]}
    return {**owner, "uid": uid, "controller": True}
