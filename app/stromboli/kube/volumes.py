"""Persistent volumes: a pod goes where its bound volumes can be reached, and unbound claims can get one.

A claim whose class waits for its first consumer is matched with the smallest free volume that suits it and that the
node can reach; without one, its class must be able to make a volume for the node, where there is enough storage as far
as its driver publishes that. What a pod of this session would bind is taken for the pods after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

import numpy as np

from stromboli.api.decisions import VolumeUse
from stromboli.api.objects import NodeSelector
from stromboli.api.resources import Mask, Rows
from stromboli.framework.nodes import read_only
from stromboli.framework.plugin import Anywhere, Filters
from stromboli.kube.csi_migration import migrated_terms
from stromboli.kube.csi_nodes import CsiNodes
from stromboli.kube.node_affinity import selected_nodes
from stromboli.kube.pod_claims import claim_obstacle, claims_of
from stromboli.kube.storage import NO_PROVISIONER, PersistentVolume, PersistentVolumeClaim, Storage, StorageClass
from stromboli.kube.storage_capacity import StorageCapacity
from stromboli.kube.volume_index import VolumeIndex, fits, reach, reaching
from stromboli.state.nodes import NodeFacts
from stromboli.state.pods import PodRecord
from stromboli.state.selectors import Requirement, derived

_ZONE_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
_UNREACHABLE = "node(s) didn't match PersistentVolume's node affinity"
_NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
_NO_SPACE = "node(s) did not have enough free storage"
_REFUSED = "node(s) for which no volume was made a moment ago"
_NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


@dataclass(slots=True)
class Bindings:
    """What a pod's unbound claims would get on each node."""

    claims: list[PersistentVolumeClaim]
    #: for each claim the volumes that it may get
    volumes: list[Sequence[PersistentVolume]]
    #: for each claim the index into its volumes or -1, shape (nodes,)
    choices: list[Rows]
    #: nodes where every claim gets a volume or can have one made, shape (nodes,)
    satisfied: Mask
    #: nodes where none is refused for want of storage, shape (nodes,)
    spacious: Mask
    #: nodes for which none was refused a moment ago, shape (nodes,)
    welcome: Mask


@dataclass(slots=True)
class _Given:
    """What a claim gets in this session."""

    claim: PersistentVolumeClaim
    #: None where one is made for the node
    volume: PersistentVolume | None
    node: int
    #: rows of the pods that got a place with it
    users: set[int] = field(default_factory=set)


class VolumeBinding:
    """Bound and unbound claims of pods in one session."""

    def __init__(
        self,
        facts: NodeFacts,
        storage: Storage,
        volumes: VolumeIndex,
        nodes: Callable[[], CsiNodes],
        capacity: StorageCapacity,
    ) -> None:
        self._facts = facts
        self._csi_nodes = nodes
        self._storage = storage
        self._volumes = volumes
        self._capacity = capacity
        #: what is reserved in this session, by the claim's key
        self._given: dict[str, _Given] = {}
        #: of the free volumes of each class those that are not taken, shape (volumes,)
        self._left: dict[str, Mask] = {}
        #: keys of the claims that wait for each pod that got a place
        self._waiting: dict[int, list[str]] = {}
        #: the last answer while nothing was taken or given back: who gets a node was just asked about
        self._last: tuple[list[PersistentVolumeClaim], Bindings] | None = None

    def filters(self, pod: PodRecord) -> Filters:
        """Why nodes cannot serve a pod's claims."""
        obstacle = self._obstacle(pod)
        if obstacle is not None:
            yield Anywhere(obstacle), np.zeros(len(self._facts), np.bool_)
            return
        bound = [claim for claim in self._claims(pod) if claim.bound]
        for claim in bound:
            volume = self._storage.volume(claim.spec.volume_name or "")
            if volume is None:
                yield Anywhere(_NO_VOLUME), np.zeros(len(self._facts), np.bool_)
            else:
                yield _UNREACHABLE, self._reachable(volume)
        unbound = self._unbound(pod)
        if unbound:
            bindings = self._bindings(unbound)
            yield _REFUSED, bindings.welcome
            yield _NOTHING_TO_BIND, bindings.satisfied
            yield _NO_SPACE, bindings.spacious

    def waits_for_consumer(self, pod: PodRecord) -> bool:
        """Whether placing the pod binds claims."""
        return bool(pod.pod_class.claims) and bool(self._unbound(pod))

    def assume(self, pod: PodRecord, node: int) -> None:
        """Take for a pod what its claims would get on a node."""
        unbound = self._unbound(pod)
        if not unbound:
            return
        bindings = self._bindings(unbound)
        for claim, volumes, choice in zip(bindings.claims, bindings.volumes, bindings.choices, strict=True):
            given = self._given.get(claim.key)
            if given is None:
                volume = volumes[choice[node]] if choice[node] >= 0 else None
                given = self._given[claim.key] = _Given(claim, volume, node)
                self._mark(given, left=False)
            given.users.add(pod.row)
        self._waiting[pod.row] = [claim.key for claim in unbound]
        self._last = None

    def forget(self, pod: PodRecord) -> None:
        """Give back what was taken for a pod, unless others share it."""
        for key in self._waiting.pop(pod.row, ()):
            given = self._given[key]
            given.users.discard(pod.row)
            if not given.users:
                self._mark(self._given.pop(key), left=True)
        self._last = None

    def uses(self, pod: PodRecord, within: float) -> list[VolumeUse]:
        """The claims that are to be bound before a pod that got a node, in seconds."""
        return [self._use(self._given[key], within) for key in self._waiting.get(pod.row, ())]

    def _use(self, given: _Given, within: float) -> VolumeUse:
        metadata, volume = given.claim.metadata, given.volume
        name = volume.metadata.name if volume is not None else ""
        return VolumeUse(metadata.namespace or "default", metadata.name, metadata.uid or "", name, within)

    def _mark(self, given: _Given, *, left: bool) -> None:
        """Note what a claim takes, or gives back."""
        volume, claim = given.volume, given.claim
        if volume is None:
            self._capacity.promise(claim.storage_class, given.node, -claim.requested if left else claim.requested)
            return
        at = self._volumes.free(volume.storage_class, self._storage).index.get(volume.metadata.name)
        if at is not None:
            self._left_of(volume.storage_class)[at] = left

    def _left_of(self, storage_class: str) -> Mask:
        if storage_class not in self._left:
            self._left[storage_class] = np.ones(len(self._volumes.free(storage_class, self._storage)), np.bool_)
        return self._left[storage_class]

    # -- claims --------------------------------------------------------------------------------------------------

    def _claims(self, pod: PodRecord) -> list[PersistentVolumeClaim]:
        return claims_of(pod, self._storage)

    def _unbound(self, pod: PodRecord) -> list[PersistentVolumeClaim]:
        """The claims that wait for this pod, the smallest first."""
        waiting = [claim for claim in self._claims(pod) if not claim.bound]
        return sorted(waiting, key=lambda claim: claim.requested) if len(waiting) > 1 else waiting

    def _obstacle(self, pod: PodRecord) -> str | None:
        """Why no node at all can serve the pod's claims."""
        obstacle = claim_obstacle(pod, self._storage)
        if obstacle is not None:
            return obstacle
        for claim in self._claims(pod):
            if not claim.bound:
                storage_class = self._storage.storage_class(claim.storage_class)
                if storage_class is None and claim.storage_class:
                    return f'storageclass "{claim.storage_class}" not found'
                if storage_class is None or not storage_class.delayed or claim.spec.volume_name:
                    return "pod has unbound immediate PersistentVolumeClaims"
        return None

    # -- volumes -------------------------------------------------------------------------------------------------

    def _reachable(self, volume: PersistentVolume) -> Mask:
        affinity = volume.spec.node_affinity.required if volume.spec.node_affinity else None
        found = np.ones(len(self._facts), np.bool_) if affinity is None else selected_nodes(affinity, self._facts)
        terms = (affinity.node_selector_terms if affinity else None) or []
        migrated = migrated_terms(volume.spec, volume.metadata.labels or {}, terms)
        if migrated is None:
            return found
        plugin, terms = migrated
        by_driver = selected_nodes(NodeSelector(terms), self._facts) if terms else True
        return np.where(self._csi_nodes().migrated(plugin, self._facts), by_driver, found)

    def _bindings(self, claims: list[PersistentVolumeClaim]) -> Bindings:
        """What claims would get now on each node."""
        if self._last is None or self._last[0] != claims:
            self._last = claims, self._bound_now(claims)
        return self._last[1]

    def _bound_now(self, claims: list[PersistentVolumeClaim]) -> Bindings:
        out = Bindings(claims, [], [], *(np.ones(len(self._facts), np.bool_) for _ in range(3)))
        for claim in claims:
            selected = self._selected(claim)
            volumes, choice = ((), self._nothing) if selected is not None else self._choice(claim, out)
            if selected is not None:
                out.satisfied &= self._only(selected)
            out.satisfied &= (choice >= 0) | self._can_make(claim)
            space = self._space(claim)
            if space is not None:
                out.spacious &= ~out.satisfied | (choice >= 0) | space
            for name in claim.refused_on:
                out.welcome &= ~self._only(name)
            out.volumes.append(volumes)
            out.choices.append(choice)
        return out

    def _selected(self, claim: PersistentVolumeClaim) -> str | None:
        """The node for which a claim's volume is or will be made; None when it is open whether and where."""
        given = self._given.get(claim.key)
        if given is not None:
            return self._facts.records[given.node].name if given.volume is None else None
        return claim.selected_node

    def _choice(self, claim: PersistentVolumeClaim, earlier: Bindings) -> tuple[Sequence[PersistentVolume], Rows]:
        """The volumes for a claim, and the best of them on each node that earlier claims of the pod leave."""
        own = self._own_volume(claim)
        if own is not None:
            choice = self._nothing.copy()
            rows = reaching(own, self._facts)
            choice[slice(None) if rows is None else rows] = 0
            return [own], choice
        free = self._volumes.free(claim.storage_class, self._storage)
        taken = [c for v, c in zip(earlier.volumes, earlier.choices, strict=True) if v is free.volumes]
        wanted = free.suiting(claim) & self._left_of(claim.storage_class)
        if not wanted.any():
            return free.volumes, self._nothing
        return free.volumes, reach(free, claim.storage_class, self._facts).first(wanted, taken)

    def _own_volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """The volume that is reserved for a claim, or was taken for it before; it gets no other one."""
        given = self._given.get(claim.key)
        own = self._volumes.reserved(claim, self._storage)
        if given is not None and given.volume is not None:
            own = [*own, given.volume]
        return next((each for each in own if each.capacity >= claim.requested and fits(claim, each)), None)

    @cached_property
    def _nothing(self) -> Rows:
        """The choice where no node reaches a volume; it must not be changed."""
        return read_only(np.full(len(self._facts), -1, np.intp))

    def _can_make(self, claim: PersistentVolumeClaim) -> Mask:
        """Nodes for which the claim's class can make a volume."""
        storage_class = self._storage.storage_class(claim.storage_class)
        if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
            return np.zeros(len(self._facts), np.bool_)
        return _allowed(storage_class, self._facts)

    def _space(self, claim: PersistentVolumeClaim) -> Mask | None:
        """Nodes for which there is enough storage for a claim; None for all, or when it has its share already."""
        storage_class = self._storage.storage_class(claim.storage_class)
        if storage_class is None or claim.key in self._given:
            return None
        return self._capacity.sufficient(storage_class.provisioner, storage_class.metadata.name, claim.requested)

    def _only(self, name: str) -> Mask:
        out = np.zeros(len(self._facts), np.bool_)
        if name in self._facts.index:
            out[self._facts.index[name]] = True
        return out


def zone_filters(pod: PodRecord, facts: NodeFacts, storage: Storage) -> Filters:
    """Bound volumes that carry zone or region labels are used in that zone only; nodes without such labels pass.

    As in kube-scheduler this is not asked of ephemeral volumes.
    """
    for name in pod.pod_class.claims:
        if name in pod.pod_class.ephemeral_claims:
            continue
        claim = storage.claim(pod.namespace, name)
        obstacle, volume = _bound_volume(name, claim, storage)
        if obstacle is not None:
            yield Anywhere(obstacle), np.zeros(len(facts), np.bool_)
        for key in _ZONE_LABELS if volume is not None else ():
            assert volume is not None
            zones = _zones((volume.metadata.labels or {}).get(key))
            if zones:
                allowed = derived(facts, _outside_of_zones) | _in_zone(key, zones, facts)
                yield "node(s) had no available volume zone", allowed


def _outside_of_zones(facts: NodeFacts) -> Mask:
    """The nodes without labels of zones and regions."""
    return ~reduce(np.logical_or, [facts.label(key) >= 0 for key in _ZONE_LABELS])


def _bound_volume(
    name: str, claim: PersistentVolumeClaim | None, storage: Storage
) -> tuple[str | None, PersistentVolume | None]:
    """The volume of a claim or what is wrong with it; neither while the claim waits for its first consumer."""
    if claim is None:
        return f'persistentvolumeclaim "{name}" not found', None
    if claim.spec.volume_name:
        volume = storage.volume(claim.spec.volume_name)
        return (None, volume) if volume else (f'persistentvolume "{claim.spec.volume_name}" not found', None)
    if not claim.storage_class:
        return "PersistentVolumeClaim had no pv name and storageClass name", None
    storage_class = storage.storage_class(claim.storage_class)
    if storage_class is None:
        return f'storageclass "{claim.storage_class}" not found', None
    return (None, None) if storage_class.delayed else ("pod has unbound immediate PersistentVolumeClaims", None)


def _in_zone(key: str, zones: frozenset[str], facts: NodeFacts) -> Mask:
    """Nodes whose label, or its current name where the old one is missing, has one of the values."""
    current = Requirement(_ZONE_LABELS[key], "In", zones).mask(facts)
    labelled = facts.label(key) >= 0
    return np.where(labelled, Requirement(key, "In", zones).mask(facts), current)


def _zones(label: str | None) -> frozenset[str]:
    zones = [zone.strip() for zone in label.split("__")] if label else []
    return frozenset(zones) if all(zones) else frozenset()


def _allowed(storage_class: StorageClass, facts: NodeFacts) -> Mask:
    if not storage_class.allowed_topologies:
        return np.ones(len(facts), np.bool_)
    out = np.zeros(len(facts), np.bool_)
    for term in storage_class.allowed_topologies:
        if term.match_label_expressions:
            out |= reduce(
                np.logical_and,
                [Requirement(e.key, "In", frozenset(e.values or ())).mask(facts) for e in term.match_label_expressions],
            )
    return out
