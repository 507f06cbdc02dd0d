"""What people write into annotations is read or is nothing: no text raises."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api import readers

DIGITS = "9" * 5000
#: texts that a naive reader trips over
HOSTILE = ("", " ", "²", "٣", "1_000", "0x10", "1e400", "-1e400", "nan", "inf", "-0", "+", "1\n", "\ud800", "[" * 9999)


@pytest.mark.parametrize("text", [*HOSTILE, DIGITS, "1.0", None])
def test_what_is_no_integer_is_none(text: str | None) -> None:
    assert readers.integer(text) == (0 if text == "-0" else None)


def test_integers_have_bounds() -> None:
    assert readers.integer(str(2**63 - 1)) == 2**63 - 1
    assert readers.integer(str(2**63)) is None
    assert [readers.count(text) for text in ("0", "2147483647", "2147483648", "-1")] == [0, 2**31 - 1, None, None]


@pytest.mark.parametrize("text", [*HOSTILE, DIGITS, None])
def test_numbers_are_finite(text: str | None) -> None:
    assert readers.number(text) == (0 if text == "-0" else None)


def test_decimal_numbers() -> None:
    assert [readers.number(text) for text in ("1.5", ".5", "2.", "-1e3", "+7")] == [1.5, 0.5, 2.0, -1000.0, 7.0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T01:00:00.25+01:00", 0.25),
        ("1970-01-01T00:00:01", 1.0),
        ("0001-01-01T00:00:00Z", -62135596800.0),
        ("0000-01-01T00:00:00Z", -62167219200.0),
        ("9999-12-31T23:59:59Z", 253402300799.0),
        ("0000-02-30T00:00:00Z", None),
        ("10000-01-01T00:00:00Z", None),
        (DIGITS, None),
        ("", None),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    assert readers.seconds(text) == seconds


@pytest.mark.parametrize("text", [*HOSTILE, DIGITS, '{"a":' * 9999, '{"a":1e400}', f'{{"a":{DIGITS}}}', '{"a":null}'])
def test_json_is_of_its_type_or_none(text: str) -> None:
    assert readers.json(text, dict[str, readers.Integer]) is None


@given(st.text())
def test_no_text_raises(text: str) -> None:
    assert readers.integer(text) in (None, readers.number(text)) or abs(int(text)) > 2**53
    assert readers.number(text) is None or math.isfinite(readers.number(text) or 0)
    readers.seconds(text)
    readers.json(text, dict[str, int])
