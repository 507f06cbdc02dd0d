"""Which cluster a command is about: the options for that, the same for all commands, and what they lead to."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, get_type_hints

from stromboli.cli.options import (
    URL,
    CaFile,
    Context,
    Files,
    Kubeconfig,
    PluginsDir,
    PolicyFile,
    SchedulerNames,
    Token,
    Url,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """The options that say which cluster is meant, and how it is decided about where no service does."""

    filename: list[str] | None = None
    url: str = ""
    token: str = ""
    certificate_authority: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    policy: Path | None = None
    scheduler_name: list[str] | None = None
    plugins_dir: Path | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The source that a command's options name; they take precedence over the service of the environment."""
        found = cls(**{name: given[name] for name in OPTIONS if name in given})
        is_named = found.kubeconfig is not None or found.context is not None or found.decides_here
        return replace(found, url="") if is_named and found.url == os.environ.get(URL) else found

    @property
    def decides_here(self) -> bool:
        """Whether sessions are to be run here, whatever service there is."""
        return bool(self.filename or self.policy or self.scheduler_name or self.plugins_dir)


#: each by its name
OPTIONS: dict[str, Any] = {
    "filename": Files,
    "url": Url,
    "token": Token,
    "certificate_authority": CaFile,
    "kubeconfig": Kubeconfig,
    "context": Context,
    "policy": PolicyFile,
    "scheduler_name": SchedulerNames,
    "plugins_dir": PluginsDir,
}


def about_a_cluster(command: Callable[..., None], *, files: Any = Files) -> Callable[..., None]:
    """Give a command that takes `which` the options that it consists of; `files` is the option for files."""
    hints = get_type_hints(command, include_extras=True)
    own = [each for name, each in inspect.signature(command).parameters.items() if name != "which"]
    own = [each.replace(annotation=hints[each.name]) for each in own]
    defaults = {each.name: each.default for each in fields(Which)}
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=option)
        for name, option in (OPTIONS | {"filename": files}).items()
    ]

    def complete(**given: Any) -> None:
        own = {name: value for name, value in given.items() if name not in OPTIONS}
        command(**own, which=Which.of(given))

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own] + more
    named: Any = complete
    named.__name__, named.__doc__, named.__module__ = command.__name__, command.__doc__, command.__module__
    named.__signature__ = inspect.Signature(parameters)
    named.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
    return complete
