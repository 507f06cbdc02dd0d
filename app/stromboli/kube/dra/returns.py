"""The devices that become free in a session: those of claims whose last pods terminate.

A claim is deallocated when the last pod is gone for which it is reserved, or deleted with the pod for which it was
created. A device that several nodes reach becomes free on the node of that pod alone: other nodes, where no pod
terminates, would seem to have it at once. What such devices share in counters or capacities is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from stromboli.api.resources import Mask
from stromboli.kube.dra.capacity import Amount
from stromboli.kube.dra.holdings import Holdings
from stromboli.kube.dra.inventory import Devices, Inventory
from stromboli.kube.dra.objects import ResourceClaim
from stromboli.kube.dra.pod_claims import ClaimsOfPods
from stromboli.state.pods import PodRecord

#: a device, by row, and what of its capacities is consumed; None for all of it
Held: TypeAlias = tuple[int, Mapping[str, Amount] | None]


class Returns:
    """The claims of pods that leave."""

    def __init__(self, claims: ClaimsOfPods, holdings: Holdings, devices: Devices, inventory: Inventory) -> None:
        self._claims = claims
        self._holdings = holdings
        self._devices = devices
        self._inventory = inventory
        self._before: Mask = holdings.held(devices)
        #: by key of the claim: uids of pods that leave
        self._leaving: defaultdict[str, set[str]] = defaultdict(set)
        #: by key of the claim: the devices that it gave back
        self._given: dict[str, list[Held]] = {}
        #: the node on which a device that others reach, too, becomes free, by its row; and those that are, by node
        self._node: dict[int, int] = {}
        self.free_on: defaultdict[int, set[int]] = defaultdict(set)

    def leave(self, pod: PodRecord, node: int) -> list[Held]:
        """Free and return the devices that a pod on a node gives back."""
        freed = []
        for claim in self._of(pod):
            self._leaving[claim.key].add(pod.uid)
            if {consumer.uid for consumer in claim.status.reserved_for or ()} <= self._leaving[claim.key]:
                self._given[claim.key] = list(self._held(claim))
                freed += self._given[claim.key]
        self._node |= {device: node for device, _ in freed if self._inventory.is_shared(device)}
        return freed

    def stay(self, pod: PodRecord) -> list[Held]:
        """Hold again, and return, the devices that a pod had given back, since it stays after all."""
        taken = []
        for claim in self._of(pod):
            self._leaving[claim.key].discard(pod.uid)
            taken += self._given.pop(claim.key, [])
        for device, _ in taken:
            self.is_near(device, in_use=True)
            self._node.pop(device, None)
        return taken

    def holds(self, device: int) -> bool:
        """Whether a claim that gave nothing back holds a whole device."""
        return bool(self._before[device]) and all(device != of for given in self._given.values() for of, _ in given)

    def is_near(self, device: int, *, in_use: bool) -> bool:
        """Whether a device became free on one node alone, where it counts as in use or as free from now on."""
        node = self._node.get(device)
        if node is not None:
            (self.free_on[node].discard if in_use else self.free_on[node].add)(device)
        return node is not None

    def in_use_on(self, node: int, in_use: Mask) -> Mask:
        """Mask of devices in use that pods on a node cannot have, shape (devices + 1,)."""
        free = self.free_on.get(node)
        if not free:
            return in_use
        of_node = in_use.copy()
        of_node[list(free)] = False
        return of_node

    def _of(self, pod: PodRecord) -> Sequence[ResourceClaim]:
        """The claims of a pod that are allocated, the one for its extended resources as well."""
        special = self._claims.objects.claim_of(self._holdings.special.get(pod.uid, ""))
        found = [*self._claims.existing(pod), *([] if special is None else [special])]
        return [claim for claim in found if claim.status.allocation is not None]

    def _held(self, claim: ResourceClaim) -> Iterator[Held]:
        """The devices that no claim on another node holds a part of."""
        for device, consumed in self._holdings.of(claim.key):
            row = self._devices.row(device)
            if row >= 0 and self._is_local(row) and (consumed is None or not self._inventory.is_shared(row)):
                yield row, consumed

    def _is_local(self, row: int) -> bool:
        """Whether the counters that a device draws on belong to its node."""
        stock = self._devices.stock
        return not stock or stock.pool[row] < 0 or stock.is_local(row)
