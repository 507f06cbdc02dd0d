"""Trace of one pod in a session, in order, with each plugin's answer for each node when a place is chosen.

A session that was not asked to trace a pod does nothing for it: `PodTrace.follow` puts recording stand-ins for the
ledger and the trace of refusals into a session that is run once more to be explained. They decide nothing, so that
session decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MethodType
from typing import Any, cast

import numpy as np

from stromboli.api.reasons import Reason
from stromboli.api.resources import TOLERANCE, Mask, Vector, compared
from stromboli.framework import reasons
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.trace import Trace
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.framework.session.ledger import Ledger
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord


@dataclass(slots=True)
class Considered:
    """The verdict on every node when a pod was to be placed; arrays have shape (nodes,)."""

    #: masks of nodes that plugins rule out, each under its first cause: plugin and cause
    refused: list[tuple[str, str, Mask]] = field(default_factory=list)
    #: shortages of each node that the pod does not fit on
    short: list[tuple[str, Mask]] = field(default_factory=list)
    #: the scores of each plugin
    scores: dict[str, Vector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to the pod."""

    #: the action that ran, empty before and after all
    action: str
    #: assumed, promised, given back, bound, evicted, restored, refused, or job refused
    what: str
    #: index of the node, -1 without one
    node: int = -1
    reason: Reason | None = None
    considered: Considered | None = None


class PodTrace:
    """The steps of one pod in one session."""

    def __init__(self, pod: str) -> None:
        """`pod` is its key."""
        self.key = pod
        self.action = ""
        self.steps: list[Step] = []
        #: the pod as the session sees it
        self.pod: PodRecord | None = None
        self._session: Session | None = None

    def follow(
        self, session: Session, actions: Mapping[str, Callable[[Session], None]]
    ) -> Mapping[str, Callable[[Session], None]]:
        """Record what becomes of the pod in a session that has not run yet; returns the actions to run it with."""
        self._session = session
        session.ledger = session.outcome.ledger = _FollowingLedger(session.ledger, self)
        session.view.trace = _FollowingTrace(self)
        records = session.view.pods.records
        self.pod = next((each for each in records if each is not None and each.key == self.key), None)
        return {name: self._during(name, run) for name, run in actions.items()}

    def note(self, what: str, node: int = -1, reason: Reason | None = None, pod: PodRecord | None = None) -> None:
        """Add a step; with a `pod`, including the current verdict on all nodes."""
        assert self._session is not None
        considered = None if pod is None else consider(self._session, pod)
        self.steps.append(Step(self.action, what, node, reason, considered))

    def _during(self, name: str, run: Callable[[Session], None]) -> Callable[[Session], None]:
        def traced(session: Session) -> None:
            self.action = name
            try:
                run(session)
            finally:
                self.action = ""

        return traced


def consider(session: Session, pod: PodRecord) -> Considered:
    """The current verdict of plugins and free capacity on all nodes for a pod."""
    view, found = session.view, Considered()
    nodes = view.nodes.view(view.nodes.rows)
    left = np.ones(len(view.nodes), np.bool_)
    for plugin, pairs in _answers(session, "predicate", pod, nodes):
        for cause, passed in pairs:
            failed = left & ~passed
            if failed.any():
                found.refused.append((plugin, str(cause), failed))
            left &= passed
    request, free = view.request(pod), view.nodes.available(view.nodes.rows)
    columns = np.flatnonzero(compared(request, view.nodes.always)).tolist()
    lacks = free[columns] <= request[columns, None] - TOLERANCE
    for pattern in np.unique(lacks[:, left], axis=1).T:
        if pattern.any():
            lacked = [column for column, lacking in zip(columns, pattern.tolist(), strict=True) if lacking]
            same = left & (lacks == pattern[:, None]).all(axis=0)
            found.short.append((reasons.insufficient(view.dimensions, pod, lacked), same))
    for point in ("node_order", "batch_node_order"):
        for plugin, scores in _answers(session, point, pod, nodes):
            found.scores[plugin] = found.scores.get(plugin, 0.0) + np.asarray(scores, np.float64)
    return found


def _answers(session: Session, point: str, pod: PodRecord, nodes: NodeView) -> Iterator[tuple[str, Any]]:
    """The verdict of each plugin, by name, on all nodes for a pod; a failing plugin is left out."""
    for method in session.points.all[point]:
        plugin = cast(Plugin, cast(MethodType, method).__self__)
        try:
            # Predicates answer one pair after the other.
            answer = list(method(pod, nodes)) if point == "predicate" else method(pod, nodes)
        except Exception:
            continue
        if answer is not None:
            yield plugin.name, answer


class _FollowingLedger(Ledger):
    """A ledger that tells of the operations on one pod."""

    __slots__ = ("_followed",)

    def __init__(self, ledger: Ledger, followed: PodTrace) -> None:
        for name in Ledger.__slots__:
            setattr(self, name, getattr(ledger, name))
        self._followed = followed

    def apply(self, operation: Operation) -> None:
        at = self._place(operation)
        if at is not None and operation.kind is Kind.Evict:
            self._followed.note("evicted", operation.nodes[at])
        elif at is not None:
            before = replace(operation, pods=operation.pods[:at], nodes=operation.nodes[:at])
            if at:
                # Each of several pods is chosen a node after those before it.
                super().apply(before)
            what = "assumed" if operation.kind is Kind.Allocate else "promised"
            self._followed.note(what, operation.nodes[at], pod=operation.pods[at])
            if at:
                super().undo(before)
        super().apply(operation)

    def undo(self, operation: Operation) -> None:
        super().undo(operation)
        if (at := self._place(operation)) is not None:
            self._followed.note("restored" if operation.kind is Kind.Evict else "given back", operation.nodes[at])

    def bind(self, operation: Operation) -> None:
        super().bind(operation)
        if (at := self._place(operation)) is not None:
            self._followed.note("bound", operation.nodes[at])

    def _place(self, operation: Operation) -> int | None:
        """The index of the pod in an operation; None if it is not part of it."""
        key = self._followed.key
        return next((at for at, pod in enumerate(operation.pods) if pod.key == key), None)


class _FollowingTrace(Trace):
    """A trace that tells of the refusals of one pod and its job."""

    __slots__ = ("_followed",)

    def __init__(self, followed: PodTrace) -> None:
        super().__init__()
        self._followed = followed

    def job(self, key: str, reason: Reason) -> None:
        super().job(key, reason)
        pod = self._followed.pod
        if pod is not None and pod.job == key:
            self._followed.note("job refused", reason=reason)

    def pod(self, row: int, reason: Reason) -> None:
        super().pod(row, reason)
        pod = self._followed.pod
        if pod is not None and pod.row == row:
            self._followed.note("refused", reason=reason, pod=pod)
