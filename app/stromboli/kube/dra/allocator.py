"""Allocation of devices: the first devices of a node, in order, that satisfy all requests of some claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stromboli.api.resources import Mask, Rows
from stromboli.kube.dra.capacity import Amount
from stromboli.kube.dra.inventory import Devices, Groups, Inventory, joined
from stromboli.kube.dra.objects import (
    Constraint,
)
from stromboli.kube.dra.requests import MOST_DEVICES, Choice, ClaimRequest
from stromboli.kube.dra.selection import NO, PROBLEMS, Codes
from stromboli.kube.dra.stock import Balance

#: key of the pool of devices with shared counters, among keys that are names of attributes
_POOL = "/"


class SearchError(Exception):
    """The search exceeded its budget."""


class StepBudget:
    """A budget of steps, shared by several searches. After it is exhausted every request is refused."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, cost: int) -> bool:
        """Spend steps; returns whether the budget sufficed."""
        self.left -= cost
        return self.left >= 0


@dataclass(frozen=True, slots=True)
class Taken:
    """A picked device, by row, and the choice that it satisfies."""

    device: int
    choice: Choice
    #: consumption of each capacity by a share of a device with multiple allocations; None for a whole device
    consumed: Mapping[str, Amount] | None = None


@dataclass(slots=True)
class Given:
    """The devices picked for a claim in this session, or for one whose pod has a node."""

    #: None if another scheduler placed its pod, or if the pod is promised devices that others give back
    taken: list[Taken] | None
    node: int
    #: whether it was picked in this session
    new: bool = True
    #: rows of pods
    users: set[int] = field(default_factory=set)


class Demand:
    """The devices of a cluster as some requests see them."""

    def __init__(self, wanted: Sequence[ClaimRequest], devices: Devices) -> None:
        self.claim_requests = wanted
        self.devices = devices
        self._consumed: dict[tuple[int, int], Mapping[str, Amount]] = {}
        self._codes = {id(choice): choice.codes(devices) for request in wanted for choice in request.choices}
        names = {attribute_of(each) for request in wanted for each in request.constraints}
        self._values = {name: attribute_values(devices, name) for name in sorted(names)}
        #: tainted devices, for choices of all matching devices
        self._blocked = {
            id(choice): choice.repelled(devices)
            for request in wanted
            for choice in request.choices
            if choice.count is None
        }
        #: whether any request asks for all devices that match
        self.asks_for_all = bool(self._blocked)
        columns = [Groups(codes.astype(np.int64), int(codes.max()) + 1) for codes in self._codes.values()]
        columns += [Groups(blocked.astype(np.int64), 2) for blocked in self._blocked.values()]
        self._sought = np.zeros(len(devices) + 1, np.bool_)
        for codes in self._codes.values():
            self._sought |= codes != NO
        #: whether a search may end at a device for which a selector has no answer, which depends on their order
        self.doubtful = any(bool((codes >= PROBLEMS).any()) for codes in self._codes.values())
        #: whether any candidate device draws on shared counters or capacities
        self.draws = bool(devices.stock) and bool((self._sought & (devices.stock.pool >= 0)).any())
        if self.draws:
            self._values[_POOL] = devices.stock.pool
            columns.append(devices.column("counters", lambda offer: offer.counters or None))
            columns.append(devices.column("parts", lambda offer: offer.capacities if offer.multiple else None))
        #: devices that are equal but for properties that concern several devices, and devices that no request selects
        self._kinds = joined(columns, len(devices) + 1)

    def codes(self, choice: Choice) -> Codes:
        """The selector results of a choice."""
        return self._codes[id(choice)]

    def are_blocked(self, choice: Choice, rows: Rows) -> bool:
        """Whether a choice of all devices is prevented by a taint on one of some devices."""
        return bool(self._blocked[id(choice)][rows].any())

    def value(self, name: str, device: int) -> int:
        """The number of a device's value of an attribute, -1 without one."""
        return int(self._values[name][device])

    def consumed(self, choice: Choice, device: int) -> Mapping[str, Amount] | None:
        """The consumption of a share of a device, None for a device that is allocated whole."""
        offer = self.devices.offers[device]
        if choice.admin or not offer.multiple:
            return None
        key = id(choice), id(offer.capacities)
        if key not in self._consumed:
            self._consumed[key] = offer.capacities.consumed(choice.capacity) or {}
        return self._consumed[key]

    def kind(self, device: int, *, in_use: bool) -> tuple[int, ...]:
        """All properties of a device that a search reads: devices of one kind are interchangeable."""
        if self.draws and self.devices.stock.is_shared(device):
            return (-1, device)
        return (int(self._kinds.of[device]), in_use, *(int(values[device]) for values in self._values.values()))

    def alike(self, nodes: Rows, inventory: Inventory, in_use: Mask, balance: Balance) -> Iterator[Rows]:
        """Groups of nodes in which a search has the same outcome, in order of their first nodes."""
        devices = inventory.local[nodes]
        sought = self._sought.take(devices)
        columns = [self._kinds.of.take(devices), in_use.take(devices).astype(np.int64)]
        if self.draws:
            columns += self._left(devices, sought, balance)
        columns += [_ranks(values[devices], sought) for values in self._values.values()]
        if self._values:
            # With devices that several nodes access, the values themselves matter.
            shared = inventory.reaching_shared[nodes, None]
            columns += [np.where(shared, values[devices] + 1, 0) for values in self._values.values()]
        each = joined((Groups(c.ravel(), int(c.max(initial=0)) + 1) for c in columns), devices.size)
        local = np.where(sought, each.of.reshape(devices.shape) + 1, 0)
        if not self.doubtful:
            local.sort(axis=1)
        used = local[:, local.any(axis=0)]
        reach = Groups(inventory.reach.of[nodes], inventory.reach.count)
        groups = joined([reach, *(Groups(column, each.count + 1) for column in used.T)], len(nodes))
        order = np.argsort(groups.of, kind="stable")
        starts = np.flatnonzero(np.diff(groups.of[order], prepend=-1))
        parts = np.split(order, starts[1:])
        # Sorted by node, since numbers depend on earlier sessions and the groups share a budget.
        yield from (nodes[parts[at]] for at in np.argsort(order[starts]).tolist())

    def _left(self, devices: Rows, sought: Mask, balance: Balance) -> list[Rows]:
        """State of the counter pool that each device draws on, and the device's position in it, for sorting."""
        stock = self.devices.stock
        pools = np.where(sought, stock.pool.take(devices), -1)
        states = stock.states(balance.drawn, np.unique(pools[pools >= 0]))
        return [states[pools] + 1, np.where(pools >= 0, stock.place.take(devices), 0)]


def _ranks(values: Rows, sought: Mask) -> Rows:
    """For each value of a row, one more than the index of its first occurrence in the row, 0 for none.

    Shape (nodes, devices).
    """
    known = np.where(sought, values, -1)
    first = [
        np.where(known[:, at] < 0, 0, (known == known[:, [at]]).argmax(axis=1) + 1) for at in range(known.shape[1])
    ]
    return np.array(first, np.int64).reshape(known.shape[::-1]).T


def attribute_values(devices: Devices, name: str) -> Rows:
    """The number of each device's value of an attribute, -1 for none."""
    found = devices.column(("attribute", name), lambda offer: _typed(offer.value(offer.attributes, name)))
    # The row that stands for no device has no value, so its number is that of devices without the attribute.
    return np.where(found.of == found.of[-1], -1, found.of)


def _typed(value: Any) -> Any:
    return None if value is None else (type(value), value)


def allocate(
    demand: Demand, offers: Rows, in_use: Mask, balance: Balance, tries: StepBudget, *, sparing: bool = False
) -> list[Taken] | None:
    """Devices for all requests; None if the candidates do not suffice. Raises SelectorError and SearchError.

    `sparing` tries devices that share counters in the order that leaves most to others.
    """
    attempt = _Attempt(demand, offers, in_use, balance, tries, sparing)
    return attempt.taken if attempt.run(0) else None


class _Attempt:
    """A depth-first search, so that an early request can leave a device to a later one.

    Of interchangeable devices only the first is tried at each step. A device for which a selector has no answer ends
    the search.
    """

    def __init__(
        self, demand: Demand, offers: Rows, in_use: Mask, balance: Balance, tries: StepBudget, sparing: bool
    ) -> None:
        self._demand = demand
        self._offers = offers
        self._in_use = in_use
        self._before = balance
        self._balance = balance.copy() if demand.draws else balance
        self._tries = tries
        #: whether the order of devices may change: a search that ends at a doubtful one depends on it
        self._sparing = sparing and demand.draws and not demand.doubtful
        self._kinds: dict[int, tuple[int, ...]] = {}
        #: the claim of each device that was picked whole, or with admin access
        self._held: list[tuple[int, int]] = []
        #: requests and the devices picked for them, in order
        self._picked: list[tuple[ClaimRequest, Taken]] = []

    @property
    def taken(self) -> list[Taken]:
        """The picked devices."""
        return [taken for _, taken in self._picked]

    def run(self, at: int) -> bool:
        """Satisfy the requests from an index on."""
        wanted = self._demand.claim_requests
        return at == len(wanted) or any(self._choose(at, choice) for choice in wanted[at].choices)

    def _choose(self, at: int, choice: Choice) -> bool:
        codes = self._demand.codes(choice)[self._offers]
        suitable = self._offers[codes != NO]
        if choice.count is None:
            for device in suitable.tolist() if self._demand.doubtful else ():
                self._check(choice, device)
            if self._demand.draws:
                suitable = np.array([row for row in suitable.tolist() if self._is_left(choice, row)], np.intp)
        free = suitable if choice.admin else suitable[~self._in_use[suitable]]
        if choice.count is not None:
            if self._sparing:
                free = self._demand.devices.late_last(self._balance.sparing(free))
            return self._pick(at, choice, free.tolist(), choice.count)
        whole = 0 < len(free) <= MOST_DEVICES and len(free) == len(suitable)
        return (
            whole
            and not self._demand.are_blocked(choice, suitable)
            and self._pick(at, choice, free.tolist(), len(free))
        )

    def _is_left(self, choice: Choice, device: int) -> bool:
        """Whether earlier claims leave a device the capacity for another share; others are not among all devices."""
        consumed = self._demand.consumed(choice, device)
        return consumed is None or self._before.has(self._demand.devices.stock.share(device, consumed))

    def _pick(self, at: int, choice: Choice, candidates: list[int], count: int) -> bool:
        if count == 0:
            return self.run(at + 1)
        request, failed = self._demand.claim_requests[at], set[tuple[int, ...]]()
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
            if self._demand.doubtful:
                self._check(choice, device)
            if self._fits(request, taken) and self._goes_on(at, taken, candidates[index + 1 :], count):
                return True
            failed.add(kind)
        return False

    def _check(self, choice: Choice, device: int) -> None:
        """Raises SelectorError if a selector has no answer for a device."""
        code = int(self._demand.codes(choice)[device])
        if code >= PROBLEMS:
            raise choice.problem(code, self._demand.devices)

    def _is_held(self, taken: Taken) -> bool:
        """Whether a device was picked already and cannot be picked twice."""
        if taken.consumed is not None:
            return False
        claim = taken.choice.claim
        return any(device == taken.device and (not taken.choice.admin or of == claim) for device, of in self._held)

    def _goes_on(self, at: int, taken: Taken, candidates: list[int], count: int) -> bool:
        """Whether the search succeeds with a device and some of the following candidates."""
        new, whole = self._demand.draws and not taken.choice.admin, taken.consumed is None
        self._picked.append((self._demand.claim_requests[at], taken))
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

    def _fits(self, request: ClaimRequest, taken: Taken) -> bool:
        if self._demand.draws and not taken.choice.admin:
            balance = self._balance
            if not balance.has(balance.draws(taken.device, taken.consumed)):
                return False
        return all(self._holds(constraint, request, taken) for constraint in request.constraints)

    def _holds(self, constraint: Constraint, request: ClaimRequest, taken: Taken) -> bool:
        """Whether a constraint holds between another device and those picked for the same claim."""
        if not _concerns(constraint, request, taken.choice):
            return True
        name = attribute_of(constraint)
        value = self._demand.value(name, taken.device)
        others = (
            self._demand.value(name, each.device)
            for of, each in self._picked
            if of.claim == request.claim and _concerns(constraint, of, each.choice)
        )
        if value < 0:
            return False
        return all(other == value for other in others) if constraint.match_attribute else value not in others


def attribute_of(constraint: Constraint) -> str:
    """The name of the attribute that a constraint compares."""
    return constraint.match_attribute or constraint.distinct_attribute or ""


def _concerns(constraint: Constraint, request: ClaimRequest, choice: Choice) -> bool:
    return not constraint.requests or bool({request.request, choice.name} & set(constraint.requests))
