"""Calls of a plugin at one extension point.

Most methods are called as they are. A method whose answers are shared by the pods of a class is called through
`SharedAnswer`, and a function that is no bound method, such as a static one, through `PlainFunction`, so that every
callable at a point knows its plugin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from stromboli.framework.plugin.base import DECLARED, Plugin
from stromboli.framework.plugin.class_member import ClassMember
from stromboli.state.pods import PodRecord

Method = Callable[..., Any]


def asked(plugin: Plugin, point: str) -> Method:
    """The callable that asks a plugin at a point; `plugin_of` returns the plugin."""
    method: Method = getattr(plugin, point)
    if DECLARED[point].of_class and not (plugin.reads.whole or "identity" in plugin.taking_part):
        return SharedAnswer(plugin, point, method)
    return method if getattr(method, "__self__", None) is plugin else PlainFunction(plugin, point, method)


def plugin_of(method: Method) -> Plugin:
    """The plugin that is asked."""
    return cast(Plugin, method.__self__)  # type: ignore[attr-defined]


class PlainFunction:
    """A plugin's function that is not a bound method."""

    def __init__(self, plugin: Plugin, point: str, function: Method) -> None:
        self.__self__ = plugin
        self.__name__ = point
        self._function = function

    def __call__(self, *subject: Any) -> Any:
        return self._function(*subject)


class SharedAnswer:
    """A method whose answer about one pod is used for every pod of the class.

    It gets a `ClassMember` instead of the pod, which has what these pods have in common and raises an error for
    anything else. If the plugin declares that a pod varies, the answer is not shared, and it gets the pod itself.
    """

    def __init__(self, plugin: Plugin, point: str, method: Method) -> None:
        self.__self__ = plugin
        self.__name__ = point
        self._method = method
        self._varies = [getattr(plugin, hint) for hint in ("varies", "varies_on_node") if hint in plugin.taking_part]
        #: by number of the class
        self._members: dict[int, ClassMember] = {}

    def __call__(self, pod: PodRecord, *rest: Any) -> Any:
        if self._varies and self._shares_nothing(pod):
            return self._method(pod, *rest)
        member = self._members.get(pod.pod_class.id)
        if member is None:
            member = self._members[pod.pod_class.id] = ClassMember(pod, self.__self__)
        return self._method(member, *rest)

    def _shares_nothing(self, pod: PodRecord) -> bool:
        """Whether the pod varies, or the hint fails: that failure is reported where the hint itself is asked."""
        try:
            for varies in self._varies:
                if varies(pod):
                    return True
        except Exception:
            return True
        return False
