"""Resource claims, slices and device classes, decoded from plain objects on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import field

from stromboli.api import readers
from stromboli.api.errors import StromboliError
from stromboli.api.objects import Metadata, NodeSelector, Record, ResourceList, Taint, Toleration
from stromboli.api.validation import did_you_mean
from stromboli.state.plain import NO_OBJECTS, PlainObjects

#: the annotation of claims for the extended resources of pods
SPECIAL = "resource.kubernetes.io/extended-resource-claim"


class ClaimError(StromboliError):
    """Why a claim cannot be satisfied anywhere."""


class NoDeviceClassError(ClaimError):
    """A claim of a device class that does not exist."""


# -- claims ----------------------------------------------------------------------------------------------------------


class CelSelector(Record, frozen=True):
    expression: str = ""


class DeviceSelector(Record, frozen=True):
    cel: CelSelector | None = None


class CapacityRequirements(Record, frozen=True):
    requests: ResourceList | None = None


class DeviceToleration(Toleration, frozen=True, omit_defaults=True):
    toleration_seconds: readers.Integer | None = None


class DeviceRequest(Record, frozen=True):
    """A device request; subrequests of `firstAvailable` have a name."""

    device_class_name: str = ""
    name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str | None = None
    count: readers.Integer | None = None
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None

    @property
    def all_devices(self) -> bool:
        """Whether it asks for all matching devices."""
        return self.allocation_mode == "All"

    @property
    def exact_count(self) -> int:
        """The number of devices it asks for otherwise."""
        return self.count or 1


class Request(DeviceRequest, frozen=True):
    """A request of a claim. In v1beta1 the fields of `exactly` are in the request itself."""

    exactly: DeviceRequest | None = None
    first_available: list[DeviceRequest] | None = None

    @property
    def asked(self) -> DeviceRequest | None:
        """The fields of `exactly`; None for a request with alternatives."""
        return self.exactly or (self if self.device_class_name else None)


class Constraint(Record, frozen=True):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Record, frozen=True):
    requests: list[Request] | None = None
    constraints: list[Constraint] | None = None
    #: parameters for drivers, which the scheduler passes on unread
    config: list[dict[str, Any]] | None = None


class ClaimSpec(Record, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Record, frozen=True):
    driver: str
    pool: str
    device: str
    request: str = ""
    admin_access: bool | None = None
    #: set if the claim holds a share of a device with multiple allocations
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: ResourceList | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None


class AllocatedDevices(Record, frozen=True):
    results: list[AllocatedDevice] | None = None


class Allocation(Record, frozen=True):
    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class DeviceCondition(Record, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""


class DeviceStatus(Record, frozen=True):
    """A driver's conditions of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: list[DeviceCondition] | None = None


class Consumer(Record, frozen=True):
    resource: str = ""
    name: str = ""
    uid: str = ""


class ClaimStatus(Record, frozen=True):
    allocation: Allocation | None = None
    reserved_for: list[Consumer] | None = None
    devices: list[DeviceStatus] | None = None


class ResourceClaim(Record, frozen=True):
    metadata: Metadata
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def key(self) -> str:
        """`NAMESPACE/NAME`."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    def made_for(self, pod_uid: str) -> bool:
        """Whether it was created from a template for a pod."""
        return pod_uid == self.owner

    @property
    def owner(self) -> str:
        """The uid of its controller, such as the pod that it was created for; empty for none."""
        owners = self.metadata.owner_references or ()
        return next((owner.uid for owner in owners if owner.controller), "")

    @property
    def is_special(self) -> bool:
        """Whether it is a special claim, for the extended resources of the pod that owns it."""
        return (self.metadata.annotations or {}).get(SPECIAL) == "true"


class DeviceClassSpec(Record, frozen=True):
    selectors: list[DeviceSelector] | None = None
    config: list[dict[str, Any]] | None = None
    #: extended resource that pods may request instead of a claim
    extended_resource_name: str | None = None


class DeviceClass(Record, frozen=True):
    metadata: Metadata
    spec: DeviceClassSpec = DeviceClassSpec()


# -- slices ----------------------------------------------------------------------------------------------------------


class Attribute(Record, frozen=True):
    """A value of one of four types."""

    string: str | None = None
    integer: readers.Integer | None = field(default=None, name="int")
    boolean: bool | None = field(default=None, name="bool")
    version: str | None = None


class CapacityRange(Record, frozen=True):
    min: str | readers.Integer | float | None = None
    max: str | readers.Integer | float | None = None
    step: str | readers.Integer | float | None = None


class RequestPolicy(Record, frozen=True):
    """The valid requests of a capacity."""

    default: str | readers.Integer | float | None = None
    valid_values: list[str | readers.Integer | float] | None = None
    valid_range: CapacityRange | None = None


class Capacity(Record, frozen=True):
    value: str | readers.Integer | float = 0
    request_policy: RequestPolicy | None = None


class Counter(Record, frozen=True):
    value: str | readers.Integer | float = 0


class CounterSet(Record, frozen=True):
    """Counters that devices of a pool share."""

    name: str
    counters: dict[str, Counter] | None = None


class CounterConsumption(Record, frozen=True):
    counter_set: str
    counters: dict[str, Counter] | None = None


class DeviceBody(Record, frozen=True):
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Capacity] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[Taint] | None = None
    consumes_counters: list[CounterConsumption] | None = None
    allow_multiple_allocations: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    binds_to_node: bool | None = None


class Device(DeviceBody, frozen=True, kw_only=True):
    """A device of a slice. In v1beta1 the fields are one level deeper."""

    name: str
    basic: DeviceBody | None = None

    @property
    def body(self) -> DeviceBody:
        """The fields of the device."""
        return self.basic or self


class Pool(Record, frozen=True):
    name: str
    generation: readers.Integer = 0
    resource_slice_count: readers.Integer = 1


class SliceSpec(Record, frozen=True):
    driver: str
    pool: Pool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] | None = None
    devices: list[Device] | None = None


class ResourceSlice(Record, frozen=True):
    metadata: Metadata
    spec: SliceSpec


class TaintedDevices(Record, frozen=True):
    """Selector of devices that a rule applies to; absent fields match everything."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class TaintRuleSpec(Record, frozen=True):
    taint: Taint
    device_selector: TaintedDevices | None = None


class DeviceTaintRule(Record, frozen=True):
    metadata: Metadata
    spec: TaintRuleSpec


R = TypeVar("R", bound=Record)

#: the most device classes whose names are compared with that of a missing one
_MOST_COMPARED = 100
#: number of decoded objects that are kept; others are decoded on each use
_MOST_READ = 10_000


class DeviceObjects:
    """The objects of one session, without those that cannot be decoded."""

    def __init__(self, plain: Mapping[str, PlainObjects]) -> None:
        self._plain = plain
        self._read: dict[tuple[str, str], Record | None] = {}

    def claim_of(self, key: str) -> ResourceClaim | None:
        """A claim by key, None if it does not exist."""
        return self._get(ResourceClaim, key)

    def device_class(self, name: str) -> DeviceClass | None:
        """A device class, None if it does not exist."""
        return self._get(DeviceClass, name)

    def near_class(self, name: str) -> str:
        """The device class that was probably meant by an unknown name, in words; empty if there is no guess."""
        there = self._plain.get(DeviceClass.__name__, NO_OBJECTS)
        return did_you_mean(name, there) if len(there) <= _MOST_COMPARED else ""

    def _get(self, kind: type[R], key: str) -> R | None:
        name = kind.__name__
        if (name, key) not in self._read:
            if len(self._read) >= _MOST_READ:
                self._read.clear()
            self._read[name, key] = _converted(self._plain.get(name, NO_OBJECTS), key, kind)
        found = self._read[name, key]
        assert found is None or isinstance(found, kind)
        return found


def _converted(plain: PlainObjects, key: str, kind: type[R]) -> R | None:
    try:
        return plain.read(key, kind) if key in plain else None
    except msgspec.ValidationError:
        return None
