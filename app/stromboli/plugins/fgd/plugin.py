"""The plugin: where cards suffice for a pod, how good that is, and which cards it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api.resources import CPU, Mask, Rows, Vector
from stromboli.devices.cards import Cards, Choice, Plan, Slice, enough
from stromboli.devices.holdings import Holdings
from stromboli.devices.vgpu import CHOICES, IDS, USE_TYPE, ByTypeAndId, Request, Virtual, fitting_cards
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin
from stromboli.framework.plugin.causes import Filters, Passing
from stromboli.framework.plugin.operation import Operation
from stromboli.plugins.fgd import scores
from stromboli.plugins.fgd.scores import Score
from stromboli.plugins.fgd.stock import CARD, Stock, Wanted, wanted
from stromboli.plugins.fgd.typical import Worth, pods_seen, typical_pods
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads

_BY_STOCK: Mapping[str, Callable[[Stock], Score]] = {
    "bestfit": scores.BestFit,
    "packing": scores.GpuPacking,
    "clustering": scores.GpuClustering,
    "dotprod": scores.DotProd,
}


class TypicalPod(Arguments):
    """A pod that usually comes."""

    cpu: int
    """In thousandths of a processor."""
    cards: int = 0
    """Number of cards that it gets."""
    part: int = CARD
    """Part of each card, in thousandths."""
    types: str = ""
    """The types of card that it may have, separated by commas; all when empty."""
    weight: int = Field(default=1, ge=1)
    """Number of such pods, relative to the others."""

    @property
    def asked(self) -> Wanted:
        """Its request, with the memory of a card counted as a thousand units."""
        request = Request(self.cards, 0, None, 0) if self.cards else None
        choice = ByTypeAndId.read({USE_TYPE: self.types}) if self.types else None
        return Wanted(float(self.cpu), request, choice, share=self.part)


class FgdArguments(Arguments):
    """Arguments of fgd."""

    score: Literal["fgd", "bestfit", "packing", "clustering", "dotprod", "random"] = Field(
        default="fgd", alias="fgd.score"
    )
    """Rule that scores nodes: few new fragments (`fgd`), little left of its CPU and cards (`bestfit`), cards in use
    before others (`packing`), pods with as many cards there (`clustering`), little left of what the pod asks for
    (`dotprod`), or nothing (`random`)."""
    weight: int = Field(default=1, alias="fgd.weight")
    """Multiplies the score; 0 turns it off."""
    step: float = Field(default=1.0, alias="fgd.step", gt=0)
    """Granularity of the score `fgd`: nodes whose gains differ by less than about 0.04 cards times this are equal."""
    balance: float = Field(default=0.0, alias="fgd.balance", ge=0)
    """Weight in the score `fgd` of a card that is idle beyond the part of its CPU that a node has left; a fragment
    counts 1."""
    typical: list[TypicalPod] = Field(default_factory=list, alias="fgd.typicalPods")
    """The pods that usually come; when there are none, the pods of the cluster that wait or run."""
    seed: int = Field(default=0, alias="fgd.seed")
    """Seed of the score `random`."""


class Fgd(Plugin):
    name = "fgd"
    reads = Reads(annotations=CHOICES, kept=(IDS,))
    Arguments: ClassVar[type[BaseModel]] = FgdArguments

    def open(self, view: View) -> None:
        self._view = view
        self._sharing = Virtual("", repaired=True)
        self._asks: dict[int, Wanted] = {}
        self._allowed: dict[Choice, Mask] = {}
        self._holdings = Holdings(view, self._sharing)
        self._stock = Stock(view, self._sharing, self._holdings)
        self._holdings.count_coming(self._plan)
        for row in np.unique(self._holdings.parts.pods).tolist() if self.arguments.score == "clustering" else ():
            self._count(view.record(row), 1)
        random = self.arguments.score == "random"
        self.silent = frozenset(("node_order",) if random else ("batch_node_order",))
        if self.arguments.weight == 0:
            self.silent = frozenset(("node_order", "batch_node_order"))

    def varies_on_node(self, pod: PodRecord) -> bool:
        return self._sharing.wants(pod)

    def by_class(self, pod: PodRecord) -> bool:
        return True

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        if self._sharing.wants(pod):
            without = self._holdings.inventories.numbers[nodes.rows] < 0
            yield Passing("node(s) didn't have enough free on their devices"), without | self._fits(pod, nodes.rows)

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        asked = self._asked(pod)
        if not asked.cards and not self._score.scores_all:
            return None
        cpu = nodes.allocatable[CPU] - nodes.used[CPU]
        found = self._score.of_nodes(asked, nodes.rows, cpu, self._fitting(asked, nodes.rows))
        return found if self.arguments.weight == 1 else found * float(self.arguments.weight)

    def batch_node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        return self.node_order(pod, nodes)

    def bind_annotations(self, pod: PodRecord, node: int) -> Mapping[str, str]:
        return self._holdings.annotations(pod, node)

    # -- accounts ------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        for pod, node in zip(operation.pods, operation.nodes, strict=True):
            self._holdings.allocate(pod, node, operation.kind, self._plan)
            self._count(pod, 1)

    def on_deallocate(self, operation: Operation) -> None:
        for pod in operation.pods:
            self._holdings.give_back(pod)
            self._count(pod, -1)

    def _count(self, pod: PodRecord, sign: int) -> None:
        """Count a pod by its number of cards, where the score asks for that."""
        if self.arguments.score != "clustering":
            return
        node, plan = self._holdings.holding(pod)
        if plan:
            self._stock.count(self._asked(pod), node, sign)

    # -- answers -------------------------------------------------------------------------------------------------

    @cached_property
    def _score(self) -> Score:
        stock, name = self._stock, self.arguments.score
        if name == "fgd":
            return scores.Fgd(stock, self._worth, self.arguments.step, self.arguments.balance)
        if name == "random":
            return scores.Random(self.arguments.seed, self._holdings.log)
        return _BY_STOCK[name](stock)

    @cached_property
    def _worth(self) -> Worth:
        stock, given = self._stock, self.arguments.typical
        typical = typical_pods({each.asked: each.weight for each in given} or pods_seen(self._view, self._asked))
        return Worth(typical, stock.kinds, stock.there.shape[1])

    def _asked(self, pod: PodRecord) -> Wanted:
        found = self._asks.get(pod.pod_class.id)
        if found is None:
            found = self._asks[pod.pod_class.id] = wanted(pod, self._sharing, self._view.request(pod))
        return found

    def _fits(self, pod: PodRecord, rows: Rows) -> Mask:
        """Whether the cards of some nodes suffice for a pod, shape (rows,)."""
        asked = self._asked(pod)
        if asked.several:
            return self._sharing.fits(pod, self._cards(asked, rows))
        return enough(self._fitting(asked, rows), asked.cards)

    def _fitting(self, asked: Wanted, rows: Rows) -> Mask:
        """The cards of some nodes with enough left for a request, shape (rows, cards)."""
        self._stock.refresh()
        request, choice = asked.request, asked.choice
        if request is None:
            return np.zeros((len(rows), self._stock.left.shape[1]), np.bool_)
        if request.percentage is None and not request.cores:
            fitting: Mask = self._stock.room[rows] >= request.memory
            return fitting if choice is None else fitting & self._chosen(choice)[rows]
        cards = self._cards(asked, rows)
        return fitting_cards(cards, request.memory_of(cards), request.cores)

    def _cards(self, asked: Wanted, rows: Rows) -> Cards:
        """The cards of some nodes that a pod may have."""
        cards = self._holdings.cards.of(rows)
        return cards if asked.choice is None else cards.among(self._chosen(asked.choice)[rows])

    def _chosen(self, choice: Choice) -> Mask:
        """The cards that pods with a choice may have, shape (nodes, cards)."""
        found = self._allowed.get(choice)
        if found is None:
            found = self._allowed[choice] = self._holdings.fleet.chosen(choice)
        return found

    def _plan(self, pod: PodRecord, node: int) -> Plan | None:
        """The slices that a pod gets on a node, which counts it already; None where cards do not suffice."""
        asked, row = self._asked(pod), np.array([node])
        request = asked.request
        if request is None or asked.several:
            return self._sharing.draft(pod, self._cards(asked, row)).plan(0)
        fits = self._fitting(asked, row)
        cards = np.flatnonzero(fits[0])[: asked.cards].tolist()
        if len(cards) < asked.cards:
            return None
        if asked.shares(self._stock.kinds[self._stock.kind[node]]):
            cpu = self._view.nodes.idle[CPU, node] + asked.cpu
            cards = [self._score.card(asked, node, cpu, fits[0])]
        memory = request.memory_of(self._holdings.cards.of(row))
        of_each = (memory if isinstance(memory, int) else int(memory[0, card]) for card in cards)
        return (tuple(Slice(card, part, request.cores) for card, part in zip(cards, of_each, strict=False)),)
