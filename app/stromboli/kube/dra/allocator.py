"""Picking devices: the first ones of a node, in order, that satisfy all requests of some claims together."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction

from stromboli.api.objects import Toleration
from stromboli.kube.dra import cel
from stromboli.kube.dra.inventory import DeviceId, Offer
from stromboli.kube.dra.objects import (
    ClaimError,
    Constraint,
    DeviceObjects,
    DeviceRequest,
    DeviceSelector,
    Request,
    ResourceClaim,
)
from stromboli.kube.dra.operations import CelError, Evaluate
from stromboli.kube.taints import first_untolerated

#: devices that a claim can hold, by the API's validation
_MOST = 32
#: devices that are tried on one node before it counts as unsuitable
_TRIES = 10_000


class SelectorError(Exception):
    """A selector that has no answer for a device."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to satisfy a request."""

    #: REQUEST, or REQUEST/NAME for an alternative
    name: str
    #: expressions and what they mean
    selectors: list[tuple[str, Evaluate]]
    #: how many devices; None for all that match
    count: int | None
    #: looks at devices that others hold, and holds none
    admin: bool
    tolerations: Sequence[Toleration]
    #: the least that a device must have, by the name of the capacity
    capacity: dict[str, Fraction]

    def suits(self, offer: Offer) -> bool:
        """Whether a device is of the kind. Raises SelectorError."""
        if first_untolerated(self.tolerations, offer.taints) is not None:
            return False
        for text, holds in self.selectors:
            try:
                answer = holds(offer.variables)
            except CelError as error:
                raise SelectorError(f"the selector {text} has no answer: {error}") from None
            if answer is not True:
                return False
        for name, least in self.capacity.items():
            has = offer.value("capacity", name)
            if has is None or has.value < least:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Wish:
    """One request of a claim."""

    claim: str
    request: str
    #: to be tried in order
    choices: list[Choice]
    #: what must hold between the devices of the claim
    constraints: list[Constraint]


@dataclass(frozen=True, slots=True)
class Taken:
    """A device that was picked."""

    wish: Wish
    choice: Choice
    offer: Offer


def wishes(claims: Sequence[ResourceClaim], objects: DeviceObjects) -> list[Wish]:
    """What claims ask for. Raises ClaimError when it makes no sense, or no sense to us."""
    return [
        Wish(claim.key, request.name, _choices(claim, request, objects), claim.spec.devices.constraints or [])
        for claim in claims
        for request in claim.spec.devices.requests or ()
    ]


def allocate(wanted: Sequence[Wish], offers: Sequence[Offer], in_use: Set[DeviceId]) -> list[Taken] | None:
    """Devices for all wishes; None when the offers do not suffice. Raises SelectorError."""
    attempt = _Attempt(wanted, offers, in_use)
    return attempt.taken if attempt.run(0) else None


class _Attempt:
    """Depth first, so that what an early wish can do without is left to a later one."""

    def __init__(self, wanted: Sequence[Wish], offers: Sequence[Offer], in_use: Set[DeviceId]) -> None:
        self._wishes = wanted
        self._offers = offers
        self._in_use = in_use
        self._tries = 0
        self.taken: list[Taken] = []

    def run(self, at: int) -> bool:
        """Satisfy the wishes from a number on."""
        return at == len(self._wishes) or any(self._choose(at, choice) for choice in self._wishes[at].choices)

    def _choose(self, at: int, choice: Choice) -> bool:
        suitable = [offer for offer in self._offers if choice.suits(offer)]
        free = suitable if choice.admin else [offer for offer in suitable if offer.id not in self._in_use]
        if choice.count is not None:
            return self._pick(at, choice, free, choice.count)
        return 0 < len(free) <= _MOST and len(free) == len(suitable) and self._pick(at, choice, free, len(free))

    def _pick(self, at: int, choice: Choice, candidates: Sequence[Offer], count: int) -> bool:
        if count == 0:
            return self.run(at + 1)
        for index in range(len(candidates) - count + 1):
            self._tries += 1
            if self._tries > _TRIES:
                return False
            taken = Taken(self._wishes[at], choice, candidates[index])
            if self._is_free(taken) and all(map(self._constraint(taken), taken.wish.constraints)):
                self.taken.append(taken)
                if self._pick(at, choice, candidates[index + 1 :], count - 1):
                    return True
                self.taken.pop()
        return False

    def _is_free(self, new: Taken) -> bool:
        return new.choice.admin or all(each.offer.id != new.offer.id or each.choice.admin for each in self.taken)

    def _constraint(self, new: Taken) -> Callable[[Constraint], bool]:
        """Whether a constraint holds between one more device and those that were picked for the same claim."""

        def holds(constraint: Constraint) -> bool:
            if not _concerns(constraint, new):
                return True
            name = constraint.match_attribute or constraint.distinct_attribute or ""
            value = new.offer.value("attributes", name)
            others = [
                each.offer.value("attributes", name)
                for each in self.taken
                if each.wish.claim == new.wish.claim and _concerns(constraint, each)
            ]
            equal = [type(other) is type(value) and other == value for other in others]
            return value is not None and (all(equal) if constraint.match_attribute else not any(equal))

        return holds


def _concerns(constraint: Constraint, taken: Taken) -> bool:
    return not constraint.requests or bool({taken.wish.request, taken.choice.name} & set(constraint.requests))


def _choices(claim: ResourceClaim, request: Request, objects: DeviceObjects) -> list[Choice]:
    try:
        if request.exactly is not None:
            return [_choice(request.name, request.exactly, objects)]
        if request.first_available:
            return [_choice(f"{request.name}/{sub.name}", sub, objects) for sub in request.first_available]
        raise ClaimError("it asks for nothing that is supported")
    except ClaimError as error:
        raise ClaimError(f'resourceclaim "{claim.metadata.name}", request {request.name}: {error}') from None


def _choice(name: str, request: DeviceRequest, objects: DeviceObjects) -> Choice:
    device_class = objects.device_class(request.device_class_name)
    if device_class is None:
        raise ClaimError(f'device class "{request.device_class_name}" not found')
    if request.exact_count > _MOST:
        raise ClaimError(f"a claim can hold {_MOST} devices, not {request.exact_count}")
    return Choice(
        name=name,
        selectors=[_selector(each) for each in (*(device_class.spec.selectors or ()), *(request.selectors or ()))],
        count=None if request.all_devices else request.exact_count,
        admin=bool(request.admin_access),
        tolerations=request.tolerations or (),
        capacity=request.amounts,
    )


def _selector(selector: DeviceSelector) -> tuple[str, Evaluate]:
    text = selector.cel.expression if selector.cel is not None else ""
    try:
        return text, cel.parse(text)
    except CelError as error:
        raise ClaimError(f"the selector {text} is not supported: {error}") from None
