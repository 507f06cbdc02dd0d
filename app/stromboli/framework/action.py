"""Interface of an action: one step of a session."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from stromboli.framework.plugin.base import Arguments
from stromboli.framework.session.session import Session


class ErrorCacheArguments(Arguments):
    """Arguments of the actions that place pods."""

    predicate_error_cache: bool = Field(default=True, alias="predicateErrorCacheEnable")
    """Accepted for compatibility: answers are always shared within an identity class, where they are exact."""
    enable_predicate_error_cache: bool = Field(default=True, alias="enablePredicateErrorCache")
    """Accepted for compatibility, as another spelling."""


class Action:
    """One step of a session. Override `run`; `Arguments` models the action's `configurations` entry."""

    name: str
    Arguments: ClassVar[type[BaseModel] | None] = None

    def run(self, session: Session) -> None:
        """Do the step."""
        raise NotImplementedError
