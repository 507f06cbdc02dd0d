"""Upper bounds on claims per node whose devices must agree in an attribute, or differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.plugin.relations import Limited
from stromboli.kube.dra.allocator import Demand, attribute_of, attribute_values
from stromboli.kube.dra.capacity import Amount
from stromboli.kube.dra.inventory import Inventory
from stromboli.kube.dra.objects import Constraint
from stromboli.kube.dra.requests import Choice, ClaimRequest
from stromboli.kube.dra.selection import NO

#: constraints that are counted, values of an attribute that are told apart, and claims on a node whose devices differ
_MOST, _MOST_VALUES, _MOST_CLAIMS = 8, 64, 256
#: a number for each device, shape (devices + 1,)
Units: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Compared:
    """The devices of one claim that a constraint compares."""

    attribute: str
    #: whether they differ in it, or agree
    differ: bool
    #: those that any of them may be, shape (devices + 1,)
    devices: Mask
    #: minimum number of devices that the claim takes
    count: int
    #: the part of the claim that one pod counts for, of those that share it
    part: float
    #: by device that is given in parts: the least that it takes of each of its capacities
    parts: Mapping[int, Mapping[str, Amount]]

    def asks_as_much(self, other: Compared) -> bool:
        """Whether devices that satisfy it satisfy another one, too."""
        same = (self.attribute, self.differ) == (other.attribute, other.differ)
        return same and self.count >= other.count and not (self.devices & ~other.devices).any()


def names(constraint: Constraint, request: ClaimRequest) -> bool:
    """Whether a constraint is about all devices of a request, whichever alternative they are for."""
    return not constraint.requests or request.request in constraint.requests


def compared_of(demand: Demand, naming: Mapping[str, int]) -> list[Compared]:
    """Comparisons in the constraints of a pod's claims; `naming` is the number of pods that share each claim."""
    of_claim: defaultdict[str, list[ClaimRequest]] = defaultdict(list)
    for request in demand.claim_requests:
        of_claim[request.claim].append(request)
    return [
        compared
        for claim, requests in of_claim.items()
        for constraint in requests[0].constraints
        for compared in _compared(demand, constraint, requests, 1 / max(1, naming[claim]))
    ]


def _compared(
    demand: Demand, constraint: Constraint, requests: Sequence[ClaimRequest], part: float
) -> Iterator[Compared]:
    """The devices of all requests that a constraint names as a whole; of a claim for all devices of a kind, none."""
    named = [each for each in requests if names(constraint, each)]
    choices = [choice for each in named for choice in each.choices]
    if not choices or any(choice.admin or choice.count is None for choice in choices):
        return
    count = sum(min(choice.count or 0 for choice in each.choices) for each in named)
    devices = np.logical_or.reduce([demand.codes(choice) != NO for choice in choices])
    parts = least_parts(demand, choices, devices)
    yield Compared(attribute_of(constraint), not constraint.match_attribute, devices, count, part, parts)


def comparisons(
    pods: Sequence[Sequence[Compared]],
    inventory: Inventory,
    supply: Callable[[Mask, Sequence[Compared]], tuple[Units, Units]],
) -> Iterator[Limited]:
    """Limits on the number of such claims on each node, by its free devices, and by all of them.

    `supply` gives the number of times that each device can be taken now, and at all, shape (devices + 1,).
    """
    kinds = list[Compared]()
    for each in (compared for of_pod in pods for compared in of_pod):
        if not any(each.asks_as_much(kind) and kind.asks_as_much(each) for kind in kinds):
            kinds.append(each)
    for kind in kinds[:_MOST]:
        alike = [[each for each in of_pod if each.asks_as_much(kind)] for of_pod in pods]
        takes = np.array([sum(each.part for each in of_pod) for of_pod in alike])
        values = attribute_values(inventory.devices, kind.attribute)
        words = f"devices that {'differ' if kind.differ else 'agree'} in {kind.attribute}"
        units = supply(kind.devices, [each for of_pod in alike for each in of_pod])
        free, whole = (_claims(kind, values, inventory, each) for each in units)
        yield Limited(words, takes, free, whole)


def _claims(kind: Compared, values: Rows, inventory: Inventory, units: Units) -> Vector:
    """Upper bound on the claims on each node whose devices can each be taken `units` times."""
    numbers, of = np.unique(np.where(units > 0, values, -1), return_inverse=True)
    enough = np.bincount(of, units) >= (1 if kind.differ else kind.count)
    numbers = numbers[(numbers >= 0) & enough]
    if len(numbers) > _MOST_VALUES:
        return np.full(len(inventory.facts), np.inf)
    there = np.zeros((1 + len(numbers), len(inventory.facts)))
    for at, number in enumerate(numbers.tolist(), 1):
        there[at] = inventory.totals(np.where(values == number, units, 0))
    if not kind.differ:
        agreeing: Vector = (there // kind.count).sum(axis=0)
        return agreeing
    # Such claims have one device of each value at most.
    out = np.zeros(len(inventory.facts))
    most = int(there.sum(axis=0).max(initial=0) // kind.count)
    if most > _MOST_CLAIMS:
        return out + np.inf
    for claims in range(1, most + 1):
        out[np.minimum(there, claims).sum(axis=0) >= claims * kind.count] = claims
    return out


def least_parts(demand: Demand, choices: Sequence[Choice], devices: Mask) -> dict[int, Mapping[str, Amount]]:
    """The devices that are given in parts, by row, and the least that one of the choices takes of each capacity."""
    rows = np.flatnonzero(devices & (demand.devices.stock.pool >= 0)).tolist() if demand.draws else []
    return {
        row: least(demand.consumed(choice, row) or {} for choice in choices if demand.codes(choice)[row] != NO)
        for row in rows
        if demand.devices.stock.is_shared(row)
    }


def least(consumed: Iterable[Mapping[str, Amount]]) -> dict[str, Amount]:
    """The smallest of some amounts, by name, of names that all have."""
    first, *others = consumed
    return {
        name: min([amount, *(each[name] for each in others)], key=lambda each: each.value)
        for name, amount in first.items()
        if all(name in each for each in others)
    }
