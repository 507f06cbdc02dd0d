"""Applies the changes of a journal to a state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from stromboli.journal import wire
from stromboli.journal.events import Counted, Event, Gone, Put, Reader
from stromboli.journal.wire import JournalError
from stromboli.state.cluster import ClusterState
from stromboli.state.layout import Layout, laid_out
from stromboli.state.reads import Reads
from stromboli.state.resource_names import resources_of

#: kinds of objects that name resources which get a column, and how many new ones are added together
_OFFERING, _MANY = ("Node", "Queue"), 64


class Player:
    """A cluster at one moment of a journal. Raises JournalError for impossible changes."""

    def __init__(self, began: wire.Began, reads: Reads) -> None:
        self.state = ClusterState(began.scheduler_names, began.extender_scheduler_names, reads)
        self._reader = Reader()

    def begin(self, layout: wire.Layout, changes: Sequence[wire.Change]) -> None:
        """Load the state at the beginning of a segment."""
        reader = self._reader
        pods = [change for change in changes if isinstance(change, wire.Pod)]
        for change in changes:
            if isinstance(change, wire.Class):
                reader.event(change)
        used = _flags(len(pods), set(layout.free_pods), "free_pods")
        by_class = {change.number: change for change in pods}
        occupied = _flags(len(by_class), set(layout.free_classes), "free_classes")
        representatives = [
            reader.representative(by_class[number]) if in_use and number in by_class else None
            for number, in_use in enumerate(occupied)
        ]
        with laid_out(self.state, Layout(layout.resources, layout.jobs, used, representatives)):
            self.apply(changes)

    def apply(self, changes: Iterable[wire.Change]) -> None:
        """Something happens."""
        events = list(self._reader.events(changes))
        offering = [(event.kind, event.obj) for event in events if isinstance(event, Put) and event.kind in _OFFERING]
        new = {name for each in offering for name in resources_of(*each)} - self.state.dimensions.index.keys()
        # Fewer may come and go in the order in which they did, which is that of their columns.
        with self.state.expecting(offering) if len(new) > _MANY else nullcontext():
            for event in events:
                self._apply(event)

    def _apply(self, event: Event) -> None:
        state = self.state
        try:
            match event:
                case Put(kind, _, obj):
                    state.upsert(kind, obj)
                case Gone(kind, key):
                    state.delete(kind, key)
                case Counted(key, node):
                    state.assume(key, node) if node else state.forget(key)
        except MemoryError:
            raise
        except Exception as error:
            raise JournalError(f"{event.key!r} cannot be used: {wire.told(error)}") from None


def _flags(count: int, free: set[int], what: str) -> list[bool]:
    """Whether each of `count` numbers is in use, given the free ones."""
    size = count + len(free)
    if any(not 0 <= number < size for number in free):
        raise JournalError(f"{what} names what there is not")
    return [number not in free for number in range(size)]
