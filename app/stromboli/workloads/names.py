"""PodGroups by the names that users know: those of their workloads."""

from __future__ import annotations

from dataclasses import dataclass

from stromboli.api.crds import PodGroup, group_uid
from stromboli.api.keys import NATIVE_GROUP, outer_name
from stromboli.workloads.labelled import KIND
from stromboli.workloads.said import MIN_MEMBER, QUEUE, TIER_NAMES, TOPOLOGY_MODE, TOPOLOGY_TIER
from stromboli.workloads.table import Kind, known_kinds

#: where the size of a gang stands that is of no use without all its pods
_SIZES = {"LeaderWorkerSet": "spec.leaderWorkerTemplate.size"}
#: those that start with the least number of their replicas where they autoscale
_SCALING = ("RayCluster", "RayJob", "RayService")


def workload_of(group: PodGroup) -> str:
    """The workload of a PodGroup in words, `RayJob/train`; empty if it has only a pod."""
    found = [f"{kind}/{name}" for kind, name in group.owners if kind != "Pod"]
    return found[-1] if found else ""


def is_by_hand(group: PodGroup) -> bool:
    """Whether users set how many pods of a group start together, in it or in a PodGroup of the coscheduling plugin."""
    owners = group.metadata.owner_references
    made = bool(owners) and group.metadata.name.startswith("podgroup-")
    return not made or any(owner.get("kind") == KIND for owner in owners)


def in_queue(group: PodGroup, queue: str) -> str:
    """Advice for moving a PodGroup to another queue; a change of the PodGroup would be undone by its owner."""
    owner = _owner(group)
    written = next((key for key in QUEUE if group.metadata.annotations.get(key) == group.spec.queue), "")
    if owner is not None and written:
        # What owns it hands on its annotations, and was told so.
        return f"set the annotation {written}: {queue} on {owner.name}"
    if owner is not None and owner.field("queue"):
        return f"set {owner.field('queue')}: {queue} in {owner.name}"
    if owner is not None:
        return f"set the annotation {QUEUE[0]}: {queue} on {owner.name}"
    of_pod = next((str(each.get("name")) for each in group.metadata.owner_references if each.get("kind") == "Pod"), "")
    if of_pod and _is_made_for(group):
        return f"set the annotation {QUEUE[0]}: {queue} on Pod {group.metadata.namespace}/{of_pod}"
    return f"set queue: {queue} in PodGroup {group.key}"


def follows_rules(group: PodGroup) -> bool:
    """Whether a PodGroup is in the queue that rules of the policy say where there are any."""
    return outer_name(group.metadata.name) is not None or _is_made_for(group)


def said_by(group: PodGroup) -> str:
    """Where users change a PodGroup: in its owner, which would undo a change of the PodGroup itself."""
    owner = _owner(group)
    return owner.name if owner is not None else f"PodGroup {group.key}"


def smaller_gang(group: PodGroup, number: int) -> str:
    """Advice for starting fewer pods of a PodGroup together; its owner would undo a change of it."""
    owner = _owner(group)
    if owner is None:
        return f"set minMember: {number} in PodGroup {group.key}{_to_match(group, 'minTaskMember', 'minResources')}"
    if owner.native:
        return f"set schedulingPolicy.gang.minCount: {number} in {owner.name}"
    if owner.field("min_member"):
        least = _to_match(group, owner.field("min_resources"))
        return f"set {owner.field('min_member')}: {number} in {owner.name}{least}"
    if owner.field("kind") in _SIZES:
        return f"set {_SIZES[owner.field('kind')]}: {number} in {owner.name}, if that many are enough"
    if _is_made_for(group):
        return f"set the annotation {MIN_MEMBER[0]}: {number} on {owner.name}"
    which = "the replicas, or minReplicas where it autoscales," if owner.field("kind") in _SCALING else "the replicas"
    return f"lower {which} of {owner.name} so that {number} of its pods start together"


def _to_match(group: PodGroup, *fields: str) -> str:
    """Further fields to change, by path: those that users set to contradicting values."""
    there = {"minTaskMember": group.spec.min_task_member, "minResources": group.spec.min_resources}
    names = [name for name in (field.rpartition(".")[2] for field in fields) if there.get(name)]
    return f", and {' and '.join(names)} to match" if names else ""


def further_apart(group: PodGroup, tier: str | int | None = None) -> str:
    """Advice for letting pods of a PodGroup be spread over a tier, or anywhere."""
    owner = _owner(group)
    if owner is not None and owner.native:
        changed = f"set the key of schedulingConstraints.topology to {tier} in" if tier is not None else ""
        return f"{changed or 'leave schedulingConstraints.topology out of'} {owner.name}"
    if owner is not None and _is_made_for(group):
        key = TOPOLOGY_TIER if isinstance(tier, int) else next(iter(TIER_NAMES))
        return (
            f"set the annotation {f'{key}: {tier}' if tier is not None else f'{TOPOLOGY_MODE}: soft'} on {owner.name}"
        )
    field = "highestTierAllowed" if isinstance(tier, int) else "highestTierName"
    changed = f"{field}: {tier}" if tier is not None else "networkTopology mode: soft"
    return f"set {changed} in PodGroup {group.key}"


@dataclass(frozen=True, slots=True)
class _Owner:
    """The object that a PodGroup is derived from."""

    name: str
    kind: Kind | None
    #: whether it is a PodGroup of Kubernetes itself
    native: bool = False

    def field(self, field: str) -> str:
        """Where in its spec something is, by the field of its kind that says so; empty for nowhere."""
        return str(getattr(self.kind.row, field)) if self.kind is not None else ""


def _is_made_for(group: PodGroup) -> bool:
    """Whether a group was made for what owns it, in a cluster or by what files say."""
    uids = (str(owner.get("uid", "")) for owner in group.metadata.owner_references)
    return bool(group_uid(group.metadata.name)) or any(
        uid and f"{group.metadata.name}-".startswith(f"podgroup-{uid}-") for uid in uids
    )


def _owner(group: PodGroup) -> _Owner | None:
    """The object that would undo a change of a PodGroup; None if it has no such owner."""
    namespace, native = group.metadata.namespace, outer_name(group.metadata.name)
    if native is not None:
        return _Owner(f"PodGroup {namespace}/{native} of {NATIVE_GROUP}", None, native=True)
    for owner in group.metadata.owner_references:
        version, kind, name = (str(owner.get(key, "")) for key in ("apiVersion", "kind", "name"))
        known = known_kinds().get(version, kind)
        if kind != "Pod" and (known or _is_made_for(group)):
            return _Owner(f"{kind} {namespace}/{name}", known)
    return None
