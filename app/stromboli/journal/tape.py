"""The changes to a state, kept until they are written.

The fields to be written are kept, and encoded only with the next snapshot, which costs a fraction of applying an event.
Changes to fields that nothing reads are not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stromboli.api.crds import PodGroup
from stromboli.journal import changes, wire
from stromboli.journal.pods import class_of, is_same, stands_alike, status_of, whole_of
from stromboli.journal.redaction import Redaction
from stromboli.journal.whole import Whole, whole_of_state
from stromboli.state.classes import PodClass
from stromboli.state.cluster import ClusterState
from stromboli.state.nodes import NodeRecord
from stromboli.state.observer import Observer
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot

_POD_GONE, _ASSUMED = wire.tag(wire.PodGone), wire.tag(wire.Assumed)
#: the most changes that may wait for a session; beyond that, the whole state is recorded again
_MOST = 500_000


@dataclass(slots=True)
class _Moment:
    """State when a snapshot was taken."""

    snapshot: Snapshot
    whole: Whole | None
    #: changes until then
    written: list[wire.Change]


class Tape(Observer):
    """Keeps the changes of one state. They are made in one thread, and taken in the one that runs sessions."""

    def __init__(self, state: ClusterState) -> None:
        """Observe a state from here on."""
        self.state = state
        state.observer = self
        #: whether the next snapshot is to come with the whole state; until then nothing is kept
        self.wants_whole = False
        self._keeps = False
        #: changes since the last snapshot
        self._happened: list[wire.Written] = []
        self._redaction = Redaction(state.reads)
        #: the class that each number stands for since all was wanted
        self._classes: dict[int, PodClass] = {}
        self._moment: _Moment | None = None

    def snapshot_taken(self, snapshot: Snapshot) -> None:
        """Encode the changes before it, together with the whole state where that is wanted."""
        moment = self._moment
        whole, happened = None, self._happened
        self._happened = []
        if moment is not None:
            # No session ran on that one.
            whole, happened = moment.whole, wire.apart(moment.written) + happened
        if self.wants_whole or len(happened) > _MOST:
            whole, happened = whole_of_state(self.state), []
            self._classes = {each.id: each for each in whole.classes if each is not None}
            self.wants_whole, self._keeps = False, True
        try:
            self._moment = _Moment(snapshot, whole, wire.together(happened))
        except Exception:
            self._begin_anew()

    def take(self, snapshot: Snapshot) -> tuple[Whole | None, list[wire.Change]] | None:
        """State when recording began, if it began with this snapshot, and the changes until then.

        None for a snapshot that was not kept.
        """
        moment = self._moment
        if moment is None or moment.snapshot is not snapshot or not self._keeps:
            return None
        self._moment = None
        return moment.whole, moment.written

    def rest(self) -> None:
        """Keep nothing until all is wanted again."""
        self._keeps = False
        self._happened = []

    def _begin_anew(self) -> None:
        """Something cannot be written: sessions go on, and the next segment fails in the same way and reports it."""
        self.rest()
        self.wants_whole, self._moment = True, None

    # -- changes ---------------------------------------------------------------------------------------------------

    def object_put(self, kind: str, before: PodGroup | None, now: Any) -> None:
        """An object was added or changed."""
        if not self._keeps:
            return
        try:
            self._happened.append(
                changes.pod_group(before, now, self._redaction)
                if kind == "PodGroup"
                else changes.object_(kind, now, self._redaction)
            )
        except Exception:
            self._begin_anew()

    def object_gone(self, kind: str, key: str) -> None:
        """A node or an object of another kind was deleted."""
        if self._keeps:
            self._happened.append(wire.Gone(kind, key))

    def node_put(self, record: NodeRecord) -> None:
        """A node was added or changed."""
        if self._keeps:
            self._happened.append(changes.node(record, self._redaction))

    def pod_put(self, before: PodRecord | None, now: PodRecord, state: int, *, stays: bool) -> None:
        """A pod was added or changed: all of it is kept, or what says where it stands."""
        if not self._keeps:
            return
        if before is None or not is_same(before, now):
            pod_class = now.pod_class
            if self._classes.get(pod_class.id) is not pod_class:
                self._classes[pod_class.id] = pod_class
                self._happened.append(class_of(pod_class))
            self._happened.append(whole_of(now, state))
        elif not stays or not stands_alike(before, now):
            self._happened.append(status_of(now, state))

    def pod_gone(self, row: int) -> None:
        """A pod was deleted."""
        if self._keeps:
            self._happened.append((_POD_GONE, row))

    def pod_assumed(self, row: int, node: str) -> None:
        """A pod counts on a node before its binding is confirmed."""
        if self._keeps:
            self._happened.append((_ASSUMED, row, node))

    def pod_forgotten(self, row: int) -> None:
        """An assumed binding was given up."""
        if self._keeps:
            self._happened.append(wire.Forgotten(row))
