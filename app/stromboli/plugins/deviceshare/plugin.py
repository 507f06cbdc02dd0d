"""The plugin: which nodes have cards for a pod, which cards it gets there, and what its binding says about them."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field, model_validator

from stromboli.api.resources import Mask, Rows, Vector
from stromboli.devices.cards import Cards, Choice, Plan, Sharing
from stromboli.devices.holdings import Holdings
from stromboli.devices.vgpu import CHOICES, IDS, Virtual, is_apart_from_its_group
from stromboli.framework.cluster.nodes import Changes, NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin
from stromboli.framework.plugin.causes import Filters, Passing
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.recent import Recent
from stromboli.plugins.deviceshare.gpu import INDEX, SharedMemory, WholeCards
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads

#: the number of answers kept up to date; a dropped one is computed again
_MOST_ANSWERS = 64
#: up to this many nodes are looked at one by one, and results are cached for up to this many kinds of nodes
_FEW, _MOST_JUDGEMENTS = 16, 4_096
#: an answer that is out of date for more than this share of the nodes is computed again
_REFRESH_ALL = 0.25


class DeviceShareArguments(Arguments):
    """Arguments of deviceshare. One way of sharing can be in force."""

    gpu_sharing: bool = Field(default=False, alias="deviceshare.GPUSharingEnable")
    """Pods get a part of one card's memory."""
    gpu_number: bool = Field(default=False, alias="deviceshare.GPUNumberEnable")
    """Pods get whole cards."""
    vgpu: bool = Field(default=False, alias="deviceshare.VGPUEnable")
    """Pods get virtual cards."""
    policy: Literal["", "binpack", "spread"] = Field(default="", alias="deviceshare.SchedulePolicy")
    """Which virtual cards of a node are used first: the fullest or the emptiest."""
    weight: int = Field(default=0, alias="deviceshare.ScheduleWeight")
    """Multiplies the score of nodes; 0 turns it off."""
    exclusive_rules: list[dict[str, str]] = Field(default_factory=list, alias="deviceshare.GPUExclusiveRules")
    """Labels of pods that never share a virtual card with others of the same rule."""
    node_lock: bool = Field(default=False, alias="deviceshare.NodeLockEnable")
    """Accepted for compatibility: one scheduler decides at a time."""
    geometries_name: str = Field(default="", alias="deviceshare.KnownGeometriesCMName")
    """Accepted for compatibility: cards that are split in hardware are not handled."""
    geometries_namespace: str = Field(default="", alias="deviceshare.KnownGeometriesCMNamespace")
    """Accepted for compatibility."""
    mind_cluster: bool = Field(default=False, alias="deviceshare.AscendMindClusterVNPUEnable")
    """`false` only: Ascend's virtual NPUs are not shared here."""
    hami: bool = Field(default=False, alias="deviceshare.AscendHAMiVNPUEnable")
    """`false` only: Ascend's virtual NPUs are not shared here."""

    @model_validator(mode="after")
    def _one_way(self) -> DeviceShareArguments:
        if self.mind_cluster or self.hami:
            raise ValueError("Ascend's virtual NPUs are not shared here: their VNPUEnable can only be false")
        if self.gpu_sharing + self.gpu_number + self.vgpu > 1:
            raise ValueError("only one of GPUSharingEnable, GPUNumberEnable and VGPUEnable can be true")
        return self


class DeviceShare(Plugin):
    name = "deviceshare"
    reads = Reads(annotations=CHOICES, kept=(IDS, INDEX))
    Arguments: ClassVar[type[BaseModel]] = DeviceShareArguments

    def open(self, view: View) -> None:
        self._view = view
        self._sharing = _sharing(self.arguments, repaired=view.rules.devices)
        self._answers: Recent[Hashable, _Answer] = Recent(_MOST_ANSWERS)
        self._allowed: Recent[Choice, Mask] = Recent(_MOST_ANSWERS)
        if self._sharing is not None:
            self._holdings = Holdings(view, self._sharing)
            self._holdings.count_coming(self._plan)

    def varies_on_node(self, pod: PodRecord) -> bool:
        return self._wants(pod)

    def by_class(self, pod: PodRecord) -> bool:
        return not self._wants(pod) or not (self._rules(pod) or is_apart_from_its_group(pod))

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        if self._wants(pod):
            without = self._holdings.inventories.numbers[nodes.rows] < 0
            yield (
                Passing("node(s) didn't have enough free on their devices"),
                without | self._answer(pod).fits[nodes.rows],
            )

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        if self.arguments.weight <= 0 or not self._wants(pod):
            return None
        scores: Vector = self._answer(pod).scores[nodes.rows] * self.arguments.weight
        return scores

    def bind_annotations(self, pod: PodRecord, node: int) -> Mapping[str, str]:
        """The annotations that the pod gets with its binding."""
        return {} if self._sharing is None else self._holdings.annotations(pod, node)

    # -- accounts ------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        if self._sharing is None:
            return
        for pod, node in zip(operation.pods, operation.nodes, strict=True):
            self._holdings.allocate(pod, node, operation.kind, self._plan)

    def on_deallocate(self, operation: Operation) -> None:
        for pod in operation.pods if self._sharing is not None else ():
            self._holdings.give_back(pod)

    # -- answers -------------------------------------------------------------------------------------------------

    def _wants(self, pod: PodRecord) -> bool:
        return self._sharing is not None and self._sharing.wants(pod)

    def _plan(self, pod: PodRecord, node: int) -> Plan | None:
        """The slices that a pod would get on a node now."""
        return self._judge_node(pod, node, self._answer(pod)).plan

    def _answer(self, pod: PodRecord) -> _Answer:
        """The up-to-date answer about all nodes for pods like this one."""
        key = pod.pod_class.id, pod.job if is_apart_from_its_group(pod) else "", self._rules(pod)
        known = self._answers.get(key, lambda: _Answer(*self._judge(pod, slice(None)), Changes(self._holdings)))
        changed = known.changes.in_order()
        if changed:
            self._refresh(pod, known, changed)
        return known

    def _refresh(self, pod: PodRecord, known: _Answer, changed: list[int]) -> None:
        """Look again at the nodes whose cards changed."""
        if len(changed) <= _FEW:
            for node in changed:
                found = self._judge_node(pod, node, known)
                known.fits[node], known.scores[node] = found.fits, found.score
        elif len(changed) > _REFRESH_ALL * len(known.fits):
            known.fits, known.scores = self._judge(pod, slice(None))
        else:
            rows = np.array(changed, np.intp)
            known.fits[rows], known.scores[rows] = self._judge(pod, rows)

    def _judge_node(self, pod: PodRecord, node: int, known: _Answer) -> _Judgement:
        """The cards that a pod would get on a node now, and on any other node whose cards are the same and as full."""
        assert self._sharing is not None
        cards = self._available(pod, slice(node, node + 1))
        state = cards.written()
        found = known.judgements.get(state)
        if found is None:
            if len(known.judgements) == _MOST_JUDGEMENTS:
                known.judgements.clear()
            draft = self._sharing.draft(pod, cards)
            score = float(draft.values[0]) if self.arguments.weight > 0 else 0.0
            found = known.judgements[state] = _Judgement(bool(draft.fits[0]), score, draft.plan(0))
        return found

    def _judge(self, pod: PodRecord, rows: Rows | slice) -> tuple[Mask, Vector]:
        """Mask of nodes with enough cards for a pod, and scores, shape (nodes,)."""
        assert self._sharing is not None
        cards = self._available(pod, rows)
        if self.arguments.weight > 0:
            draft = self._sharing.draft(pod, cards)
            return draft.fits, draft.values
        fits = self._sharing.fits(pod, cards)
        return fits, np.zeros(len(fits))

    def _available(self, pod: PodRecord, rows: Rows | slice) -> Cards:
        """The cards of some nodes, without those that a pod must not have."""
        assert self._sharing is not None
        cards = self._holdings.cards.of(rows)
        choice = self._sharing.choice(pod)
        if choice is not None:
            cards = cards.among(self._chosen(choice)[rows])
        for taboo in self._taboo(pod):
            cards = cards.among(~taboo[rows])
        return cards

    def _chosen(self, choice: Choice) -> Mask:
        """The cards that pods with a choice may have, shape (nodes, cards)."""
        return self._allowed.get(choice, lambda: self._holdings.fleet.chosen(choice))

    def _taboo(self, pod: PodRecord) -> Iterator[Mask]:
        """Cards that a pod must not share with the pods that hold them, shape (nodes, cards)."""
        rules, shape = self._rules(pod), self._holdings.cards.there.shape
        if rules:
            yield self._holdings.parts.cards_of(rules, lambda: self._matching(rules), shape)
        if is_apart_from_its_group(pod):
            jobs = self._view.pods.job
            yield self._holdings.parts.cards_of(pod.job, lambda: jobs == jobs[pod.row], shape)

    def _matching(self, rules: frozenset[int]) -> Mask:
        """Pods that match any of some rules of exclusiveness, shape (pods,)."""
        key = ("exclusive", json.dumps(self.arguments.exclusive_rules))
        of_pods = self._view.snapshot.pod_facts.column(key, self._rules)
        same = np.array([bool(rules & others) for others in of_pods.values] + [False], np.bool_)
        matching: Mask = same[of_pods.numbers]
        return matching

    def _rules(self, pod: PodRecord) -> frozenset[int]:
        """The rules of exclusiveness that a pod's labels match."""
        return frozenset(
            number
            for number, labels in enumerate(self.arguments.exclusive_rules)
            if labels and labels.items() <= pod.labels.items()
        )


@dataclass(frozen=True, slots=True)
class _Judgement:
    """The answers shared by nodes whose cards are the same and as full."""

    fits: bool
    score: float
    plan: Plan | None


@dataclass(slots=True)
class _Answer:
    """Mask of nodes with enough cards for equal pods, and scores, shape (nodes,)."""

    fits: Mask
    scores: Vector
    #: the nodes whose cards changed since
    changes: Changes
    #: by what is written of a node's cards
    judgements: dict[bytes, _Judgement] = field(default_factory=dict)


def _sharing(arguments: DeviceShareArguments, *, repaired: bool) -> Sharing | None:
    if arguments.vgpu:
        return Virtual(arguments.policy, repaired=repaired)
    if arguments.gpu_sharing:
        return SharedMemory()
    return WholeCards() if arguments.gpu_number else None
