"""Reserves objects for pods before they are bound: the steps that claims of devices and of volumes have in common.

A use is promised when a session has decided it, so that later sessions see it; it is then written. A reservation whose
pod is not bound is released.
"""

from __future__ import annotations

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from stromboli.api.decisions import Bind
from stromboli.live.binding.reserving import (
    FAILURES,
    NotReservedError,
    Release,
    Releases,
    StaleBindingError,
    Wanted,
    check_wanted,
)
from stromboli.live.watch.mirror import Mirror
from stromboli.live.watch.news import News, Subject


class _Use(Protocol):
    @property
    def key(self) -> str: ...


U = TypeVar("U", bound=_Use)
R = TypeVar("R", bound=Release)


@dataclass(frozen=True, slots=True)
class Promise(Generic[U]):
    """A use that a session has decided and that has not been written yet."""

    bind: Bind
    use: U
    #: when it was decided, in seconds since the epoch
    since: float


@dataclass(frozen=True, slots=True)
class Step(Generic[U]):
    """A use that is being reserved for a pod."""

    bind: Bind
    use: U
    #: whether the binding is still wanted
    wanted: Callable[[], bool]


class Reserver(ABC, Generic[U, R]):
    """Reserves the claims of one kind, a bounded number at a time."""

    #: the kind of the claims
    kind: ClassVar[str]
    #: names the claims in log and Events, in the plural
    what: str
    #: seconds between two looks at claims that are waited for and do not change
    _again: ClassVar[float] = math.inf

    def __init__(self, mirror: Mirror, what: str, workers: int) -> None:
        """`what` names a claim in the log."""
        self._mirror = mirror
        self._state = mirror.state
        self._limit = asyncio.Semaphore(workers)
        #: promised uses, by key of the claim and uid of the pod
        self._promised: dict[str, dict[str, Promise[U]]] = {}
        self._releases: Releases[R] = Releases(what, self._release, mirror, workers)
        self._news = News(mirror)
        #: whether the initial lists have been applied, so that abandoned reservations can be told
        self._running = False

    # -- defined by each kind of claim -------------------------------------------------------------------------------

    @abstractmethod
    def _uses(self, bind: Bind) -> Sequence[U]:
        """The claims that a pod uses."""

    @abstractmethod
    def _hold(self, use: U) -> None:
        """Keep the objects of a use as the API server has them, before sessions see them changed."""

    @abstractmethod
    def _show(self, use: U) -> None:
        """Have sessions see the objects of a use as the promises leave them."""

    @abstractmethod
    async def _write(self, step: Step[U], wanted: Callable[[], bool]) -> None:
        """Write one use, while it is `wanted`. Raises one of `FAILURES`."""

    @abstractmethod
    def _release_of(self, bind: Bind, use: U) -> R:
        """The reservation to release if the pod is not bound."""

    @abstractmethod
    async def _release(self, item: R) -> None:
        """Release a reservation unless it is wanted again. Raises one of `FAILURES`."""

    @abstractmethod
    def _unready(self, steps: Sequence[Step[U]]) -> list[Step[U]]:
        """The steps whose claims are written but not usable yet. Raises NotReservedError for one that will not be."""

    def _delay(self, bind: Bind, use: U, after: float) -> float:
        """Seconds until a reservation is released that may be released after `after` seconds."""
        return after

    def _let_go(self, use: U) -> None:
        """Drop the promise of a claim to a pod."""

    # -- common to all kinds -----------------------------------------------------------------------------------------

    def promise(self, bind: Bind) -> None:
        """Show sessions the claims of a pod as they were decided, from now on."""
        for use in self._uses(bind):
            self._hold(use)
            self._promised.setdefault(use.key, {})[bind.uid] = Promise(bind, use, time.time())
            self._show(use)

    def release(self, bind: Bind, after: float = 0.0) -> None:
        """A pod is not bound: release its reservations, at the latest `after` seconds from now."""
        self._forget(bind)
        for use in self._uses(bind):
            delay = self._delay(bind, use, after)
            self._releases.schedule(self._release_of(bind, use), delay, leaving=not delay)

    def is_leaving(self, key: str) -> bool:
        """Whether reservations of a pod are being released, so that a session has to decide about it again."""
        return self._releases.is_leaving(key)

    def _steps(self, binds: Wanted) -> list[Step[U]]:
        return [Step(bind, use, wanted) for bind, wanted in binds for use in self._uses(bind)]

    async def _write_all(self, steps: Iterable[Step[U]]) -> None:
        """Write all steps. Raises NotReservedError for the first that fails; what was written by then stays."""
        failures: list[NotReservedError] = []

        async def one(step: Step[U]) -> None:
            async with self._limit:
                try:
                    if not failures:
                        await self._write(step, lambda: not failures and step.wanted())
                except FAILURES as error:
                    failures.append(NotReservedError(step.bind, error))

        await asyncio.gather(*map(one, steps))
        if failures:
            raise failures[0]

    def _forget(self, bind: Bind) -> None:
        """Sessions see the claims of a pod as the API server has them again."""
        for use in self._uses(bind):
            promised = self._promised.get(use.key, {})
            promised.pop(bind.uid, None)
            if not promised:
                self._promised.pop(use.key, None)
                self._let_go(use)
            self._show(use)

    def check(self, binds: Wanted) -> None:
        """Raise NotReservedError if a claim that was reserved for a job is no longer usable."""
        for step in self._unready(self._steps(binds)):
            raise NotReservedError(step.bind, StaleBindingError(f"{self.kind} {step.use.key} is no longer usable"))

    async def _wait(self, binds: Wanted, steps: Sequence[Step[U]], seconds: float) -> list[Step[U]]:
        """Wait until the claims of all steps are usable; returns the steps whose claims are not after some seconds.

        A claim is looked at whenever it changes, for it may be lost while others are waited for. Raises
        NotReservedError, also when one of the bindings is no longer wanted: that of a pod without claims, too.
        """
        deadline = time.monotonic() + seconds
        of_claim: defaultdict[str, list[Step[U]]] = defaultdict(list)
        for step in steps:
            of_claim[step.use.key].append(step)
        left, changed = dict.fromkeys(of_claim), set(of_claim)
        with self._news.of(self._subjects(binds, of_claim)) as news:
            while True:
                check_wanted(binds)
                unready = self._unready([step for key in of_claim if key in changed for step in of_claim[key]])
                for key in changed:
                    left.pop(key, None)
                left.update((step.use.key, None) for step in unready)
                pause = min(self._again, deadline - time.monotonic())
                if not left or pause <= 0:
                    return [step for key in left for step in of_claim[key]]
                try:
                    async with asyncio.timeout(pause):
                        changed = {key for kind, key in await news.next() if kind == self.kind}
                except TimeoutError:
                    changed = set(left)

    def _subjects(self, binds: Wanted, claims: Iterable[str]) -> Iterator[Subject]:
        """The objects that decide whether the pods of a job are bound."""
        for bind, _ in binds:
            yield "Pod", bind.key
            yield "Node", bind.node
        for key in claims:
            yield self.kind, key
