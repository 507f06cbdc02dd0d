"""The cards of nodes and what is taken of them, as matrices of a row a node and a column a card."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import ResourceList
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.state.columns import Numbers
from stromboli.state.nodes import NodeRecord
from stromboli.state.pods import PodRecord

#: shape (nodes, cards)
Counts: TypeAlias = npt.NDArray[np.int64]


#: more than any card has of anything, or than any node has of cards
LARGEST, MOST_CARDS = 2**31, 1_024


@dataclass(frozen=True, slots=True)
class Slice:
    """What a container gets of a card."""

    card: int
    memory: int
    #: percent of the card's compute
    cores: int = 0


#: the slices of each container that gets some
Plan: TypeAlias = tuple[tuple[Slice, ...], ...]


@dataclass(frozen=True, slots=True)
class Card:
    """One device of a node."""

    index: int
    memory: int
    id: str = ""
    type: str = ""
    #: how many containers may share it
    seats: int = 0
    #: whether anybody can get it
    usable: bool = True


@dataclass(frozen=True)
class Inventory:
    """The cards of one node."""

    cards: tuple[Card, ...]
    #: how the node's cards are shared
    mode: str = ""

    @cached_property
    def by_index(self) -> Mapping[int, Card]:
        """The cards by index."""
        return {card.index: card for card in self.cards}


@dataclass(slots=True)
class Cards:
    """Matrices of shape (nodes, cards); nothing is known of cards that are not `there`."""

    there: Mask
    memory: Counts
    seats: Counts
    #: what is taken: seats, memory, percent of compute
    users: Counts
    used_memory: Counts
    used_cores: Counts

    def of(self, rows: Rows | slice) -> Cards:
        """Those of some nodes, copied."""
        taken = (part[rows].copy() for part in (self.memory, self.seats, self.users, self.used_memory, self.used_cores))
        return Cards(self.there[rows], *taken)

    def take(self, node: int, part: Slice, sign: int) -> None:
        """Count a slice, or take it off; slices of cards that are not there do not count."""
        if part.card < self.there.shape[1] and self.there[node, part.card]:
            self.users[node, part.card] += sign
            self.used_memory[node, part.card] += sign * part.memory
            self.used_cores[node, part.card] += sign * part.cores

    def take_all(self, picked: Mask, memory: Counts, cores: int) -> None:
        """Count a slice of each card that was picked."""
        self.users += picked
        self.used_memory += picked * memory
        self.used_cores += picked * cores


@dataclass(slots=True)
class Picks:
    """The cards for one container on each node, shape (nodes, cards)."""

    picked: Mask
    memory: Counts
    cores: int
    #: the cards in the order in which they are taken; None when that is their own
    order: Rows | None = None

    def slices(self, node: int) -> tuple[Slice, ...]:
        """Those of a node."""
        order = range(self.picked.shape[1]) if self.order is None else self.order[node].tolist()
        return tuple(Slice(i, int(self.memory[node, i]), self.cores) for i in order if self.picked[node, i])


@dataclass(slots=True)
class Draft:
    """What a pod would get on each node."""

    #: whether it suffices, shape (nodes,)
    fits: Mask
    #: for each container that gets some
    containers: list[Picks] = field(default_factory=list)
    #: how good it is where it fits, shape (nodes,); None when all are equal
    scores: Vector | None = None

    @property
    def values(self) -> Vector:
        """The scores, 0 where the cards do not suffice, shape (nodes,)."""
        return np.zeros(len(self.fits)) if self.scores is None else np.where(self.fits, self.scores, 0.0)

    def plan(self, node: int) -> Plan | None:
        """The slices on a node, None when they do not suffice."""
        return tuple(picks.slices(node) for picks in self.containers) if self.fits[node] else None


#: what a pod's annotations say that it holds: for each container its cards by id, with memory and percent of compute
Grant: TypeAlias = tuple[tuple[tuple[str, int, int], ...], ...]


class Sharing(Protocol):
    """A way to share cards."""

    def wants(self, pod: PodRecord) -> bool:
        """Whether a pod asks for cards."""

    def inventory(self, node: NodeRecord) -> Inventory | None:
        """The cards of a node, None when it has none that are shared in this way."""

    def grant(self, pod: PodRecord) -> Grant | None:
        """What a pod holds by its annotations; None when they say nothing."""

    def choice(self, pod: PodRecord) -> Callable[[Card, str], bool] | None:
        """Whether a pod may have a card of a node with a mode; equal for pods alike, None when it may have all."""

    def draft(self, pod: PodRecord, cards: Cards, allowed: Mask) -> Draft:
        """Cards for a pod, shape (nodes, cards), of those that are allowed."""

    def frees(self, pod: PodRecord) -> bool:
        """Whether a pod that loses its place gives its slices back."""

    def annotations(self, plan: Plan, inventory: Inventory, node: str, now: float) -> Mapping[str, str]:
        """What tells the node's device plugin about a plan."""


class InventoryIndex:
    """The cards of distinct inventories."""

    def __init__(self) -> None:
        self._size = 0
        #: inventory, index, memory, seats, whether it is usable, number of its id, shape (cards, 6)
        self._cards: Counts = np.zeros((0, 6), np.int64)
        self._ids: dict[str, int] = {}

    def extend(self, values: Sequence[Inventory]) -> None:
        number = self._ids.setdefault
        cards = [
            (of, card.index, card.memory, card.seats, card.usable, number(card.id, len(self._ids)))
            for of, inventory in enumerate(values, self._size)
            for card in inventory.cards
        ]
        self._size += len(values)
        self._cards = np.concatenate([self._cards, np.array(cards, np.int64).reshape(-1, 6)])

    def cards(self, inventories: Numbers) -> tuple[Cards, Rows]:
        """The cards of nodes with these inventories, nothing taken, and the numbers of their ids, -1 for none."""
        of, index, *rest = self._cards.T
        # The row at the end is that of nodes without cards.
        table = np.full((4, self._size + 1, int(index.max(initial=0)) + 1), -1)
        table[:, of, index] = rest
        memory, seats, usable, ids = table[:, inventories]
        return Cards(usable > 0, memory, seats, *(np.zeros_like(memory) for _ in range(3))), ids

    def id_numbers(self, ids: Iterable[str]) -> Rows:
        """The numbers of ids, -1 for those of no card."""
        return np.array([self._ids.get(each, -1) for each in ids], np.intp)


class GrantIndex:
    """The parts of distinct grants."""

    def __init__(self) -> None:
        #: how many parts each grant has, shape (grants,)
        self._sizes: Rows = np.zeros(0, np.intp)
        #: number of the id, memory, percent of compute, shape (parts, 3)
        self._parts: Counts = np.zeros((0, 3), np.int64)
        self._ids: dict[str, int] = {}

    def extend(self, values: Sequence[Grant]) -> None:
        number = self._ids.setdefault
        grants = [[part for slices in grant for part in slices] for grant in values]
        parts = [(number(card, len(self._ids)), memory, cores) for grant in grants for card, memory, cores in grant]
        self._parts = np.concatenate([self._parts, np.array(parts, np.int64).reshape(-1, 3)])
        self._sizes = np.concatenate([self._sizes, np.array([*map(len, grants)], np.intp)])

    def parts(self, grants: Numbers, inventories: InventoryIndex) -> tuple[Rows, Counts]:
        """The parts of pods with these grants: the index of the pod, and rows of id's number, memory, compute."""
        sizes = self._sizes
        starts, of_pod = (np.cumsum(sizes) - sizes)[grants], sizes[grants]
        pod = np.repeat(np.arange(len(grants)), of_pod)
        parts = self._parts[np.arange(len(pod)) + (starts - (np.cumsum(of_pod) - of_pod))[pod]]
        parts[:, 0] = inventories.id_numbers(self._ids)[parts[:, 0]]
        return pod, parts


def locate(ids: Rows, nodes: Rows, wanted: Rows) -> Rows:
    """The card of a node that has an id, the last of equals, -1 for none; `ids` has shape (nodes, cards)."""
    width = ids.max(initial=0) + 2
    keys = (np.arange(len(ids))[:, None] * width + ids + 1).ravel()
    order = np.argsort(keys, kind="stable")
    sought = nodes * width + wanted + 1
    at = order[np.searchsorted(keys, sought, side="right", sorter=order) - 1]
    return np.where((keys[at] == sought) & (wanted >= 0), at % ids.shape[1], -1)


def first(free: Mask, count: int, order: Rows | None = None) -> tuple[Mask, Mask]:
    """The first `count` free cards of each node, and where there are as many, shapes (nodes, cards) and (nodes,)."""
    if order is not None:
        free = np.take_along_axis(free, order, axis=1)
    so_far = free.cumsum(axis=1)
    picked = free & (so_far <= count)
    enough: Mask = so_far[:, -1] >= count if free.shape[1] else np.full(len(free), count <= 0)
    if order is not None:
        np.put_along_axis(in_place := np.empty_like(picked), order, picked, axis=1)
        picked = in_place
    return picked, enough


def units(amounts: ResourceList | None, name: str) -> int | None:
    """The amount of a resource in whole units, None when it is not named or no quantity."""
    value = (amounts or {}).get(name)
    try:
        return None if value is None else quantity.units(value)
    except InvalidQuantityError:
        return None
