"""Who holds which cards: flat columns of those who did before the session, and a table of those who came or left."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Mask, Rows
from stromboli.plugins.deviceshare.cards import Cards, Counts, Slice


class Holders:
    """Parts of cards: rows of pods, ascending, nodes, cards, shape (parts,); memory and compute, shape (parts, 2)."""

    def __init__(self, pods: Rows, nodes: Rows, cards: Rows, amounts: Counts) -> None:
        self.pods = pods
        self.nodes = nodes
        self._cards = cards
        self._amounts = amounts
        #: whether a pod holds a card of a node, where the session changed it
        self._changed: dict[tuple[int, int, int], bool] = {}

    def slices(self, parts: slice) -> tuple[Slice, ...]:
        """Some parts."""
        rows = zip(self._cards[parts].tolist(), self._amounts[parts].tolist(), strict=True)
        return tuple(Slice(card, memory, cores) for card, (memory, cores) in rows)

    def count_into(self, cards: Cards) -> None:
        """Count all parts as taken."""
        at = self.nodes, self._cards
        np.add.at(cards.users, at, 1)
        np.add.at(cards.used_memory, at, self._amounts[:, 0])
        np.add.at(cards.used_cores, at, self._amounts[:, 1])

    def change(self, pod: int, node: int, card: int, sign: int) -> None:
        """A pod got a card (1) or lost it (-1)."""
        self._changed[pod, node, card] = sign > 0

    def cards_of(self, pods: Mask, shape: tuple[int, ...]) -> Mask:
        """The cards that any of some pods, shape (pods,), holds, shape (nodes, cards)."""
        held = np.zeros(shape, np.int64)
        chosen = pods[self.pods]
        before = {*zip(*(part[chosen].tolist() for part in (self.pods, self.nodes, self._cards)), strict=True)}
        for at in before | {at for at in self._changed if pods[at[0]]}:
            held[at[1:]] += self._changed.get(at, True)
        return held > 0
