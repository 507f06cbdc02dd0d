"""Recorded changes, turned back into objects: journals name pods by rows, and store shared parts once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stromboli import gate
from stromboli.api import objects
from stromboli.api.pod_state import PodState
from stromboli.journal import wire
from stromboli.journal.wire import JournalError
from stromboli.state.cluster import object_key
from stromboli.state.pods import claim_statuses, timestamp

#: appearance of a pod in a state: its phase, and whether it is on its way out
_PHASES = {
    PodState.Pending: ("Pending", False),
    PodState.Bound: ("Pending", False),
    PodState.Running: ("Running", False),
    PodState.Releasing: ("Running", True),
    PodState.Succeeded: ("Succeeded", False),
    PodState.Failed: ("Failed", False),
    PodState.Unknown: ("Unknown", False),
}


class Put(Struct, frozen=True, gc=False):
    """An object is new or changed, and passed the gate."""

    kind: str
    key: str
    obj: Any


class Gone(Struct, frozen=True, gc=False):
    """An object is not there any longer."""

    kind: str
    key: str


class Counted(Struct, frozen=True, gc=False):
    """A pod is counted on a node before it is seen there; with an empty one no longer."""

    key: str
    node: str


Event: TypeAlias = Put | Gone | Counted


class Reader:
    """Reads the changes of one segment in their order. Raises JournalError for impossible changes."""

    def __init__(self) -> None:
        self._pods: dict[int, objects.Pod] = {}
        self._classes: dict[int, objects.PodSpec] = {}
        #: the manifest of each PodGroup
        self._groups: dict[str, dict[str, Any]] = {}

    def events(self, changes: Iterable[wire.Change]) -> Iterator[Event]:
        """Events in some changes, in order."""
        for change in changes:
            event = self.event(change)
            if event is not None:
                yield event

    def event(self, change: wire.Change) -> Event | None:
        """The event; None for entries that only complete others."""
        with _reading(change):
            return self._event(change)

    def representative(self, change: wire.Pod) -> objects.Pod:
        """A pod with the very spec that its class was made of."""
        with _reading(change):
            pod = replace(self._new(change), spec=self._spec(change.number))
            return gate.read("Pod", pod)  # type: ignore[no-any-return]

    def _event(self, change: wire.Change) -> Event | None:
        match change:
            case wire.Class(number, spec):
                self._classes[number] = spec
            case wire.Pod():
                return self._put(change.row, self._new(change))
            case wire.PodStatus():
                return self._put(change.row, _shown(self._known(change.row), change))
            case wire.PodGone(row):
                gone = self._known(row)
                del self._pods[row]
                return Gone("Pod", object_key(gone))
            case wire.Assumed(row, node):
                return Counted(object_key(self._known(row)), node)
            case wire.Forgotten(row):
                return Counted(object_key(self._known(row)), "")
            case wire.Node(node):
                return Put("Node", node.metadata.name, gate.read("Node", node))
            case wire.Object(kind, manifest):
                return self._object(kind, manifest)
            case wire.GroupStatus(key, generation, status):
                known = self._groups.get(key)
                if known is None:
                    raise JournalError(f"there is no PodGroup {key!r}")
                metadata = {**known["metadata"], "generation": generation}
                return self._object("PodGroup", {**known, "metadata": metadata, "status": status})
            case wire.Gone(kind, key):
                if kind == "PodGroup":
                    self._groups.pop(key, None)
                return Gone(kind, key)
        return None

    def _object(self, kind: str, manifest: dict[str, Any]) -> Put:
        obj = _read_object(kind, manifest)
        key = object_key(obj)
        if kind == "PodGroup":
            self._groups[key] = manifest
        return Put(kind, key, obj)

    def _put(self, row: int, pod: objects.Pod) -> Put:
        self._pods[row] = pod
        return Put("Pod", object_key(pod), gate.read("Pod", pod))

    def _known(self, row: int) -> objects.Pod:
        pod = self._pods.get(row)
        if pod is None:
            raise JournalError(f"there is no pod {row}")
        return pod

    def _spec(self, number: int) -> objects.PodSpec:
        if number not in self._classes:
            raise JournalError(f"there is no class {number}")
        return self._classes[number]

    def _new(self, change: wire.Pod) -> objects.Pod:
        spec = replace(self._spec(change.number), priority=change.priority, scheduler_name=change.scheduler)
        metadata = objects.Metadata(
            name=change.name,
            namespace=change.namespace,
            uid=change.uid,
            creation_timestamp=timestamp(change.created),
            labels=dict(change.labels),
            annotations=dict(change.annotations),
        )
        return _shown(objects.Pod(metadata=metadata, spec=spec), change)


@contextmanager
def _reading(change: wire.Change) -> Iterator[None]:
    """Whatever is wrong with a change is a JournalError."""
    try:
        yield
    except JournalError:
        raise
    except Exception as error:
        what = wire.tag(type(change))
        raise JournalError(f"a {what} cannot be used: {wire.told(error)}") from None


def _read_object(kind: str, manifest: dict[str, object]) -> object:
    """An object as a state takes it."""
    if kind == "PriorityClass":
        return msgspec.convert(manifest, objects.PriorityClass)
    return gate.read(kind, manifest)


def _shown(pod: objects.Pod, change: wire.PodStatus) -> objects.Pod:
    phase, leaves = _PHASES[PodState(change.state)]
    return objects.Pod(
        metadata=replace(pod.metadata, deletion_timestamp=timestamp(1.0) if leaves else None),
        spec=replace(pod.spec, node_name=change.node),
        status=objects.PodStatus(
            phase=phase,
            nominated_node_name=change.nominated,
            start_time=timestamp(change.started),
            conditions=[objects.PodCondition(*each) for each in change.conditions],
            resource_claim_statuses=claim_statuses(change.claims),
        ),
    )
