"""Durations in Go's syntax, as in Volcano's policies and annotations: `1h30m`, `200ms`."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator

_UNITS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"[+-]?(?:0|(?:{_PART.pattern})+)")
#: tolerated clock adjustments, in seconds
CLOCK_STEP = 60.0
#: longer texts are rejected
_LONGEST = 64


def parse(text: str) -> float:
    """The seconds of a duration. Raises ValueError for an invalid one."""
    if len(text) > _LONGEST or _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text[:_LONGEST]!r} is not a duration (such as 30s, 1m30s or 2h)")
    seconds = sum((Fraction(number) * _UNITS[unit] for number, unit in _PART.findall(text)), Fraction(0))
    return float(-seconds if text.startswith("-") else seconds)


def written(seconds: float) -> str:
    """A duration, as `parse` reads it: `1h30m`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{amount:.12g}{unit}" for amount, unit in parts if amount) or "0s"


def since(then: float, now: float) -> float:
    """The seconds from one recorded time to another. Infinite if the start lies in the future by more than clock
    adjustments, since the clock was then wrong and the time is unknown."""
    return now - then if then <= now + CLOCK_STEP else math.inf


def _validate(value: object) -> float:
    if isinstance(value, float):
        return value
    if not isinstance(value, str):
        raise ValueError("should be a duration, such as 30s, 1m30s or 2h")
    return parse(value)


#: a field of a model, written as a duration and read as seconds
Duration = Annotated[float, BeforeValidator(_validate)]
