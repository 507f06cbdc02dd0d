"""Events about the service itself: its policy file and its plugins."""

from __future__ import annotations

import os
from collections.abc import Mapping

from stromboli.api.crds import SCHEDULING
from stromboli.live.reporting.events import Events, Reference


class ServiceEvents:
    """Emits Events about the service's own pod or, outside a cluster, about the root queue."""

    def __init__(self, events: Events) -> None:
        self._events = events
        #: plugins that failed in the last session: (plugin, extension point) -> message
        self.failing: dict[tuple[str, str], str] = {}

    def policy(self, problem: str | None, *, in_force: bool) -> None:
        """The policy file was loaded, or refused for `problem`. `in_force`: an earlier policy still applies."""
        if problem is None:
            self._emit("Normal", "PolicyLoaded", "the policy file was loaded")
            return
        effect = "the previous policy stays in force" if in_force else "nothing is scheduled"
        self._emit("Warning", "PolicyRefused", f"{effect}: {problem}")

    def plugins(self, failing: Mapping[tuple[str, str], str]) -> None:
        """`failing` are the plugins that failed in the last session; emits an Event for each change."""
        for (plugin, point), problem in failing.items():
            if (plugin, point) not in self.failing:
                self._emit("Warning", "PluginFailed", problem)
        for plugin, point in self.failing.keys() - failing.keys():
            self._emit("Normal", "PluginRecovered", f"plugin {plugin} did not fail in {point} in the last session")
        self.failing = dict(failing)

    def _emit(self, type: str, reason: str, note: str) -> None:
        self._events.emit(_itself(), type, reason, note, "Configuring")


def _itself() -> Reference:
    namespace, name = os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", "")
    return Reference("v1", "Pod", namespace, name) if name else Reference(SCHEDULING, "Queue", "", "root")
