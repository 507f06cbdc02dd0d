"""Content of a journal, session by session, each with the state at the begin of its segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stromboli.journal import wire
from stromboli.journal.wire import JournalError


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Start of a segment."""

    began: wire.Began
    layout: wire.Layout
    #: that make the cluster as it was then
    changes: list[wire.Change]


def sessions(entries: Iterable[wire.Entry]) -> Iterator[tuple[Segment, wire.Session]]:
    """The sessions of a journal in order, and the segment of each. Raises JournalError."""
    began: wire.Began | None = None
    segment: Segment | None = None
    for entry in entries:
        match entry:
            case wire.Began():
                began, segment = entry, None
            case wire.Layout() if began is not None:
                segment = Segment(began, entry, [])
            case wire.Part(changes) if segment is not None:
                segment.changes.extend(changes)
            case wire.Session() if segment is not None:
                yield segment, entry
            case _:
                raise JournalError("a segment has no beginning")
