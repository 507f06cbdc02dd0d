"""The outcome of a session as bytes: the same decisions for the same reasons give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from stromboli.api.decisions import Decision
from stromboli.api.reasons import Reason
from stromboli.framework.session.session import Session
from stromboli.journal import redaction, wire
from stromboli.journal.wire import JournalError

#: the key of a job, or the row of a pod
K = TypeVar("K", str, int)


class Waiting(Struct, frozen=True):
    """Why jobs wait, by key, and pods, by row; never changed once made."""

    jobs: Mapping[str, Reason] = {}
    pods: Mapping[int, Reason] = {}

    def news(self, before: Waiting) -> wire.Reasons | None:
        """The entries that changed; None if none did."""
        jobs, pods = _news(before.jobs, self.jobs), _news(before.pods, self.pods)
        if not jobs and not pods:
            return None
        # Many share one reason, which is written once.
        given = {id(reason): reason for reason in (*jobs.values(), *pods.values()) if reason is not None}
        numbers = {each: number for number, each in enumerate(given)} | {id(None): wire.GONE}
        return wire.Reasons(
            list(given.values()),
            {key: numbers[id(reason)] for key, reason in jobs.items()},
            {row: numbers[id(reason)] for row, reason in pods.items()},
        )

    def after(self, news: wire.Reasons) -> Waiting:
        """The entries after the changes. Raises JournalError."""
        return Waiting(_after(self.jobs, news.jobs, news.given), _after(self.pods, news.pods, news.given))

    def lines(self, names: Mapping[int, str]) -> list[str]:
        """Why jobs and pods wait in words, one a line; `names` has the keys of pods by row."""
        jobs = [f"job {key}: {_words(self.jobs[key])}" for key in sorted(self.jobs)]
        return jobs + [f"pod {names.get(row, f'in row {row}')}: {_words(self.pods[row])}" for row in sorted(self.pods)]


class Outcome(Struct, frozen=True):
    """The decisions of a session, and why pods and jobs wait."""

    decisions: Sequence[Decision]
    waiting: Waiting

    @classmethod
    def of(cls, session: Session, decisions: Sequence[Decision]) -> Outcome:
        """The outcome of a session that has just ended."""
        trace = session.view.trace
        return cls(tuple(decisions), Waiting(trace.jobs.copy(), trace.pods.copy()))

    def decided(self) -> bytes:
        """The decisions in their order, as far as a journal has them."""
        return wire.encoded([(type(each).__name__, redaction.decision(each)) for each in self.decisions])


def _news(before: Mapping[K, Reason], now: Mapping[K, Reason]) -> dict[K, Reason | None]:
    """The new and changed entries, and None for deleted ones."""
    if before == now:
        return {}
    found: dict[K, Reason | None] = {key: reason for key, reason in now.items() if before.get(key) != reason}
    if not before.keys() <= now.keys():
        found.update(dict.fromkeys(sorted(before.keys() - now.keys())))
    return found


def _after(before: Mapping[K, Reason], news: Mapping[K, int], given: Sequence[Reason]) -> Mapping[K, Reason]:
    after = dict(before)
    for key, number in news.items():
        if number == wire.GONE:
            after.pop(key, None)
        elif 0 <= number < len(given):
            after[key] = given[number]
        else:
            raise JournalError(f"there is no reason {number}")
    return after


def _words(reason: Reason) -> str:
    return f"{reason.reason}: {reason.in_full.numbered}"


def decisions(decided: bytes) -> list[Any]:
    """Decisions as they are written. Raises JournalError."""
    with _reading():
        return msgspec.msgpack.decode(decided, type=list[Any])


def lines(decided: bytes) -> list[str]:
    """Decisions in words, one a line. Raises JournalError."""
    with _reading():
        return [f"{name} {msgspec.json.encode(fields).decode()}" for name, fields in decisions(decided)]


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError) as error:
        raise JournalError(f"what was decided cannot be read: {wire.told(error)}") from None


def differences(recorded: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """Lines that are in one of two lists only, as in a diff; when only the order differs, all of both."""
    one, other = set(recorded), set(now)
    gone, new = [line for line in recorded if line not in other], [line for line in now if line not in one]
    if not gone and not new:
        gone, new = list(recorded), list(now)
    yield from (f"- {line}" for line in gone)
    yield from (f"+ {line}" for line in new)
