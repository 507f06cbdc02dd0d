"""Nodes for which a claim got no volume, and that sessions avoid for that claim for a while."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection

from stromboli.live.process.limits import Backoff

#: time for which a node is avoided after a refusal, in seconds: the first time, and at most
_REFUSED = (5.0, 300.0)


class AvoidedNodes:
    """Avoided nodes by claim, each refusal for longer than the one before."""

    def __init__(self, expired: Callable[[str], None]) -> None:
        """`expired` is called with the key of a claim when a node may be tried again for it."""
        self._expired = expired
        self._backoffs: defaultdict[str, dict[str, Backoff]] = defaultdict(dict)
        self._avoided: defaultdict[str, set[str]] = defaultdict(set)

    def of(self, key: str) -> Collection[str]:
        """The nodes that are avoided for a claim now."""
        return self._avoided.get(key, ())

    def refuse(self, key: str, node: str) -> None:
        """A claim got no volume on a node: avoid the node, unless it is avoided already."""
        if node in self._avoided[key]:
            return
        self._avoided[key].add(node)
        backoff = self._backoffs[key].setdefault(node, Backoff(*_REFUSED))
        asyncio.get_running_loop().call_later(backoff.delay(), self._expire, key, node)

    def forget(self, key: str) -> None:
        """A claim was bound or deleted: its next refusal counts as the first."""
        self._backoffs.pop(key, None)

    def _expire(self, key: str, node: str) -> None:
        avoided = self._avoided.get(key, set())
        avoided.discard(node)
        if not avoided:
            self._avoided.pop(key, None)
        self._expired(key)
