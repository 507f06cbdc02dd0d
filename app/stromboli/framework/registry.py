"""What actions and plugins there are, by the name that a policy uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, Field

from stromboli.framework.plugin import Arguments, Plugin

if TYPE_CHECKING:
    from stromboli.framework.session import Session


class ErrorCacheArguments(Arguments):
    """Arguments of the actions that place pods."""

    predicate_error_cache: bool = Field(default=True, alias="predicateErrorCacheEnable")
    """Accepted for compatibility: answers are always shared within an identity class, where they are exact."""


class Action:
    """One step of a session. Override `run`; `Arguments` models the action's `configurations` entry."""

    name: str
    Arguments: ClassVar[type[BaseModel] | None] = None

    def run(self, session: Session) -> None:
        """Do the step."""
        raise NotImplementedError


class Registry:
    """Actions and plugins by name."""

    def __init__(self, actions: Mapping[str, type[Action]], plugins: Mapping[str, type[Plugin]]) -> None:
        self.actions = dict(actions)
        self.plugins = dict(plugins)

    def plugin(self, name: str) -> type[Plugin]:
        """The class of a plugin whose name a policy has been checked for."""
        return self.plugins[name]

    def argument_models(
        self,
    ) -> tuple[dict[str, type[BaseModel] | None], dict[str, type[BaseModel] | None]]:
        """The models of the arguments of actions and of plugins."""
        return (
            {name: action.Arguments for name, action in self.actions.items()},
            {name: plugin.Arguments for name, plugin in self.plugins.items()},
        )
