"""Makes a PodGroup for each pod of ours that is in none, so that every pod is in a queue.

Pods of one ReplicaSet, StatefulSet, DaemonSet or Job share a group, and Kubernetes deletes the group with its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any

import msgspec

from stromboli.api import objects
from stromboli.api.crds import SCHEDULING, PodGroupPhase
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.quantity import parse
from stromboli.live.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube, Object
from stromboli.live.events import Events, Reference
from stromboli.live.limits import Backoff
from stromboli.live.logs import Logger
from stromboli.live.mirror import Mirror
from stromboli.live.workers import run_workers
from stromboli.state.cluster import object_key
from stromboli.state.pods import GROUP_ANNOTATION

log = Logger(__name__)

_WORKERS = 8
_QUEUE = "scheduling.volcano.sh/queue-name"
_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
_INHERITED = "volcano.sh/"
_TOPOLOGY_MODE = "volcano.sh/network-topology-mode"
_TOPOLOGY_TIER = "volcano.sh/network-topology-highest-tier"
_POD_ANNOTATIONS = ("volcano.sh/preemptable", "volcano.sh/cooldown-time", "volcano.sh/revocable-zone")
_POD_BUDGETS = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")
_POD_LABELS = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")
_OWNER_PLURALS = {
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
}


class PodGroupMaker:
    """Follows the pods; creates groups a few at a time."""

    def __init__(self, kube: Kube, mirror: Mirror, events: Events, *, inherit: bool) -> None:
        self._kube = kube
        self._is_ours = mirror.state.is_ours
        self._events = events
        self._inherit = inherit
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        #: the pods that wait for a group, by key; queued only while this replica makes groups
        self._bare: dict[str, objects.Pod] = {}
        self._active = False
        self._backoffs: dict[str, Backoff] = {}
        mirror.listen("Pod", self._pod_changed)

    async def run(self) -> None:
        """Make groups until cancelled."""
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
        if self._active and key not in self._bare:
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
            except (ApiError, InvalidQuantityError, *CONNECTION_ERRORS) as error:
                self._later(key, pod, str(error) or repr(error))
            else:
                self._backoffs.pop(key, None)

    def _later(self, key: str, pod: objects.Pod, why: str) -> None:
        delay = self._backoffs.setdefault(key, Backoff(1.0, 60.0)).delay()
        log.warning("pod group not made", pod=key, error=why, retry=f"{delay:.1f}s")
        about = Reference("v1", "Pod", pod.metadata.namespace or "default", pod.metadata.name, pod.metadata.uid or "")
        self._events.emit(about, "Warning", "PodGroupNotMade", why)
        asyncio.get_running_loop().call_later(delay, self._queue.put_nowait, key)

    async def _join(self, pod: objects.Pod) -> None:
        """Create the group of a pod if it is not there, and put the pod into it."""
        meta = pod.metadata
        namespace = meta.namespace or "default"
        owners = await self._owners(namespace, meta.owner_references or []) if self._inherit else []
        manifest = pod_group_for(pod, owners)
        name = manifest["metadata"]["name"]
        path = f"/apis/{SCHEDULING}/namespaces/{namespace}/podgroups"
        try:
            await self._kube.persist("POST", path, msgspec.json.encode(manifest))
        except ApiError as error:
            if error.status != 409:
                raise
        else:
            log.info("pod group made", podgroup=f"{namespace}/{name}", pod=meta.name)
        patch = {"metadata": {"uid": meta.uid, "annotations": {GROUP_ANNOTATION: name}}}
        try:
            await self._kube.persist(
                "PATCH", f"/api/v1/namespaces/{namespace}/pods/{meta.name}", msgspec.json.encode(patch), MERGE_PATCH
            )
        except ApiError as error:
            # The pod is gone, or another has its name: the watch tells.
            if error.status not in (404, 409):
                raise

    async def _owners(self, namespace: str, references: list[objects.OwnerReference]) -> list[Object]:
        owners = []
        for reference in references:
            plural = _OWNER_PLURALS.get(reference.kind)
            if plural is None:
                continue
            try:
                path = f"/apis/{reference.api_version}/namespaces/{namespace}/{plural}/{reference.name}"
                owners.append(await self._kube.get(path))
            except ApiError as error:
                log.warning("owner not read", kind=reference.kind, name=reference.name, error=error)
        return owners


def is_bare(pod: objects.Pod) -> bool:
    """Whether a pod is in no group and should be in one."""
    return (
        not (pod.metadata.annotations or {}).get(GROUP_ANNOTATION)
        and pod.spec.scheduling_group is None
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ("Succeeded", "Failed")
    )


def pod_group_for(pod: objects.Pod, owners: list[Object]) -> Object:
    """The PodGroup of a bare pod; what its owners are annotated with is inherited."""
    meta = pod.metadata
    annotations = meta.annotations or {}
    references = meta.owner_references or []
    controller = next((reference for reference in references if reference.controller), None)
    inherited = _owner_annotations(owners)
    min_member = _min_member(owners)
    spec: Object = {"minMember": min_member, "minResources": min_resources(pod.spec, min_member)}
    if pod.spec.priority_class_name:
        spec["priorityClassName"] = pod.spec.priority_class_name
    if annotations.get(_QUEUE):
        spec["queue"] = annotations[_QUEUE]
    topology = _network_topology(annotations)
    if topology:
        spec["networkTopology"] = topology
    metadata: Object = {
        "name": f"podgroup-{controller.uid if controller else meta.uid}",
        "namespace": meta.namespace or "default",
        "ownerReferences": _owner_references(pod, controller is not None),
        "annotations": {**inherited, **_pod_annotations(annotations)},
        "labels": {key: (meta.labels or {})[key] for key in _POD_LABELS if key in (meta.labels or {})},
    }
    return {
        "apiVersion": SCHEDULING,
        "kind": "PodGroup",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": spec,
        "status": {"phase": PodGroupPhase.Pending},
    }


def _owner_references(pod: objects.Pod, has_controller: bool) -> list[Object]:
    if has_controller:
        found: list[Object] = msgspec.to_builtins(pod.metadata.owner_references)
        return [{key: value for key, value in reference.items() if value is not None} for reference in found]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    return [{**owner, "controller": True, "blockOwnerDeletion": True}]


def _owner_annotations(owners: list[Object]) -> dict[str, str]:
    inherited: dict[str, str] = {}
    for owner in owners:
        for key, value in (owner["metadata"].get("annotations") or {}).items():
            if key.startswith(_INHERITED):
                inherited.setdefault(key, value)
    return inherited


def _pod_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    found = {key: annotations[key] for key in _POD_ANNOTATIONS if key in annotations}
    budget = next((key for key in _POD_BUDGETS if key in annotations), None)
    return found if budget is None else {**found, budget: annotations[budget]}


def _min_member(owners: list[Object]) -> int:
    for owner in owners:
        text = (owner["metadata"].get("annotations") or {}).get(_MIN_MEMBER, "")
        if text.isdecimal():
            return int(text)
    return 1


def _network_topology(annotations: Mapping[str, str]) -> Object:
    topology: Object = {}
    if _TOPOLOGY_MODE in annotations:
        topology["mode"] = "soft" if annotations[_TOPOLOGY_MODE].lower() == "soft" else "hard"
    if annotations.get(_TOPOLOGY_TIER, "").isdecimal():
        topology["highestTierAllowed"] = int(annotations[_TOPOLOGY_TIER])
    return topology


def min_resources(spec: objects.PodSpec, pods: int) -> dict[str, str]:
    """What a resource quota would count for this many such pods. Raises InvalidQuantityError."""
    if pods == 0:
        return {}
    usage = {"count/pods": Fraction(1), "pods": Fraction(1)}
    for name, amount in _total(spec, "requests").items():
        usage[name] = usage[f"requests.{name}"] = amount
    for name, amount in _total(spec, "limits").items():
        if name in ("cpu", "memory", "ephemeral-storage"):
            usage[f"limits.{name}"] = amount
    return {name: _format(amount * pods) for name, amount in usage.items()}


def _total(spec: objects.PodSpec, what: str) -> dict[str, Fraction]:
    """Containers and sidecars together, or the largest init step, plus overhead."""
    running: dict[str, Fraction] = {}
    sidecars: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in spec.containers or ():
        running = _sum(running, _amounts(container, what))
    for container in spec.init_containers or ():
        own = _amounts(container, what)
        if container.restart_policy == "Always":
            running, sidecars = _sum(running, own), _sum(sidecars, own)
            own = {}
        for name, amount in _sum(sidecars, own).items():
            peak[name] = max(amount, peak.get(name, Fraction(0)))
    names = dict.fromkeys([*running, *peak])
    total = {name: max(running.get(name, Fraction(0)), peak.get(name, Fraction(0))) for name in names}
    overhead = {name: parse(amount) for name, amount in (spec.overhead or {}).items()}
    return _sum(total, overhead) if total else total


def _amounts(container: objects.Container, what: str) -> dict[str, Fraction]:
    listed: Mapping[str, Any] = (getattr(container.resources, what) if container.resources else None) or {}
    return {name: parse(amount) for name, amount in listed.items()}


def _sum(a: Mapping[str, Fraction], b: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {name: a.get(name, Fraction(0)) + b.get(name, Fraction(0)) for name in dict.fromkeys([*a, *b])}


def _format(amount: Fraction) -> str:
    return str(amount.numerator) if amount.denominator == 1 else f"{ceil(amount * 1000)}m"
