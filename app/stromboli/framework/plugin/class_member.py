"""A pod as predicates and scores see it: the properties shared by its class.

Their answers are shared by the class, so an answer that depended on anything else would be wrong for some of its pods.
"""

from __future__ import annotations

from typing import Any

from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord
from stromboli.state.reads import UndeclaredReadError


class ClassMember:
    """Shows one plugin the pod's class, and of the pod what that plugin declares in `reads`; the rest is an error."""

    __slots__ = ("_plugin", "pod_class")

    def __init__(self, pod: PodRecord, plugin: Any) -> None:
        self._plugin = plugin
        self.pod_class: PodClass = pod.pod_class

    @property
    def labels(self) -> Declared:
        return Declared("label", self._plugin.reads.labels, self.pod_class.reads.labels, type(self._plugin))

    @property
    def annotations(self) -> Declared:
        return Declared(
            "annotation", self._plugin.reads.annotations, self.pod_class.reads.annotations, type(self._plugin)
        )

    @property
    def namespace(self) -> str:
        # It is part of the class of pods whose affinity or claims it matters to.
        return self.pod_class.namespace or str(self._field("namespace"))

    def __getattr__(self, name: str) -> Any:
        return self._field(name)

    def _field(self, name: str) -> Any:
        if name not in self._plugin.reads.fields:
            raise UndeclaredReadError("field", name, type(self._plugin))
        return self.pod_class.reads.fields[name]


class Declared:
    """Texts by key; only declared keys can be read."""

    __slots__ = ("_keys", "_plugin", "_texts", "_what")

    def __init__(self, what: str, keys: frozenset[str], texts: Any, plugin: type) -> None:
        self._what = what
        self._keys = keys
        self._texts = texts
        self._plugin = plugin

    def __getitem__(self, key: str) -> str:
        text: str = self._expected(key)[key]
        return text

    def get(self, key: str, default: Any = None) -> Any:
        return self._expected(key).get(key, default)

    def __contains__(self, key: str) -> bool:
        return key in self._expected(key)

    def __iter__(self) -> Any:
        raise UndeclaredReadError(self._what, "*", self._plugin)

    keys = values = items = __len__ = __iter__

    def _expected(self, key: str) -> Any:
        if key not in self._keys:
            raise UndeclaredReadError(self._what, key, self._plugin)
        return self._texts
