"""Kubernetes quantities, parsed exactly.

A quantity is a decimal number with an optional suffix (`n u m k M G T P E`, `Ki Mi Gi Ti Pi Ei`) or exponent. Values
are kept as exact fractions until they are turned into the unit of their dimension, and rounded up there, as
Kubernetes does: 1 milli-CPU is the smallest request that exists.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil, isfinite

from stromboli.api.errors import InvalidQuantityError
from stromboli.api.readers import INT64

_PATTERN = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,2}))?"
)
#: longer texts are rejected, since they are slow to compute with
_LONGEST = 64
_SUFFIXES = {
    **{s: Fraction(10) ** e for s, e in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)},
    **{f"{s}i": Fraction(2) ** (10 * (i + 1)) for i, s in enumerate("KMGTPE")},
}
_BINARY = ("", *(suffix for suffix in _SUFFIXES if suffix.endswith("i")))
#: digits after the decimal point in messages: milli-CPU are exact, and MiB are visible in GiB
_DIGITS = 3


@lru_cache(maxsize=4096, typed=True)
def parse(text: str | int | float) -> Fraction:
    """The exact value of a quantity.

    Raises InvalidQuantityError if it is invalid.
    """
    if isinstance(text, int) and abs(text) > INT64:
        raise InvalidQuantityError(text)
    written = str(text)
    match = _PATTERN.fullmatch(written)
    if match is None or isinstance(text, bool) or len(written) > _LONGEST:
        raise InvalidQuantityError(text)
    value = Fraction(match["number"])
    if match["suffix"]:
        return value * _SUFFIXES[match["suffix"]]
    if match["exponent"]:
        return value * Fraction(10) ** int(match["exponent"])
    return value


@lru_cache(maxsize=4096, typed=True)
def units(text: str | int | float) -> int:
    """The value in whole units, rounded up (bytes, devices)."""
    return ceil(parse(text))


@lru_cache(maxsize=4096, typed=True)
def milli(text: str | int | float) -> int:
    """The value in thousandths, rounded up (milli-CPU)."""
    return ceil(parse(text) * 1000)


def format_milli(value: float) -> str:
    """Thousandths as a quantity: 1500 -> `1500m`, 2000 -> `2`."""
    whole, rest = divmod(round(value), 1000)
    return f"{round(value)}m" if rest else str(whole)


def format_bytes(value: float) -> str:
    """Bytes as a quantity with the largest binary suffix that is exact."""
    number = round(value)
    for suffix in _BINARY[:0:-1]:
        unit = int(_SUFFIXES[suffix])
        if number and number % unit == 0:
            return f"{number // unit}{suffix}"
    return str(number)


def in_words(value: float, *, binary: bool = False) -> str:
    """A number for messages, `27.2` or `12,345`; with `binary`, such as for bytes, a suffix: `1.5Gi`."""
    if not isfinite(value):
        return "unlimited"
    power = 0
    while binary and abs(value) >= 1024 and power < len(_BINARY) - 1:
        value, power = value / 1024, power + 1
    few = abs(value) < (1024 if binary else 1000)
    text = f"{value:.{_DIGITS}f}".rstrip("0").rstrip(".") if few else f"{value:,.0f}"
    return ("0" if text == "-0" else text) + _BINARY[power]
