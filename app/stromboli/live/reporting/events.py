"""Kubernetes Events, emitted once, at a bounded rate, and dropped when there are too many."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from stromboli.api.crds import SCHEDULING, PodGroup
from stromboli.api.errors import in_words
from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError, Kube, timestamp
from stromboli.live.observer import Observer
from stromboli.live.process.fair_queue import FairQueue
from stromboli.live.process.limits import TokenBucket
from stromboli.live.process.logs import Logger
from stromboli.live.process.workers import run_workers

log = Logger(__name__)

#: Events of a namespace that wait at most
_CAPACITY = 2_000
_REMEMBERED = 20_000
#: an unchanged Event is emitted again after this many seconds
_REPEAT = 600.0
#: in bytes; the API server rejects longer notes
_LONGEST_NOTE = 1_024
_WORKERS = 4


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


class _Pod(Protocol):
    """The fields that identify a pod."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


def about_pod(pod: _Pod) -> Reference:
    """The reference to a pod, given as a record or by a decision."""
    return Reference("v1", "Pod", pod.namespace, pod.name, pod.uid)


def about_pod_group(pod_group: PodGroup) -> Reference:
    """The reference to a PodGroup."""
    metadata = pod_group.metadata
    return Reference(SCHEDULING, "PodGroup", metadata.namespace, metadata.name, metadata.uid)


@dataclass(frozen=True, slots=True)
class _Event:
    about: Reference
    type: str
    reason: str
    note: str
    action: str
    time: datetime


class Events:
    """Posts Events in the background. Under overload, Events of type Normal are dropped first."""

    def __init__(self, kube: Kube, observer: Observer, component: str, rate: float) -> None:
        self._kube = kube
        self._observer = observer
        self._component = component
        self._instance = f"{component}-{os.environ.get('POD_NAME') or socket.gethostname()}"[:128]
        self._bucket = TokenBucket(rate, burst=2 * rate)
        #: names what an Event is about as the API server knows it
        self.translate: Callable[[Reference], Reference] = lambda about: about
        self._queue: FairQueue[_Event] = FairQueue(lambda event: event.about.namespace)
        #: time of the last emission of each Event, latest at the end
        self._told: OrderedDict[tuple[Reference, str, str], float] = OrderedDict()

    def emit(self, about: Reference, type: str, reason: str, note: str, action: str = "Scheduling") -> None:
        """Emit an Event unless the same one was emitted lately."""
        about = self.translate(about)
        now, identity = time.monotonic(), (about, reason, note)
        told = self._told.get(identity)
        if told is not None and now - told < _REPEAT:
            return
        self._told[identity] = now
        self._told.move_to_end(identity)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        full = self._queue.waiting(about.namespace) >= (_CAPACITY if type == "Warning" else _CAPACITY // 2)
        if full:
            self._observer.event_result("dropped")
        else:
            self._queue.put_nowait(_Event(about, type, reason, note, action, datetime.now(UTC)))

    async def run(self) -> None:
        """Post until cancelled."""
        await run_workers("events", _WORKERS, self._work)

    async def _work(self) -> None:
        while True:
            event = await self._queue.get()
            await self._bucket.wait()
            namespace = event.about.namespace or "default"
            path = f"/api/v1/namespaces/{namespace}/events"
            try:
                await self._kube.persist("POST", path, msgspec.json.encode(self._manifest(event, namespace)))
            except (ApiError, *CONNECTION_ERRORS) as error:
                self._observer.event_result("failed")
                log.debug("event not posted", about=event.about.name, error=in_words(error))
            else:
                self._observer.event_result("posted")

    def _manifest(self, event: _Event, namespace: str) -> dict[str, object]:
        """An Event of core/v1: only there may `lastTimestamp` be set, which Volcano's clients sort by."""
        about, seen = event.about, timestamp(event.time)
        involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
        if about.namespace:
            involved["namespace"] = about.namespace
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about.name[:230].rstrip('-.')}.{secrets.token_hex(8)}", "namespace": namespace},
            "eventTime": event.time.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "firstTimestamp": seen,
            "lastTimestamp": seen,
            "count": 1,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "action": event.action,
            "type": event.type,
            "reason": event.reason,
            "involvedObject": involved,
            "message": shortened(event.note, _LONGEST_NOTE),
        }


def shortened(text: str, size: int) -> str:
    """A text cut to a number of bytes."""
    written = text.encode(errors="replace")
    return text if len(written) <= size else written[: size - len("…".encode())].decode(errors="ignore") + "…"
