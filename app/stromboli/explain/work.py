"""The cost of trying changes: the steps of all sessions, and a stand-in for extenders, which are not asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stromboli.api.errors import StromboliError
from stromboli.framework.cluster.environment import ExtenderError


class Unasked:
    """Stands where an HTTP extender is: it may keep books, and what is only tried must not be in them."""

    def __init__(self) -> None:
        self.missed = False

    def post(self, url: str, payload: Mapping[str, Any], timeout: float) -> Mapping[str, Any]:
        """Raises ExtenderError."""
        self.missed = True
        raise ExtenderError("extenders are not asked while something is only tried")


class AbandonedError(StromboliError):
    """The result of the trial is no longer needed."""

    def __init__(self) -> None:
        super().__init__("abandoned: no client is waiting for the answer")


class TooManyStepsError(StromboliError):
    """The trial takes more work than an answer may cost."""

    def __init__(self, most: int) -> None:
        super().__init__(f"trying it takes more than {most:,} steps, a node looked at being about one: ask about less")


@dataclass(slots=True)
class Work:
    """The work spent on trying changes, and its bound."""

    most_steps: int | None
    sessions: int = 0
    steps: int = 0
    abandoned: bool = False

    def step(self, steps: int) -> None:
        """Raises AbandonedError and TooManyStepsError."""
        self.steps += steps
        if self.abandoned:
            raise AbandonedError
        if self.most_steps is not None and self.steps > self.most_steps:
            raise TooManyStepsError(self.most_steps)
