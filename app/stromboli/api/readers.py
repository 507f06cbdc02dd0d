"""Tolerant readers of users' annotations and statuses, which never raise.

Each returns None for an invalid text: too long, out of bounds, not finite, not ASCII digits, nested too deeply.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, TypeVar

import msgspec

T = TypeVar("T")

INT32 = 2**31 - 1
INT64 = 2**63 - 1
#: an integer in JSON
Integer = Annotated[int, msgspec.Meta(ge=-INT64, le=INT64)]

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
#: longer texts are rejected
_LONGEST = 64
#: texts of at most this many digits are certainly within bounds
_SHORT = 10
#: seconds of 400 years, the period of the Gregorian calendar
_CYCLE = 146_097 * 86_400.0


def integer(text: str | None, least: int = -INT64, most: int = INT64) -> int | None:
    """A decimal integer within bounds."""
    if text is None or not ((text.isascii() and text.isdigit() and len(text) < _SHORT) or _INTEGER.fullmatch(text)):
        return None
    value = int(text)
    return value if least <= value <= most else None


def count(text: str | None) -> int | None:
    """A count, 0 to 2^31 - 1."""
    return integer(text, 0, INT32)


def number(text: str | None) -> float | None:
    """A finite decimal number."""
    if text is None or len(text) > _LONGEST or _NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def surplus(text: str | None) -> float | None:
    """An additional amount; negative ones count as 0."""
    value = number(text)
    return value if value is not None and 0 <= value <= INT64 else None


def seconds(timestamp: str) -> float | None:
    """An RFC 3339 time as seconds since the epoch. The year 0, which API servers accept, precedes the year 1."""
    return _seconds(timestamp) if len(timestamp) <= _LONGEST else _seconds.__wrapped__(timestamp)


@lru_cache(maxsize=8192)
def _seconds(timestamp: str) -> float | None:
    # Many objects have equal times, and repeat them in every event.
    shift = 0.0
    if timestamp.startswith("0000-"):
        timestamp, shift = f"0400-{timestamp[5:]}", _CYCLE
    try:
        read = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() - shift


def json(text: str | None, type: type[T]) -> T | None:
    """JSON of a type."""
    try:
        return None if text is None else msgspec.json.decode(text, type=type)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
