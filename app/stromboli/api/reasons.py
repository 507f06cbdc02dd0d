"""Typed reasons: why a pod or a job does not run, at which stage, and who can change that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import IntEnum, StrEnum
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")


class Stage(IntEnum):
    """Where scheduling stopped, in order of precedence: the first stage that blocks is reported."""

    Admission = 1
    QueueShare = 2
    Gang = 3
    Placement = 4
    Preemption = 5
    Binding = 6


class Actionable(StrEnum):
    """The party that can act on a reason."""

    Wait = "wait"
    User = "user"
    Admin = "admin"

    @property
    def told(self) -> str:
        """A sentence for users."""
        return _WHO[self]


_WHO = {
    Actionable.Wait: "This may resolve when other workloads finish.",
    Actionable.User: "The job must be changed.",
    Actionable.Admin: "An administrator can change this.",
}

#: next steps for a reason, where they are not what those who can act would think of
_NEXT_STEPS = {
    "PodGroupNotFound": "The PodGroup must be created, or the pod has to name another.",
    "QueueIsNew": "The service opens it.",
    "NoPodGroup": "The service makes one, if it may.",
    "SchedulingGated": "What set the gates lifts them.",
    "NotEnoughPods": "The pods that are missing must be created, or the minimum lowered.",
    "NotEnoughPodsOfTask": "The pods that are missing must be created, or the minimum lowered.",
}


def next_step(reason: str, who: Actionable) -> str:
    """A sentence of advice for users about a reason."""
    return _NEXT_STEPS.get(reason) or who.told


class Passage(Struct, frozen=True):
    """A part of a message that names objects of other namespaces, or their numbers."""

    #: the namespaces concerned; "" restricts it to readers of all namespaces
    namespaces: tuple[str, ...]
    words: str
    #: the replacement for other readers
    instead: str

    def to(self, readable: Collection[str] | None) -> str:
        """The text for a reader of some namespaces; None for a reader of all."""
        return self.words if readable is None or set(self.namespaces) <= set(readable) else self.instead


class Reason(Struct, frozen=True):
    """A reason about an object of one namespace.

    The message has no volatile numbers: it stays the same while the situation does. Neither message nor detail names
    objects of other namespaces, since both end up in conditions and Events; that belongs into `saying`.
    """

    stage: Stage
    #: one CamelCase word from the list in docs/reasons.md
    reason: str
    message: str
    actionable: Actionable
    #: the compared numbers, which may change while the reason stays
    detail: str = ""
    #: for placement: cause -> number of nodes that it rules out
    nodes: dict[str, int] = {}
    #: whether more nodes would help, which cluster autoscalers look for
    scalable: bool = False
    #: further details, about objects of other namespaces
    passages: tuple[Passage, ...] = ()

    def saying(self, namespace: str, passages: Iterable[Passage]) -> Reason:
        """The reason with a longer detail; it is about an object of `namespace`."""
        own, others = [self.detail] if self.detail else [], list(self.passages)
        for each in passages:
            if set(each.namespaces) <= {namespace}:
                own.append(each.words)
            else:
                others.append(each)
        return replace(self, detail="; ".join(own), passages=tuple(others))

    @property
    def in_full(self) -> Reason:
        """The reason with nothing withheld, for operators."""
        return replace(self, detail=detailed(self.detail, self.passages, None), passages=()) if self.passages else self

    @property
    def causes(self) -> str:
        """The causes that rule out nodes, without their numbers."""
        return ", ".join(sorted(self.nodes))

    @property
    def numbered(self) -> str:
        """The message with its numbers; each node is counted once, under the first cause that rules it out."""
        message = self.message
        if self.nodes:
            counts = ", ".join(f"{count} {cause}" for cause, count in sorted(self.nodes.items()))
            message = message.removesuffix(f": {self.causes}")
            message += f": 0/{sum(self.nodes.values())} nodes are available: {counts}"
        detail = detailed(self.detail, self.passages, ()) if self.passages else self.detail
        return f"{message} ({detail})" if detail else message

    @property
    def told(self) -> str:
        """The complete text for users: reason, message, numbers, and who can act."""
        return f"{self.reason}: {self.numbered}. {next_step(self.reason, self.actionable)}"


def detailed(detail: str, passages: Iterable[Passage], readable: Collection[str] | None) -> str:
    """A detail as a reader may see it; see `Passage.to`."""
    # Several passages may have the same replacement.
    return "; ".join(dict.fromkeys(filter(None, (detail, *(each.to(readable) for each in passages)))))


class OncePerReason(Generic[T]):
    """Cache of a value derived from reasons, found once for the thousands of jobs or pods that share an object."""

    __slots__ = ("_find", "_found")

    def __init__(self, find: Callable[[Reason], T]) -> None:
        self._find = find
        #: by identity, with the reason, or a later one could get the identity of one that is gone
        self._found: dict[int, tuple[Reason, T]] = {}

    def __getitem__(self, reason: Reason) -> T:
        known = self._found.get(id(reason))
        if known is None:
            known = self._found[id(reason)] = reason, self._find(reason)
        return known[1]
