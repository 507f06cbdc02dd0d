"""The past usage of queues, as a fraction of the cluster.

Amounts are integrated over time, in buckets: a bucket has half its weight when it is a half-life old, and none when it
lies before the window or before the last reset. Usage is the quotient of two such integrals: of what a queue held and
of what the cluster had.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from stromboli.api.resources import Matrix, Vector

#: number of buckets that the time that counts is divided into
_BUCKETS = 24
#: far above any held amount or time in seconds
_LARGEST = 1e30
#: age, in half-lives, from which nothing counts any more
_FORGOTTEN = 10


@dataclass(frozen=True, slots=True)
class Memory:
    """Times for which usage counts, in seconds; infinite if not given. One of them is finite."""

    half_life: float = math.inf
    #: usage before that does not count
    window: float = math.inf
    #: usage is forgotten at the multiples of that since the epoch
    reset: float = math.inf

    @property
    def span(self) -> float:
        """Maximum age of usage that counts."""
        return min(self.window, self.reset, _FORGOTTEN * self.half_life)

    @property
    def bucket(self) -> float:
        """The length of a bucket; resets fall on the boundary of two."""
        length = self.span / _BUCKETS
        return length if math.isinf(self.reset) else self.reset / math.ceil(self.reset / length)

    def weight(self, number: int, now: float) -> float:
        """Weight of a bucket."""
        end = (number + 1) * self.bucket
        since = now - self.window
        if math.isfinite(self.reset):
            since = max(since, now // self.reset * self.reset)
        if end <= since:
            return 0.0
        return float(0.5 ** (max(0.0, now - (end - self.bucket / 2)) / self.half_life))


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Integrals over a stretch of time, in amounts times seconds."""

    #: since the epoch, counted in buckets
    number: int
    #: shape (queues, resources)
    held: Matrix
    #: shape (resources,)
    there: Vector


@dataclass(frozen=True, slots=True, eq=False)
class UsageHistory:
    """The usage history at one moment. It is immutable; `advanced` returns the next one."""

    queues: tuple[str, ...]
    resources: tuple[str, ...]
    #: up to when it has been integrated, seconds since the epoch
    until: float
    #: holdings of queues from then on, shape (queues, resources), and the total, shape (resources,)
    holding: Matrix
    there: Vector
    #: length of the buckets, seconds
    length: float
    buckets: tuple[Bucket, ...] = ()

    @classmethod
    def begin(cls, memory: Memory, queues: Sequence[str], resources: Sequence[str], now: float) -> Self:
        """Nothing is known yet."""
        shape = len(queues), len(resources)
        return cls(tuple(queues), tuple(resources), now, np.zeros(shape), np.zeros(shape[1]), memory.bucket)

    def advanced(self, memory: Memory, now: float) -> Self:
        """A history with the time up to `now` integrated and what no longer counts left out.

        `memory` has the buckets with which the history began.
        """
        length = self.length
        if now <= self.until:
            # A clock that was ahead, by more than clocks differ: what it counted was not that time.
            known = tuple(bucket for bucket in self.buckets if bucket.number <= now // length)
            return self if self.until < now + length else replace(self, until=now, buckets=known)
        begin = max(self.until, now - memory.span - length)
        buckets = {bucket.number: bucket for bucket in self.buckets}
        for number in range(int(begin // length), int(now // length) + 1):
            seconds = min(now, (number + 1) * length) - max(begin, number * length)
            if seconds > 0:
                held, there = self.holding * seconds, self.there * seconds
                old = buckets.get(number)
                buckets[number] = (
                    Bucket(number, held + old.held, there + old.there) if old else Bucket(number, held, there)
                )
        counted = (buckets[number] for number in sorted(buckets))
        return replace(
            self, until=now, buckets=tuple(bucket for bucket in counted if memory.weight(bucket.number, now) > 0)
        )

    def usage(self, memory: Memory) -> Matrix:
        """The part of the cluster that queues held, shape (queues, resources); 0 for resources that it had not."""
        held, there = np.zeros_like(self.holding), np.zeros_like(self.there)
        for bucket in self.buckets:
            weight = memory.weight(bucket.number, self.until)
            held += weight * bucket.held
            there += weight * bucket.there
        return np.divide(held, there, out=np.zeros_like(held), where=there > 0)

    def holds(self, holding: Matrix, there: Vector) -> Self:
        """A history in which queues hold the given amounts, and the cluster has the given capacity, from now on."""
        return replace(self, holding=holding, there=there)

    def about(self, queues: Sequence[str], resources: Sequence[str]) -> Self:
        """A history of other queues and resources; those that were not known have no past."""
        if self.queues == tuple(queues) and self.resources == tuple(resources):
            return self
        rows, known_rows = _places(queues, self.queues)
        columns, known_columns = _places(resources, self.resources)

        def matrix(old: Matrix) -> Matrix:
            out = np.zeros((len(queues), len(resources)))
            out[np.ix_(rows, columns)] = old[np.ix_(known_rows, known_columns)]
            return out

        def vector(old: Vector) -> Vector:
            out = np.zeros(len(resources))
            out[columns] = old[known_columns]
            return out

        return replace(
            self,
            queues=tuple(queues),
            resources=tuple(resources),
            holding=matrix(self.holding),
            there=vector(self.there),
            buckets=tuple(Bucket(b.number, matrix(b.held), vector(b.there)) for b in self.buckets),
        )

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "queues": self.queues,
            "resources": self.resources,
            "until": self.until,
            "holding": self.holding.tolist(),
            "there": self.there.tolist(),
            "length": self.length,
            "buckets": [
                {"number": b.number, "held": _rounded(b.held), "there": b.there.tolist()} for b in self.buckets
            ],
        }

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Reads the output of `as_data`. Raises ValueError, KeyError, TypeError or OverflowError for anything else."""
        queues, resources = _names(data["queues"]), _names(data["resources"])
        shape = len(queues), len(resources)
        until, length = float(data["until"]), float(data["length"])
        if not (0 <= until < _LARGEST and 0 < length < _LARGEST):
            raise ValueError(f"no time: until {until}, in buckets of {length} s")
        buckets = tuple(
            Bucket(_number(b["number"]), _amounts(b["held"], shape), _amounts(b["there"], shape[1:]))
            for b in data["buckets"]
        )
        numbers = [bucket.number for bucket in buckets]
        if numbers != sorted(set(numbers)) or (numbers and numbers[-1] > until // length):
            raise ValueError("the buckets are not in order")
        holding, there = _amounts(data["holding"], shape), _amounts(data["there"], shape[1:])
        return cls(queues, resources, until, holding, there, length, buckets)


def _names(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError("names are texts")
    if len(set(names)) < len(names):
        raise ValueError("a name occurs twice")
    return tuple(names)


def _number(number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{number!r:.99} is no number of a bucket")
    return number


def _amounts(written: Any, shape: tuple[int, ...]) -> Vector:
    amounts = np.array(written, np.float64).reshape(shape)
    if not ((amounts >= 0) & (amounts < _LARGEST)).all():
        raise ValueError("an amount is negative, or none")
    return amounts


def _rounded(amounts: Matrix) -> list[list[float]]:
    """Amounts with six digits, which is enough, and short for many queues."""
    return [[float(f"{amount:.6g}") for amount in row] for row in amounts.tolist()]


def _places(names: Sequence[str], known: Sequence[str]) -> tuple[list[int], list[int]]:
    """The positions of the known names, among the names and among the known ones."""
    place = {name: index for index, name in enumerate(known)}
    both = [(index, place[name]) for index, name in enumerate(names) if name in place]
    return [index for index, _ in both], [index for _, index in both]
