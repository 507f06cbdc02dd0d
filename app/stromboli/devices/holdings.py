"""The cards of a session's nodes as they are now, and what each pod holds of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from stromboli.api.pod_state import ON_NODE_STATES, STATES, PodState
from stromboli.api.resources import Mask
from stromboli.devices.card_parts import CardParts
from stromboli.devices.cards import Fleet, GrantIndex, Inventory, InventoryIndex, Plan, Sharing
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.operation import Kind
from stromboli.state.pods import PodRecord

_ON_NODE = np.isin(np.arange(STATES), ON_NODE_STATES)
_BINDING = int(PodState.Binding)


class Holdings:
    """The cards that pods hold, updated as they get and lose places."""

    def __init__(self, view: View, sharing: Sharing) -> None:
        self._view = view
        self._sharing = sharing
        self.inventories = view.nodes.facts.column(type(sharing), sharing.inventory)
        self.fleet = self.inventories.derived(Fleet)
        self.cards = self.fleet.cards()
        #: nodes whose cards changed, in the order in which they did
        self.log: list[int] = []
        #: devices that pods got or lost in this session, by row: the node and the slices
        self._held: dict[int, tuple[int, Plan]] = {}
        self.parts = self._running()
        self.parts.count_into(self.cards)

    def count_coming(self, plan: Callable[[PodRecord, int], Plan | None]) -> None:
        """Count bindings whose annotations have not come back yet, once, at the start.

        What they would get is what they most likely got; `plan` says what a pod would get on a node.
        """
        view = self._view
        coming = self._on_node() & (view.pods.state == _BINDING)
        coming[self.parts.pods] = False
        for pod in view.records(np.flatnonzero(coming)):
            if self._sharing.wants(pod):
                node = int(view.pods.node[pod.row])
                self.hold(pod, node, plan(pod, node) or ())

    def inventory(self, node: int) -> Inventory | None:
        """The cards of a node; None when it has none."""
        number = self.inventories.numbers[node]
        return self.inventories.values[number] if number >= 0 else None

    def annotations(self, pod: PodRecord, node: int) -> Mapping[str, str]:
        """The annotations that a pod gets with its binding to a node: the slices that it got there in this session."""
        held_on, plan = self._held.get(pod.row, (-1, ()))
        inventory = self.inventory(node)
        if held_on != node or inventory is None:
            return {}
        return self._sharing.annotations(plan, inventory, self._view.nodes.name(node), self._view.time())

    def allocate(self, pod: PodRecord, node: int, kind: Kind, plan: Callable[[PodRecord, int], Plan | None]) -> None:
        """A pod gets its slices on a node, as `plan` chooses them, or has its own again if its eviction is undone."""
        if kind is Kind.Evict:
            self.hold(pod, *self.holding(pod))
        elif self._sharing.wants(pod) and self.inventory(node) is not None:
            self.hold(pod, node, plan(pod, node) or ())

    def hold(self, pod: PodRecord, node: int, plan: Plan) -> None:
        """A pod gets slices on a node."""
        if plan:
            self._held[pod.row] = node, plan
            self._take(pod, node, plan, 1)

    def give_back(self, pod: PodRecord) -> None:
        """A pod gives back what it has, or had before the session, where the way of sharing says so."""
        node, plan = self.holding(pod)
        if node >= 0 and plan and self._sharing.frees(pod):
            self._held[pod.row] = node, plan
            self._take(pod, node, plan, -1)

    def _take(self, pod: PodRecord, node: int, plan: Plan, sign: int) -> None:
        for part in (part for container in plan for part in container):
            self.cards.take(node, part, sign)
            self.parts.change(pod.row, node, part.card, sign)
        self.log.append(node)

    def holding(self, pod: PodRecord) -> tuple[int, Plan]:
        """Node and device slices that a pod has, had in this session, or held before; -1 and no slices for none."""
        known = self._held.get(pod.row)
        if known is None:
            parts = self.parts.of(pod.row)
            slices = self.parts.slices(parts)
            known = (int(self.parts.nodes[parts.start]), (slices,)) if slices else (-1, ())
        return known

    def _on_node(self) -> Mask:
        pods = self._view.pods
        on_node = _ON_NODE[pods.state] & (pods.node >= 0)
        on_node[on_node] = self.inventories.numbers[pods.node[on_node]] >= 0
        return on_node

    def _running(self) -> CardParts:
        """The cards that pods on the nodes hold according to their annotations."""
        pods, sharing = self._view.pods, self._sharing
        grants = self._view.snapshot.pod_facts.column((type(sharing), "grant"), sharing.grant)
        rows = np.flatnonzero(self._on_node() & (grants.numbers >= 0))
        index = self.inventories.index(InventoryIndex)
        pod, parts = grants.index(GrantIndex).parts(grants.numbers[rows], index)
        rows = rows[pod]
        nodes = pods.node[rows].astype(np.intp)
        cards = self.fleet.locate(nodes, parts[:, 0])
        found = cards >= 0
        return CardParts(rows[found], nodes[found], cards[found], parts[found, 1:])
