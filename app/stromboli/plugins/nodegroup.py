"""nodegroup: queues run on the node groups that they name, up to a limit for each.

A node's group is its label `volcano.sh/nodegroup-name`. A queue uses the groups of its affinity and not those of its
anti-affinity, where the preferred ones are better than none and worse than others. With `enableHierarchy` a queue
without affinity takes that of its nearest ancestor that has one. The annotation
`volcano.sh/nodegroup-resource-limits` caps what the pods of the queue hold in each group; limits are not inherited.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api import readers
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import Quantity
from stromboli.api.pod_state import ALLOCATED_STATES
from stromboli.api.resources import TOLERANCE, Vector
from stromboli.framework.job import Queue
from stromboli.framework.nodes import NodeView
from stromboli.framework.operation import Operation
from stromboli.framework.plugin import Arguments, Filters, Plugin
from stromboli.framework.view import View
from stromboli.state.pods import PodRecord

_GROUP = "volcano.sh/nodegroup-name"
_LIMITS = "volcano.sh/nodegroup-resource-limits"
_SCORE = 100.0


class NodeGroupArguments(Arguments):
    """Arguments of nodegroup."""

    strict: bool = True
    """Whether queues without affinity stay off nodes without a group as well."""
    preferred_order: bool = Field(default=False, alias="enablePreferredOrder")
    """Whether the first of the preferred groups is better than the second, and so on."""


@dataclass(frozen=True, slots=True)
class Affinity:
    """The groups that a queue names."""

    required: tuple[str, ...]
    preferred: tuple[str, ...]
    anti_required: tuple[str, ...]
    anti_preferred: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.required or self.preferred or self.anti_required or self.anti_preferred)

    def allows(self, group: str) -> bool:
        """Whether the queue runs on a group. To be disliked is to be allowed."""
        if group in self.anti_preferred:
            return True
        return group not in self.anti_required and (group in self.required or group in self.preferred)

    def score(self, group: str, *, ordered: bool) -> float:
        """How good a group is, 150 at most."""
        if group in self.anti_preferred:
            return -1.0
        score = _SCORE if group in self.required else 0.0
        if group in self.preferred:
            behind = self.preferred.index(group) if ordered else 0
            score += _SCORE / 2 * (1 - behind / len(self.preferred))
        return score


@dataclass(slots=True)
class Account:
    """What a queue may do where."""

    affinity: Affinity
    #: the most that it may hold in a group, infinite where nothing is said; None when its annotation cannot be read
    limits: dict[str, Vector] | None
    #: what it holds in each group that is limited, shape (dimensions,)
    held: dict[str, Vector] = field(default_factory=dict)

    def has_room(self, group: str, request: Vector) -> bool:
        """Whether a pod more stays within the limit of a group."""
        if not self.limits or group not in self.limits:
            return True
        return bool((self.held[group] + request < self.limits[group] + TOLERANCE).all())


class NodeGroup(Plugin):
    name = "nodegroup"
    queue_fields = frozenset(("affinity",))
    Arguments: ClassVar[type[BaseModel]] = NodeGroupArguments

    def open(self, view: View) -> None:
        self._view = view
        self._accounts = {queue.name: self._open_account(queue) for queue in view.queues.values()}
        #: the group of each node, empty for none
        self._groups = [record.labels.get(_GROUP, "") for record in view.nodes.facts.records]
        self._count_running()

    def identity(self, pod: PodRecord) -> Hashable:
        """The queue: what else than a pod's class its nodes depend on."""
        job = self._view.jobs.get(pod.job)
        return job.queue.name if job else None

    def varies(self, pod: PodRecord) -> bool:
        account = self._account(pod)
        return account is not None and bool(account.limits)

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        account = self._account(pod)
        if account is None:
            return
        if account.limits is None:
            yield f"the queue's annotation {_LIMITS} cannot be read", np.zeros(len(nodes), np.bool_)
            return
        grouped = _per_group(nodes, bool) > 0
        if not account.affinity:
            yield "node(s) belong to a node group, and the queue names none", ~grouped
            if self.arguments.strict:
                yield "node(s) belong to no node group", grouped
            return
        yield "node(s) belong to no node group", grouped
        used = _per_group(nodes, account.affinity.allows) > 0
        yield "node(s) belong to a node group that the queue does not use", used
        if account.limits:
            request = self._view.request(pod)
            room = _per_group(nodes, lambda group: account.has_room(group, request)) > 0
            yield "the queue's limit for the node group is reached", room

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        account = self._account(pod)
        if account is None or not account.affinity:
            return None
        affinity, ordered = account.affinity, self.arguments.preferred_order
        return _per_group(nodes, lambda group: affinity.score(group, ordered=ordered) if group else 0.0)

    # -- accounts ------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        self._change(operation, +1)

    def on_deallocate(self, operation: Operation) -> None:
        self._change(operation, -1)

    def _change(self, operation: Operation, sign: int) -> None:
        if operation.job is None:
            return
        held = self._accounts[operation.job.queue.name].held
        for node in operation.nodes:
            group = self._groups[node]
            if group in held:
                held[group] += sign * operation.request

    def _count_running(self) -> None:
        """Add what pods hold already, where there is a limit."""
        view = self._view
        for job in view.jobs.values():
            held = self._accounts[job.queue.name].held
            if not self._accounts[job.queue.name].limits:
                continue
            for pod in view.members(job):
                node = int(view.pods.node[pod.row])
                if node >= 0 and view.pods.state[pod.row] in ALLOCATED_STATES and self._groups[node] in held:
                    held[self._groups[node]] += view.request(pod)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _account(self, pod: PodRecord) -> Account | None:
        job = self._view.jobs.get(pod.job)
        return self._accounts[job.queue.name] if job else None

    def _open_account(self, queue: Queue) -> Account:
        limits = _limits(self._view, queue)
        held = {group: self._view.vector(None) for group in limits or ()}
        return Account(self._affinity(queue), limits, held)

    def _affinity(self, queue: Queue) -> Affinity:
        """The affinity of a queue or, in a hierarchy, of its nearest ancestor that has one."""
        own = _affinity(queue)
        seen = {queue.name}
        above: Queue | None = queue
        while self.hierarchy and not own and above is not None:
            above = self._view.queues.get(above.parent)
            if above is None or above.name in seen:
                break
            seen.add(above.name)
            own = _affinity(above)
        return own


def _affinity(queue: Queue) -> Affinity:
    likes, dislikes = queue.spec.affinity.node_group_affinity, queue.spec.affinity.node_group_anti_affinity
    return Affinity(
        required=tuple(likes.required if likes else ()),
        preferred=tuple(likes.preferred if likes else ()),
        anti_required=tuple(dislikes.required if dislikes else ()),
        anti_preferred=tuple(dislikes.preferred if dislikes else ()),
    )


def _limits(view: View, queue: Queue) -> dict[str, Vector] | None:
    """The limits by group; None when the annotation is not what it should be."""
    text = queue.resource.metadata.annotations.get(_LIMITS)
    if not text:
        return {}
    limits = readers.json(text, dict[str, dict[str, Quantity]])
    try:
        return None if limits is None else {group: view.vector(of, np.inf) for group, of in limits.items()}
    except InvalidQuantityError:
        return None


def _per_group(nodes: NodeView, answer: Callable[[str], float]) -> Vector:
    """An answer for each group, where "" is no group, spread over its nodes; shape (nodes,)."""
    numbers = nodes.facts.label(_GROUP)[nodes.rows]
    # A node without the label has the number -1, which is the last entry.
    answers = [answer(group) for group in nodes.facts.label_values(_GROUP)] + [answer("")]
    return np.array(answers, np.float64)[numbers]
