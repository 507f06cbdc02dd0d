"""A state that keeps what happens to it until somebody writes it down.

The fields that are written are kept, and encoded with the next snapshot, while they are still at hand: that costs a
fraction of what applying an event does. What changes nothing that is read is not kept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from stromboli.api import objects
from stromboli.journal import changes, wire
from stromboli.journal.pods import class_of, is_same, stands_alike, status_of, whole_of
from stromboli.journal.redaction import Redaction
from stromboli.journal.whole import Whole
from stromboli.state.classes import PodClass
from stromboli.state.cluster import ClusterState, Upserted
from stromboli.state.reads import NOTHING_ELSE, Reads
from stromboli.state.snapshot import Snapshot

_POD_GONE, _ASSUMED = wire.tag(wire.PodGone), wire.tag(wire.Assumed)
#: changes that may wait for a session; more, and the state is taken down anew
_MOST = 500_000


@dataclass(slots=True)
class _Moment:
    """When a snapshot was taken."""

    snapshot: Snapshot
    whole: Whole | None
    #: what had happened
    written: list[wire.Change]


class RecordedState(ClusterState):
    """See the module's docstring. Changes are made in one thread, and taken in the one that runs sessions."""

    def __init__(
        self,
        scheduler_names: Collection[str] = ("stromboli",),
        extender_scheduler_names: Collection[str] = (),
        reads: Reads = NOTHING_ELSE,
    ) -> None:
        super().__init__(scheduler_names, extender_scheduler_names, reads)
        #: whether the next snapshot is to come with all that is known; until then nothing is kept
        self.wants_whole = False
        self._keeps = False
        #: what happened since the last snapshot
        self._happened: list[wire.Written] = []
        self._redaction = Redaction(reads)
        #: the class that each number stands for since all was wanted
        self._classes: dict[int, PodClass] = {}
        self._moment: _Moment | None = None

    def snapshot(self) -> Snapshot:
        """A copy of every column; records and classes are shared."""
        snapshot, moment = super().snapshot(), self._moment
        whole, happened = None, self._happened
        self._happened = []
        if moment is not None:
            # Nobody ran a session on that one.
            whole, happened = moment.whole, wire.apart(moment.written) + happened
        if self.wants_whole or len(happened) > _MOST:
            whole, happened = self._whole(), []
            self._classes = {each.id: each for each in whole.classes if each is not None}
            self.wants_whole, self._keeps = False, True
        try:
            self._moment = _Moment(snapshot, whole, wire.together(happened))
        except Exception:
            self._begin_anew()
        return snapshot

    def take(self, snapshot: Snapshot) -> tuple[Whole | None, list[wire.Change]] | None:
        """All that was known when recording began, if it begins with this snapshot, and what happened until then.

        None for a snapshot of which nothing was kept.
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
        """Something cannot be written: sessions go on, and whoever writes the whole meets the same and reports it."""
        self.rest()
        self.wants_whole, self._moment = True, None

    def _whole(self) -> Whole:
        pods = self.pods
        others: list[tuple[str, Any]] = []
        for kind, table in (
            ("PriorityClass", self.priority_classes),
            ("Queue", self.queues),
            ("HyperNode", self.hyper_nodes),
        ):
            others += ((kind, obj) for obj in table.values())
        others += (("PodGroup", group) for group in self.jobs.pod_groups if group is not None)
        others += (("PodGroup", group) for group in self.jobs.left.values())
        others += ((kind, obj) for kind, objs in self.objects.items() for obj in objs.values())
        return Whole(
            self.dimensions.names.copy(),
            self.jobs.keys,
            [each if each.id >= 0 else None for each in self.classes.classes],
            pods.records.copy(),
            pods.state[: pods.size].copy(),
            self.assumed.copy(),
            [record for row in self.nodes.order if (record := self.nodes.records[row]) is not None],
            others,
            [group.key for group in self.jobs.left.values()],
        )

    # -- what happens ----------------------------------------------------------------------------------------------

    def upsert(self, kind: str, obj: Any) -> None:
        """An object was added or changed."""
        if not self._keeps or kind in ("Pod", "Node"):
            super().upsert(kind, obj)
            return
        before = self.pod_group(obj.key) if kind == "PodGroup" else None
        super().upsert(kind, obj)
        try:
            self._happened.append(
                changes.pod_group(before, obj, self._redaction)
                if kind == "PodGroup"
                else changes.object_(kind, obj, self._redaction)
            )
        except Exception:
            self._begin_anew()

    def delete(self, kind: str, key: str) -> None:
        """An object is gone; unknown keys are ignored."""
        super().delete(kind, key)
        if self._keeps and kind != "Pod":
            self._happened.append(wire.Gone(kind, key))

    def assume(self, key: str, node: str) -> None:
        """Count a pod on its node before the API server confirms the binding."""
        super().assume(key, node)
        if self._keeps and self.assumed.get(key) == node:
            self._happened.append((_ASSUMED, self.pods.by_key[key], node))

    def forget(self, key: str) -> None:
        """The binding was refused or timed out: the pod is pending again."""
        row = self.pods.by_key.get(key)
        if self._keeps and key in self.assumed and row is not None:
            self._happened.append(wire.Forgotten(row))
        super().forget(key)

    def _upsert_pod(self, pod: objects.Pod) -> Upserted | None:
        upserted = super()._upsert_pod(pod)
        if self._keeps and upserted is not None:
            before, record, state, stays = upserted
            if before is None or not is_same(before, record):
                pod_class = record.pod_class
                if self._classes.get(pod_class.id) is not pod_class:
                    self._classes[pod_class.id] = pod_class
                    self._happened.append(class_of(pod_class))
                self._happened.append(whole_of(record, state))
            elif not stays or not stands_alike(before, record):
                self._happened.append(status_of(record, state))
        return upserted

    def _delete_pod(self, key: str) -> None:
        row = self.pods.by_key.get(key)
        super()._delete_pod(key)
        if self._keeps and row is not None:
            self._happened.append((_POD_GONE, row))

    def _upsert_node(self, node: objects.Node) -> None:
        before = self.nodes.record(node.metadata.name)
        super()._upsert_node(node)
        record = self.nodes.record(node.metadata.name)
        if self._keeps and record is not None and record is not before:
            self._happened.append(changes.node(record, self._redaction))
