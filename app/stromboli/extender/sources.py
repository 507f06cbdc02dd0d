"""Where answers come from: the last session, and whether what it left is still the last word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from stromboli.api.objects import Pod
from stromboli.extender.published import Published
from stromboli.state.pods import PodRecord


class Source(Protocol):
    """The sessions of a replica, as far as answers need to know them."""

    def published(self) -> Published | None:
        """What the last session left."""
        ...

    def trouble(self) -> str:
        """Why this replica has no answer about pods of ours; empty when it has one."""
        ...

    def behind(self, pod: Pod, names: Sequence[str]) -> bool:
        """Whether a refusal of these nodes may be outdated: something is about to be known, or to be decided."""
        ...

    def has_room(self, pod: PodRecord, node: str) -> bool:
        """Whether a node has room for a pod now, if those that are expected elsewhere don't come."""
        ...

    async def news(self) -> None:
        """Return when something changed, or a session ended."""
        ...


class Standing:
    """A source where nothing changes but what the last session left."""

    def __init__(self, published: Callable[[], Published | None]) -> None:
        self.published = published

    def trouble(self) -> str:
        return "" if self.published() is not None else NO_SESSION

    def behind(self, pod: Pod, names: Sequence[str]) -> bool:
        return False

    def has_room(self, pod: PodRecord, node: str) -> bool:
        return False

    async def news(self) -> None:
        raise AssertionError("nothing changes here")


#: what a replica says whose sessions have not begun
NO_SESSION = "no session has ended yet"
