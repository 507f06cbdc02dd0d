"""Binding conditions: what a pod waits for after its devices were allocated."""

from __future__ import annotations

from collections.abc import Iterator

from stromboli.api.readers import seconds
from stromboli.kube.dra.objects import AllocatedDevice, DeviceCondition, ResourceClaim

#: timeout in seconds, kube-scheduler's default
TIMEOUT = 600.0


def failure(claim: ResourceClaim) -> str | None:
    """Why a device of a claim will not become ready, None without a condition about it."""
    for device in _awaited(claim):
        for condition in _conditions(claim, device):
            if condition.status == "True" and condition.type in (device.binding_failure_conditions or ()):
                said = ", ".join(filter(None, (condition.reason, condition.message)))
                return f"device {device.pool}/{device.device} failed to become ready: {condition.type}" + (
                    f" ({said})" if said else ""
                )
    return None


def is_ready(claim: ResourceClaim) -> bool:
    """Whether all binding conditions of all devices are true."""
    for device in _awaited(claim):
        held = {condition.type for condition in _conditions(claim, device) if condition.status == "True"}
        if not held.issuperset(device.binding_conditions or ()):
            return False
    return True


def expires(claim: ResourceClaim) -> float | None:
    """Time when the binding conditions of an unready claim time out, in seconds since the epoch; None if unknown."""
    allocation = claim.status.allocation
    since = seconds(allocation.allocation_timestamp or "") if allocation is not None else None
    return None if since is None else since + TIMEOUT


def unusable(claim: ResourceClaim, now: float) -> str | None:
    """Why an allocated claim cannot be used as it is, None if it can."""
    failed = failure(claim)
    if failed is not None or is_ready(claim):
        return failed
    deadline = expires(claim)
    return None if deadline is None or now < deadline else "its devices did not become ready in time"


def waits(claim: ResourceClaim) -> bool:
    """Whether any device of a claim has binding conditions, true or not."""
    return next(_awaited(claim), None) is not None


def _awaited(claim: ResourceClaim) -> Iterator[AllocatedDevice]:
    allocation = claim.status.allocation
    for device in (allocation.devices.results if allocation is not None else None) or ():
        if device.binding_conditions:
            yield device


def _conditions(claim: ResourceClaim, device: AllocatedDevice) -> Iterator[DeviceCondition]:
    for status in claim.status.devices or ():
        if (status.driver, status.pool, status.device) == (device.driver, device.pool, device.device):
            yield from status.conditions or ()
            return
