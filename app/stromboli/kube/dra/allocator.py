"""Picking devices: the first ones of a node, in order, that satisfy all requests of some claims together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import Taint
from stromboli.api.resources import Mask, Rows
from stromboli.kube.dra.capacity import Amount, Capacities, amount
from stromboli.kube.dra.cel import CelError, compiled
from stromboli.kube.dra.cel.values import shown
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
from stromboli.kube.dra.selection import NO, PROBLEMS, YES, Codes, Selected, select
from stromboli.kube.dra.stock import Balance
from stromboli.kube.taints import first_untolerated

#: devices that a claim can hold, by the API's validation
_MOST = 32
#: stands among the names of attributes, of which none has it, for the pool of devices that draw on what others do, too
_POOL = "/"


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
    #: what it asks for of each capacity
    capacity: dict[str, Amount]

    def selected(self, devices: Devices) -> Selected:
        """What its expressions say."""
        return select(self.selectors, devices)

    def codes(self, devices: Devices) -> Codes:
        """Which devices are of the kind, as in `Selected.codes`; where it wants all of them, tainted ones are, too."""
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
        """The error that a code stands for."""
        position, why = self.selected(devices).problems[code - PROBLEMS]
        selector = f"{self.where[position]}: the selector {shown(self.selectors[position])}"
        return SelectorError(self.claim, f"{selector} has no answer: {why}")

    def _lacks(self, known: tuple[Capacities, bool]) -> bool:
        """Whether devices with some capacities have too little, or nothing that can be consumed of them."""
        capacities, multiple = known
        return bool(self.capacity or multiple) and capacities.consumed(self.capacity) is None

    def _repelled(self, taints: tuple[Taint, ...]) -> bool:
        return first_untolerated(self.tolerations, taints) is not None


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
    #: what is consumed of each capacity by a share of a device that is given in parts; None where it is given whole
    consumed: Mapping[str, Amount] | None = None


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
        self._consumed: dict[tuple[int, int], Mapping[str, Amount]] = {}
        self._codes = {id(choice): choice.codes(devices) for wish in wanted for choice in wish.choices}
        names = {_attribute(each) for wish in wanted for each in wish.constraints}
        self._values = {name: _values(devices, name) for name in sorted(names)}
        #: tainted devices for which nobody can have all of a kind
        self._blocked = {
            id(choice): choice.repelled(devices) for wish in wanted for choice in wish.choices if choice.count is None
        }
        columns = [Groups(codes.astype(np.int64), int(codes.max()) + 1) for codes in self._codes.values()]
        columns += [Groups(blocked.astype(np.int64), 2) for blocked in self._blocked.values()]
        self._sought = np.zeros(len(devices) + 1, np.bool_)
        for codes in self._codes.values():
            self._sought |= codes != NO
        #: whether anybody is looking for devices that draw on what others draw on, too
        self.draws = bool(devices.stock) and bool((self._sought & (devices.stock.pool >= 0)).any())
        if self.draws:
            self._values[_POOL] = devices.stock.pool
            columns.append(devices.column("counters", lambda offer: offer.counters or None))
            columns.append(devices.column("parts", lambda offer: offer.capacities if offer.multiple else None))
        #: devices that are alike but for what is asked of them together, and those that nobody is looking for
        self._kinds = joined(columns, len(devices) + 1)

    def codes(self, choice: Choice) -> Codes:
        """Which devices suit a choice."""
        return self._codes[id(choice)]

    def are_blocked(self, choice: Choice, rows: Rows) -> bool:
        """Whether any of some devices is kept from a choice that wants all of them."""
        return bool(self._blocked[id(choice)][rows].any())

    def value(self, name: str, device: int) -> int:
        """The number of a device's value of an attribute, -1 when it has none."""
        return int(self._values[name][device])

    def consumed(self, choice: Choice, device: int) -> Mapping[str, Amount] | None:
        """What a share of a device consumes of its capacities, None for a device that is given whole."""
        offer = self.devices.offers[device]
        if choice.admin or not offer.multiple:
            return None
        key = id(choice), id(offer.capacities)
        if key not in self._consumed:
            self._consumed[key] = offer.capacities.consumed(choice.capacity) or {}
        return self._consumed[key]

    def kind(self, device: int, *, in_use: bool) -> tuple[int, ...]:
        """What a search looks at in a device: those of one kind can stand for each other."""
        if self.draws and self.devices.stock.is_shared(device):
            return (-1, device)
        return (int(self._kinds.of[device]), in_use, *(int(values[device]) for values in self._values.values()))

    def alike(self, nodes: Rows, inventory: Inventory, in_use: Mask, balance: Balance) -> Iterator[Rows]:
        """Nodes in groups in which a search has the same outcome, by their first nodes."""
        devices = inventory.local[nodes]
        sought = self._sought.take(devices)
        columns = [self._kinds.of.take(devices), in_use.take(devices).astype(np.int64)]
        if self.draws:
            columns += self._left(devices, sought, balance)
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

    def _left(self, devices: Rows, sought: Mask, balance: Balance) -> list[Rows]:
        """How much is left of what each device draws on, and its place in its pool."""
        stock = self.devices.stock
        pools = np.where(sought, stock.pool.take(devices), -1)
        states = stock.states(balance.drawn, np.unique(pools[pools >= 0]))
        return [states[pools] + 1, np.where(pools >= 0, stock.place.take(devices), 0)]


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


def allocate(demand: Demand, offers: Rows, in_use: Mask, balance: Balance, tries: Purse) -> list[Taken] | None:
    """Devices for all wishes; None when the offers do not suffice. Raises SelectorError and SearchError."""
    attempt = _Attempt(demand, offers, in_use, balance.copy() if demand.draws else balance, tries)
    return attempt.taken if attempt.run(0) else None


class _Attempt:
    """Depth first, so that what an early wish can do without is left to a later one.

    Of devices that are alike only the first is tried at each step: what it did not lead to, no other does.
    """

    def __init__(self, demand: Demand, offers: Rows, in_use: Mask, balance: Balance, tries: Purse) -> None:
        """`balance` is the attempt's own where the demand draws on anything."""
        self._demand = demand
        self._offers = offers
        self._in_use = in_use
        self._balance = balance
        self._tries = tries
        self._kinds: dict[int, tuple[int, ...]] = {}
        #: the claim of each device that was picked whole, or to be looked at
        self._held: list[tuple[int, int]] = []
        #: the wish and what was picked for it, one by one
        self._picked: list[tuple[Wish, Taken]] = []

    @property
    def taken(self) -> list[Taken]:
        """What was picked."""
        return [taken for _, taken in self._picked]

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
        return (
            whole
            and not self._demand.are_blocked(choice, suitable)
            and self._pick(at, choice, free.tolist(), len(free))
        )

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
            taken = Taken(device, choice, self._demand.consumed(choice, device) if self._demand.draws else None)
            if self._held and self._is_held(taken):
                continue
            if self._fits(wish, taken) and self._goes_on(at, taken, candidates[index + 1 :], count):
                return True
            failed.add(kind)
        return False

    def _is_held(self, taken: Taken) -> bool:
        """Whether a device was picked before where it cannot be picked twice."""
        if taken.consumed is not None:
            return False
        claim = taken.choice.claim
        return any(device == taken.device and (not taken.choice.admin or of == claim) for device, of in self._held)

    def _goes_on(self, at: int, taken: Taken, candidates: list[int], count: int) -> bool:
        """Whether a device, and then some of the candidates, lead to an end."""
        new, whole = self._demand.draws and not taken.choice.admin, taken.consumed is None
        self._picked.append((self._demand.wishes[at], taken))
        if whole:
            self._held.append((taken.device, taken.choice.claim))
        if new:
            self._balance.take(taken.device, taken.consumed)
        if self._pick(at, taken.choice, candidates, count - 1):
            return True
        self._picked.pop()
        if whole:
            self._held.pop()
        if new:
            self._balance.give_back(taken.device, taken.consumed)
        return False

    def _kind(self, device: int) -> tuple[int, ...]:
        known = self._kinds.get(device)
        if known is None:
            known = self._kinds[device] = self._demand.kind(device, in_use=bool(self._in_use[device]))
        return known

    def _fits(self, wish: Wish, taken: Taken) -> bool:
        if self._demand.draws and not taken.choice.admin:
            balance = self._balance
            if not balance.has(balance.draws(taken.device, taken.consumed)):
                return False
        return all(self._holds(constraint, wish, taken) for constraint in wish.constraints)

    def _holds(self, constraint: Constraint, wish: Wish, taken: Taken) -> bool:
        """Whether a constraint holds between one more device and those that were picked for the same claim."""
        if not _concerns(constraint, wish, taken.choice):
            return True
        name = _attribute(constraint)
        value = self._demand.value(name, taken.device)
        others = (
            self._demand.value(name, each.device)
            for of, each in self._picked
            if of.claim == wish.claim and _concerns(constraint, of, each.choice)
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


def class_choice(name: str, objects: DeviceObjects) -> Choice:
    """One device of a class, whichever. Raises ClaimError."""
    return _choice(0, name, DeviceRequest(device_class_name=name), objects)


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
