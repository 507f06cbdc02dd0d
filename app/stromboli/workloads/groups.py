"""The PodGroup for a pod that is in none: its queue, how many pods start together, and what they need.

The group is that of the highest owner whose kind defines what starts together. A pod without an owner has a group of
its own, and pods of an owner of unknown kind share one that starts with one pod.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from stromboli.api import objects
from stromboli.api.crds import FEWER, RUN_TIME, SCHEDULING, SLICES, WORKLOAD, PodGroup, PodGroupPhase
from stromboli.api.crds.base import dumped
from stromboli.policy.queue_rules import QueueRule
from stromboli.state.pods import GROUP_ANNOTATION, USER_ANNOTATION, USER_GROUPS_ANNOTATION
from stromboli.workloads import said, vanished
from stromboli.workloads.amounts import min_resources, of_roles, scaled
from stromboli.workloads.assignment import Assigned, assigned, made_by
from stromboli.workloads.gangs import EACH, Gang, Workload, has_ended, makes_in_order, why_fewer
from stromboli.workloads.labelled import KIND, Label, least_of
from stromboli.workloads.model import Starts
from stromboli.workloads.paths import Object, at, described, labels, mapping, text
from stromboli.workloads.table import Kind, Kinds, known_kinds

ROLE_ANNOTATION = "volcano.sh/task-spec"
#: the owners of a pod are followed so far up
MOST_OWNERS = 8
_NOT_IN_NAMES = re.compile(r"[^a-z0-9.-]+")
_FINISHED = ("Succeeded", "Failed")


def is_bare(pod: objects.Pod) -> bool:
    """Whether a pod is in no group and should be in one."""
    return (
        not (pod.metadata.annotations or {}).get(GROUP_ANNOTATION)
        and pod.spec.scheduling_group is None
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in _FINISHED
    )


def controller(pod: objects.Pod) -> objects.OwnerReference | None:
    """The reference to a pod's controller."""
    return next((reference for reference in pod.metadata.owner_references or () if reference.controller), None)


def manager_of(manifest: Object) -> objects.OwnerReference | None:
    """The reference to an object's controller; None if there is none that can be read."""
    try:
        found = msgspec.convert(at(manifest, "metadata.ownerReferences") or [], list[objects.OwnerReference])
    except msgspec.ValidationError:
        return None
    return next((reference for reference in found if reference.controller), None)


def owners_of(pod: objects.Pod, find: Callable[[objects.OwnerReference], Object | None]) -> Iterator[Object]:
    """A pod's controller, its controller, and so on, as far as they are found."""
    reference = controller(pod)
    for _ in range(MOST_OWNERS):
        owner = find(reference) if reference is not None else None
        if owner is None:
            return
        yield owner
        reference = manager_of(owner)


def pod_group_for(pod: objects.Pod, owners: Sequence[Object], kinds: Kinds | None = None) -> Object:
    """The PodGroup of a bare pod; `owners` are its controller, what owns that, and so on.

    Raises InvalidObjectError for an annotation or number, and InvalidQuantityError for a request, that cannot be read.
    """
    return family_of(pod, owners, kinds).manifest(pod)


def family_of(
    pod: objects.Pod,
    owners: Sequence[Object],
    kinds: Kinds | None = None,
    beside: Sequence[Object] = (),
    namespace: Object | None = None,
    rules: Sequence[QueueRule] = (),
) -> Family:
    """The workload of a pod: `owners` is its chain of controllers, the nearest first; `beside` its other owners.

    `namespace` is that of the pod, as far as it is known; `rules` assign the queue, if there are any.

    Raises InvalidObjectError for an owner that cannot be read.
    """
    kinds = known_kinds() if kinds is None else kinds
    found: tuple[int, Kind | None, Workload] = 0, None, Workload()
    for depth, owner in enumerate(owners):
        kind, workload = kinds.of(owner), kinds.read(owner)
        if kind is not None and kind.row.direct and depth > 0:
            break
        # What starts its own pods one by one, such as a Workflow, may own a gang.
        if workload.gangs and (kind is None or kind.row.starts is Starts.together or not found[2].gangs):
            found = depth, kind, workload
    depth, kind, workload = found
    below, above = tuple(owners[:depth]), tuple(owners[depth + 1 :])
    top = owners[depth] if owners else None
    return Family(top, kind, workload, kinds, above, below, tuple(beside), namespace or {}, rules)


def labelled_family(
    pod: objects.Pod,
    label: Label,
    owners: Sequence[Object],
    kinds: Kinds,
    namespace: Object | None = None,
    rules: Sequence[QueueRule] = (),
) -> Family:
    """The pods that a label puts into a group without an object that stands for it.

    `owners` are what manages the pod, and so on. Raises InvalidObjectError where the pod does not say how many there
    are.
    """
    at_first = 1 if any(map(makes_in_order, owners)) else None
    workload = Workload((Gang((), least=least_of(pod, label), at_first=at_first),))
    return Family(None, None, workload, kinds, tuple(owners), (), (), namespace or {}, rules, label)


@dataclass(frozen=True, slots=True)
class Family:
    """Pods that one workload owns, and the PodGroups that they are in."""

    #: the workload; None where it is not known
    owner: Object | None
    kind: Kind | None
    workload: Workload
    #: the table that says where in the spec of each owner something is
    kinds: Kinds
    #: its owners, its own objects on the way to the pod, and owners of a pod that do not manage it
    above: tuple[Object, ...] = ()
    below: tuple[Object, ...] = ()
    beside: tuple[Object, ...] = ()
    #: the namespace of all of them, which may name a queue
    namespace: Object = field(default_factory=dict)
    #: by which it gets its queue, once: it stays there when labels change
    rules: Sequence[QueueRule] = ()
    #: the label that puts pods into a group, where no object stands for it
    label: Label | None = None
    #: the uid of the workload
    uid: str = field(default="", init=False)
    _roles: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "uid", text(self.owner, "metadata.uid"))
        for gang in self.workload.gangs:
            self._roles.update((role.name.lower(), role.name) for role in gang.roles if role.name)

    def part(self, pod: objects.Pod) -> str:
        """The part of the workload that a pod's labels assign it to."""
        return (pod.metadata.labels or {}).get(self.workload.part_label, "") if self.workload.part_label else ""

    def name(self, pod: objects.Pod) -> str:
        """The name of the PodGroup of a pod."""
        if self.label is not None:
            return self.label.group_name
        uid = self.uid or ((manager := controller(pod)) and manager.uid) or pod.metadata.uid
        part = _in_name(self.part(pod)) if self.workload.part_label else ""
        return f"podgroup-{uid}-{part}" if part else f"podgroup-{uid}"

    @property
    def is_sized(self) -> bool:
        """Whether an annotation has pods start together that would start one by one, all replicas."""
        by_one = self.kind is not None and self.kind.row.starts is Starts.one_by_one
        return by_one and said.said(self._owners, said.MIN_MEMBER) is not None

    @property
    def may_start_together(self) -> bool:
        """Whether several of its pods, possibly all, may have to start together."""
        return self.kind is not None and (self.kind.row.starts is not Starts.one_by_one or self.is_sized)

    def role(self, pod: objects.Pod) -> str:
        """The role of a pod in its gang; empty for none."""
        labelled = pod.metadata.labels or {}
        names = (self._roles.get(labelled.get(key, "").lower(), "") for key in self.workload.role_labels)
        return next(filter(None, names), "")

    def annotations(self, pod: objects.Pod) -> dict[str, str]:
        """The annotations that put a pod into its group."""
        found = {GROUP_ANNOTATION: self.name(pod)}
        role = self.role(pod)
        if role and not {**(pod.metadata.annotations or {}), **(pod.metadata.labels or {})}.get(ROLE_ANNOTATION):
            found[ROLE_ANNOTATION] = role
        return found

    def manifest(self, pod: objects.Pod) -> Object:
        """The PodGroup of a pod. Raises InvalidObjectError and InvalidQuantityError."""
        meta = pod.metadata
        like: Object = {"kind": "Pod", "metadata": msgspec.to_builtins(meta)}
        if controller(pod) is None:
            like["spec"] = {"activeDeadlineSeconds": pod.spec.active_deadline_seconds}
        gang = self.workload.gang(self.part(pod), meta.annotations) or Gang((), least=1)
        metadata: Object = {
            "name": self.name(pod),
            "namespace": meta.namespace or "default",
            "ownerReferences": self._references(pod),
            "annotations": said.inherited(self._owners, like)
            | (self._names() | self._made_by(like) | self.workload.size(meta.annotations)),
            "labels": {key: labels(like)[key] for key in said.POD_LABELS if key in labels(like)},
        }
        spec = self._numbers(gang)
        if "minResources" not in spec and not self._of_any_pods:
            spec["minResources"] = self._least(gang, spec["minMember"]) or min_resources(pod.spec, spec["minMember"])
        spec |= self._said([*self._owners, like], self.namespace)
        run_time = said.run_time([*self._owners, like], self._where("run_time")) or gang.run_time
        found = {RUN_TIME: run_time, FEWER: self._fewer(gang), SLICES: said.unread_topology([*self._owners, like])}
        metadata["annotations"] |= {key: value for key, value in found.items() if value}
        if self.rules:
            spec["queue"] = self.assigned(pod).queue
        if pod.spec.priority_class_name:
            spec.setdefault("priorityClassName", pod.spec.priority_class_name)
        return {
            "apiVersion": SCHEDULING,
            "kind": "PodGroup",
            "metadata": {key: value for key, value in metadata.items() if value},
            "spec": spec,
            "status": {"phase": PodGroupPhase.Pending},
        }

    @property
    def _of_any_pods(self) -> bool:
        """Whether pods of any templates are in its group: what they ask for does not follow from one of them."""
        return self.label is not None or text(self.owner, "kind") == KIND

    def assigned(self, pod: objects.Pod) -> Assigned:
        """The queue of a pod's group by the rules."""
        like: Object = {"kind": "Pod", "metadata": msgspec.to_builtins(pod.metadata)}
        everyone = [*self._owners, like]
        provided = self._said(everyone, self.namespace).get("queue", "")
        return assigned(self.rules, everyone, made_by([like, *self._upwards]), self.namespace, provided)

    @property
    def _upwards(self) -> list[Object]:
        """The controller of the pods, its controller, and so on."""
        return [*self.below, *([self.owner] if self.owner else ()), *self.above]

    def _made_by(self, like: Object) -> dict[str, str]:
        """Creator of the workload as annotations, for limits of users."""
        user, groups = made_by([like, *self._upwards])
        return {key: value for key, value in ((USER_ANNOTATION, user), (USER_GROUPS_ANNOTATION, groups)) if value}

    @property
    def said(self) -> Object:
        """The queue, priority, topology and run time that the workload and what owns it say.

        Raises InvalidObjectError.
        """
        owners = [*([self.owner] if self.owner else ()), *self.above]
        run_time = said.run_time(owners, self._where("run_time"))
        return self._said(owners) | ({RUN_TIME: run_time} if run_time else {})

    def changes(self, group: PodGroup, before: Object | None = None, size: Mapping[str, str] | None = None) -> Object:
        """The merge patch that makes a PodGroup follow its owners; empty if nothing changes.

        Fields that owners set `before` and no longer set are left to pods and namespace, as in a new group; `size` has
        new annotations about the size of its gang. Raises as `manifest` does.
        """
        now, size, noted = group.spec, size or {}, {**group.metadata.annotations, **(size or {})}
        gang = self.workload.gang(self._part_of(group.metadata.name), noted)
        if gang is None:
            return {}
        if has_ended(self.owner or {}):
            # Nothing waits for pods that do not come.
            return {"spec": {"minMember": 1, "minTaskMember": None}} if now.min_member > 1 else {}
        numbers, said = self._numbers(gang, max(0, vanished.gone(self.owner, noted) - self.workload.done)), self.said
        left = self._left_open(gang) if before and before.keys() - said.keys() else {}
        unsaid = {key: left.get(key) for key in before or ()}
        spec = {"minTaskMember": None, "subGroupPolicy": None, **unsaid, **numbers, **said}
        if "minResources" not in spec and spec["minMember"] != now.min_member:
            least = self._least(gang, spec["minMember"]) or scaled(now.min_resources, spec["minMember"], now.min_member)
            spec |= {"minResources": least} if least is not None else {}
        run_time = spec.pop(RUN_TIME, None) or gang.run_time
        shown = dumped(now)
        changed: Object = {key: value for key, value in spec.items() if value != shown.get(key)}
        if self.rules:
            changed.pop("queue", None)
        # A merge patch keeps keys that are not named.
        for key in ("minResources", "minTaskMember", "networkTopology"):
            if changed.get(key) is not None:
                changed[key] = {**dict.fromkeys(shown.get(key) or ()), **changed[key]}
        ends = {RUN_TIME: run_time} if run_time or RUN_TIME in (before or ()) else {}
        notes = {FEWER: self._fewer(gang) or None, **ends, **size}
        notes = {key: value for key, value in notes.items() if value != group.metadata.annotations.get(key)}
        patch: Object = {"spec": changed, "metadata": notes and {"annotations": notes}}
        return {key: value for key, value in patch.items() if value}

    def beneath(self, other: Family) -> Family:
        """The current workload of pods whose intermediate owners another family of kinds determined."""
        return replace(other, owner=self.owner, kind=self.kind, workload=self.workload, above=self.above)

    @property
    def _owners(self) -> list[Object]:
        """All owners, in the order in which they are asked."""
        return [*([self.owner] if self.owner else ()), *self.above, *self.below, *self.beside]

    def is_over(self, group: PodGroup) -> bool:
        """Whether a PodGroup is of a part that the workload has no longer."""
        return self.workload.is_over(self._part_of(group.metadata.name))

    def _part_of(self, name: str) -> str:
        """The part of the PodGroup with a name."""
        suffix = name.removeprefix(f"podgroup-{self.uid}").removeprefix("-")
        return next((gang.part for gang in self.workload.gangs if _in_name(gang.part) == suffix), suffix)

    def _numbers(self, gang: Gang, gone: int = 0) -> Object:
        """Numbers of pods that start together besides those gone, with their roles, if named, and sub groups."""
        row, asked = self.kind.row if self.kind else None, self._asked(gang)
        spec: Object = {"minMember": max(1, gang.started(gang.min_member if asked is None else asked) - gone)}
        elastic = sum(role.needed for role in gang.roles) < sum(role.count for role in gang.roles)
        named = bool(self.workload.role_labels) and len(gang.roles) > 1
        if gang.by_role or (asked is None and gang.least is None and named and elastic):
            spec["minTaskMember"] = {role.name: role.needed for role in gang.roles}
        if gang.sub_groups:
            spec["subGroupPolicy"] = list(gang.sub_groups)
        resources = at(self.owner, row.min_resources) if row else None
        if isinstance(resources, dict):
            spec["minResources"] = resources
        return spec

    def _asked(self, gang: Gang) -> int | None:
        """Number of pods that start together by an annotation; None without one."""
        return said.min_member(self._owners) if gang.adjustable else None

    def _fewer(self, gang: Gang) -> str:
        """Why fewer pods start together than are asked for; empty where it is as many.

        What is above parts speaks of all of them, so that one which has fewer pods is no mistake.
        """
        asked = self._asked(gang)
        wanted = gang.min_member if asked is None else asked
        in_parts = self.above or (gang.part and gang.part != EACH)
        return "" if in_parts and gang.at_first is None else why_fewer(gang, wanted, self._upwards)

    def _left_open(self, gang: Gang) -> Object:
        """The queue, priority and topology that pods by the templates, and the namespace, say."""
        templates = [role.template for role in gang.roles]
        classes = (text(template, "spec.priorityClassName") for template in templates)
        found = {"priorityClassName": next(filter(None, classes), None)}
        return found | self._said([*self._owners, *templates], self.namespace)

    def _said(self, everyone: Sequence[Object], *namespace: Object) -> Object:
        """The queue, priority and topology that some objects set; a namespace sets queues only."""
        row = self.kind.row if self.kind else None
        spec: Object = {}
        if queue := said.first([*everyone, *namespace], said.QUEUE, self._where("queue")):
            spec["queue"] = queue
        if priority := said.first(everyone, said.PRIORITY_CLASS, self._where("priority_class")):
            spec["priorityClassName"] = priority
        topology = said.network_topology(everyone) or (mapping(self.owner, row.network_topology) if row else {})
        if topology:
            spec["networkTopology"] = topology
        return spec

    def _where(self, field: str) -> Callable[[Object], str]:
        """Where in the spec of an owner something is, by the field of its kind that says so."""

        def path_of(owner: Object) -> str:
            kind = self.kinds.of(owner)
            path: str = getattr(kind.row, field) if kind is not None else ""
            return path

        return path_of

    def _least(self, gang: Gang, pods: int) -> Object:
        """Amounts that a number of pods request by their templates; empty without templates."""
        return of_roles(gang.roles, pods, described(self.owner or {}))

    def _references(self, pod: objects.Pod) -> list[Object]:
        manager = controller(pod)
        if self.label is not None:
            return [self.reference(pod)]
        if self.owner is not None and (manager is None or manager.uid != self.uid):
            keys = {"apiVersion": self.owner.get("apiVersion", ""), "kind": self.owner.get("kind", "")}
            return [{**keys, "name": text(self.owner, "metadata.name"), "uid": self.uid, "controller": True}]
        if manager is not None:
            found: list[Object] = msgspec.to_builtins(pod.metadata.owner_references)
            return [{key: value for key, value in reference.items() if value is not None} for reference in found]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
        return [{**owner, "controller": True, "blockOwnerDeletion": True}]

    @staticmethod
    def reference(pod: objects.Pod) -> Object:
        """The reference to a pod of a group that belongs to all of its pods."""
        return {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}

    def _names(self) -> dict[str, str]:
        """The owner of the workload, so that it is found by the name that users gave it."""
        names = [f"{each.get('kind', '')}/{text(each, 'metadata.name')}" for each in self.above]
        names += [f"{KIND}/{self.label.name}"] if self.label is not None else []
        return {WORKLOAD: ",".join(names)} if names else {}


def _in_name(part: str) -> str:
    return _NOT_IN_NAMES.sub("-", part.lower()).strip("-.")
