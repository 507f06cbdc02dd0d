"""The pods that hold devices which could satisfy the claims of another pod."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from stromboli.api.keys import key as key_of
from stromboli.kube.dra.allocator import Demand
from stromboli.kube.dra.inventory import devices_of
from stromboli.kube.dra.objects import ClaimError
from stromboli.kube.dra.pod_claims import ClaimsOfPods
from stromboli.kube.dra.pools import DeviceId, device_id
from stromboli.kube.dra.requests import SelectorError, claim_requests
from stromboli.kube.dra.selection import NO
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot


def users_of(snapshot: Snapshot, pod: PodRecord) -> Mapping[str, Counter[str]]:
    """Number of devices of each pod, by its key and device class, that match what a pod's claims ask for.

    Empty where the claims cannot be read.
    """
    claims = ClaimsOfPods(snapshot.objects)
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    try:
        waiting = [claim for claim in claims.of(pod) if claim.status.allocation is None]
        matching = _matching(Demand(claim_requests(waiting, claims.objects), devices_of(snapshot)))
    except (ClaimError, SelectorError):
        return found
    for key in claims.plain if matching else ():
        claim = claims.objects.claim_of(key)
        if claim is None or claim.status.allocation is None:
            continue
        results = [each for each in claim.status.allocation.devices.results or () if not each.admin_access]
        held = Counter(matching.get(device_id(each.driver, each.pool, each.device), "") for each in results)
        del held[""]
        users = [each.name for each in claim.status.reserved_for or () if each.resource == "pods"]
        for name in users if held else ():
            found[key_of(claim.metadata.namespace or "default", name)].update(held)
    return found


def _matching(demand: Demand) -> dict[DeviceId, str]:
    """The device class under which each device is asked for that matches a request."""
    return {
        demand.devices.offers[row].id: choice.device_class
        for request in demand.claim_requests
        for choice in request.choices
        for row in np.flatnonzero(demand.codes(choice) != NO).tolist()
    }
