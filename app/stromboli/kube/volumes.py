"""Persistent volumes: the filter by bound volumes, and the matching of unbound claims.

An unbound claim whose class waits for its first consumer is matched with the smallest suitable free volume that the
node can access; without one, the class must be able to provision a volume for the node, subject to the capacity that
its driver publishes. Volumes matched for a pod are not available to later pods of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce

import numpy as np

from stromboli.api.decisions import VolumeUse
from stromboli.api.objects import NodeSelector
from stromboli.api.reasons import Passage
from stromboli.api.resources import Mask, Rows
from stromboli.api.words import by_number, counted
from stromboli.framework.cluster.nodes import read_only
from stromboli.framework.plugin.causes import Administrative, Anywhere, Detailed, Filters, Unprovided
from stromboli.kube.csi_migration import migrated_terms, unmigrated
from stromboli.kube.csi_nodes import CsiNodes
from stromboli.kube.node_affinity import selected_nodes
from stromboli.kube.pod_claims import claim_obstacle, claims_of
from stromboli.kube.storage import NO_PROVISIONER, PersistentVolume, PersistentVolumeClaim, Storage, StorageClass
from stromboli.kube.storage_capacity import StorageCapacity
from stromboli.kube.volume_index import Choices, VolumeIndex, fits, reach, reaching
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
_NOTHING_TO_BIND = Administrative("node(s) didn't find available persistent volumes to bind")
_NO_SPACE = Administrative("node(s) did not have enough free storage")
_REFUSED = "node(s) for which no volume was provisioned recently"
_NO_VOLUME = Unprovided("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
_NOT_BOUND = Unprovided("pod has unbound immediate PersistentVolumeClaims")


@dataclass(slots=True)
class Bindings:
    """The match of a pod's unbound claims on each node."""

    claims: list[PersistentVolumeClaim]
    #: by claim, the suitable volumes
    volumes: list[Sequence[PersistentVolume]]
    #: by claim, the index of its volume on each node or -1, shape (nodes,)
    choices: list[Rows]
    #: by storage class, the properties that its free volumes are chosen by
    choosers: dict[str, Choices] = field(default_factory=dict, kw_only=True)
    #: nodes where every claim is matched or can be provisioned, shape (nodes,)
    satisfied: Mask
    #: nodes with enough storage capacity for all claims, shape (nodes,); None for all
    spacious: Mask | None = None
    #: nodes where no claim was refused recently, shape (nodes,); None for all
    welcome: Mask | None = None


@dataclass(slots=True)
class _Given:
    """The match of a claim in this session."""

    claim: PersistentVolumeClaim
    #: None if the volume is to be provisioned
    volume: PersistentVolume | None
    node: int
    #: rows of the placed pods that use it
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
        #: unbound claims, by class of pods
        self._unbound_of: dict[int, list[PersistentVolumeClaim]] = {}
        #: matches of this session, by the claim's key
        self._given: dict[str, _Given] = {}
        #: by class, the free volumes that are not matched, shape (volumes,)
        self._left: dict[str, Mask] = {}
        #: by placed pod, the keys of its unbound claims
        self._waiting: dict[int, list[str]] = {}
        #: the last answer, reused for the node that is chosen next
        self._last: tuple[list[PersistentVolumeClaim], Bindings] | None = None

    def filters(self, pod: PodRecord) -> Filters:
        """Why nodes cannot serve a pod's claims."""
        obstacle = self._obstacle(pod)
        if obstacle is not None:
            yield obstacle, np.zeros(len(self._facts), np.bool_)
            return
        bound = [claim for claim in self._claims(pod) if claim.bound]
        for claim in bound:
            volume = self._storage.volume(claim.spec.volume_name or "")
            if volume is None:
                yield _NO_VOLUME, np.zeros(len(self._facts), np.bool_)
            else:
                nodes = self._reachable(volume)
                yield Detailed(_UNREACHABLE, partial(_where, pod.namespace, claim, volume, nodes)), nodes
        unbound = self._unbound(pod)
        if unbound:
            bindings = self._bindings(unbound)
            if bindings.welcome is not None:
                yield _REFUSED, bindings.welcome
            yield _NOTHING_TO_BIND, bindings.satisfied
            if bindings.spacious is not None:
                yield _NO_SPACE, bindings.spacious

    def waits_for_consumer(self, pod: PodRecord) -> bool:
        """Whether placing the pod matches claims."""
        return bool(pod.pod_class.claims) and bool(self._unbound(pod))

    def assume(self, pod: PodRecord, node: int) -> None:
        """Match a pod's claims on its node."""
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
        """Undo the match of a pod's claims, unless other pods share them."""
        for key in self._waiting.pop(pod.row, ()):
            given = self._given[key]
            given.users.discard(pod.row)
            if not given.users:
                self._mark(self._given.pop(key), left=True)
        self._last = None

    def uses(self, pod: PodRecord, within: float) -> list[VolumeUse]:
        """The claims to bind before a placed pod, with a timeout in seconds."""
        return [self._use(self._given[key], within) for key in self._waiting.get(pod.row, ())]

    def _use(self, given: _Given, within: float) -> VolumeUse:
        metadata, volume = given.claim.metadata, given.volume
        name = volume.metadata.name if volume is not None else ""
        return VolumeUse(metadata.namespace or "default", metadata.name, metadata.uid or "", name, within)

    def _mark(self, given: _Given, *, left: bool) -> None:
        """Record or undo the match of a claim."""
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
        """The unbound claims of a pod, smallest first."""
        waiting = self._unbound_of.get(pod.pod_class.id)
        if waiting is None:
            waiting = [claim for claim in self._claims(pod) if not claim.bound]
            waiting.sort(key=lambda claim: claim.requested)
            self._unbound_of[pod.pod_class.id] = waiting
        return waiting

    def _obstacle(self, pod: PodRecord) -> Anywhere | None:
        """Why no node at all can serve the pod's claims."""
        obstacle = claim_obstacle(pod, self._storage)
        if obstacle is not None:
            return obstacle
        for claim in self._claims(pod):
            if not claim.bound:
                storage_class = self._storage.storage_class(claim.storage_class)
                if storage_class is None and claim.storage_class:
                    return _no_class(claim.storage_class)
                if storage_class is None or not storage_class.delayed or claim.spec.volume_name:
                    return _NOT_BOUND
        return None

    # -- volumes -------------------------------------------------------------------------------------------------

    def _reachable(self, volume: PersistentVolume) -> Mask:
        affinity = volume.spec.node_affinity.required if volume.spec.node_affinity else None
        everywhere = np.ones(len(self._facts), np.bool_)
        found = everywhere if affinity is None else selected_nodes(affinity, self._facts, labels_only=True)
        terms = (affinity.node_selector_terms if affinity else None) or []
        labels = volume.metadata.labels or {}
        if unknown := unmigrated(volume.spec, labels):
            return found & ~self._csi_nodes().migrated(unknown, self._facts)
        migrated = migrated_terms(volume.spec, labels, terms)
        if migrated is None:
            return found
        plugin, terms = migrated
        by_driver = selected_nodes(NodeSelector(terms), self._facts, labels_only=True) if terms else True
        return np.where(self._csi_nodes().migrated(plugin, self._facts), by_driver, found)

    def _bindings(self, claims: list[PersistentVolumeClaim]) -> Bindings:
        """The current match of claims on each node."""
        if self._last is None or self._last[0] != claims:
            self._last = claims, self._bound_now(claims)
        return self._last[1]

    def _bound_now(self, claims: list[PersistentVolumeClaim]) -> Bindings:
        out = Bindings(claims, [], [], np.ones(len(self._facts), np.bool_))
        for claim in claims:
            selected = self._selected(claim)
            volumes, choice = ((), self._nothing) if selected is not None else self._choice(claim, out)
            if selected is not None:
                out.satisfied &= self._only(selected)
            out.satisfied &= (choice >= 0) | self._can_make(claim)
            space = self._space(claim)
            if space is not None:
                space = ~out.satisfied | (choice >= 0) | space
                out.spacious = space if out.spacious is None else out.spacious & space
            for name in claim.refused_on:
                others = ~self._only(name)
                out.welcome = others if out.welcome is None else out.welcome & others
            out.volumes.append(volumes)
            out.choices.append(choice)
        return out

    def _selected(self, claim: PersistentVolumeClaim) -> str | None:
        """The node that a claim's volume is provisioned for; None if there is none yet."""
        given = self._given.get(claim.key)
        if given is not None:
            return self._facts.records[given.node].name if given.volume is None else None
        return claim.selected_node

    def _choice(self, claim: PersistentVolumeClaim, earlier: Bindings) -> tuple[Sequence[PersistentVolume], Rows]:
        """The volumes for a claim, and the best of them on each node that is left by the pod's earlier claims."""
        own = self._own_volume(claim)
        if own is not None:
            choice = self._nothing.copy()
            rows = reaching(own, self._facts)
            choice[slice(None) if rows is None else rows] = 0
            return [own], choice
        free = self._volumes.free(claim.storage_class, self._storage)
        wanted = free.suiting(claim) & self._left_of(claim.storage_class)
        if not wanted.any():
            return free.volumes, self._nothing
        chooser = earlier.choosers.get(claim.storage_class)
        if chooser is None:
            chooser = earlier.choosers[claim.storage_class] = Choices(reach(free, claim.storage_class, self._facts))
        return free.volumes, chooser.take(wanted)

    def _own_volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """The volume that refers to a claim or was matched with it before, the only one that it can get."""
        given = self._given.get(claim.key)
        own = self._volumes.reserved(claim, self._storage)
        if given is not None and given.volume is not None:
            own = [*own, given.volume]
        return next((each for each in own if each.capacity >= claim.requested and fits(claim, each)), None)

    @cached_property
    def _nothing(self) -> Rows:
        """The match where no node can access a volume; it must not be changed."""
        return read_only(np.full(len(self._facts), -1, np.intp))

    def _can_make(self, claim: PersistentVolumeClaim) -> Mask:
        """Nodes that the claim's class can provision a volume for."""
        storage_class = self._storage.storage_class(claim.storage_class)
        if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
            return np.zeros(len(self._facts), np.bool_)
        return _allowed(storage_class, self._facts)

    def _space(self, claim: PersistentVolumeClaim) -> Mask | None:
        """Nodes with enough storage capacity for a claim; None for all, or if the claim has been counted."""
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
    """Volumes with zone or region labels are used in that zone only; nodes without such labels pass.

    As in kube-scheduler, claims of ephemeral volumes are not checked.
    """
    names = pod.pod_class.claims
    for name, claim in zip(names, storage.claims(pod.namespace, names), strict=True):
        if name in pod.pod_class.ephemeral_claims:
            continue
        obstacle, volume = _bound_volume(name, claim, storage)
        if obstacle is not None:
            yield obstacle, np.zeros(len(facts), np.bool_)
        for key in _ZONE_LABELS if volume is not None else ():
            assert volume is not None
            zones = _zones((volume.metadata.labels or {}).get(key))
            if zones:
                allowed = derived(facts, _outside_of_zones) | _in_zone(key, zones, facts)
                yield "node(s) had no available volume zone", allowed


def _where(namespace: str, claim: PersistentVolumeClaim, volume: PersistentVolume, nodes: Mask) -> Passage:
    """The nodes where a volume can be used, and their number."""
    affinity = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    terms = (affinity.node_selector_terms if affinity else None) or []
    named = (
        " and ".join(f"{each.key}: {' or '.join(each.values or ())}" for each in term.match_expressions or ())
        for term in terms
    )
    where = " or ".join(filter(None, named)) or "certain nodes"
    told = f"the volume {volume.metadata.name} of claim {claim.metadata.name} is in {where}"
    keys = {each.key for term in terms for each in term.match_expressions or ()}
    if keys == {"kubernetes.io/hostname"} and not nodes.any():
        return Passage((namespace,), f"{told}, a node that does not exist", "")
    return Passage(
        (namespace,),
        f"{told}, as {nodes.sum()} of {counted(len(nodes), 'node')} {by_number(int(nodes.sum()), 'is', 'are')}",
        "",
    )


def _no_class(name: str) -> Unprovided:
    return Unprovided(f'storageclass "{name}" not found')


def _outside_of_zones(facts: NodeFacts) -> Mask:
    """The nodes without labels of zones and regions."""
    return ~reduce(np.logical_or, [facts.label(key) >= 0 for key in _ZONE_LABELS])


def _bound_volume(
    name: str, claim: PersistentVolumeClaim | None, storage: Storage
) -> tuple[Anywhere | None, PersistentVolume | None]:
    """The volume of a claim or its problem; neither while the claim waits for its first consumer."""
    if claim is None:
        return Anywhere(f'persistentvolumeclaim "{name}" not found'), None
    if claim.spec.volume_name:
        volume = storage.volume(claim.spec.volume_name)
        missing = Unprovided(f'persistentvolume "{claim.spec.volume_name}" not found')
        return (None, volume) if volume else (missing, None)
    if not claim.storage_class:
        return Anywhere("PersistentVolumeClaim had no pv name and storageClass name"), None
    storage_class = storage.storage_class(claim.storage_class)
    if storage_class is None:
        return _no_class(claim.storage_class), None
    return (None, None) if storage_class.delayed else (_NOT_BOUND, None)


def _in_zone(key: str, zones: frozenset[str], facts: NodeFacts) -> Mask:
    """Nodes with a label, or its current name if the old one is missing, that has one of the values."""
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
