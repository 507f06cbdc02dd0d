"""The queue controller: opens new queues, closes empty ones, and writes their status."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import msgspec

from stromboli.api.crds import SCHEDULING, PodGroup, PodGroupPhase, Queue, QueueState
from stromboli.api.decisions import SetQueueStatus
from stromboli.api.errors import InvalidObjectError
from stromboli.live.api_server.client import ApiError, Kube, Object, already_exists
from stromboli.live.process.logs import Logger
from stromboli.live.reporting.state_field import write_state
from stromboli.live.reporting.status import StatusWriter, condition_fields
from stromboli.live.watch.mirror import Mirror
from stromboli.state.cluster import object_key
from stromboli.state.queue_states import next_state

log = Logger(__name__)

_COUNTS = {phase: phase.lower() for phase in PodGroupPhase}


class QueueController:
    """Composes the status of every queue, and writes it where it differs from the API server's."""

    def __init__(
        self,
        mirror: Mirror,
        writer: StatusWriter,
        patience: float,
        gone: Callable[[str], None] = lambda name: None,
    ) -> None:
        """Changes of counts and amounts may be written `patience` seconds late. `gone` is called with the name of each
        deleted queue."""
        self._gone = gone
        self._state = mirror.state
        self._writer = writer
        self._patience = patience
        self._active = False
        self._changed = True
        #: the latest status that a session decided for each queue
        self._decided: dict[str, SetQueueStatus] = {}
        self._phases = PhaseCounts(mirror)
        mirror.listen("PodGroup", lambda type, obj: self._touch())
        mirror.listen("Queue", self._queue_changed)

    def begin(self) -> None:
        """Start to write. New queues are opened at once, since a queue without state accepts no work."""
        self._active = True
        for queue in self._state.queues.values():
            self._open(queue)

    def seen(self, queue: Object) -> None:
        """Open a new queue without waiting for a session. Invalid queues are reported by the mirror."""
        try:
            parsed = Queue.parse(queue)
        except InvalidObjectError:
            return
        # The event may be out of date.
        known = self._state.queues.get(parsed.key, parsed)
        if self._active and not known.status.state:
            self._open(known)

    def decided(self, status: SetQueueStatus) -> None:
        """Take the amounts and conditions of a queue from a session."""
        self._decided[status.name] = status
        self._changed = True

    def refresh(self) -> None:
        """Write changes since the last call."""
        if not self._changed:
            return
        self._changed = False
        wanted = {
            name: fields
            for name, queue in self._state.queues.items()
            if (fields := queue_fields(queue, self._phases.of(name), self._decided.get(name)))
        }
        self._writer.withdraw("Queue", but=wanted)
        for name, fields in wanted.items():
            if "state" in fields:
                # With the version, so that a user who opens or closes the queue at the same time takes precedence.
                self._writer.put("Queue", name, fields, version=self._state.queues[name].metadata.resource_version)
            else:
                self._writer.put("Queue", name, fields, patience=self._patience)

    def _touch(self) -> None:
        self._changed = True

    def _queue_changed(self, type: str, queue: Queue | Object | str) -> None:
        self._changed = True
        if type == "DELETED":
            name = queue if isinstance(queue, str) else object_key(queue)
            self._decided.pop(name, None)
            self._gone(name)

    def _open(self, queue: Queue) -> None:
        if not queue.status.state:
            version = queue.metadata.resource_version
            self._writer.put("Queue", queue.key, {"state": QueueState.Open}, version=version)


class PhaseCounts:
    """The number of PodGroups in each phase, by queue."""

    def __init__(self, mirror: Mirror) -> None:
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        #: queue and phase of each PodGroup, by key
        self._counted: dict[str, tuple[str, str]] = {}
        mirror.listen("PodGroup", self._changed)

    def of(self, queue: str) -> Counter[str]:
        """Phase counts of a queue."""
        return self._counts.get(queue, Counter())

    def _changed(self, type: str, group: PodGroup | str) -> None:
        key = group if isinstance(group, str) else object_key(group)
        before = self._counted.pop(key, None)
        if before is not None:
            queue, phase = before
            self._counts[queue][phase] -= 1
            if not self._counts[queue].total():
                del self._counts[queue]
        if not isinstance(group, str) and type != "DELETED":
            queue, phase = self._counted[key] = group.queue, group.status.phase or PodGroupPhase.Pending
            self._counts[queue][phase] += 1


def queue_fields(queue: Queue, counts: Counter[str], decided: SetQueueStatus | None) -> Object:
    """The fields of a queue's status that must change; null removes an amount."""
    status = queue.status
    fields: Object = {}
    state = next_state(status.state, counts.total())
    if state != status.state:
        fields["state"] = state
    for phase, field in _COUNTS.items():
        if counts[phase] != getattr(status, field):
            fields[field] = counts[phase]
    if decided is not None and decided.allocated != status.allocated:
        gone = dict.fromkeys(name for name in status.allocated if name not in decided.allocated)
        fields["allocated"] = {**decided.allocated, **gone}
    if decided is not None and decided.conditions is not None:
        shown = [condition.shown for condition in decided.conditions]
        if shown != [condition.shown for condition in status.conditions]:
            fields["conditions"] = condition_fields(decided.conditions, queue)
    return fields


async def ensure_queues(kube: Kube, default_queue: str) -> None:
    """Create the root and the default queue when they are absent. Raises ApiError."""
    specs: dict[str, Object] = {"root": {"reclaimable": False}, default_queue: {}}
    for name, spec in specs.items():
        await ensure_queue(kube, name, spec)


async def ensure_queue(kube: Kube, name: str, spec: Object) -> None:
    """Create a queue when it is absent. Raises ApiError."""
    manifest = {
        "apiVersion": SCHEDULING,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": True, **spec},
    }
    try:
        await kube.persist("POST", f"/apis/{SCHEDULING}/queues", msgspec.json.encode(manifest))
    except ApiError as error:
        if not already_exists(error):
            raise
    else:
        await write_state(kube, name, QueueState.Open)
        log.info("queue created", queue=name)
