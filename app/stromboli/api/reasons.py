"""Typed reasons: why a pod or a job does not run, at which stage, and who can change that."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum, StrEnum

from msgspec import Struct
from msgspec.structs import replace


class Stage(IntEnum):
    """Where scheduling stopped, in order of precedence: the first stage that blocks is the one to report."""

    Admission = 1
    QueueShare = 2
    Gang = 3
    Placement = 4
    Preemption = 5
    Binding = 6


class Actionable(StrEnum):
    """Who can act on a reason."""

    Wait = "wait"
    User = "user"
    Admin = "admin"

    @property
    def told(self) -> str:
        """A sentence about it."""
        return _WHO[self]


_WHO = {
    Actionable.Wait: "This resolves as others finish.",
    Actionable.User: "The job has to change.",
    Actionable.Admin: "An administrator can change that.",
}


class Passage(Struct, frozen=True):
    """A part of a text that names objects of namespaces, or tells their numbers, for those who may read them all."""

    #: with "" among them, for readers of everything only
    namespaces: tuple[str, ...]
    words: str
    #: the same for everyone else
    instead: str

    def to(self, readable: Collection[str] | None) -> str:
        """What a reader of some namespaces is told; None for a reader of everything."""
        return self.words if readable is None or set(self.namespaces) <= set(readable) else self.instead


class Reason(Struct, frozen=True):
    """One reason, about an object of one namespace.

    The message holds no number that changes by itself: an unchanged situation reads the same. Neither it nor the detail
    names objects of other namespaces, as they end up in conditions and Events; `saying` takes what does.
    """

    stage: Stage
    #: one word in PascalCase, from the list in docs/reasons.md
    reason: str
    message: str
    actionable: Actionable
    #: the numbers that were compared; they may change while the reason stays
    detail: str = ""
    #: for placement: how many nodes each cause rules out
    nodes: dict[str, int] = {}
    #: whether more nodes would do away with it, which cluster autoscalers look for
    scalable: bool = False
    #: more of the detail, about objects of other namespaces
    passages: tuple[Passage, ...] = ()

    def saying(self, namespace: str, passages: Iterable[Passage]) -> Reason:
        """The reason with more in its detail; it is about an object of `namespace`, which its readers may read."""
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
        detail = detailed(self.detail, self.passages, ())
        return f"{message} ({detail})" if detail else message

    @property
    def told(self) -> str:
        """All of it for people: the word, why, the numbers, who can act."""
        return f"{self.reason}: {self.numbered}. {self.actionable.told}"


def detailed(detail: str, passages: Iterable[Passage], readable: Collection[str] | None) -> str:
    """A detail with what a reader may know of others; see `Passage.to`."""
    # Several may have the same words instead.
    return "; ".join(dict.fromkeys(filter(None, (detail, *(each.to(readable) for each in passages)))))
