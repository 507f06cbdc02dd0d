"""Times as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def timestamp(after: float = 0.0) -> str:
    """Now, or `after` seconds from now, as RFC 3339 in UTC with whole seconds."""
    moment = datetime.now(UTC) + timedelta(seconds=after)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str) -> datetime:
    """The moment that a Time or MicroTime of an object names."""
    return datetime.fromisoformat(text)
