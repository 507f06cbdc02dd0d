"""nodegroup: queues run on the node groups that they name, up to a limit for each.

A node's group is its label `volcano.sh/nodegroup-name`. A queue uses the groups of its affinity and not those of its
anti-affinity, where the preferred ones are better than none and worse than others. With `enableHierarchy` a queue
without affinity takes that of its nearest ancestor that has one. The annotation
`volcano.sh/nodegroup-resource-limits` caps what the pods of the queue hold in each group; limits are not inherited.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api import readers
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import Quantity
from stromboli.api.pod_state import ALLOCATED_STATES
from stromboli.api.resources import TOLERANCE, Mask, Vector
from stromboli.framework.cluster.job import Queue, lineage
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin
from stromboli.framework.plugin.causes import Anywhere, Filters
from stromboli.framework.plugin.operation import Operation
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

    required: Collection[str]
    #: the place of each group in the order, the first is 0
    preferred: Mapping[str, int]
    anti_required: Collection[str]
    anti_preferred: Collection[str]
    #: number of preferred ones, those that are named twice as well
    length: int

    def __bool__(self) -> bool:
        return bool(self.required or self.preferred or self.anti_required or self.anti_preferred)

    def allows(self, group: str) -> bool:
        """Whether the queue runs on a group. To be disliked is to be allowed."""
        if group in self.anti_preferred:
            return True
        return group not in self.anti_required and (group in self.required or group in self.preferred)

    def score(self, group: str, *, ordered: bool) -> float:
        """Score of a group, 150 at most."""
        if group in self.anti_preferred:
            return -1.0
        score = _SCORE if group in self.required else 0.0
        if group in self.preferred:
            behind = self.preferred[group] if ordered else 0
            score += _SCORE / 2 * (1 - behind / self.length)
        return score


@dataclass(slots=True)
class Account:
    """The node groups that a queue may use, and its limits there."""

    affinity: Affinity
    #: the most that it may hold in a group, infinite without a limit; None when its annotation cannot be read
    limits: dict[str, Vector] | None
    #: amounts that it holds in each limited group, shape (dimensions,)
    held: dict[str, Vector] = field(default_factory=dict)
    #: by group's number, that of no group at the end: whether the queue uses it, and how good it is; once asked for
    used: Mask | None = None
    scores: Vector | None = None

    def allows(self, group: str, request: Vector) -> bool:
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
        facts = view.nodes.facts
        #: the number of each node's group, shape (nodes,), of no group maybe negative, and whether it is in one
        self._numbers = facts.label(_GROUP)
        self._grouped: Mask = (self._numbers >= 0) & (self._numbers != facts.label_values(_GROUP).get("", -1))
        self._count_running()

    def identity(self, pod: PodRecord) -> Hashable:
        """The queue: a pod's nodes depend on it besides the class."""
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
            yield Anywhere(f"the queue's annotation {_LIMITS} is invalid"), np.zeros(len(nodes), np.bool_)
            return
        groups, grouped, numbers = self._numbers, self._grouped, nodes.facts.label_values(_GROUP)
        if len(nodes) < len(nodes.facts):
            groups, grouped = groups[nodes.rows], grouped[nodes.rows]
        if not account.affinity:
            yield "node(s) belong to a node group, and the queue has no affinity", ~grouped
            if self.arguments.strict:
                yield "node(s) belong to no node group", grouped
            return
        yield "node(s) belong to no node group", grouped
        if account.used is None:
            account.used = np.array(_per_group(nodes, account.affinity.allows), np.bool_)
        yield "node(s) belong to a node group that the queue does not use", account.used[groups]
        if account.limits:
            allowed, request = np.ones(len(account.used), np.bool_), self._view.request(pod)
            for group in account.limits.keys() & numbers.keys():
                allowed[numbers[group]] = account.allows(group, request)
            yield "the queue's limit for the node group is reached", allowed[groups]

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        account = self._account(pod)
        if account is None or not account.affinity:
            return None
        if account.scores is None:
            affinity, ordered = account.affinity, self.arguments.preferred_order
            scores = _per_group(nodes, lambda group: affinity.score(group, ordered=ordered) if group else 0.0)
            account.scores = np.array(scores, np.float64)
        return account.scores[self._numbers if len(nodes) == len(nodes.facts) else self._numbers[nodes.rows]]

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
            group = self._group(node) if held else ""
            if group in held:
                held[group] += sign * operation.request

    def _count_running(self) -> None:
        """Add the holdings of pods, where there is a limit."""
        view = self._view
        limited = np.array([bool(self._accounts[name].limits) for name in view.queues], np.bool_)
        for job in view.jobs.of(limited[view.jobs.queue] & (view.jobs.count(*ALLOCATED_STATES) > 0)):
            held = self._accounts[job.queue.name].held
            for pod in view.holding(job):
                node = int(view.pods.node[pod.row])
                if node >= 0 and self._group(node) in held:
                    held[self._group(node)] += view.request(pod)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _group(self, node: int) -> str:
        """The group of a node, empty for none."""
        group: str = self._view.nodes.facts.records[node].labels.get(_GROUP, "")
        return group

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
        line = lineage(queue, self._view.queues) if self.hierarchy else ()
        return own or next(filter(None, map(_affinity, line)), own)


def _affinity(queue: Queue) -> Affinity:
    likes, dislikes = queue.spec.affinity.node_group_affinity, queue.spec.affinity.node_group_anti_affinity
    preferred = likes.preferred if likes else []
    return Affinity(
        required=frozenset(likes.required if likes else ()),
        preferred={group: at for at, group in reversed(list(enumerate(preferred)))},
        anti_required=frozenset(dislikes.required if dislikes else ()),
        anti_preferred=frozenset(dislikes.preferred if dislikes else ()),
        length=len(preferred),
    )


def _limits(view: View, queue: Queue) -> dict[str, Vector] | None:
    """The limits by group; None when the annotation is malformed."""
    text = queue.resource.metadata.annotations.get(_LIMITS)
    if not text:
        return {}
    limits = _read_limits(text)
    try:
        return None if limits is None else {group: view.vector(of, np.inf) for group, of in limits.items()}
    except InvalidQuantityError:
        return None


@lru_cache(maxsize=256)
def _read_limits(text: str) -> Mapping[str, dict[str, Quantity]] | None:
    """The annotation by group; None when it cannot be read."""
    return readers.json(text, dict[str, dict[str, Quantity]])


def _per_group(nodes: NodeView, answer: Callable[[str], float]) -> list[float]:
    """An answer for each group by number; that for "", no group, is at the end, where -1 finds it."""
    return [answer(group) for group in nodes.facts.label_values(_GROUP)] + [answer("")]
