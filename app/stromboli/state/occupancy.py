"""Which pods are on which nodes: the sums of nodes follow the rows of pods, also of pods whose node is not there."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from stromboli.api.pod_state import ON_NODE_STATES, STATES, PodState
from stromboli.state.classes import ClassTable
from stromboli.state.nodes import NodeTable
from stromboli.state.pods import PodTable

# Plain numbers: those of NumPy are slow to compare with members of an enum.
_ON_NODE = frozenset(map(int, ON_NODE_STATES))
_IS_ON_NODE = np.isin(np.arange(STATES), ON_NODE_STATES)
_RELEASING = int(PodState.Releasing)


class Occupancy:
    """Puts pods on nodes and takes them off; the tables are those of one state."""

    def __init__(self, nodes: NodeTable, pods: PodTable, classes: ClassTable) -> None:
        self._nodes = nodes
        self._pods = pods
        self._classes = classes
        #: rows of pods on nodes that are not there, by node name, and the node of each
        self._strays: defaultdict[str, set[int]] = defaultdict(set)
        self._node_of_stray: dict[int, str] = {}

    def copy(self, nodes: NodeTable, pods: PodTable, classes: ClassTable) -> Occupancy:
        """An independent copy, over copies of the tables."""
        out = Occupancy(nodes, pods, classes)
        out._strays.update((node, rows.copy()) for node, rows in self._strays.items())
        out._node_of_stray = self._node_of_stray.copy()
        return out

    @property
    def strays(self) -> int:
        """Number of pods on nodes that do not exist."""
        return len(self._node_of_stray)

    # -- pods ------------------------------------------------------------------------------------------------------

    def put(self, row: int, state: PodState, node: str) -> None:
        """Set state and node of a pod that is on no node; the empty name is no node."""
        self._pods.state[row] = state
        node_row = self._nodes.by_name.get(node, -1)
        self._pods.node[row] = node_row
        if node_row >= 0:
            self._count(row, +1)
        elif node:
            self._add_stray(row, node)

    def take_off(self, row: int) -> None:
        """Remove a pod from its node, if it has one."""
        node_row = int(self._pods.node[row])
        if node_row < 0:
            self._drop_stray(row)
            return
        exact = self._nodes.is_exact(node_row)
        self._count(row, -1)
        self._pods.node[row] = -1
        if not exact:
            self.recount(node_row)

    def move(self, row: int, state: PodState, node: str) -> None:
        """Set state and node of a pod, wherever it is."""
        self.take_off(row)
        self.put(row, state, node)

    def _count(self, row: int, sign: int) -> None:
        state = int(self._pods.state[row])
        if state not in _ON_NODE:
            return
        pod_class = self._classes.classes[self._pods.pod_class[row]]
        self._nodes.add(
            int(self._pods.node[row]),
            self._classes.request(pod_class),
            pod_class.scoring_request,
            sign,
            releasing=state == _RELEASING,
        )

    def _add_stray(self, row: int, node: str) -> None:
        self._strays[node].add(row)
        self._node_of_stray[row] = node

    def _drop_stray(self, row: int) -> None:
        node = self._node_of_stray.pop(row, None)
        if node is not None:
            self._strays[node].discard(row)
            if not self._strays[node]:
                del self._strays[node]

    # -- nodes -----------------------------------------------------------------------------------------------------

    def node_came(self, name: str, node_row: int) -> None:
        """Count the pods on a new node that were there before it was known."""
        for row in sorted(self._strays.pop(name, ())):
            del self._node_of_stray[row]
            self._pods.node[row] = node_row
            self._count(row, +1)

    def node_went(self, name: str, node_row: int) -> None:
        """Remember the pods of a node that was deleted, until they go or it comes again."""
        for row in np.flatnonzero(self._pods.node[: self._pods.size] == node_row).tolist():
            self._pods.node[row] = -1
            self._add_stray(row, name)

    def recount(self, node: int | None = None) -> None:
        """Recompute the amounts held on a node, or on all nodes."""
        pods = self._pods
        nodes, states = pods.node[: pods.size], pods.state[: pods.size]
        rows = np.flatnonzero(_IS_ON_NODE[states] & (nodes >= 0 if node is None else nodes == node))
        classes = pods.pod_class[rows]
        which = np.arange(len(self._nodes.records)) if node is None else np.array([node], np.intp)
        self._nodes.recount(
            which,
            nodes[rows].astype(np.intp),
            self._classes.shown()[1][classes],
            np.array([self._classes.classes[number].scoring_request for number in classes.tolist()]).reshape(-1, 2),
            states[rows] == _RELEASING,
        )
