"""Wakes tasks that wait for an object to change."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from stromboli.api import objects
from stromboli.live.mirror import Mirror

#: kind, and key of an object
Subject: TypeAlias = tuple[str, str]


class News:
    """Events to wait for, by object. Changes of pods and nodes come from the mirror, others through `changed`."""

    def __init__(self, mirror: Mirror) -> None:
        self._waiting: defaultdict[Subject, set[asyncio.Event]] = defaultdict(set)
        mirror.listen("Pod", self._pod_changed)
        mirror.listen("Node", self._node_changed)

    @contextmanager
    def of(self, subjects: Iterable[Subject]) -> Iterator[asyncio.Event]:
        """An event that is set whenever one of some objects changes; the waiting task clears it."""
        event, watched = asyncio.Event(), set(subjects)
        for subject in watched:
            self._waiting[subject].add(event)
        try:
            yield event
        finally:
            for subject in watched:
                self._waiting[subject].discard(event)
                if not self._waiting[subject]:
                    del self._waiting[subject]

    def changed(self, kind: str, key: str) -> None:
        """Wake the tasks that wait for an object."""
        for event in self._waiting.get((kind, key), ()):
            event.set()

    def _pod_changed(self, type: str, pod: objects.Pod | str) -> None:
        self.changed("Pod", pod if isinstance(pod, str) else pod.metadata.key)

    def _node_changed(self, type: str, node: objects.Node | str) -> None:
        self.changed("Node", node if isinstance(node, str) else node.metadata.name)
