"""The requests of resource claims, as the search for devices reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import Taint
from stromboli.api.resources import Mask
from stromboli.kube.dra.capacity import Amount, Capacities, amount
from stromboli.kube.dra.cel import CelError, compiled
from stromboli.kube.dra.cel.values import shown
from stromboli.kube.dra.inventory import Devices
from stromboli.kube.dra.objects import (
    ClaimError,
    Constraint,
    DeviceObjects,
    DeviceRequest,
    DeviceSelector,
    DeviceToleration,
    NoDeviceClassError,
    Request,
    ResourceClaim,
)
from stromboli.kube.dra.selection import NO, PROBLEMS, YES, Codes, Selected, select
from stromboli.kube.taints import first_untolerated

#: the API's limit on devices of a claim
MOST_DEVICES = 32


class SelectorError(Exception):
    """A selector without a value for a device."""

    def __init__(self, claim: int, problem: str) -> None:
        super().__init__(problem)
        #: index of the claim among those searched together
        self.claim = claim


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to satisfy a request."""

    #: REQUEST, or REQUEST/NAME for an alternative
    name: str
    #: index of the claim among those searched together
    claim: int
    #: expressions that must be true for each device
    selectors: tuple[str, ...]
    #: where each expression is defined, for messages
    where: tuple[str, ...]
    #: number of devices; None for all matching ones
    count: int | None
    #: admin access: devices may be in use, and are not held
    admin: bool
    device_class: str
    tolerations: Sequence[DeviceToleration]
    #: requested amount of each capacity
    capacity: dict[str, Amount]

    @property
    def own_selectors(self) -> list[str]:
        """The expressions of the request itself, besides those of its class."""
        own = f"request {self.name}"
        return [each for each, where in zip(self.selectors, self.where, strict=True) if where == own]

    def selected(self, devices: Devices) -> Selected:
        """The result of the selectors."""
        return select(self.selectors, devices)

    def codes(self, devices: Devices) -> Codes:
        """The matching devices, as in `Selected.codes`; for all matching devices, tainted ones are included."""
        codes = self.selected(devices).codes.copy()
        if self.count is not None:
            np.copyto(codes, NO, where=self.repelled(devices))
        if self.capacity or devices.stock:
            lacking = devices.where("capacities", lambda offer: (offer.capacities, offer.multiple), self._lacks)
            np.copyto(codes, NO, where=lacking & (codes == YES))
        return codes

    def repelled(self, devices: Devices) -> Mask:
        """The devices with taints that it does not tolerate, shape (devices + 1,)."""
        return devices.where("taints", lambda offer: offer.taints, self._repelled)

    def problem(self, code: int, devices: Devices) -> SelectorError:
        """The error of a code."""
        position, why = self.selected(devices).problems[code - PROBLEMS]
        selector = f"{self.where[position]}: the selector {shown(self.selectors[position])}"
        return SelectorError(self.claim, f"{selector} has no answer: {why}")

    def _lacks(self, known: tuple[Capacities, bool]) -> bool:
        """Whether devices with some capacities have too little, or no consumable capacity."""
        capacities, multiple = known
        return bool(self.capacity or multiple) and capacities.consumed(self.capacity) is None

    def _repelled(self, taints: tuple[Taint, ...]) -> bool:
        return first_untolerated(self.tolerations, taints) is not None


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A request of a claim."""

    claim: str
    request: str
    #: tried in order
    choices: list[Choice]
    #: constraints between the devices of the claim
    constraints: list[Constraint]


def claim_requests(claims: Sequence[ResourceClaim], objects: DeviceObjects) -> list[ClaimRequest]:
    """The requests of claims. Raises ClaimError if they are invalid or unsupported."""
    return [
        ClaimRequest(
            claim.key, request.name, _choices(i, claim, request, objects), claim.spec.devices.constraints or []
        )
        for i, claim in enumerate(claims)
        for request in claim.spec.devices.requests or ()
    ]


def wanted_by(claims: Sequence[ResourceClaim]) -> bytes:
    """The properties shared by claims with equal requests."""
    wanted = (claim.spec.devices for claim in claims)
    return msgspec.msgpack.encode([(devices.requests, devices.constraints) for devices in wanted])


def _choices(number: int, claim: ResourceClaim, request: Request, objects: DeviceObjects) -> list[Choice]:
    try:
        if request.asked is not None:
            return [_choice(number, request.name, request.asked, objects)]
        if request.first_available:
            return [_choice(number, f"{request.name}/{sub.name}", sub, objects) for sub in request.first_available]
        raise ClaimError(f"request {request.name} is of an unsupported kind")
    except ClaimError as error:
        raise type(error)(f'resourceclaim "{claim.metadata.name}", {error}') from None


def class_choice(name: str, objects: DeviceObjects) -> Choice:
    """One device of a class. Raises ClaimError."""
    return _choice(0, name, DeviceRequest(device_class_name=name), objects)


def _choice(claim: int, name: str, request: DeviceRequest, objects: DeviceObjects) -> Choice:
    device_class = objects.device_class(request.device_class_name)
    if device_class is None:
        missing, near = request.device_class_name, objects.near_class(request.device_class_name)
        error = ClaimError if near else NoDeviceClassError
        raise error(f'request {name}: device class "{missing}" not found{near}')
    if request.exact_count > MOST_DEVICES:
        raise ClaimError(f"request {name}: a claim can hold {MOST_DEVICES} devices, not {request.exact_count}")
    of_class, own = device_class.spec.selectors or (), request.selectors or ()
    in_class = f'request {name}, device class "{device_class.metadata.name}"'
    where = (*[in_class] * len(of_class), *[f"request {name}"] * len(own))
    return Choice(
        name=name,
        claim=claim,
        selectors=tuple(map(_expression, where, (*of_class, *own))),
        where=where,
        count=None if request.all_devices else request.exact_count,
        admin=bool(request.admin_access),
        device_class=request.device_class_name,
        tolerations=request.tolerations or (),
        capacity=_asked(request),
    )


def _asked(request: DeviceRequest) -> dict[str, Amount]:
    requests = (request.capacity.requests if request.capacity else None) or {}
    try:
        return {name: amount(value) for name, value in requests.items()}
    except InvalidQuantityError as error:
        raise ClaimError(str(error)) from None


def _expression(where: str, selector: DeviceSelector) -> str:
    text = selector.cel.expression if selector.cel is not None else ""
    try:
        compiled(text)
    except CelError as error:
        raise ClaimError(f"{where}: the selector {shown(text)} is not supported: {error}") from None
    return text
