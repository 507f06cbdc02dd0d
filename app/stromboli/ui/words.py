"""Formatting of numbers and times on the page."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote, urlencode

_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))
#: state or phase -> style
_LOOKS = {
    "good": ("Running", "Open", "Completed", "Succeeded"),
    "busy": ("Binding", "Bound", "Allocated", "Pipelined", "Releasing", "Inqueue", "Closing"),
    "bad": ("Failed", "Unknown", "Closed", "Evicted"),
}


def seconds(value: float) -> str:
    """A duration."""
    if not value:
        return "0 s"
    if value >= 120:
        return next(f"{value / span:.3g} {unit}" for span, unit in _SPANS if value >= span)
    if value >= 1:
        return f"{value:.3g} s"
    return f"{1000 * value:.3g} ms" if value >= 0.001 else f"{1e6 * value:.0f} µs"


def moment(at: float) -> str:
    """A time of the day."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def when(at: float, now: float) -> str:
    """A time of the day, with its date if that was another day."""
    day = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d ")
    return ("" if stamp(now).startswith(day.strip()) else day) + moment(at)


def stamp(at: float) -> str:
    """A machine-readable time."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def age(since: float, now: float) -> str:
    """The age of something."""
    if not since:
        return "–"
    passed = max(0.0, now - since)
    return next((f"{passed / span:.0f} {unit}" for span, unit in _SPANS if passed >= span), f"{passed:.0f} s")


def look(state: str) -> str:
    """The style of a state or phase."""
    return next((look for look, states in _LOOKS.items() if state in states), "calm")


def path(*parts: str) -> str:
    """A path on the page with escaped parts."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def query(**asked: str | int) -> str:
    """A query string without empty parameters."""
    said = {key: value for key, value in asked.items() if value not in ("", 0)}
    return f"?{urlencode(said)}" if said else ""
