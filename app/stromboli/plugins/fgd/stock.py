"""The cards of nodes in thousandths, as scores see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from stromboli.api.resources import CPU, Mask, Rows, Vector
from stromboli.devices.cards import Cards, Counts
from stromboli.devices.holdings import Holdings
from stromboli.devices.vgpu import ByTypeAndId, Request, Virtual
from stromboli.framework.cluster.nodes import Changes
from stromboli.framework.cluster.view import View
from stromboli.state.nodes import NodeRecord
from stromboli.state.pods import PodRecord

#: a whole card
CARD = 1000


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a node's cards; all cards of a node are assumed to be equal."""

    type: str
    memory: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """The cards that a pod requests. If several of its containers request cards, the largest request counts."""

    cpu: float
    #: None for a pod that asks for no card
    request: Request | None
    choice: ByTypeAndId | None = None
    #: whether several containers ask for cards
    several: bool = False
    #: the thousandths of each card, where they do not follow from the request
    share: int | None = None

    @property
    def cards(self) -> int:
        """Number of cards that it asks for."""
        return 0 if self.request is None else self.request.cards

    def part(self, kind: Kind) -> int:
        """The thousandths that it takes of each card of a kind, 0 of no card."""
        request = self.request
        if self.share is not None or request is None:
            return self.share or 0
        if request.percentage is not None:
            memory = request.percentage * 10
        else:
            memory = max(1, round(CARD * request.memory / kind.memory)) if kind.memory else CARD
        return min(max(memory, request.cores * 10), CARD)

    def shares(self, kind: Kind) -> bool:
        """Whether it takes a part of one card of a kind."""
        return self.cards == 1 and self.part(kind) < CARD

    def allows(self, kind: Kind) -> bool:
        """Whether it may have cards of a kind."""
        return self.choice is None or self.choice.allows_type(kind.type)


class Stock:
    """The amounts left of the cards. Arrays have shape (nodes,) or (nodes, cards)."""

    def __init__(self, view: View, sharing: Virtual, holdings: Holdings) -> None:
        self._sharing = sharing
        self._holdings = holdings
        kinds = view.nodes.facts.column(Stock, self._kind_of)
        #: the number of each node's kind; the last is that of nodes without cards
        self.kind: Rows = np.where(kinds.numbers < 0, len(kinds.values), kinds.numbers).astype(np.intp)
        self.kinds: list[Kind] = [*kinds.values, Kind("", 0)]
        #: thousandths of each card
        self.left: Counts = _left(holdings.cards)
        #: memory of each card for pods that ask for no compute, -1 where they get none
        self.room: Counts = _room(holdings.cards)
        self.there: Mask = holdings.cards.there
        #: the most that a node has of each
        self.most_cpu = float(view.nodes.allocatable[CPU].max(initial=1.0))
        self.most_cards = float(CARD * max(1, self.there.sum(axis=1).max(initial=1)))
        #: thousandths of cards that a node has for each thousandth of a processor
        self._per_cpu: Vector = CARD * self.there.sum(axis=1) / np.maximum(view.nodes.allocatable[CPU], 1.0)
        #: number of pods by node and by the number of their cards; column 0 counts pods with a part of a card
        self.classes: Counts = np.zeros((len(self.kind), self.there.shape[1] + 1), np.int64)
        self._parts: dict[Wanted, Rows] = {}
        self._changes = Changes(holdings)

    def count(self, wanted: Wanted, node: int, sign: int) -> None:
        """A pod with cards came to a node (1) or left it (-1)."""
        self.classes[node, self.class_of(wanted, node)] += sign

    def class_of(self, wanted: Wanted, node: int | Rows) -> Rows:
        """The class of a pod on a node: its number of cards, 0 where it has a part of one."""
        number = min(wanted.cards, self.classes.shape[1] - 1)
        shares = np.array([wanted.shares(kind) for kind in self.kinds])
        return np.where(shares[self.kind[node]], 0, number)

    def refresh(self) -> None:
        """Look again at the nodes whose cards changed."""
        for node in self._changes.in_order():
            cards = self._holdings.cards.of(slice(node, node + 1))
            self.left[node], self.room[node] = _left(cards)[0], _room(cards)[0]

    def parts(self, wanted: Wanted, rows: Rows) -> Rows:
        """The thousandths of each card that a pod takes on some nodes."""
        found = self._parts.get(wanted)
        if found is None:
            found = self._parts[wanted] = np.array([wanted.part(kind) for kind in self.kinds], np.intp)
        return found[self.kind[rows]]

    def whole(self, rows: Rows) -> Rows:
        """Number of free cards of some nodes."""
        return cast("Rows", (self.left[rows] == CARD).sum(axis=1))

    def beyond_cpu(self, rows: Rows, cpu: Vector, idle: Rows) -> Vector:
        """Thousandths of cards that are idle beyond the part of its CPU that a node has left, shape (rows,)."""
        found: Vector = np.maximum(0.0, idle - cpu * self._per_cpu[rows])
        return found

    def _kind_of(self, node: NodeRecord) -> Kind | None:
        inventory = self._sharing.inventory(node)
        return None if inventory is None else Kind(inventory.cards[0].type, inventory.cards[0].memory)


def wanted(pod: PodRecord, sharing: Virtual, request: Vector) -> Wanted:
    """The cards that a pod requests; `request` is its request to the node."""
    requests = sharing.requests(pod)
    largest = max(requests, key=lambda each: (each.cards, each.percentage or 0, each.memory), default=None)
    choice = sharing.choice(pod) if largest is not None else None
    return Wanted(float(request[CPU]), largest, choice, several=len(requests) > 1)


def _left(cards: Cards) -> Counts:
    """Thousandths left of cards: of memory or of compute, whichever is less; 0 of those that are full."""
    memory = np.maximum(cards.memory, 1)
    left = np.minimum(np.rint(CARD * (memory - cards.used_memory) / memory), (100 - cards.used_cores) * 10)
    found = np.where(cards.there & (cards.users < cards.seats), np.clip(left, 0, CARD), 0)
    return np.ascontiguousarray(found, np.int64)


def _room(cards: Cards) -> Counts:
    open_ = cards.there & (cards.users < cards.seats) & (cards.used_cores != 100)
    return np.ascontiguousarray(np.where(open_, cards.memory - cards.used_memory, -1), np.int64)
