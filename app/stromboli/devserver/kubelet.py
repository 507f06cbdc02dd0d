"""A fake kubelet for all nodes: bound pods start, may finish, and end when they are deleted.

It runs no containers. A pod whose node does not exist stays Pending, as on a real cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from .clock import timestamp
from .errors import ApiError
from .operations import Api
from .resources import NODES, PODS, Object
from .store import Key, Stored

logger = logging.getLogger(__name__)

RUN_SECONDS = "devserver.stromboli.io/run-seconds"
"""Annotation of a pod that succeeds on its own, this long after it started."""


class Kubelet:
    """Follows the pods and nodes of `api` until cancelled; times are in seconds.

    A bound pod is Running after `start_delay`. A deleted one ends after `stop_delay`, or after its grace
    period if that is shorter.
    """

    def __init__(self, api: Api, *, start_delay: float, stop_delay: float) -> None:
        self._api = api
        self._start_delay = start_delay
        self._stop_delay = stop_delay
        self._pods = api.resource(PODS)
        self._nodes = api.resource(NODES)
        #: uids of pods with a timer that has not fired yet, per thing to do
        self._starting: set[str] = set()
        self._finishing: set[str] = set()
        self._stopping: set[str] = set()
        #: pods that were due to start on a node that does not exist, as (key, uid), by the node's name
        self._homeless: dict[str, list[tuple[Key, str]]] = {}

    async def run(self) -> None:
        await asyncio.gather(self._follow(PODS, self._see_pod), self._follow(NODES, self._see_node))

    async def _follow(self, key: tuple[str, str], see: Callable[[Stored], None]) -> None:
        collection = self._api.store.collection(self._api.resource(key))
        log = collection.log
        while not log.closed:
            position = log.end
            for stored in list(collection.ordered()):
                self._look(see, stored)
            # When the log has forgotten changes, all objects are looked at again.
            with contextlib.suppress(ApiError):
                while not log.closed:
                    await log.wait(position)
                    events = log.since(position)
                    position += len(events)
                    for event in events:
                        if event.type != "DELETED":
                            self._look(see, event.stored)

    def _look(self, see: Callable[[Stored], None], stored: Stored) -> None:
        """Looks at one object; a malformed one, which real servers would have refused, does not stop the rest."""
        try:
            see(stored)
        except (KeyError, TypeError, AttributeError):
            logger.exception("ignored malformed object key=%s version=%s", "/".join(stored.key), stored.version)

    def _see_pod(self, stored: Stored) -> None:
        metadata, status = stored.body["metadata"], stored.body.get("status") or {}
        uid = metadata["uid"]
        if "deletionTimestamp" in metadata:
            grace = metadata.get("deletionGracePeriodSeconds", 0)
            self._later(self._stopping, uid, min(self._stop_delay, grace), self._stop, stored.key)
        elif not stored.body["spec"].get("nodeName"):
            return
        elif status.get("phase") == "Pending":
            self._later(self._starting, uid, self._start_delay, self._start, stored.key)
        elif status.get("phase") == "Running":
            seconds = _run_seconds(metadata)
            if seconds is not None:
                self._later(self._finishing, uid, seconds, self._finish, stored.key)

    def _see_node(self, stored: Stored) -> None:
        """Reports a node as ready unless a client did, and starts the pods that were bound too early."""
        status = stored.body.get("status") or {}
        if not any(c["type"] == "Ready" for c in status.get("conditions") or ()):
            self._set_status(NODES, stored.key, _ready_node(stored.body))
        for key, uid in self._homeless.pop(stored.key[1], ()):
            self._start(key, uid)

    def _later(self, waiting: set[str], uid: str, delay: float, act: Callable[[Key, str], None], key: Key) -> None:
        if uid in waiting:
            return
        waiting.add(uid)

        def fire() -> None:
            waiting.discard(uid)
            act(key, uid)

        asyncio.get_running_loop().call_later(delay, fire)

    def _current(self, key: Key, uid: str) -> Object | None:
        """The pod, unless it has been deleted or replaced meanwhile."""
        stored = self._api.store.collection(self._pods).get(key)
        return stored.body if stored is not None and stored.body["metadata"]["uid"] == uid else None

    def _start(self, key: Key, uid: str) -> None:
        pod = self._current(key, uid)
        if pod is None or pod["status"].get("phase") != "Pending" or "deletionTimestamp" in pod["metadata"]:
            return
        node = pod["spec"]["nodeName"]
        if self._api.store.collection(self._nodes).get(("", node)) is None:
            self._homeless.setdefault(node, []).append((key, uid))
        else:
            self._set_status(PODS, key, _running_pod(pod))

    def _finish(self, key: Key, uid: str) -> None:
        pod = self._current(key, uid)
        if pod is not None and pod["status"].get("phase") == "Running":
            self._set_status(PODS, key, _succeeded_pod(pod))

    def _stop(self, key: Key, uid: str) -> None:
        if self._current(key, uid) is not None:
            self._api.delete(self._pods, key, {"gracePeriodSeconds": 0})

    def _set_status(self, kind: tuple[str, str], key: Key, status: Object) -> None:
        with contextlib.suppress(ApiError):
            self._api.patch(self._api.resource(kind), key, lambda old: {**old, "status": status}, "status")


def _run_seconds(metadata: Object) -> float | None:
    text = (metadata.get("annotations") or {}).get(RUN_SECONDS)
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        logger.warning("ignored annotation name=%s pod=%s value=%r", RUN_SECONDS, metadata["name"], text)
        return None


def _running_pod(pod: Object) -> Object:
    now = timestamp()
    started = {"running": {"startedAt": now}}
    conditions = [
        *(c for c in pod["status"].get("conditions") or () if c["type"] == "PodScheduled"),
        *(_condition(kind, True, now) for kind in ("Initialized", "ContainersReady", "Ready")),
    ]
    containers = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": started,
        }
        for container in pod["spec"]["containers"]
    ]
    return {
        **pod["status"],
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": containers,
        "startTime": now,
    }


def _succeeded_pod(pod: Object) -> Object:
    now = timestamp()
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}}
    not_ready = ("ContainersReady", "Ready")
    conditions = [
        *(c for c in pod["status"].get("conditions") or () if c["type"] not in not_ready),
        *(_condition(kind, False, now, "PodCompleted") for kind in not_ready),
    ]
    containers = [
        {**container, "ready": False, "started": False, "state": ended}
        for container in pod["status"].get("containerStatuses") or ()
    ]
    return {**pod["status"], "phase": "Succeeded", "conditions": conditions, "containerStatuses": containers}


def _ready_node(node: Object) -> Object:
    status = node.get("status") or {}
    ready = _condition("Ready", True, timestamp(), "KubeletReady")
    info = {"kubeletVersion": "v1.36.1", **(status.get("nodeInfo") or {})}
    return {**status, "conditions": [*(status.get("conditions") or ()), ready], "nodeInfo": info}


def _condition(kind: str, holds: bool, since: str, reason: str = "") -> Object:
    condition = {"type": kind, "status": "True" if holds else "False", "lastTransitionTime": since}
    return {**condition, "reason": reason} if reason else condition
