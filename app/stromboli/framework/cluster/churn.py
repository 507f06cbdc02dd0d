"""The memory of past evictions, so that no job is evicted again and again for the same queue.

A job is going in circles when it was evicted, got its places back and is evicted again for the same queue. A job that
loses its pods step by step is not, nor is one whose eviction the cluster refused: its pod never left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from stromboli.api.duration import since
from stromboli.policy.evictions import EvictionSettings

#: the key of a job that was evicted and the name of the queue that it was evicted for
Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class History:
    """The evictions of a job for a queue."""

    #: when it was evicted first, and each time after it had got places back, seconds since the epoch
    times: tuple[float, ...]
    #: number of places that it had left after the last time
    left: int
    #: uids of the pods that were to go and may still be there
    pods: frozenset[str]


@dataclass(frozen=True, slots=True)
class Eviction:
    """An eviction of pods of a job for a queue, in one session."""

    pair: Pair
    #: number of places that the job had, with those that the session gave it, and has left
    before: int
    left: int
    #: uids of the pods that go, and of all pods that had a place
    pods: frozenset[str]
    had_places: frozenset[str]


@dataclass(frozen=True, slots=True)
class Churn:
    """The recent evictions."""

    histories: Mapping[Pair, History] = field(default_factory=dict)

    def paused(self, settings: EvictionSettings, now: float) -> frozenset[Pair]:
        """The pairs between which no pod is evicted now."""
        return frozenset(
            pair
            for pair, history in self.histories.items()
            if sum(since(time, now) < settings.window for time in history.times) >= settings.most
        )

    def may_be_paused(self, settings: EvictionSettings) -> bool:
        """Whether it depends on the time which pairs are paused."""
        return any(len(history.times) >= settings.most for history in self.histories.values())

    def after(self, evictions: Iterable[Eviction], settings: EvictionSettings, now: float) -> Churn:
        """A copy with the evictions of a session, and without expired ones."""
        histories: dict[Pair, History] = {}
        for pair, history in self.histories.items():
            times = tuple(time for time in history.times if since(time, now) < settings.window)
            if times:
                histories[pair] = History(times, history.left, history.pods)
        for eviction in evictions:
            known = histories.get(eviction.pair)
            refused = known.pods & eviction.had_places if known else frozenset()
            circles = known is None or eviction.before - len(refused) > known.left
            times = (*(known.times if known else ()), *((now,) if circles else ()))
            histories[eviction.pair] = History(times, eviction.left, eviction.pods | refused)
        return Churn(histories)
