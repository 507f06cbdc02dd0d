"""Creates a PodGroup for each of our pods without one, so that every pod belongs to a queue.

Pods of one ReplicaSet, StatefulSet, DaemonSet or Job share a PodGroup, and Kubernetes deletes it with its owner.
"""

from __future__ import annotations

import asyncio

import msgspec

from stromboli.api import keys, objects
from stromboli.api.crds import SCHEDULING
from stromboli.api.errors import StromboliError
from stromboli.api.keys import namespace_of
from stromboli.live.client import (
    CONNECTION_ERRORS,
    MERGE_PATCH,
    ApiError,
    Kube,
    Object,
    already_exists,
    is_name,
)
from stromboli.live.events import Events, Reference
from stromboli.live.fair_queue import FairQueue
from stromboli.live.limits import Backoff
from stromboli.live.logs import Logger
from stromboli.live.mirror import Mirror
from stromboli.live.workers import run_workers
from stromboli.state.cluster import object_key
from stromboli.state.podgroups import is_bare, pod_group_for
from stromboli.state.pods import GROUP_ANNOTATION

log = Logger(__name__)

_WORKERS = 8
#: kinds of owners that are read, and their API paths; references to other kinds are ignored
_OWNERS = {
    ("apps", "ReplicaSet"): ("apps/v1", "replicasets"),
    ("apps", "StatefulSet"): ("apps/v1", "statefulsets"),
    ("apps", "DaemonSet"): ("apps/v1", "daemonsets"),
    ("batch", "Job"): ("batch/v1", "jobs"),
}
#: number of owners of a pod that are read
_MOST_OWNERS = 4


class _Owner(msgspec.Struct):
    metadata: objects.Metadata


class PodGroupMaker:
    """Follows the pods and creates PodGroups, a few at a time."""

    def __init__(self, kube: Kube, mirror: Mirror, events: Events, *, inherit: bool) -> None:
        self._kube = kube
        self._is_ours = mirror.state.is_ours
        self._events = events
        self._inherit = inherit
        self._queue: FairQueue[str] = FairQueue(namespace_of)
        #: pods without a PodGroup, by key; queued only while this replica leads
        self._bare: dict[str, objects.Pod] = {}
        self._active = False
        self._backoffs: dict[str, Backoff] = {}
        mirror.listen("Pod", self._pod_changed)

    async def run(self) -> None:
        """Create PodGroups until cancelled."""
        self._active = True
        for key in self._bare:
            self._queue.put_nowait(key)
        await run_workers("podgroups", _WORKERS, self._work)

    def _pod_changed(self, type: str, pod: objects.Pod | str) -> None:
        if isinstance(pod, str):
            self._bare.pop(pod, None)
            return
        if not self._is_ours(pod):
            return
        key = object_key(pod)
        if type == "DELETED" or not is_bare(pod):
            self._bare.pop(key, None)
            return
        known = self._bare.get(key)
        if self._active and (known is None or known.metadata.annotations != pod.metadata.annotations):
            self._queue.put_nowait(key)
        self._bare[key] = pod

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            pod = self._bare.get(key)
            if pod is None:
                self._backoffs.pop(key, None)
                continue
            try:
                await self._join(pod)
            except (ApiError, StromboliError, *CONNECTION_ERRORS) as error:
                self._later(key, pod, str(error) or repr(error))
            else:
                self._backoffs.pop(key, None)

    def _later(self, key: str, pod: objects.Pod, why: str) -> None:
        delay = self._backoffs.setdefault(key, Backoff(1.0, 60.0)).delay()
        log.recurring("pod group not made", why, pod=key)
        about = Reference("v1", "Pod", pod.metadata.namespace or "default", pod.metadata.name, pod.metadata.uid or "")
        self._events.emit(about, "Warning", "PodGroupNotMade", why)
        asyncio.get_running_loop().call_later(delay, self._queue.put_nowait, key)

    async def _join(self, pod: objects.Pod) -> None:
        """Create the PodGroup of a pod if it is absent, and add the pod to it."""
        meta = pod.metadata
        namespace = meta.namespace or "default"
        owners = await self._owners(namespace, meta.owner_references or []) if self._inherit else []
        manifest = pod_group_for(pod, owners)
        name = manifest["metadata"]["name"]
        path = f"/apis/{SCHEDULING}/namespaces/{namespace}/podgroups"
        try:
            await self._kube.persist("POST", path, msgspec.json.encode(manifest))
        except ApiError as error:
            if not already_exists(error):
                raise
        else:
            log.info("pod group made", job=keys.key(namespace, name), pod=keys.key(namespace, meta.name))
        patch = {"metadata": {"uid": meta.uid, "annotations": {GROUP_ANNOTATION: name}}}
        try:
            await self._kube.persist(
                "PATCH", f"/api/v1/namespaces/{namespace}/pods/{meta.name}", msgspec.json.encode(patch), MERGE_PATCH
            )
        except ApiError as error:
            # The pod was deleted or replaced; the watch will say which.
            if error.status not in (404, 409):
                raise

    async def _owners(self, namespace: str, references: list[objects.OwnerReference]) -> list[Object]:
        owners = []
        for reference in [each for each in references if _is_known(each)][:_MOST_OWNERS]:
            version, plural = _OWNERS[_group_and_kind(reference)]
            path = f"/apis/{version}/namespaces/{namespace}/{plural}/{reference.name}"
            try:
                owner = await self._kube.get(path)
            except ApiError as error:
                log.recurring("owner not read", error, kind=reference.kind, name=reference.name)
                continue
            # The owner may have been replaced, or the reference may be invalid.
            if msgspec.convert(owner, _Owner).metadata.uid == reference.uid:
                owners.append(owner)
        return owners


def _is_known(reference: objects.OwnerReference) -> bool:
    return _group_and_kind(reference) in _OWNERS and is_name(reference.name)


def _group_and_kind(reference: objects.OwnerReference) -> tuple[str, str]:
    return reference.api_version.partition("/")[0], reference.kind
