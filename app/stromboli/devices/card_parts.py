"""Which pods hold which cards: flat columns as of the session's start, and a table of pods that came or left."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from stromboli.api.resources import Mask, Rows
from stromboli.devices.cards import Cards, Counts, Slice
from stromboli.framework.recent import Recent

#: the number of groups of pods with cached counts of cards; a dropped group is counted again
_MOST_GROUPS = 64


@dataclass(slots=True)
class _Group:
    """Some pods, shape (pods,), and how many of them hold each card, shape (nodes, cards)."""

    pods: Mask
    counts: Counts


class CardParts:
    """Parts of cards: rows of pods, ascending, nodes, cards, shape (parts,); memory and compute, shape (parts, 2)."""

    def __init__(self, pods: Rows, nodes: Rows, cards: Rows, amounts: Counts) -> None:
        self.pods = pods
        self.nodes = nodes
        self._cards = cards
        self._amounts = amounts
        #: whether a pod holds a card of a node, where the session changed it
        self._changed: dict[tuple[int, int, int], bool] = {}
        self._groups: Recent[Hashable, _Group] = Recent(_MOST_GROUPS)

    def of(self, pod: int) -> slice:
        """The parts of a pod."""
        return slice(*self.pods.searchsorted((pod, pod + 1)).tolist())

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
        at = pod, node, card
        if self._holds(at) == (sign > 0):
            return
        self._changed[at] = sign > 0
        for group in self._groups.values():
            if group.pods[pod]:
                group.counts[node, card] += sign

    def cards_of(self, key: Hashable, pods: Callable[[], Mask], shape: tuple[int, ...]) -> Mask:
        """The cards that any of a group of pods holds, shape (nodes, cards); `pods`, shape (pods,), says which pods are
        in it.

        They are counted when a group's key is first asked for; `shape` is always the same.
        """
        return self._groups.get(key, lambda: self._count(pods(), shape)).counts > 0

    def _count(self, pods: Mask, shape: tuple[int, ...]) -> _Group:
        chosen = pods[self.pods]
        before = np.unique(np.stack([part[chosen] for part in (self.pods, self.nodes, self._cards)]), axis=1)
        counts = np.zeros(shape, np.int64)
        np.add.at(counts, (before[1], before[2]), 1)
        for (pod, node, card), holds in self._changed.items():
            if pods[pod]:
                counts[node, card] += int(holds) - self._held(pod, node, card)
        return _Group(pods, counts)

    def _holds(self, at: tuple[int, int, int]) -> bool:
        """Whether a pod holds a card of a node now."""
        known = self._changed.get(at)
        return self._held(*at) if known is None else known

    def _held(self, pod: int, node: int, card: int) -> bool:
        """Whether it did before the session."""
        parts = self.of(pod)
        return parts.start < parts.stop and bool(((self.nodes[parts] == node) & (self._cards[parts] == card)).any())
