"""The cards of nodes and what is taken of them, as matrices of a row a node and a column a card."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import ResourceList
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.state.columns import Column, Numbers
from stromboli.state.nodes import NodeRecord
from stromboli.state.pods import PodRecord

#: shape (nodes, cards)
Counts: TypeAlias = npt.NDArray[np.int64]


#: more than any card has of anything, or than any node has of cards
LARGEST, MOST_CARDS = 2**31, 1_024


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of a card that a container gets."""

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
    #: number of containers that may share it
    seats: int = 0
    #: whether any pod can get it
    usable: bool = True


@dataclass(frozen=True)
class Inventory:
    """The cards of one node."""

    cards: tuple[Card, ...]
    #: sharing mode of the node's cards
    mode: str = ""

    @cached_property
    def by_index(self) -> Mapping[int, Card]:
        """The cards by index."""
        return {card.index: card for card in self.cards}


@dataclass(slots=True)
class Cards:
    """Matrices of shape (nodes, cards); nothing is known of cards that are not `there`.

    They lie card by card in memory, since nodes are many and cards are few.
    """

    there: Mask
    memory: Counts
    seats: Counts
    #: amounts taken: seats, memory, percent of compute
    users: Counts
    used_memory: Counts
    used_cores: Counts

    def of(self, rows: Rows | slice) -> Cards:
        """The cards of some nodes; of a slice of nodes, the same memory."""
        return Cards(*[part[rows] for part in self._parts()])

    def copy(self) -> Cards:
        """A copy that may be changed."""
        return Cards(*(part.copy(order="K") for part in self._parts()))

    def among(self, allowed: Mask) -> Cards:
        """The cards, limited to the allowed ones."""
        there, *others = self._parts()
        return Cards(there & allowed, *others)

    def written(self) -> bytes:
        """A digest of the cards; equal for equal cards with the same usage."""
        return b"".join([part.tobytes() for part in self._parts()])

    def take(self, node: int, part: Slice, sign: int) -> None:
        """Count a slice, or take it off; slices of cards that are not there do not count."""
        if part.card < self.there.shape[1] and self.there[node, part.card]:
            self.users[node, part.card] += sign
            self.used_memory[node, part.card] += sign * part.memory
            self.used_cores[node, part.card] += sign * part.cores

    def take_all(self, picks: Picks) -> None:
        """Count a slice of each card that was picked."""
        picked = picks.in_place
        self.users += picked
        self.used_memory += picked * picks.memory
        self.used_cores += picked * picks.cores

    def _parts(self) -> tuple[Any, ...]:
        return self.there, self.memory, self.seats, self.users, self.used_memory, self.used_cores


@dataclass(slots=True)
class Picks:
    """The cards for one container on each node."""

    #: in the order in which they are taken, shape (nodes, cards)
    picked: Mask
    #: of each card, where it is not the same of all, shape (nodes, cards)
    memory: int | Counts
    cores: int = 0
    #: that order, shape (cards,) where it is the same on all nodes, else (nodes, cards); None for that of the cards
    order: Rows | None = None

    @property
    def in_place(self) -> Mask:
        """Mask of picked cards, in their own order, shape (nodes, cards)."""
        if self.order is None:
            return self.picked
        out = np.empty_like(self.picked)
        if self.order.ndim == 1:
            out[:, self.order] = self.picked
        else:
            np.put_along_axis(out, self.order, self.picked, axis=1)
        return out

    def slices(self, node: int) -> tuple[Slice, ...]:
        """The cards of a node."""
        at = np.flatnonzero(self.picked[node])
        cards = at if self.order is None else self.order[at] if self.order.ndim == 1 else self.order[node, at]
        memory = repeat(self.memory) if isinstance(self.memory, int) else self.memory[node, cards].tolist()
        return tuple(Slice(card, part, self.cores) for card, part in zip(cards.tolist(), memory, strict=False))


@dataclass(slots=True)
class Draft:
    """Devices that a pod would get on each node."""

    #: whether it suffices, shape (nodes,)
    fits: Mask
    #: for each container that gets some
    containers: list[Picks] = field(default_factory=list)
    #: scores where it fits, shape (nodes,); None when all are equal
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


class Choice(Protocol):
    """The cards that a pod may have; equal for pods alike."""

    @property
    def use_ids(self) -> Collection[str]:
        """The only ones that it may have, where there are some."""

    @property
    def no_ids(self) -> Collection[str]:
        """The ids of the cards that a pod may not have."""

    def allows_mode(self, mode: str) -> bool:
        """Whether it may have cards of a node with a mode."""

    def allows_type(self, type: str) -> bool:
        """Whether it may have cards of a type."""


class Sharing(Protocol):
    """A way to share cards."""

    def wants(self, pod: PodRecord) -> bool:
        """Whether a pod asks for cards."""

    def inventory(self, node: NodeRecord) -> Inventory | None:
        """The cards of a node, None when it has none that are shared in this way."""

    def grant(self, pod: PodRecord) -> Grant | None:
        """The cards that a pod holds according to its annotations; None if they do not say."""

    def choice(self, pod: PodRecord) -> Choice | None:
        """The cards that a pod may have, None when it may have all."""

    def fits(self, pod: PodRecord, cards: Cards) -> Mask:
        """Whether cards suffice for a pod, shape (nodes,)."""

    def draft(self, pod: PodRecord, cards: Cards) -> Draft:
        """Cards for a pod."""

    def frees(self, pod: PodRecord) -> bool:
        """Whether a pod that loses its place gives its slices back."""

    def annotations(self, plan: Plan, inventory: Inventory, node: str, now: float) -> Mapping[str, str]:
        """The annotations that tell the node's device plugin about a plan."""


class InventoryIndex:
    """The cards of distinct inventories."""

    def __init__(self) -> None:
        self._size = 0
        #: inventory, index, memory, seats, whether it is usable, numbers of id, type and mode, shape (cards, 8)
        self._cards: Counts = np.zeros((0, 8), np.int64)
        self._ids: dict[str, int] = {}
        self._types: dict[str, int] = {}
        self._modes: dict[str, int] = {}

    def extend(self, values: Sequence[Inventory]) -> None:
        ids, types, modes = self._ids, self._types, self._modes
        cards = [
            (
                *(of, card.index, card.memory, card.seats, card.usable),
                ids.setdefault(card.id, len(ids)),
                types.setdefault(card.type, len(types)),
                modes.setdefault(inventory.mode, len(modes)),
            )
            for of, inventory in enumerate(values, self._size)
            for card in inventory.cards
        ]
        self._size += len(values)
        self._cards = np.concatenate([self._cards, np.array(cards, np.int64).reshape(-1, 8)])

    def cards(self, inventories: Numbers) -> tuple[Cards, Rows, Rows, Rows]:
        """The cards of nodes with these inventories, nothing taken; numbers of ids, types and modes, -1 for none."""
        of, index, *rest = self._cards.T
        # The last row stands for nodes without cards.
        table = np.full((6, self._size + 1, int(index.max(initial=0)) + 1), -1)
        table[:, of, index] = rest
        # Taken card by card: a transposed view has the cards of a node in a row again.
        memory, seats, usable, ids, types, modes = (part.T[:, inventories].T for part in table)
        return Cards(usable > 0, memory, seats, *(np.zeros_like(memory) for _ in range(3))), ids, types, modes

    @property
    def ids(self) -> Mapping[str, int]:
        """The numbers of the cards' ids. They only become more."""
        return self._ids

    def allowed(self, choice: Choice) -> tuple[Mask, Mask, Mask]:
        """Masks of ids, types and modes that a choice allows, by number; an additional last entry is for none."""
        ids = np.full(len(self._ids) + 1, not choice.use_ids)
        ids[[self._ids[each] for each in choice.use_ids if each in self._ids]] = True
        ids[[self._ids[each] for each in choice.no_ids if each in self._ids]] = False
        types = np.array([*map(choice.allows_type, self._types), False], np.bool_)
        return ids, types, np.array([*map(choice.allows_mode, self._modes), False], np.bool_)


class GrantIndex:
    """The parts of distinct grants."""

    def __init__(self) -> None:
        #: number of parts of each grant, shape (grants,)
        self._sizes: Rows = np.zeros(0, np.intp)
        #: number of the id, memory, percent of compute, shape (parts, 3)
        self._parts: Counts = np.zeros((0, 3), np.int64)
        self._ids: dict[str, int] = {}
        #: inventories, how many ids they have, and the number there of each id here, -1 for those of no card
        self._translated: tuple[InventoryIndex | None, int, Rows] = None, 0, np.zeros(0, np.intp)

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
        parts[:, 0] = self._translate(inventories)[parts[:, 0]]
        return pod, parts

    def _translate(self, inventories: InventoryIndex) -> Rows:
        """The number of each id's card, -1 where there is none; found again when there are more ids or cards."""
        known_of, cards, known = self._translated
        if known_of is not inventories or cards != len(inventories.ids) or len(known) != len(self._ids):
            known = np.array([inventories.ids.get(each, -1) for each in self._ids], np.intp)
            self._translated = inventories, len(inventories.ids), known
        return known


class Fleet:
    """The cards of all nodes with nothing taken, and where each is by its id."""

    def __init__(self, inventories: Column[Inventory]) -> None:
        """`inventories` are those of the nodes; it is made once for each such column."""
        self._index = inventories.index(InventoryIndex)
        cards, ids, types, modes = self._index.cards(inventories.numbers)
        self._cards = cards
        #: numbers of ids, types and modes, shape (nodes, cards) each
        self._kinds = ids, types, modes
        self._width = int(ids.max(initial=0)) + 2
        self._across = ids.shape[1]
        keys = (np.arange(len(ids))[:, None] * self._width + ids + 1).ravel()
        self._order = np.argsort(keys, kind="stable")
        #: numbers that tell node and id, ascending
        self._keys = keys[self._order]

    def cards(self) -> Cards:
        """The cards, to be taken."""
        known = self._cards
        return Cards(known.there, known.memory, known.seats, *(np.zeros_like(known.memory) for _ in range(3)))

    def chosen(self, choice: Choice) -> Mask:
        """The cards that a choice allows, shape (nodes, cards)."""
        ids, types, modes = (
            table[numbers] for table, numbers in zip(self._index.allowed(choice), self._kinds, strict=True)
        )
        allowed: Mask = ids & types & modes
        return allowed

    def locate(self, nodes: Rows, wanted: Rows) -> Rows:
        """The card of a node whose id has a given number, the last one on a tie; -1 for none."""
        sought = nodes * self._width + wanted + 1
        known = (wanted >= 0) & (wanted < self._width - 1)
        at = np.searchsorted(self._keys, sought, side="right") - 1
        return np.where((self._keys[at] == sought) & known, self._order[at] % self._across, -1)


def in_order(matrix: Mask, order: Rows) -> Mask:
    """A matrix of cards with those of each node in an order, see `Picks.order`."""
    return matrix[:, order] if order.ndim == 1 else np.take_along_axis(matrix, order, axis=1)


def enough(free: Mask, count: int) -> Mask:
    """Where there are `count` free cards, shape (nodes,), of those in a matrix of shape (nodes, cards)."""
    if count == 1:
        return cast("Mask", free.any(axis=1))
    return cast("Mask", free.sum(axis=1) >= count)


def first(free: Mask, count: int) -> tuple[Mask, Mask]:
    """The first `count` free cards of each node, and where there are as many, shapes (nodes, cards) and (nodes,)."""
    if len(free) < free.shape[1]:
        counted = free.cumsum(axis=1)
        return free & (counted <= count), counted[:, -1] >= count
    picked, so_far = np.empty_like(free), np.zeros(len(free), np.int32)
    for card, column in enumerate(free.T):
        so_far += column
        np.logical_and(column, so_far <= count, out=picked[:, card])
    return picked, so_far >= count


def units(amounts: ResourceList | None, name: str) -> int | None:
    """The amount of a resource in whole units, None when it is not named or no quantity."""
    value = (amounts or {}).get(name)
    try:
        return None if value is None else quantity.units(value)
    except InvalidQuantityError:
        return None
