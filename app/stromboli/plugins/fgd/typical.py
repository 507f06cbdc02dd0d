"""Fragmentation: the rests of cards that typical pods cannot use.

A typical pod of class m can use a node if the type of its cards, the remaining CPU and enough cards suffice for it, and
there it can use the cards with enough left for its part. The rest of a node's cards is a fragment for it, and so
are all cards for a pod that requests none. A node's fragment is the mean over typical pods, weighted by how many of
each there are. So with weights w of sum W, and t left of all cards, W * fragment = W * t - worth, where

    worth = sum over cards with x left of  x * (the weight of the pods with one card that can use x of a card there)
          + (untouched cards) * (the weight of the pods with several that find enough of them)

which is looked up in tables by the kind of the node's cards, the CPU that is left, and x.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Matrix, Rows, Vector
from stromboli.framework.cluster.view import View
from stromboli.plugins.fgd.stock import CARD, Kind, Wanted
from stromboli.state.pods import PodRecord, PodTable

#: states of pods that count as usual
_SEEN = tuple(state for state in PodState if state not in (PodState.Succeeded, PodState.Failed, PodState.Unknown))

#: the most common kinds of pods that make up this part of all pods are typical, up to this number of kinds
_TYPICAL, _MOST = 0.95, 256


def pods_seen(view: View, asked: Callable[[PodRecord], Wanted]) -> Mapping[Wanted, int]:
    """Number of pods that wait or run, by their request; pods of a class request the same."""
    pods = view.pods
    there = np.isin(pods.state, _SEEN) & (pods.job != PodTable.FREE)
    first = dict(zip(pods.pod_class[there].tolist(), np.flatnonzero(there).tolist(), strict=True))
    counts = np.bincount(pods.pod_class[there], minlength=1)
    found: Counter[Wanted] = Counter()
    for number, row in sorted(first.items()):
        found[asked(view.record(row))] += int(counts[number])
    return found


def typical_pods(counts: Mapping[Wanted, int]) -> Mapping[Wanted, int]:
    """The most common of some pods; of equally many the largest."""
    order = sorted(counts, key=lambda pod: (counts[pod], *_size(pod)), reverse=True)
    total, so_far, chosen = sum(counts.values()), 0, {}
    for pod in order[:_MOST]:
        if so_far >= _TYPICAL * total:
            break
        so_far += counts[pod]
        chosen[pod] = counts[pod]
    return chosen


def _size(pod: Wanted) -> tuple[float, int, int, str]:
    memory = pod.request.memory if pod.request else 0
    return pod.cpu, memory if pod.share is None else pod.share, pod.cards, str(pod.choice)


class Worth:
    """The worth of nodes' cards to typical pods, in thousandths of a card times weight."""

    def __init__(self, typical: Mapping[Wanted, int], kinds: list[Kind], most_cards: int) -> None:
        sharers = [(pod, weight) for pod, weight in typical.items() if pod.cards]
        #: of all typical pods
        self.weight = float(sum(typical.values()))
        #: the amounts of CPU that typical pods ask for, ascending
        self._cpus: Vector = np.array(sorted({pod.cpu for pod, _ in sharers}), np.float64)
        size = len(self._cpus) + 1
        #: by kind, number of these amounts that are left, and the rest of a card
        self._card: Matrix = np.zeros((len(kinds), size, CARD + 1))
        #: by kind, number of these amounts that are left, and of untouched cards
        self._several: Matrix = np.zeros((len(kinds), size, most_cards + 1))
        for number, kind in enumerate(kinds):
            for pod, weight in sharers:
                if pod.allows(kind):
                    enough = int(np.searchsorted(self._cpus, pod.cpu, side="right"))
                    if pod.cards == 1:
                        self._card[number, enough:, pod.part(kind) :] += weight
                    else:
                        self._several[number, enough:, pod.cards :] += weight
        self._card *= np.arange(CARD + 1)
        self._several *= CARD * np.arange(most_cards + 1)

    def of(self, kind: Rows, cpu: Vector, left: Rows) -> Vector:
        """Value of the cards of nodes, shape (nodes,), if `cpu` of their CPU is left and `left`, shape (nodes, cards),
        of their cards."""
        enough = self._cpus.searchsorted(cpu, side="right")
        cards = self._card[kind[:, None], enough[:, None], left].sum(axis=1)
        found: Vector = cards + self._several[kind, enough, (left == CARD).sum(axis=1)]
        return found

    def fragments(self, kind: Rows, cpu: Vector, left: Rows) -> Vector:
        """The fragments of nodes in thousandths of a card, shape (nodes,)."""
        total: Vector = left.sum(axis=1).astype(np.float64)
        return total - self.of(kind, cpu, left) / self.weight if self.weight else np.zeros(len(total))
