"""Turns what happened into what is written, each thing in full once in a segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from msgspec.structs import replace

from stromboli.api.crds import PodGroup, dumped
from stromboli.explain.rehearsal import node_of
from stromboli.journal import wire
from stromboli.journal.pods import class_of, whole_of
from stromboli.journal.redaction import Redaction
from stromboli.journal.tape import Happened, Seen, Whole
from stromboli.journal.wire import encoded
from stromboli.state.nodes import NodeRecord

#: how many things are written together
_PART = 5_000


class Encoder:
    """The changes of one segment, in order."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        #: each PodGroup as it was last written, by key
        self._groups: dict[str, PodGroup] = {}

    def layout(self, whole: Whole, remembered: wire.Remembered) -> wire.Layout:
        """How the state is numbered that `parts` is about."""
        return wire.Layout(
            whole.resources,
            whole.jobs,
            [row for row, record in enumerate(whole.pods) if record is None],
            [number for number, pod_class in enumerate(whole.classes) if pod_class is None],
            remembered,
        )

    def parts(self, whole: Whole) -> Iterator[list[bytes]]:
        """All that was known, a part after the other."""
        yield [encoded(class_of(pod_class)) for pod_class in whole.classes if pod_class is not None]
        pods: Iterable[Happened] = (
            encoded(whole_of(record, state))
            for record, state in zip(whole.pods, whole.states.tolist(), strict=True)
            if record is not None
        )
        happened: Iterator[Happened] = chain(whole.nodes, whole.others, pods)
        while part := list(islice(happened, _PART)):
            yield self.changes(part)
        rows = {record.key: record.row for record in whole.pods if record is not None}
        yield [encoded(wire.Assumed(rows[key], node)) for key, node in whole.assumed.items() if key in rows]

    def changes(self, happened: Iterable[Happened]) -> list[bytes]:
        """What happened, as it is written."""
        return [each if isinstance(each, bytes) else encoded(self._change(each)) for each in happened]

    def _change(self, happened: wire.Gone | NodeRecord | Seen) -> wire.Change:
        if isinstance(happened, Seen):
            return self._object(happened.kind, happened.obj)
        if isinstance(happened, NodeRecord):
            return self._node(happened)
        if happened.kind == "PodGroup":
            self._groups.pop(happened.key, None)
        return happened

    def _node(self, record: NodeRecord) -> wire.Node:
        node = node_of(record)
        annotations = self._redaction.annotations(node.metadata.annotations)
        return wire.Node(replace(node, metadata=replace(node.metadata, annotations=annotations)))

    def _object(self, kind: str, obj: Any) -> wire.Change:
        if isinstance(obj, PodGroup):
            key = obj.key
            before, self._groups[key] = self._groups.get(key), obj
            if before is not None and _differs_in_status(before, obj):
                return wire.GroupStatus(key, obj.metadata.generation, dumped(obj.status))
        return wire.Object(kind, self._redaction.manifest(kind, obj))


def _differs_in_status(before: PodGroup, now: PodGroup) -> bool:
    """Whether no more than its status and what counts versions tells a PodGroup from what it was."""
    one, other = before.metadata, now.metadata
    return (
        before.spec == now.spec
        and one.uid == other.uid
        and one.labels == other.labels
        and one.annotations == other.annotations
        and one.owner_references == other.owner_references
        and one.creation_timestamp == other.creation_timestamp
        and one.deletion_timestamp == other.deletion_timestamp
    )
