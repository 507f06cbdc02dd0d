"""Durations as Go writes them."""

from __future__ import annotations

import pytest

from stromboli.api.duration import parse, written


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("30s", 30.0),
        ("1h30m", 5400.0),
        ("1h2m3s4ms5µs6ns", 3723.004005006),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("-2m", -120.0),
        ("+1us", 1e-6),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse(text) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize("text", ["1h30m", "24h", "45s", "1h0.5s", "0s"])
def test_durations_are_written_as_they_are_read(text: str) -> None:
    assert written(parse(text)) == text


@pytest.mark.parametrize("text", ["", "30", "1d", "s", "1m 30s", "-", "1,5s", "9" * 80 + "s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse(text)
