"""Scores of nodes for a pod, from 0 to 100, and the card that a sharing pod gets there.

Scores are whole numbers: nodes that are nearly as good are equal, and the first of them is taken. That is part of each
rule, and improves the allocation of some by a point.

c and g are what is left of a node's CPU and of all its cards, C and G the most that any node has of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.devices.cards import first
from stromboli.plugins.fgd.stock import CARD, Stock, Wanted
from stromboli.plugins.fgd.typical import Worth


class Score(Protocol):
    """A rule. `fits` has shape (rows, cards): the cards with enough left."""

    #: whether pods without cards are scored
    scores_all: bool

    def of_nodes(self, wanted: Wanted, rows: Rows, cpu: Vector, fits: Mask) -> Vector:
        """The score of nodes, given the CPU left on each, shape (rows,)."""

    def card(self, wanted: Wanted, node: int, cpu: float, fits: Mask) -> int:
        """The card of a node, of those that fit, that a pod with a part of one gets."""


class _BestCard:
    """A sharing pod gets the card with the least left; ties go to the first."""

    scores_all = False

    def __init__(self, stock: Stock) -> None:
        self._stock = stock

    def card(self, wanted: Wanted, node: int, cpu: float, fits: Mask) -> int:
        return int(np.where(fits, self._stock.left[node], CARD + 1).argmin())


class DotProd(_BestCard):
    """The smaller the product of the amounts left and requested, the better."""

    scores_all = True

    def of_nodes(self, wanted: Wanted, rows: Rows, cpu: Vector, fits: Mask) -> Vector:
        stock = self._stock
        left = stock.left[rows].sum(axis=1) / stock.most_cards
        asked = wanted.cards * stock.parts(wanted, rows) / stock.most_cards
        product = cpu / stock.most_cpu * (wanted.cpu / stock.most_cpu) + left * asked
        found: Vector = np.trunc(100 * (1 - product / 2))
        return found


class BestFit(_BestCard):
    """The less is left with the pod there, the better."""

    scores_all = True

    def of_nodes(self, wanted: Wanted, rows: Rows, cpu: Vector, fits: Mask) -> Vector:
        stock = self._stock
        left = stock.left[rows].sum(axis=1) - wanted.cards * stock.parts(wanted, rows)
        remainder = 0.5 * (cpu - wanted.cpu) / stock.most_cpu + 0.5 * left / stock.most_cards
        found: Vector = np.trunc(100 * (1 - remainder))
        return found


class GpuPacking(_BestCard):
    """Cards in use first, then unused cards of nodes in use, then nodes without a card in use."""

    def of_nodes(self, wanted: Wanted, rows: Rows, cpu: Vector, fits: Mask) -> Vector:
        stock = self._stock
        left, asked = stock.left[rows], stock.parts(wanted, rows)
        whole, there = stock.whole(rows), stock.there[rows].sum(axis=1)
        taken = np.sort(np.where(fits, left, CARD + 1), axis=1)[:, : wanted.cards]
        untouched = (taken == CARD).sum(axis=1)
        first = np.where(asked < CARD, taken[:, 0], CARD)
        shared = np.maximum(100 - first * 100 // CARD // 10, 50)
        in_use = np.where(untouched > 0, np.maximum(50 - untouched, 33), shared)
        found: Vector = np.where(whole == there, np.maximum(33 - whole, whole), in_use).astype(np.float64)
        return found


class GpuClustering(_BestCard):
    """Pods next to those with the same number of cards, or with parts of cards as they have."""

    def of_nodes(self, wanted: Wanted, rows: Rows, cpu: Vector, fits: Mask) -> Vector:
        stock = self._stock
        there = stock.classes[rows] > 0
        number = there.sum(axis=1)
        own = there[np.arange(len(rows)), stock.class_of(wanted, rows)]
        least = np.where(own, np.where(number == 1, 75, 50), np.where(number == 0, 25, 0))
        whole = int(stock.most_cards)
        found: Vector = (least + 25 * (whole - stock.left[rows].sum(axis=1)) // whole).astype(np.float64)
        return found


class Fgd:
    """Fragmentation gradient descent: the less a placement adds to the fragments, the better.

    With `balance`, cards count in addition that are idle beyond the fraction of CPU that the node has left: on average,
    pods take a node's CPUs and cards together, and cards that are left when its CPUs are used up are lost.
    """

    scores_all = True

    def __init__(self, stock: Stock, worth: Worth, step: float, balance: float = 0.0) -> None:
        self._stock = stock
        self._worth = worth
        weight = max(worth.weight, 1)
        #: gains count as multiples of it
        self._unit = step * CARD * weight
        #: weight of a thousandth of such a card
        self._balance = balance * weight

    def of_nodes(self, wanted: Wanted, rows: Rows, cpu: Vector, fits: Mask) -> Vector:
        best: Vector = self._scores(wanted, rows, cpu, fits).max(axis=1)
        return best

    def card(self, wanted: Wanted, node: int, cpu: float, fits: Mask) -> int:
        return int(self._scores(wanted, np.array([node]), np.array([cpu]), fits[None])[0].argmax())

    def _scores(self, wanted: Wanted, rows: Rows, cpu: Vector, fits: Mask) -> Matrix:
        """The score of each way to take cards, shape (rows, ways): of a part, one for each card."""
        stock, worth = self._stock, self._worth
        kind, left = stock.kind[rows], stock.left[rows]
        part = stock.parts(wanted, rows)
        if wanted.cards == 1 and (part < CARD).any():
            taken: Mask = np.eye(left.shape[1], dtype=np.bool_)[None] & fits[:, None]
        else:
            taken = first(fits, wanted.cards)[0][:, None]
        after = np.where(taken, left[:, None] - part[:, None, None], left[:, None])
        ways = after.shape[1]
        gain = worth.of(
            np.repeat(kind, ways), np.repeat(cpu - wanted.cpu, ways), after.reshape(-1, left.shape[1])
        ).reshape(-1, ways)
        gain -= worth.of(kind, cpu, left)[:, None]
        gain += (worth.weight * wanted.cards * part)[:, None]
        if self._balance:
            idle, taking = left.sum(axis=1), wanted.cards * part
            more = stock.beyond_cpu(rows, cpu - wanted.cpu, idle - taking) - stock.beyond_cpu(rows, cpu, idle)
            gain -= self._balance * more[:, None]
        scores: Matrix = np.trunc(100 / (1 + np.exp(-gain / self._unit)))
        return np.where(taken.any(axis=2), scores, -1.0) if wanted.cards else scores


class Random:
    """Any node, and any card that fits, by a number drawn for each placement."""

    scores_all = True

    def __init__(self, seed: int, changes: Sequence[int]) -> None:
        """New random numbers are drawn for each value of `changes`."""
        self._seed = seed
        self._changes = changes

    def of_nodes(self, wanted: Wanted, rows: Rows, cpu: Vector, fits: Mask) -> Vector:
        return self._numbers(rows, 0)

    def card(self, wanted: Wanted, node: int, cpu: float, fits: Mask) -> int:
        return int(np.where(fits, self._numbers(np.arange(len(fits)), 1), -1.0).argmax())

    def _numbers(self, of: Rows, stream: int) -> Vector:
        """A number from 0 to 100 for each, by splitmix64."""
        with np.errstate(over="ignore"):
            start = np.uint64(self._seed * 1_000_003 + len(self._changes)) * np.uint64(2) + np.uint64(stream)
            mixed = _mixed(_mixed(np.array([start], np.uint64)) + of.astype(np.uint64) * _STEP)
        numbers: Vector = (mixed >> np.uint64(11)).astype(np.float64) * (100 / 2.0**53)
        return numbers


_STEP = np.uint64(0x9E3779B97F4A7C15)


def _mixed(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    state = state + _STEP
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed
