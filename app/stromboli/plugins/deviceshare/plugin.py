"""The plugin: which nodes have cards for a pod, which cards it gets there, and what its binding says about them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field, model_validator

from stromboli.api.pod_state import ON_NODE_STATES, PodState
from stromboli.api.resources import Vector
from stromboli.framework.nodes import NodeView
from stromboli.framework.plugin import Arguments, Filters, Passing, Plugin
from stromboli.framework.session import Session
from stromboli.framework.statement import Kind, Placement
from stromboli.plugins.deviceshare.cards import Inventory, Plan, Sharing
from stromboli.plugins.deviceshare.gpu import SharedMemory, WholeCards
from stromboli.plugins.deviceshare.vgpu import Virtual
from stromboli.state.pods import PodRecord


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

    @model_validator(mode="after")
    def _one_way(self) -> DeviceShareArguments:
        if self.gpu_sharing + self.gpu_number + self.vgpu > 1:
            raise ValueError("only one of GPUSharingEnable, GPUNumberEnable and VGPUEnable can be true")
        return self


class DeviceShare(Plugin):
    name = "deviceshare"
    Arguments: ClassVar[type[BaseModel]] = DeviceShareArguments

    def open(self, session: Session) -> None:
        self._session = session
        self._sharing = _sharing(self.arguments, repaired=session.rules.devices)
        #: cards by index of the node
        self._inventories: dict[int, Inventory] = {}
        #: what pods hold, by row
        self._held: dict[int, tuple[int, Plan]] = {}
        #: plans as they would be made now, by node and what they depend on; those of a node are dropped on a change
        self._plans: dict[int, dict[Hashable, Plan | None]] = {}
        if self._sharing is None:
            return
        for node, record in enumerate(session.nodes.facts.records):
            inventory = self._sharing.inventory(record)
            if inventory is not None:
                self._inventories[node] = inventory
        self._count_running(self._sharing)

    def varies(self, pod: PodRecord) -> bool:
        return self._wants(pod)

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        if self._wants(pod):
            rows = nodes.rows.tolist()
            fit = (row not in self._inventories or self._plan(pod, row) is not None for row in rows)
            yield Passing("node(s) didn't have enough free on their devices"), np.fromiter(fit, np.bool_, len(rows))

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        if self.arguments.weight <= 0 or not self._wants(pod):
            return None
        scores: Vector = np.array([self._score(pod, row) for row in nodes.rows.tolist()], np.float64)
        scores *= self.arguments.weight
        return scores

    def bind_annotations(self, pod: PodRecord, node: int) -> Mapping[str, str]:
        """What goes on the pod with its binding."""
        held_on, plan = self._held.get(pod.row, (-1, ()))
        if self._sharing is None or held_on != node:
            return {}
        session = self._session
        return self._sharing.annotations(plan, self._inventories[node], session.nodes.name(node), session.now)

    # -- accounts ------------------------------------------------------------------------------------------------

    def on_allocate(self, placement: Placement) -> None:
        for pod, node in zip(placement.pods, placement.nodes, strict=True):
            if placement.kind is Kind.Evict:
                self._hold(pod, *self._held.get(pod.row, (node, ())))
            elif self._wants(pod) and node in self._inventories:
                self._hold(pod, node, self._plan(pod, node) or ())

    def on_deallocate(self, placement: Placement) -> None:
        for pod in placement.pods:
            node, plan = self._held.get(pod.row, (-1, ()))
            if node >= 0 and self._sharing is not None and self._sharing.frees(pod):
                self._inventories[node].free(pod, plan)
                self._plans.pop(node, None)

    def _hold(self, pod: PodRecord, node: int, plan: Plan) -> None:
        if node in self._inventories and plan:
            self._held[pod.row] = node, plan
            self._inventories[node].hold(pod, plan)
            self._plans.pop(node, None)

    def _count_running(self, sharing: Sharing) -> None:
        """Note what pods on the nodes hold."""
        pods = self._session.pods
        unconfirmed = []
        for row in np.flatnonzero(np.isin(pods.node, list(self._inventories))).tolist():
            if pods.state[row] in ON_NODE_STATES:
                pod, node = self._session.record(row), int(pods.node[row])
                held = sharing.held(pod, self._inventories[node])
                if not any(held) and pods.state[row] == PodState.Binding and sharing.wants(pod):
                    unconfirmed.append((pod, node))
                self._hold(pod, node, held)
        # Bindings whose annotations have not come back yet: what they would get is what they most likely got.
        for pod, node in unconfirmed:
            self._hold(pod, node, self._plan(pod, node) or ())

    # -- plans ---------------------------------------------------------------------------------------------------

    def _wants(self, pod: PodRecord) -> bool:
        return self._sharing is not None and self._sharing.wants(pod)

    def _plan(self, pod: PodRecord, node: int) -> Plan | None:
        """The slices that a pod would get on a node now."""
        assert self._sharing is not None
        rules = self._rules(pod)
        key = (pod.pod_class.id, pod.job, rules)
        known = self._plans.setdefault(node, {})
        if key not in known:
            inventory = self._inventories[node]
            reserved = [card.index for card in inventory.by_index.values() if self._excludes(card.holders, rules)]
            known[key] = self._sharing.plan(pod, inventory, reserved)
        return known[key]

    def _score(self, pod: PodRecord, node: int) -> float:
        plan = self._plan(pod, node) if node in self._inventories else None
        if plan is None or self._sharing is None:
            return 0.0
        return self._sharing.score(plan, self._inventories[node])

    def _excludes(self, holders: Mapping[int, PodRecord], rules: frozenset[int]) -> bool:
        return bool(rules) and any(rules & self._rules(other) for other in holders.values())

    def _rules(self, pod: PodRecord) -> frozenset[int]:
        """The rules of exclusiveness that a pod's labels match."""
        return frozenset(
            number
            for number, labels in enumerate(self.arguments.exclusive_rules)
            if labels and labels.items() <= pod.labels.items()
        )


def _sharing(arguments: DeviceShareArguments, *, repaired: bool) -> Sharing | None:
    if arguments.vgpu:
        return Virtual(arguments.policy, repaired=repaired)
    if arguments.gpu_sharing:
        return SharedMemory()
    return WholeCards() if arguments.gpu_number else None
