"""The known actions and plugins, by the name that a policy uses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

from pydantic import BaseModel

from stromboli.framework.action import Action
from stromboli.framework.plugin.base import Plugin
from stromboli.state.reads import Reads


class Registry:
    """Actions and plugins by name."""

    def __init__(self, actions: Mapping[str, type[Action]], plugins: Mapping[str, type[Plugin]]) -> None:
        self.actions = dict(actions)
        self.plugins = dict(plugins)

    def plugin(self, name: str) -> type[Plugin]:
        """The class of a plugin whose name a policy has been checked for."""
        return self.plugins[name]

    @property
    def spellings(self) -> dict[str, str]:
        """The names of plugins by their alternative spellings; a plugin's own name is never another one's spelling."""
        other = {each: name for name, plugin in self.plugins.items() for each in plugin.spellings}
        return {each: name for each, name in other.items() if each not in self.plugins}

    @property
    def reads(self) -> Reads:
        """Everything that plugins read from pods; it tells the state what makes up a pod's class."""
        return reduce(or_, (plugin.reads for plugin in self.plugins.values()), Reads())

    def argument_models(
        self,
    ) -> tuple[dict[str, type[BaseModel] | None], dict[str, type[BaseModel] | None]]:
        """The models of the arguments of actions and of plugins."""
        return (
            {name: action.Arguments for name, action in self.actions.items()},
            {name: plugin.Arguments for name, plugin in self.plugins.items()},
        )
