"""Checks whether a plugin's answers about nodes change where it declares that they do not.

Predicates are asked once per class, and scores again for changed nodes. An answer that depends on other pods becomes
outdated unnoticed, unless the plugin declares it by `varies` or `varies_on_node`.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import reduce
from typing import Any

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.plugin.class_member import ClassMember


class Steadiness:
    """Compares the answers of one plugin in a session about the same pods and nodes."""

    def __init__(self, plugin: Plugin, view: View) -> None:
        self._plugin = plugin
        self._view = view
        #: position in the log of changes, and of each node's last change, shape (nodes,)
        self._read = 0
        self._changed: Rows = np.full(len(view.nodes), -1)
        #: by point, class and identity: the last answer for all nodes (NaN for none), and its position in the log
        self._said: dict[Hashable, tuple[Vector, Rows]] = {}

    def problem(self, point: str, pod: Any, nodes: NodeView, answer: Any) -> str:
        """The problem of a checked answer; none if it is steady, or need not be."""
        plugin = self._plugin
        if _declares(plugin, "varies", pod) or not self._are(nodes):
            return ""
        if point == "node_order" and self._tells_equals_apart(pod, nodes, answer):
            return "node_order() scores nodes with equal amounts differently, although the plugin declares `by_amounts`"
        self._catch_up()
        identity = plugin.identity(pod) if "identity" in plugin.taking_part else None
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
        return f"{point}() changes its answer about a node when pods come or go {where}: see `{declare}`"

    def _tells_equals_apart(self, pod: Any, nodes: NodeView, answer: Any) -> bool:
        """Whether nodes with equal amounts have different scores although the plugin declares otherwise."""
        plugin = self._plugin
        if answer is None or "by_amounts" not in plugin.taking_part or not plugin.by_amounts(pod):
            return False
        amounts = np.vstack((nodes.allocatable, nodes.used, nodes.scoring, answer))
        kinds = len(np.unique(amounts[:-1], axis=1).T)
        return len(np.unique(amounts, axis=1).T) > kinds

    def _are(self, nodes: NodeView) -> bool:
        """Whether nodes are shown in their current state, not in a hypothetical one."""
        rows = nodes.rows
        return len(np.unique(rows)) == len(rows) and np.array_equal(nodes.used, self._view.nodes.used[:, rows])

    def _catch_up(self) -> None:
        log = self._view.nodes.log
        for place in range(self._read, len(log)):
            self._changed[log[place]] = place
        self._read = len(log)


def _declares(plugin: Plugin, point: str, pod: Any) -> bool:
    """Whether a plugin declares that a pod varies; other pods may have been represented by their class."""
    return point in plugin.taking_part and not isinstance(pod, ClassMember) and bool(getattr(plugin, point)(pod))


def _values(answer: Any, count: int) -> Vector:
    """Scores as they are; filters as 1 where all pass."""
    if isinstance(answer, list):
        passing: Mask = reduce(np.logical_and, (mask for _, mask in answer), np.ones(count, np.bool_))
        return passing.astype(np.float64)
    return np.zeros(count) if answer is None else answer
