"""Answers of plugins about nodes for a pod: which pass, their scores, and what these depend on. Work is counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.cluster.nodes import Nodes, NodeView
from stromboli.framework.plugin.causes import Administrative, Passing
from stromboli.framework.plugin.relations import Relation
from stromboli.framework.runtime.asked import plugin_of
from stromboli.framework.runtime.failures import TurnCutError
from stromboli.framework.runtime.points import Points
from stromboli.state.pods import PodRecord

#: told of steps of work
Watch: TypeAlias = Callable[[int], None]

#: steps of a question to plugins besides those for its nodes
CALL = 2_000
#: steps added by each claim of a pod, and by each condition on other pods
_CLAIM, _CONDITION = 1_000, 250


class NodeQuestions:
    """Questions about the nodes of a session."""

    def __init__(self, nodes: Nodes, points: Points) -> None:
        self.nodes = nodes
        self._points = points
        self._varies: Callable[[PodRecord], bool] = points.asking("varies")
        self._varies_on_node: Callable[[PodRecord], bool] = points.asking("varies_on_node")
        #: the pod asked about last, the number of changes by then, and whether it varies, anywhere or on a node
        self._scope: tuple[PodRecord | None, int, bool, bool] = None, 0, False, False
        #: nodes whose score was computed, for reports of work done
        self.nodes_scored = 0
        #: nodes looked at again because they had changed since a class was last asked about
        self.nodes_rescored = 0
        #: work done, about in nodes looked at; the same on every machine
        self.steps = 0
        #: steps at which the current turn is cut
        self.most = math.inf
        #: told of steps before they are taken; may raise to end the session
        self.watch: Watch | None = None

    def step(self, steps: int = CALL) -> None:
        """Count work. Raises TurnCutError where it is more than the current turn may take."""
        self.steps += steps
        if self.steps > self.most:
            raise TurnCutError
        if self.watch is not None:
            self.watch(steps)

    @property
    def left(self) -> float:
        """The steps that the current turn may still take."""
        return self.most - self.steps

    @property
    def steps_of_question(self) -> int:
        """The steps that a question to plugins about all nodes takes."""
        return len(self.nodes) + CALL

    @property
    def filters(self) -> bool:
        """Whether any plugin looks at nodes beyond their free capacity."""
        return bool(self._points.all["predicate"])

    def varies(self, pod: PodRecord) -> bool:
        """Whether what plugins say of this pod depends on other pods: it must be placed one at a time."""
        return any(self._scope_of(pod))

    def _scope_of(self, pod: PodRecord) -> tuple[bool, bool]:
        """Whether it depends on other pods anywhere, or if not, on those of a node; asked again and again in a turn."""
        asked, changes, anywhere, on_node = self._scope
        if asked is not pod or changes != len(self.nodes.log):
            anywhere = self._varies(pod)
            on_node = not anywhere and self._varies_on_node(pod)
            self._scope = pod, len(self.nodes.log), anywhere, on_node
        return anywhere, on_node

    def varies_on_node(self, pod: PodRecord) -> bool:
        """Whether it depends on other pods of a node."""
        return self._varies_on_node(pod)

    @property
    def identifies(self) -> bool:
        """Whether pods of one class may have different identities."""
        return bool(self._points.all["identity"])

    def identity(self, pod: PodRecord) -> Hashable:
        """Pods with the same identity have the same predicates and scores."""
        if not self._points.all["identity"]:
            return pod.pod_class.id
        return (pod.pod_class.id, *self._points.identity("identity", pod))

    def terms(self, pod: PodRecord) -> Hashable:
        """Key of everything that predicates read of a pod besides its request and what makes it vary."""
        return (pod.pod_class.terms, *self._points.identity("identity", pod))

    def follows(self, pod: PodRecord) -> bool:
        """Whether placements raise the scores of their neighbours."""
        return any(True for _ in self._neighbourhoods(pod))

    def together(self, pod: PodRecord, nodes: list[int]) -> list[int]:
        """The nodes up to the first one in another neighbourhood than its predecessor.

        While placements stay in one neighbourhood, its scores only rise relative to the others, so the best node by the
        initial scores stays the best. Beyond it scores have to be asked for anew.
        """
        if len(nodes) < 2:
            return nodes
        for of_node in self._neighbourhoods(pod):
            left = np.flatnonzero(of_node[nodes] != of_node[nodes[0]])
            nodes = nodes[: left[0]] if len(left) else nodes
        return nodes

    def _neighbourhoods(self, pod: PodRecord) -> Iterator[Rows]:
        return self._points.numbers("neighbourhoods", len(self.nodes), pod)

    def feasible(self, pod: PodRecord, *, hopeful: bool = False) -> Mask:
        """The nodes that all predicates pass, free capacity not considered.

        `hopeful` adds those that refuse the pod only for causes that go when pods go.
        """
        return self.passing(pod, self.nodes.view(self.nodes.rows), hopeful=hopeful)

    def passing(self, pod: PodRecord, view: NodeView, *, hopeful: bool = False) -> Mask:
        """Mask of a view's nodes that pass all predicates, as in `feasible`, shape (nodes of the view,)."""
        passed = np.ones(len(view), np.bool_)
        for cause, mask in self._filters(pod, view):
            if not (hopeful and isinstance(cause, Passing)):
                passed &= mask
        return passed

    def between(self, pods: Sequence[PodRecord]) -> tuple[list[Relation], list[bool]]:
        """The relations between placements of some pods, and the pods that relations do not describe fully."""
        said = set(map(plugin_of, self._points.all["relations"]))
        warning = [
            method
            for hint in ("varies", "varies_on_node")
            for method in self._points.all[hint]
            if plugin_of(method) not in said and "predicate" in plugin_of(method).taking_part
        ]
        return self._points.uses("relations", Relation, pods), [any(m(pod) for m in warning) for pod in pods]

    def without(self, pod: PodRecord, causes: Collection[str], *, hopeful: bool = False) -> Mask:
        """The nodes that all predicates pass, or fail for some causes only, amounts not considered; see `feasible`."""
        passed = np.ones(len(self.nodes), np.bool_)
        for cause, mask in self._filters(pod, self.nodes.view(self.nodes.rows)):
            if not (cause in causes or (hopeful and isinstance(cause, Passing))):
                passed &= mask
        return passed

    def mendable(self, pod: PodRecord) -> Mask:
        """The nodes that all predicates pass, or fail only for what administrators can change, whatever is free."""
        passed = np.ones(len(self.nodes), np.bool_)
        for cause, mask in self._filters(pod, self.nodes.view(self.nodes.rows)):
            if not isinstance(cause, Administrative):
                passed &= mask
        return passed

    def causes(self, pod: PodRecord) -> list[tuple[str, Mask]]:
        """Why nodes are not feasible: each cause with the nodes that fail it first."""
        left = np.ones(len(self.nodes), np.bool_)
        out = []
        for cause, failed in self.refusals(pod):
            if (first := left & failed).any():
                out.append((cause, first))
            left &= ~failed
        return out

    def refusals(self, pod: PodRecord) -> list[tuple[str, Mask]]:
        """Why nodes are not feasible: each cause with all nodes that fail it."""
        return [(cause, ~mask) for cause, mask in self._filters(pod, self.nodes.view(self.nodes.rows))]

    def _filters(self, pod: PodRecord, view: NodeView) -> Iterator[tuple[str, Mask]]:
        size, of_class = view.rows.size, pod.pod_class
        claims = len(of_class.claims) + len(of_class.spec.resource_claims or ())
        self.step(size + CALL + _CLAIM * claims + _CONDITION * of_class.conditions)
        return self._points.filters("predicate", size, pod, view)

    def score(self, pod: PodRecord, view: NodeView) -> Vector:
        """The sum of the scores that depend on each node alone, shape (nodes of the view,)."""
        size = view.rows.size
        self.nodes_scored += size
        self.step(size + CALL)
        total = self._points.scores("node_order", size, pod, view)
        return np.zeros(size) if total is None else total

    @property
    def scores_sets(self) -> bool:
        """Whether any plugin's scores depend on the set of nodes."""
        return bool(self._points.all["batch_node_order"])

    def set_scores(self, pod: PodRecord, rows: Rows) -> Vector | None:
        """The sum of the scores that depend on the set of nodes, shape (rows,); None when they are all equal."""
        if not self.scores_sets:
            return None
        return self._points.scores("batch_node_order", len(rows), pod, self.nodes.view(rows))

    def by_amounts(self, pod: PodRecord) -> bool:
        """Whether nodes with the same amounts have the same score."""
        return self._points.flag("by_amounts", pod)

    def by_class(self, pod: PodRecord) -> bool:
        """Whether pods that vary on nodes share answers with all others of their identity."""
        return self._points.flag("by_class", pod)

    def one_by_one(self, pod: PodRecord) -> bool:
        """Whether a placement changes the score of its node in more than the amounts."""
        return self._points.flag("one_by_one", pod)
