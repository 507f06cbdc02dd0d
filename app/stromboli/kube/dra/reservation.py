"""Claims as plain data, when they are reserved for a pod and when the reservation is removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from stromboli.api.decisions import ClaimUse
from stromboli.api.errors import StromboliError
from stromboli.kube.dra.objects import SPECIAL

Plain: TypeAlias = Mapping[str, Any]

#: keeps a claim from being deleted while it is allocated
FINALIZER = "resource.kubernetes.io/delete-protection"
#: the API's limit on consumers of a claim
MOST_PODS = 256


class StaleClaimError(StromboliError):
    """A claim has changed since a session decided that a pod uses it."""


def reserved(claim: Plain, use: ClaimUse, pod: str, uid: str) -> dict[str, Any]:
    """The claim with its allocation, and reserved for another pod."""
    status = claim.get("status") or {}
    consumers = list(status.get("reservedFor") or ())
    if not is_reserved(claim, uid):
        consumers.append({"resource": "pods", "name": pod, "uid": uid})
    return {**claim, "status": {"allocation": use.allocation, **_known(status), "reservedFor": consumers}}


def released(claim: Plain, uid: str) -> dict[str, Any]:
    """The claim without one of its pods; without the last one it is deallocated."""
    status = dict(claim.get("status") or {})
    consumers = [each for each in status.pop("reservedFor", None) or () if each.get("uid") != uid]
    if consumers:
        status["reservedFor"] = consumers
    elif is_reserved(claim, uid):
        status.pop("allocation", None)
        status.pop("devices", None)
    return {**claim, "status": status}


def is_reserved(claim: Plain, uid: str) -> bool:
    """Whether a claim is reserved for a pod."""
    return any(each.get("uid") == uid for each in (claim.get("status") or {}).get("reservedFor") or ())


def is_special(claim: Plain) -> bool:
    """Whether a claim is a special claim, for extended resources."""
    return ((claim.get("metadata") or {}).get("annotations") or {}).get(SPECIAL) == "true"


def is_special_of(claim: Plain, uid: str) -> bool:
    """Whether a claim is the special claim of a certain pod."""
    owners = (claim.get("metadata") or {}).get("ownerReferences") or ()
    return is_special(claim) and any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def deallocated(claim: Plain) -> dict[str, Any]:
    """The claim without allocation."""
    status = claim.get("status") or {}
    return {**claim, "status": {name: status[name] for name in status if name not in ("allocation", "devices")}}


def is_allocated(claim: Plain) -> bool:
    """Whether a claim is allocated."""
    return (claim.get("status") or {}).get("allocation") is not None


def finalizers(claim: Plain, *, protected: bool) -> list[str] | None:
    """The finalizers with or without that of allocated claims; None if they need no change."""
    found = (claim.get("metadata") or {}).get("finalizers")
    known: Sequence[str] = found if isinstance(found, list) else ()
    if (FINALIZER in known) == protected:
        return None
    return [*known, FINALIZER] if protected else [each for each in known if each != FINALIZER]


def check(claim: Plain, use: ClaimUse, uid: str, *, ours: bool) -> None:
    """Check that a pod can use a claim as decided; `ours` says whether we allocated its devices.

    Raises StaleClaimError.
    """
    metadata, status = claim.get("metadata") or {}, claim.get("status") or {}
    if use.manifest is not None and not is_special_of(claim, uid):
        raise StaleClaimError(f"resourceclaim {use.key} has another owner in the meantime")
    if metadata.get("uid") != (use.uid or metadata.get("uid")) or metadata.get("deletionTimestamp"):
        raise StaleClaimError(f"resourceclaim {use.key} is being deleted")
    if is_allocated(claim):
        if devices(status["allocation"]) != devices(use.allocation):
            raise StaleClaimError(f"resourceclaim {use.key} was allocated other devices in the meantime")
    elif not ours:
        raise StaleClaimError(f"resourceclaim {use.key} was deallocated in the meantime")
    if len(status.get("reservedFor") or ()) >= MOST_PODS and not is_reserved(claim, uid):
        raise StaleClaimError(f"resourceclaim {use.key} has the maximum number of consumers")


def devices(allocation: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The devices of an allocation, and their requests."""
    results = (allocation.get("devices") or {}).get("results") or ()
    return [tuple(each.get(name) or "" for name in ("request", "driver", "pool", "device")) for each in results]


def _known(status: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in status.items() if value is not None}
