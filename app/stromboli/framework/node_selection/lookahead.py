"""Choices for pods of a class that come one at a time, made for several pods ahead.

They equal what the pods would get one at a time, provided that each choice is taken and nothing else happens. So a
choice is handed out only if the last one was taken and no other node changed; else it and all later ones are dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from stromboli.api.resources import Vector
from stromboli.framework.cluster.nodes import Nodes

#: number of choices to be taken with nothing in between before more than one is made ahead, and how many are
#: made at most: those that are dropped are wasted work
_AFTER, _MOST = 8, 256


class Lookahead:
    """The choices that were made for one class."""

    __slots__ = ("_amounts", "_left", "_logged", "_made", "_node", "_nodes", "_request", "_scoring", "_taken")

    def __init__(self, nodes: Nodes, request: Vector, scoring: tuple[float, float], chosen: int) -> None:
        """The node `chosen` is given out just now."""
        self._nodes = nodes
        self._request, self._scoring = request, scoring
        #: choices that were taken before these, with nothing in between
        self._taken = 0
        self._give_out([chosen])

    def next(self) -> int | None:
        """The next choice; None if there is none left, or if anything else happened meanwhile."""
        if self._left and self._came_true():
            return self._take()
        return None

    def choose(self, ahead: Callable[[int], list[int] | None], one: Callable[[], list[int]]) -> int | None:
        """Make new choices and give out the first; None when there is no node.

        `one` chooses for one pod; `ahead` for up to a number of pods, or None if their effect on scores is not known.
        """
        self._taken = self._taken + self._made if self._came_true() else 0
        chosen = ahead(min(self._taken, _MOST)) if self._taken >= _AFTER else None
        if chosen is None:
            chosen = one()
        return self._give_out(chosen) if chosen else None

    def _give_out(self, chosen: list[int]) -> int:
        self._made = len(chosen)
        #: the next at the end
        self._left = chosen[::-1]
        return self._take()

    def _take(self) -> int:
        nodes = self._nodes
        self._node = node = self._left.pop()
        #: length of the log of changes when the choice is taken
        self._logged = len(nodes.log) + 1
        if self._left:
            idle, scoring = (nodes.idle[:, node] - self._request).tolist(), nodes.scoring[:, node].tolist()
            #: amounts of the node once the pod is there
            self._amounts = idle, [have + more for have, more in zip(scoring, self._scoring, strict=True)]
        return node

    def _came_true(self) -> bool:
        """Whether the last choice was taken, and nothing else happened."""
        nodes, node = self._nodes, self._node
        if len(nodes.log) != self._logged or nodes.log[-1] != node:
            return False
        return not self._left or self._amounts == (nodes.idle[:, node].tolist(), nodes.scoring[:, node].tolist())
