"""Collects cyclic garbage when no session runs, and never the whole heap while gangs wait.

A full collection stops all threads, for a time proportional to the live objects: tenths of a second for some thousand
pods. Python starts one whenever the number of objects has grown by a quarter, which is every few sessions while many
pods arrive. Sessions leave cycles behind, so collections are needed: those of young objects free most of them, and a
full one follows in a pause, or at the latest when much has piled up.

Surviving objects are frozen, so that later collections skip them. A frozen session is not freed when the next one
replaces it, so after some freezes everything is collected again.
"""

from __future__ import annotations

import asyncio
import gc

#: container objects that come before the young are collected, and collections of those before the middle ones are
_YOUNG, _MIDDLE = 5_000, 10
#: middle collections before a full one: in a pause, while sessions follow each other, and while bindings are sent
_IN_PAUSE, _AT_MOST, _SENDING = 2, 4, 6
#: seconds without a session that are a pause
_PAUSE = 0.5
#: the part of the frozen objects that others have to reach before they are frozen, too, and how often that is done
#: before everything is looked at again: in a pause, and while sessions follow each other
_WORTH = 1 / 8
_FREEZES_IN_PAUSE, _FREEZES_AT_MOST = 4, 40


class Garbage:
    """The garbage collection of this process, once it has begun."""

    def __init__(self) -> None:
        self._pause: asyncio.TimerHandle | None = None
        #: freezes since everything was looked at; None before the first
        self._freezes: int | None = None

    def session_began(self) -> None:
        """The pause is over."""
        if self._pause is not None:
            self._pause.cancel()

    def session_ended(self, bound: bool) -> None:
        """Collect due generations; `bound` says whether bindings of the session are sent now. To be called in the event
        loop."""
        if self._freezes is None:
            gc.set_threshold(_YOUNG, _MIDDLE, 1 << 30)
            # What the first lists brought mostly stays.
            gc.freeze()
            self._freezes = 0
        self._collect(_SENDING if bound else _AT_MOST, _FREEZES_AT_MOST)
        self._pause = asyncio.get_running_loop().call_later(_PAUSE, self._in_pause)

    def _in_pause(self) -> None:
        """Collect due generations as long as no session begins: questions leave garbage, too."""
        self._collect(_IN_PAUSE, _FREEZES_IN_PAUSE)
        self._pause = asyncio.get_running_loop().call_later(_PAUSE, self._in_pause)

    def _collect(self, due: int, freezes: int) -> None:
        """Collect everything after a number of middle collections; after a number of freezes, frozen objects too."""
        assert self._freezes is not None
        if gc.get_count()[2] < due:
            return
        if self._freezes >= freezes:
            gc.unfreeze()
            self._freezes = 0
        gc.collect()
        if len(gc.get_objects()) > _WORTH * gc.get_freeze_count():
            gc.freeze()
            self._freezes += 1
