"""Turns what happened into what is written, each thing in full once in a segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, TypeAlias

from msgspec.structs import replace

from stromboli.api.crds import PodGroup, dumped
from stromboli.explain.rehearsal import node_of
from stromboli.journal import redaction, wire
from stromboli.journal.redaction import Redaction
from stromboli.journal.tape import Bound, Happened, Lost, PodLost, PodSeen, Seen, Whole, shown
from stromboli.state.classes import PodClass
from stromboli.state.nodes import NodeRecord
from stromboli.state.pods import PodRecord

#: how many things are written together
_PART = 5_000
_Standing: TypeAlias = tuple[int, int, str, str, float, list[wire.Condition], Mapping[str, str]]


class Encoder:
    """The changes of one segment, in order."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        #: the class that each number stands for
        self._classes: dict[int, PodClass] = {}
        #: how each pod was last written, by row
        self._pods: dict[int, tuple[PodRecord, _Standing]] = {}
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

    def parts(self, whole: Whole) -> Iterator[list[wire.Change]]:
        """All that was known, a part after the other."""
        yield [self._class(pod_class) for pod_class in whole.classes if pod_class is not None]
        pods: Iterable[Happened] = (
            PodSeen(record, state)
            for record, state in zip(whole.pods, whole.states.tolist(), strict=True)
            if record is not None
        )
        happened: Iterator[Happened] = chain(whole.nodes, whole.others, pods)
        while part := list(islice(happened, _PART)):
            yield self.changes(part)
        rows = {record.key: record.row for record in whole.pods if record is not None}
        yield [wire.Assumed(rows[key], node) for key, node in whole.assumed.items() if key in rows]

    def changes(self, happened: Iterable[Happened]) -> list[wire.Change]:
        """What happened; what says nothing new is left out."""
        found: list[wire.Change] = []
        for each in happened:
            # By far the most are pods.
            if type(each) is PodSeen:
                self._pod(each.record, shown(each.state), found)
                continue
            match each:
                case PodLost(row):
                    self._pods.pop(row, None)
                    found.append(wire.PodGone(row))
                case Bound(row, node):
                    found.append(wire.Assumed(row, node) if node else wire.Forgotten(row))
                case Seen(kind, obj):
                    found.append(self._object(kind, obj))
                case Lost(kind, key):
                    if kind == "PodGroup":
                        self._groups.pop(key, None)
                    found.append(wire.Gone(kind, key))
                case NodeRecord():
                    found.append(self._node(each))
        return found

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

    def _class(self, pod_class: PodClass) -> wire.Class:
        self._classes[pod_class.id] = pod_class
        return wire.Class(pod_class.id, redaction.spec(pod_class.spec))

    def _pod(self, record: PodRecord, state: int, found: list[wire.Change]) -> None:
        """Add what is new about a pod, with its class if nobody had it before."""
        row = record.row
        known = self._pods.get(row)
        standing = (
            row,
            state,
            record.node_name,
            record.nominated_node,
            record.started,
            redaction.conditions(record.conditions),
            record.claim_names,
        )
        self._pods[row] = record, standing
        if known is not None and _is_same(known[0], record):
            if standing != known[1]:
                found.append(wire.PodStatus(*standing))
            return
        if self._classes.get(record.pod_class.id) is not record.pod_class:
            found.append(self._class(record.pod_class))
        found.append(
            wire.Pod(
                *standing,
                record.namespace,
                record.name,
                record.uid,
                record.pod_class.id,
                record.created,
                record.spec_priority,
                record.scheduler_name,
                record.labels,
                record.annotations,
            )
        )


def _is_same(before: PodRecord, now: PodRecord) -> bool:
    """Whether no more than where it stands tells a pod from what it was."""
    return (
        before.pod_class is now.pod_class
        and before.uid == now.uid
        and before.key == now.key
        and before.labels == now.labels
        and before.annotations == now.annotations
        and before.spec_priority == now.spec_priority
        and before.scheduler_name == now.scheduler_name
        and before.created == now.created
    )


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
