"""Wakes tasks that wait for an object to change."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from stromboli.api import objects
from stromboli.live.watch.mirror import Mirror

#: kind, and key of an object
Subject: TypeAlias = tuple[str, str]


class Changes:
    """The objects, of those that a task waits for, that have changed."""

    def __init__(self) -> None:
        self._changed: set[Subject] = set()
        self._any = asyncio.Event()

    def add(self, subject: Subject) -> None:
        """An object has changed: wake the task."""
        self._changed.add(subject)
        self._any.set()

    async def next(self) -> set[Subject]:
        """Return, as soon as there are any, the objects that have changed since the last time."""
        await self._any.wait()
        self._any.clear()
        changed, self._changed = self._changed, set()
        return changed


class News:
    """Changes to wait for, by object. Those of pods and nodes come from the mirror, others through `changed`."""

    def __init__(self, mirror: Mirror) -> None:
        self._waiting: defaultdict[Subject, set[Changes]] = defaultdict(set)
        mirror.listen("Pod", self._pod_changed)
        mirror.listen("Node", self._node_changed)

    @contextmanager
    def of(self, subjects: Iterable[Subject]) -> Iterator[Changes]:
        """The changes of some objects, for one task."""
        changes, watched = Changes(), set(subjects)
        for subject in watched:
            self._waiting[subject].add(changes)
        try:
            yield changes
        finally:
            for subject in watched:
                self._waiting[subject].discard(changes)
                if not self._waiting[subject]:
                    del self._waiting[subject]

    def changed(self, kind: str, key: str) -> None:
        """Wake the tasks that wait for an object."""
        for changes in self._waiting.get((kind, key), ()):
            changes.add((kind, key))

    def _pod_changed(self, type: str, pod: objects.Pod | str) -> None:
        self.changed("Pod", pod if isinstance(pod, str) else pod.metadata.key)

    def _node_changed(self, type: str, node: objects.Node | str) -> None:
        self.changed("Node", node if isinstance(node, str) else node.metadata.name)
