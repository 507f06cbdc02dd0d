"""The hooks by which the service reports its activity, for metrics and traces."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction
from typing import Any


class Observer:
    """Does nothing; subclasses override what they need. Durations are in seconds."""

    def watch_event(self, kind: str, type: str) -> None:
        """An ADDED, MODIFIED or DELETED event was applied."""

    def event_applied(self, kind: str, seconds: float) -> None:
        """A watch event was applied `seconds` after it was read."""

    def relist(self, kind: str, why: str) -> None:
        """A kind is being listed because of a `start`, or because its watch `expired`, reported an `error` or was
        `unreadable`, the kind was `absent`, the server `refused` or was `disconnected`, the last list was `old`,
        or the reflector `failed`."""

    def malformed(self, kind: str, key: str) -> None:
        """An object could not be read and was set aside."""

    def snapshot(self, seconds: float) -> None:
        """A snapshot was taken."""

    def session_began(self, number: int) -> None:
        """A session begins; `number` counts from the start of the process."""

    def session(self, snapshot: Any, result: Any, now: float, seconds: float) -> None:
        """A session ended; `snapshot` is what it read and must not be changed, `now` the time that it was given."""

    def session_failed(self, error: BaseException) -> None:
        """A session raised; nothing was decided."""

    def bind_result(self, result: str, seconds: float) -> None:
        """A binding is `bound`, `refused` (404, 409), `failed` (retries exhausted), `stale` or `unconfirmed`."""

    def bind_batch(self, session: int, job: str, queue: str, bound: int, seconds: float) -> None:
        """All bindings of a job that were decided together have been answered; `bound` of them succeeded."""

    def evict_result(self, result: str, seconds: float) -> None:
        """An eviction is `evicted`, `gone`, `refused` (by a disruption budget) or `failed`."""

    def evicted(self, queue: str, reason: str) -> None:
        """A pod of a queue was evicted; the reason is the name of the action."""

    def status_result(self, kind: str, result: str) -> None:
        """A status was `written`, `gone`, `outdated` (of an older version of the object) or `failed`."""

    def event_result(self, result: str) -> None:
        """An Event was `posted`, `dropped` or `failed`."""

    def policy(self, error: str | None) -> None:
        """The policy file was loaded, or refused for a problem."""

    def mended(self, what: str) -> None:
        """After a change of leader, a `gang` was found partially bound, or a `pod` was evicted."""

    def leading(self, leads: bool) -> None:
        """This replica became the leader, or lost leadership."""


class Observers(Observer):
    """Forwards to several observers; hooks that only one of them overrides cost no more than that one."""

    def __init__(self, *observers: Observer) -> None:
        for name in (name for name, value in vars(Observer).items() if isfunction(value)):
            heeding = [each for each in observers if getattr(type(each), name) is not getattr(Observer, name)]
            if heeding:
                told = [getattr(each, name) for each in heeding]
                setattr(self, name, told[0] if len(told) == 1 else _all(told))


def _all(told: list[Callable[..., None]]) -> Callable[..., None]:
    def tell(*arguments: Any, **named: Any) -> None:
        for each in told:
            each(*arguments, **named)

    return tell
