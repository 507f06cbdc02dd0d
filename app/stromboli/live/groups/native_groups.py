"""Follows Kubernetes' own PodGroups, which sessions see as PodGroups, and writes their conditions.

Such a group has no phase. Decisions of sessions about it are kept here, by its uid, and are lost with this process,
after which a session decides again. The condition is written once the pods that start together are bound, and while
they wait.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stromboli.api import keys, objects
from stromboli.api.crds import PodGroup, PodGroupStatus
from stromboli.api.decisions import SetPodGroupStatus
from stromboli.api.errors import InvalidObjectError
from stromboli.api.keys import NATIVE_GROUP, inner_name, outer_name
from stromboli.live.api_server.client import CONNECTION_ERRORS, STRATEGIC_PATCH, ApiError, Kube, Object, timestamp
from stromboli.live.observer import Observer
from stromboli.live.process.logs import Logger
from stromboli.live.reporting.events import Reference
from stromboli.live.watch.mirror import Mirror
from stromboli.live.watch.reflector import Reflector
from stromboli.live.watch.sources import Source
from stromboli.policy.queue_rules import QueueRule
from stromboli.state.cluster import object_key
from stromboli.workloads import native
from stromboli.workloads.paths import text

log = Logger(__name__)

_ROOT = f"/apis/{NATIVE_GROUP}"
_FIRST, *_OTHERS = (f"{_ROOT}/{version}/podgroups" for version in native.VERSIONS)
_SILENT = native.OfPods()
SOURCE = Source("KubernetesPodGroup", _FIRST, others=tuple(_OTHERS))


class NativeGroups:
    """Applies native PodGroups from a reflector to the mirror, and takes the decisions of sessions about them."""

    def __init__(self, kube: Kube, mirror: Mirror) -> None:
        self._kube = kube
        self._mirror = mirror
        #: tells the API path of the groups, whose version depends on the cluster
        self._path: Callable[[], str] = lambda: SOURCE.path
        #: as the API server has them, by the key that the core knows
        self._shown: dict[str, Object] = {}
        #: decisions of sessions, by uid
        self._decided: dict[str, PodGroupStatus] = {}
        #: values of pods for what their group leaves open
        self._of_pods: dict[str, native.OfPods] = {}
        #: pods that came before their group, by its key and theirs, and the group of each
        self._early: defaultdict[str, dict[str, objects.Pod]] = defaultdict(dict)
        self._waits_for: dict[str, str] = {}
        #: by which groups get their queue
        self.rules: Sequence[QueueRule] = ()
        self._queue: asyncio.Queue[tuple[str, Sequence[Object], Callable[[], None]]] = asyncio.Queue()
        mirror.listen("Pod", self._pod_changed)
        mirror.listen("Namespace", self._namespace_changed)

    def reflector(self, kube: Kube, observer: Observer) -> Reflector:
        """The tasks that keep the groups in sync."""
        made = Reflector(kube, SOURCE, self, observer)
        self._path = lambda: made.path
        return made

    # -- as a reflector sees it --------------------------------------------------------------------------------------

    def listing(self, kind: str) -> _Listing:
        """Begin to apply a complete list."""
        return _Listing(self)

    def event(self, kind: str, type: str, obj: Object) -> None:
        """Apply one watch event."""
        if type == "DELETED":
            self.delete(kind, object_key(obj), obj)
        else:
            self.upsert(obj)

    def upsert(self, obj: Object) -> None:
        """Apply the current version of a group."""
        key = _key(object_key(obj))
        self._shown[key] = obj
        self._apply(key)

    def delete(self, kind: str, key: str, obj: Any) -> None:
        """Remove a group."""
        known = self._shown.pop(_key(key), None)
        if known is not None:
            self._decided.pop(_uid(known), None)
            self._of_pods.pop(_key(key), None)
            self._mirror.delete("PodGroup", _key(key), _key(key))

    def set_aside(self, kind: str, key: str, problem: str, obj: Any = None) -> None:
        """Report a group that cannot be read."""
        self._mirror.set_aside("PodGroup", _key(key), problem)

    @property
    def keys(self) -> set[str]:
        """The keys of all groups, in the form that sessions use."""
        return set(self._shown)

    def _apply(self, key: str) -> None:
        obj = self._shown[key]
        namespace = self._mirror.state.objects["Namespace"].get(key.partition("/")[0]) or {}
        pods = self._of_pods.get(key, _SILENT)
        try:
            found = native.completed(PodGroup.parse(native.as_pod_group(obj)), namespace, pods, self.rules)
        except InvalidObjectError as error:
            self._mirror.set_aside("PodGroup", key, f"{error.path}: {error.problem}")
            return
        decided = self._decided.get(_uid(obj))
        if decided is not None:
            found = found.model_copy(update={"status": decided})
        self._mirror.upsert("PodGroup", key, found, "MODIFIED")
        for own, pod in self._early.pop(key, {}).items():
            del self._waits_for[own]
            if native.never_preempts(found):
                self._mirror.upsert("Pod", own, pod, "MODIFIED")

    def _see_early(self, type: str, pod: objects.Pod | str) -> None:
        """Hold a pod back until its group exists, since the group says whether pods are evicted for it."""
        own = pod if isinstance(pod, str) else object_key(pod)
        waits_for = self._waits_for.pop(own, None)
        if waits_for is not None:
            self._early[waits_for].pop(own)
            if not self._early[waits_for]:
                del self._early[waits_for]
        if type == "DELETED" or isinstance(pod, str) or pod.spec.scheduling_group is None:
            return
        key = keys.key(pod.metadata.namespace or "default", native.group_of(pod))
        if key not in self._shown:
            self._early[key][own], self._waits_for[own] = pod, key

    def _pod_changed(self, type: str, pod: objects.Pod | str) -> None:
        """A group without a priority class or a queue gets those of its pods."""
        self._see_early(type, pod)
        if isinstance(pod, str) or pod.spec.scheduling_group is None:
            return
        key = keys.key(pod.metadata.namespace or "default", native.group_of(pod))
        before = self._of_pods.get(key, _SILENT)
        if type != "DELETED" and (found := before.seen(pod)) != before:
            self._of_pods[key] = found
            if key in self._shown:
                self._apply(key)
        elif type == "DELETED" and key not in self._shown:
            self._of_pods.pop(key, None)

    def _namespace_changed(self, type: str, namespace: Any) -> None:
        name = namespace if isinstance(namespace, str) else text(namespace, "metadata.name")
        for key in [key for key in self._shown if key.startswith(f"{name}/")]:
            self._apply(key)

    # -- decisions of sessions ---------------------------------------------------------------------------------------

    def decided(self, decision: SetPodGroupStatus, then: Callable[[], None]) -> None:
        """Keep a session's decision about a group and have its condition written; `then` is called afterwards."""
        key = decision.key
        obj = self._shown.get(key)
        if obj is None:
            return
        self._decided[_uid(obj)] = decision.status
        self._apply(key)
        version = self._path().split("/")[3]
        found = native.conditions(decision.status, obj, version)
        if found:
            self._queue.put_nowait((key, found, then))
        else:
            then()

    def reference(self, about: Reference) -> Reference:
        """The object that an Event about a PodGroup refers to, if the group is a native one."""
        name = outer_name(about.name) if about.kind == "PodGroup" else None
        if name is None:
            return about
        version = self._path().split("/")[3]
        return Reference(f"{NATIVE_GROUP}/{version}", "PodGroup", about.namespace, name, about.uid)

    async def run(self) -> None:
        """Write conditions until cancelled."""
        while True:
            key, found, then = await self._queue.get()
            try:
                await self._write(key, found)
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.recurring("conditions not written", error, job=key)
            then()

    async def _write(self, key: str, found: Sequence[Object]) -> None:
        namespace, _, name = key.rpartition("/")
        root, plural = self._path().rsplit("/", 1)
        path = f"{root}/namespaces/{namespace}/{plural}/{outer_name(name)}/status"
        now = timestamp()
        fields = {"status": {"conditions": [{**each, "lastTransitionTime": now} for each in found]}}
        await self._kube.persist("PATCH", path, msgspec.json.encode(fields), STRATEGIC_PATCH)


class _Listing:
    """A list in progress."""

    def __init__(self, groups: NativeGroups) -> None:
        self._groups = groups
        self._known = groups.keys

    def add(self, obj: Object) -> None:
        """Apply an object of the list."""
        self.keep(object_key(obj))
        self._groups.upsert(obj)

    def keep(self, key: str) -> None:
        """An object of the list cannot be read, and is kept."""
        self._known.discard(_key(key))

    def complete(self, version: str = "") -> list[str]:
        """The list of a version is complete. Returns the keys of removed objects."""
        dropped = sorted(self._known)
        for key in dropped:
            self._groups.delete("PodGroup", key.removesuffix(inner_name("")), None)
        return dropped


def _key(key: str) -> str:
    namespace, _, name = key.rpartition("/")
    return keys.key(namespace, inner_name(name))


def _uid(obj: Object) -> str:
    return str(obj["metadata"].get("uid") or "")
