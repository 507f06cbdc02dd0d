"""Picking devices: the first ones of a node, in order, that satisfy all requests of some claims together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from stromboli.api.objects import Taint
from stromboli.api.resources import Mask, Rows
from stromboli.kube.dra.cel import CelError, compiled
from stromboli.kube.dra.cel.values import Quantity, shown
from stromboli.kube.dra.inventory import Devices, Groups, Inventory, joined
from stromboli.kube.dra.objects import (
    ClaimError,
    Constraint,
    DeviceObjects,
    DeviceRequest,
    DeviceSelector,
    DeviceToleration,
    Request,
    ResourceClaim,
)
from stromboli.kube.dra.pools import Offer
from stromboli.kube.dra.selection import NO, PROBLEMS, YES, Codes, Selected, select
from stromboli.kube.taints import first_untolerated

#: devices that a claim can hold, by the API's validation
_MOST = 32


class SelectorError(Exception):
    """A selector that has no answer for a device."""

    def __init__(self, claim: int, problem: str) -> None:
        super().__init__(problem)
        #: which of the claims that were asked about together
        self.claim = claim


class SearchError(Exception):
    """A search that took more tries than it may."""


class Purse:
    """What may still be spent. Who has spent all is told so once more and gets nothing."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, cost: int) -> bool:
        """Whether there was enough."""
        self.left -= cost
        return self.left >= 0


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to satisfy a request."""

    #: REQUEST, or REQUEST/NAME for an alternative
    name: str
    #: which of the claims that are asked about together
    claim: int
    #: expressions that must be true for each device
    selectors: tuple[str, ...]
    #: for messages: where each expression stands
    where: tuple[str, ...]
    #: how many devices; None for all that match
    count: int | None
    #: looks at devices that others hold, and holds none
    admin: bool
    device_class: str
    tolerations: Sequence[DeviceToleration]
    #: the least that a device must have, by the name of the capacity
    capacity: dict[str, Fraction]

    def selected(self, devices: Devices) -> Selected:
        """What its expressions say."""
        return select(self.selectors, devices)

    def codes(self, devices: Devices) -> Codes:
        """Which devices are of the kind, as in `Selected.codes`."""
        codes = self.selected(devices).codes.copy()
        np.copyto(codes, NO, where=devices.where("taints", lambda offer: offer.taints, self._repelled))
        for name, least in self.capacity.items():
            read, lacks = partial(_capacity, name=name), partial(_lacks, least=least)
            np.copyto(codes, NO, where=devices.where(("capacity", name), read, lacks) & (codes == YES))
        return codes

    def problem(self, code: int, devices: Devices) -> SelectorError:
        """The error that a code stands for."""
        position, why = self.selected(devices).problems[code - PROBLEMS]
        selector = f"{self.where[position]}: the selector {shown(self.selectors[position])}"
        return SelectorError(self.claim, f"{selector} has no answer: {why}")

    def _repelled(self, taints: tuple[Taint, ...]) -> bool:
        return first_untolerated(self.tolerations, taints) is not None


def _capacity(offer: Offer, name: str) -> Any:
    return offer.value(offer.capacity, name)


def _lacks(amount: Quantity | None, least: Fraction) -> bool:
    return amount is None or amount.value < least


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
    """A device that was picked, by its row, and what for."""

    device: int
    choice: Choice


def wishes(claims: Sequence[ResourceClaim], objects: DeviceObjects) -> list[Wish]:
    """What claims ask for. Raises ClaimError when it makes no sense, or no sense to us."""
    return [
        Wish(claim.key, request.name, _choices(i, claim, request, objects), claim.spec.devices.constraints or [])
        for i, claim in enumerate(claims)
        for request in claim.spec.devices.requests or ()
    ]


class Demand:
    """What some wishes are looking for among the devices of a cluster."""

    def __init__(self, wanted: Sequence[Wish], devices: Devices) -> None:
        self.wishes = wanted
        self.devices = devices
        self._codes = {id(choice): choice.codes(devices) for wish in wanted for choice in wish.choices}
        names = {_attribute(each) for wish in wanted for each in wish.constraints}
        self._values = {name: _values(devices, name) for name in sorted(names)}
        columns = (Groups(codes.astype(np.int64), int(codes.max()) + 1) for codes in self._codes.values())
        #: devices that are alike but for what is asked of them together, and those that nobody is looking for
        self._kinds = joined(columns, len(devices) + 1)
        self._sought = np.zeros(len(devices) + 1, np.bool_)
        for codes in self._codes.values():
            self._sought |= codes != NO

    def codes(self, choice: Choice) -> Codes:
        """Which devices suit a choice."""
        return self._codes[id(choice)]

    def value(self, name: str, device: int) -> int:
        """The number of a device's value of an attribute, -1 when it has none."""
        return int(self._values[name][device])

    def kind(self, device: int, *, in_use: bool) -> tuple[int, ...]:
        """What a search looks at in a device: those of one kind can stand for each other."""
        return (int(self._kinds.of[device]), in_use, *(int(values[device]) for values in self._values.values()))

    def alike(self, nodes: Rows, inventory: Inventory, in_use: Mask) -> Iterator[Rows]:
        """Nodes in groups in which a search has the same outcome, by their first nodes."""
        devices = inventory.local[nodes]
        sought = self._sought.take(devices)
        columns = [self._kinds.of.take(devices), in_use.take(devices).astype(np.int64)]
        columns += [_ranks(values[devices], sought) for values in self._values.values()]
        if self._values:
            # With devices of several nodes it matters what the values are.
            shared = inventory.reaching_shared[nodes, None]
            columns += [np.where(shared, values[devices] + 1, 0) for values in self._values.values()]
        each = joined((Groups(c.ravel(), int(c.max(initial=0)) + 1) for c in columns), devices.size)
        local = np.sort(np.where(sought, each.of.reshape(devices.shape) + 1, 0), axis=1)
        used = local[:, local.any(axis=0)]
        reach = Groups(inventory.reach.of[nodes], inventory.reach.count)
        groups = joined([reach, *(Groups(column, each.count + 1) for column in used.T)], len(nodes))
        order = np.argsort(groups.of, kind="stable")
        starts = np.flatnonzero(np.diff(groups.of[order], prepend=-1))
        parts = np.split(order, starts[1:])
        # Numbers depend on what was there before, and what a search may cost is shared.
        yield from (nodes[parts[at]] for at in np.argsort(order[starts]).tolist())


def _ranks(values: Rows, sought: Mask) -> Rows:
    """For each value of a row the first place in it with the same, shape (nodes, devices)."""
    known = np.where(sought, values, -1)
    first = [(known == known[:, [at]]).argmax(axis=1) for at in range(known.shape[1])]
    return np.array(first, np.int64).reshape(known.shape[::-1]).T


def _values(devices: Devices, name: str) -> Rows:
    """The number of each device's value of an attribute, -1 for none."""
    found = devices.column(("attribute", name), lambda offer: _typed(offer.value(offer.attributes, name)))
    # The row of no device has no value, and all that have none have its number.
    return np.where(found.of == found.of[-1], -1, found.of)


def _typed(value: Any) -> Any:
    return None if value is None else (type(value), value)


def allocate(demand: Demand, offers: Rows, in_use: Mask, tries: Purse) -> list[Taken] | None:
    """Devices for all wishes; None when the offers do not suffice. Raises SelectorError and SearchError."""
    attempt = _Attempt(demand, offers, in_use, tries)
    return attempt.taken if attempt.run(0) else None


class _Attempt:
    """Depth first, so that what an early wish can do without is left to a later one.

    Of devices that are alike only the first is tried at each step: what it did not lead to, no other does.
    """

    def __init__(self, demand: Demand, offers: Rows, in_use: Mask, tries: Purse) -> None:
        self._demand = demand
        self._offers = offers
        self._in_use = in_use
        self._tries = tries
        self._kinds: dict[int, tuple[int, ...]] = {}
        self._held: set[int] = set()
        #: the wish, the name of the choice and the device of each that was picked
        self._picked: list[tuple[Wish, Choice, int]] = []

    @property
    def taken(self) -> list[Taken]:
        """What was picked."""
        return [Taken(device, choice) for _, choice, device in self._picked]

    def run(self, at: int) -> bool:
        """Satisfy the wishes from a number on."""
        wanted = self._demand.wishes
        return at == len(wanted) or any(self._choose(at, choice) for choice in wanted[at].choices)

    def _choose(self, at: int, choice: Choice) -> bool:
        codes = self._demand.codes(choice)[self._offers]
        problems = codes[codes >= PROBLEMS]
        if len(problems):
            raise choice.problem(int(problems[0]), self._demand.devices)
        suitable = self._offers[codes == YES]
        free = suitable if choice.admin else suitable[~self._in_use[suitable]]
        if choice.count is not None:
            return self._pick(at, choice, free.tolist(), choice.count)
        whole = 0 < len(free) <= _MOST and len(free) == len(suitable)
        return whole and self._pick(at, choice, free.tolist(), len(free))

    def _pick(self, at: int, choice: Choice, candidates: list[int], count: int) -> bool:
        if count == 0:
            return self.run(at + 1)
        wish, failed = self._demand.wishes[at], set[tuple[int, ...]]()
        for index in range(len(candidates) - count + 1):
            device = candidates[index]
            kind = self._kind(device)
            if kind in failed:
                continue
            if not self._tries.spend(1):
                raise SearchError
            if device in self._held and not choice.admin:
                continue
            if self._fits(wish, choice, device) and self._goes_on(at, choice, candidates[index:], count):
                return True
            failed.add(kind)
        return False

    def _goes_on(self, at: int, choice: Choice, candidates: list[int], count: int) -> bool:
        """Whether the first of some candidates leads to an end."""
        device = candidates[0]
        new = not choice.admin
        self._picked.append((self._demand.wishes[at], choice, device))
        if new:
            self._held.add(device)
        if self._pick(at, choice, candidates[1:], count - 1):
            return True
        self._picked.pop()
        if new:
            self._held.discard(device)
        return False

    def _kind(self, device: int) -> tuple[int, ...]:
        known = self._kinds.get(device)
        if known is None:
            known = self._kinds[device] = self._demand.kind(device, in_use=bool(self._in_use[device]))
        return known

    def _fits(self, wish: Wish, choice: Choice, device: int) -> bool:
        return all(self._holds(constraint, wish, choice, device) for constraint in wish.constraints)

    def _holds(self, constraint: Constraint, wish: Wish, choice: Choice, device: int) -> bool:
        """Whether a constraint holds between one more device and those that were picked for the same claim."""
        if not _concerns(constraint, wish, choice):
            return True
        name = _attribute(constraint)
        value = self._demand.value(name, device)
        others = (
            self._demand.value(name, each)
            for of, by, each in self._picked
            if of.claim == wish.claim and _concerns(constraint, of, by)
        )
        if value < 0:
            return False
        return all(other == value for other in others) if constraint.match_attribute else value not in others


def _attribute(constraint: Constraint) -> str:
    return constraint.match_attribute or constraint.distinct_attribute or ""


def _concerns(constraint: Constraint, wish: Wish, choice: Choice) -> bool:
    return not constraint.requests or bool({wish.request, choice.name} & set(constraint.requests))


def _choices(number: int, claim: ResourceClaim, request: Request, objects: DeviceObjects) -> list[Choice]:
    try:
        if request.asked is not None:
            return [_choice(number, request.name, request.asked, objects)]
        if request.first_available:
            return [_choice(number, f"{request.name}/{sub.name}", sub, objects) for sub in request.first_available]
        raise ClaimError(f"request {request.name} asks for nothing that is supported")
    except ClaimError as error:
        raise ClaimError(f'resourceclaim "{claim.metadata.name}", {error}') from None


def _choice(claim: int, name: str, request: DeviceRequest, objects: DeviceObjects) -> Choice:
    device_class = objects.device_class(request.device_class_name)
    if device_class is None:
        raise ClaimError(f'request {name}: device class "{request.device_class_name}" not found')
    if request.exact_count > _MOST:
        raise ClaimError(f"request {name}: a claim can hold {_MOST} devices, not {request.exact_count}")
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
        capacity=request.amounts,
    )


def _expression(where: str, selector: DeviceSelector) -> str:
    text = selector.cel.expression if selector.cel is not None else ""
    try:
        compiled(text)
    except CelError as error:
        raise ClaimError(f"{where}: the selector {shown(text)} is not supported: {error}") from None
    return text
