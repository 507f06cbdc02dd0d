"""Whether what a plugin says of nodes changes where it declares that it does not.

Predicates are asked once for a class, and scores again for nodes where something changed. An answer that follows from
where other pods are is out of date without a word, unless the plugin says so by `varies` or `varies_on_node`.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import reduce
from typing import Any

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.class_member import ClassMember
from stromboli.framework.nodes import NodeView
from stromboli.framework.plugin import Plugin
from stromboli.framework.view import View


class Steadiness:
    """Compares what one plugin says in a session of the same pods and nodes."""

    def __init__(self, plugin: Plugin, view: View) -> None:
        self._plugin = plugin
        self._view = view
        #: how much of the log of changes was read, and where in it each node last was, shape (nodes,)
        self._read = 0
        self._changed: Rows = np.full(len(view.nodes), -1)
        #: what was last said of all nodes, NaN for nothing, and at which place in the log, by point, class and identity
        self._said: dict[Hashable, tuple[Vector, Rows]] = {}

    def problem(self, point: str, pod: Any, nodes: NodeView, answer: Any) -> str:
        """What is wrong with an answer that was checked; nothing for one that is steady, or need not be."""
        plugin = self._plugin
        if _declares(plugin, "varies", pod) or not self._are(nodes):
            return ""
        if point == "node_order" and self._tells_twins_apart(pod, nodes, answer):
            return "node_order() says different things of nodes with the same amounts, whatever `by_amounts` says"
        self._catch_up()
        identity = plugin.identity(pod) if type(plugin).identity is not Plugin.identity else None
        key = point, pod.pod_class.id, identity
        said, at = self._said.setdefault(key, (np.full(len(self._changed), np.nan), np.zeros_like(self._changed)))
        now, rows = _values(answer, len(nodes)), nodes.rows
        differs = ~np.isnan(said[rows]) & ~np.isclose(now, said[rows], rtol=1e-9)
        elsewhere = self._changed[rows] < at[rows]
        local = point == "node_order" or _declares(plugin, "varies_on_node", pod)
        found = np.flatnonzero(differs & elsewhere if local else differs)
        said[rows], at[rows] = now, self._read
        if not len(found):
            return ""
        where, declare = ("elsewhere", "varies") if elsewhere[found].any() else ("on it", "varies_on_node")
        return f"{point}() says something else of a node once pods came or went {where}: see `{declare}`"

    def _tells_twins_apart(self, pod: Any, nodes: NodeView, answer: Any) -> bool:
        """Whether nodes with the same amounts have different scores although the plugin says that they do not."""
        plugin = self._plugin
        if answer is None or type(plugin).by_amounts is Plugin.by_amounts or not plugin.by_amounts(pod):
            return False
        amounts = np.vstack((nodes.allocatable, nodes.used, nodes.scoring, answer))
        kinds = len(np.unique(amounts[:-1], axis=1).T)
        return len(np.unique(amounts, axis=1).T) > kinds

    def _are(self, nodes: NodeView) -> bool:
        """Whether nodes are shown as they are, and not as they would be."""
        rows = nodes.rows
        return len(np.unique(rows)) == len(rows) and np.array_equal(nodes.used, self._view.nodes.used[:, rows])

    def _catch_up(self) -> None:
        log = self._view.nodes.log
        for place in range(self._read, len(log)):
            self._changed[log[place]] = place
        self._read = len(log)


def _declares(plugin: Plugin, point: str, pod: Any) -> bool:
    """Whether a plugin says of a pod that it varies; those that do not, it may have been shown as their class."""
    declared = getattr(type(plugin), point) is not getattr(Plugin, point)
    return declared and not isinstance(pod, ClassMember) and bool(getattr(plugin, point)(pod))


def _values(answer: Any, count: int) -> Vector:
    """Scores as they are; of filters 1 where all hold."""
    if isinstance(answer, list):
        passing: Mask = reduce(np.logical_and, (mask for _, mask in answer), np.ones(count, np.bool_))
        return passing.astype(np.float64)
    return np.zeros(count) if answer is None else answer
