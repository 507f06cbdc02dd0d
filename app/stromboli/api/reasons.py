"""Typed reasons: why a pod or a job does not run, at which stage, and who can change that."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


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


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. The message holds no number that changes by itself: an unchanged situation reads the same."""

    stage: Stage
    #: one word in PascalCase, from the list in docs/reasons.md
    reason: str
    message: str
    actionable: Actionable
    #: the numbers that were compared; they may change while the reason stays
    detail: str = ""
    #: for placement: how many nodes each cause rules out
    nodes: dict[str, int] = field(default_factory=dict)
