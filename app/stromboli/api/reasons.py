"""Typed reasons: why a pod or a job does not run, at which stage, and who can change that."""

from __future__ import annotations

from enum import IntEnum, StrEnum

from msgspec import Struct


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


class Reason(Struct, frozen=True):
    """One reason. The message holds no number that changes by itself: an unchanged situation reads the same."""

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
        return f"{message} ({self.detail})" if self.detail else message

    @property
    def told(self) -> str:
        """All of it for people: the word, why, the numbers, who can act."""
        return f"{self.reason}: {self.numbered}. {self.actionable.told}"
