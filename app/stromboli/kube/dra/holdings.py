"""The devices that claims hold, kept from session to session: only changed claims are read again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias, cast

import numpy as np

from stromboli.api import keys
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import PodResourceClaim
from stromboli.api.pod_state import ON_NODE_STATES
from stromboli.api.resources import Mask, Rows
from stromboli.kube.dra.capacity import Amount, amount
from stromboli.kube.dra.inventory import Devices
from stromboli.kube.dra.objects import AllocatedDevice, DeviceObjects
from stromboli.kube.dra.pools import DeviceId, device_id
from stromboli.kube.dra.stock import Balance
from stromboli.state.plain import NO_OBJECTS, PlainObjects
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot

#: a device, and the consumption of its capacities
Share: TypeAlias = tuple[DeviceId, Mapping[str, Amount]]


class Holdings:
    """The claims of one snapshot."""

    def __init__(
        self, plain: PlainObjects, changed: Sequence[str], objects: DeviceObjects, before: Holdings | None
    ) -> None:
        """Claims with keys in `changed` are read; others are taken over from before."""
        self.plain = plain
        #: by key: the devices of each allocated claim
        self._devices: dict[str, tuple[DeviceId, ...]] = before._devices.copy() if before else {}
        self._holders: Counter[DeviceId] = before._holders.copy() if before else Counter()
        #: by key: the shares of devices with multiple allocations, and their consumption
        self._shares: dict[str, tuple[Share, ...]] = before._shares.copy() if before else {}
        #: keys of claims without devices
        self._waiting: dict[str, None] = before._waiting.copy() if before else {}
        #: special claims: key by the pod's uid, and the reverse
        self.special: dict[str, str] = before.special.copy() if before else {}
        self._owners: dict[str, str] = before._owners.copy() if before else {}
        #: devices that were allocated or released since the last query
        self._touched: set[DeviceId] = before._touched.copy() if before else set()
        #: the devices of the last query, and whether each is held
        self._mask: tuple[object, Mask] = before._mask if before else (None, np.zeros(1, np.bool_))
        #: the counters drawn at that time
        self._balance: Balance | None = before._balance if before and not changed else None
        for key in changed:
            self._forget(key)
            if key in plain:
                self._read(key, objects)

    def _forget(self, key: str) -> None:
        for device in self._devices.pop(key, ()):
            self._holders[device] -= 1
            self._touched.add(device)
            if not self._holders[device]:
                del self._holders[device]
        self._shares.pop(key, None)
        self._waiting.pop(key, None)
        self.special.pop(self._owners.pop(key, ""), None)

    def _read(self, key: str, objects: DeviceObjects) -> None:
        claim = objects.claim_of(key)
        if claim is None:
            return
        if claim.is_special:
            self.special[claim.owner], self._owners[key] = key, claim.owner
        if claim.status.allocation is None:
            self._waiting[key] = None
            return
        results = [each for each in claim.status.allocation.devices.results or () if not each.admin_access]
        held = tuple(device_id(each.driver, each.pool, each.device) for each in results if not each.share_id)
        shares = tuple(map(_share, (each for each in results if each.share_id)))
        if shares:
            self._shares[key] = shares
        self._devices[key] = held
        self._holders.update(held)
        self._touched.update(held)

    def of(self, key: str) -> list[tuple[DeviceId, Mapping[str, Amount] | None]]:
        """The devices that a claim alone holds, and the shares of devices with their consumption."""
        whole = [(device, None) for device in self._devices.get(key, ()) if self._holders[device] == 1]
        return [*whole, *self._shares.get(key, ())]

    def held(self, devices: Devices) -> Mask:
        """Whether each device is held, shape (devices + 1,)."""
        version, mask = self._mask
        if version is devices.version and not self._touched:
            return mask
        if version is devices.version:
            mask = mask.copy()
        else:
            known = devices.origin if version is devices.before else np.full(len(devices), -1)
            mask = np.append(mask[known], False)
            new = np.flatnonzero(known < 0)
            mask[new] = [devices.offers[row].id in self._holders for row in new.tolist()]
        for device in self._touched:
            row = devices.row(device)
            if row >= 0:
                mask[row] = device in self._holders
        self._mask, self._touched = (devices.version, mask), set()
        return mask

    def balance(self, devices: Devices) -> Balance:
        """Balance of the counters that held devices and shares draw on; it must not be changed."""
        stock = devices.stock
        if self._balance is None or self._balance.stock is not stock:
            self._balance = Balance(stock)
            if stock:
                for row in np.flatnonzero(self.held(devices) & (stock.pool >= 0)).tolist():
                    self._balance.take(row, None)
                for device, consumed in (share for shares in self._shares.values() for share in shares):
                    row = devices.row(device)
                    if row >= 0 and stock.is_shared(row):
                        self._balance.take(row, consumed)
        return self._balance

    def placed(self, snapshot: Snapshot) -> Rows:
        """The rows of bound pods with claims that have no devices."""
        column = snapshot.pod_facts.column("resource claims", _named)
        users = column.index(_Users).of
        numbers = [number for key in self._waiting for number in users.get(key, ())]
        if not numbers:
            return np.zeros(0, np.intp)
        on_node = np.isin(snapshot.pods.state, ON_NODE_STATES) & (snapshot.pods.node >= 0)
        return np.flatnonzero(on_node & np.isin(column.numbers, numbers))


def _share(result: AllocatedDevice) -> Share:
    consumed = {}
    for name, written in (result.consumed_capacity or {}).items():
        with suppress(InvalidQuantityError):
            consumed[name] = amount(written)
    return device_id(result.driver, result.pool, result.device), consumed


class _Users:
    """Numbers of the values that name a claim, by claim."""

    def __init__(self) -> None:
        self.of: dict[str, list[int]] = {}
        self._count = 0

    def extend(self, values: Sequence[tuple[str, ...]]) -> None:
        """Add values."""
        for number, value in enumerate(values, self._count):
            for key in value:
                self.of.setdefault(key, []).append(number)
        self._count += len(values)


def claim_name(pod: PodRecord, named: PodResourceClaim) -> str | None:
    """The name of a pod's claim; empty if none is needed, None if none has been created."""
    return named.resource_claim_name or pod.claim_names.get(named.name)


def claim_keys(pod: PodRecord) -> tuple[str, ...]:
    """The keys of a pod's claims."""
    named = pod.pod_class.spec.resource_claims or ()
    return tuple(keys.key(pod.namespace, name) for each in named if (name := claim_name(pod, each)))


def _named(pod: PodRecord) -> tuple[str, ...] | None:
    return claim_keys(pod) or None


def holdings_of(snapshot: Snapshot, objects: DeviceObjects) -> Holdings:
    """The holdings of a snapshot's claims."""
    before = cast("Holdings | None", snapshot.derived.get(Holdings))
    plain = snapshot.objects.get("ResourceClaim", NO_OBJECTS)
    changed = plain.changed_since(before.plain if before is not None else NO_OBJECTS)
    if before is not None and not changed:
        return before
    found = snapshot.derived[Holdings] = Holdings(plain, changed, objects, before)
    return found
