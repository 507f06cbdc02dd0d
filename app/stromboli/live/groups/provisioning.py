"""Asks cluster autoscalers for the nodes of whole gangs by ProvisioningRequests, and processes their answers.

A gang has one request at a time, which its PodGroup owns and which is deleted when the gang runs. A request that was
refused or has expired is made again after a pause; one that does not match the gang's current pods is replaced at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from stromboli.api import readers
from stromboli.api.crds import SCHEDULING, PodGroup, PodGroupPhase
from stromboli.api.decisions import RequestNodes
from stromboli.api.keys import namespace_of
from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError, Kube, Object, already_exists
from stromboli.live.process.fair_queue import FairQueue
from stromboli.live.process.limits import Backoff
from stromboli.live.process.logs import Logger
from stromboli.live.process.workers import run_workers
from stromboli.live.reporting.events import Events, Reference
from stromboli.live.watch.mirror import Mirror
from stromboli.live.watch.sources import Source
from stromboli.state.cluster import object_key
from stromboli.workloads.node_requests import OVER, answer_of, group_of_request, news_of

log = Logger(__name__)

_GROUP = "autoscaling.x-k8s.io"
SOURCE = Source(
    "ProvisioningRequest",
    f"/apis/{_GROUP}/v1/provisioningrequests",
    others=(f"/apis/{_GROUP}/v1beta1/provisioningrequests",),
)
#: fields of a pod that its template does not have
_OF_PODS = ("nodeName", "hostname", "subdomain", "ephemeralContainers", "schedulingGates")


class Provisioning:
    """Makes and deletes ProvisioningRequests."""

    def __init__(self, kube: Kube, mirror: Mirror, events: Events) -> None:
        self._kube = kube
        self._state = mirror.state
        self._events = events
        #: the wanted request and the existing ones by name, by the key of the PodGroup
        self._wanted: dict[str, RequestNodes] = {}
        self._requests: defaultdict[str, dict[str, Object]] = defaultdict(dict)
        self._group_of: dict[str, str] = {}
        self._queue: FairQueue[str] = FairQueue(namespace_of)
        self._queued: set[str] = set()
        self._backoffs: dict[str, Backoff] = {}
        mirror.listen("ProvisioningRequest", self._request_changed)
        mirror.listen("PodGroup", self._group_changed)

    def ask(self, decided: Iterable[RequestNodes]) -> None:
        """Have nodes asked for, unless they are; those of a gang whose pods are gone no longer."""
        now = {each.key: each for each in decided}
        for key, each in now.items():
            if self._wanted.get(key) != each:
                self._wanted[key] = each
                self._enqueue(key)
        asked = self._wanted.keys() | {key for key, requests in self._requests.items() if requests}
        for key in [key for key in asked - now.keys() if not self._state.jobs.has_pods(key)]:
            self._wanted.pop(key, None)
            self._enqueue(key)

    async def run(self) -> None:
        """Write until cancelled."""
        # One worker: two at the same gang would make two requests.
        await run_workers("provisioning", 1, self._work)

    def _enqueue(self, key: str) -> None:
        if key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)

    def _request_changed(self, type: str, request: Object | str) -> None:
        own = request if isinstance(request, str) else object_key(request)
        if isinstance(request, str) or type == "DELETED":
            key = self._group_of.pop(own, "")
            self._requests[key].pop(own, None)
        else:
            key = group_of_request(request)
            if not key:
                return
            self._group_of[own] = key
            before = self._requests[key].get(own)
            self._requests[key][own] = request
            self._tell(key, before, request)
        if key in self._wanted or _needs_none(self._state.pod_group(key)):
            self._enqueue(key)

    def _group_changed(self, type: str, group: PodGroup | Object | str) -> None:
        key = group if isinstance(group, str) else object_key(group)
        if type == "DELETED" or (isinstance(group, PodGroup) and _needs_none(group)):
            self._wanted.pop(key, None)
            if self._requests.get(key):
                self._enqueue(key)

    def _tell(self, key: str, before: Object | None, request: Object) -> None:
        """Emit an Event when a request is answered, or when the autoscaler reports that it still looks for nodes."""
        said = news_of(request)
        # A request may be answered before it is seen here.
        if said is None or (before is not None and said == news_of(before)):
            return
        word, message = said
        self._emit(key, word, f"ProvisioningRequest {request['metadata']['name']}: {message or 'no reason'}")

    def _emit(self, key: str, word: str, note: str) -> None:
        """Emit an Event about a PodGroup."""
        group = self._state.pod_group(key)
        if group is not None:
            about = _group(group.metadata.namespace, group.metadata.name, group.metadata.uid)
            self._events.emit(about, "Normal" if word == "NodesProvisioned" else "Warning", word, note)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._queued.discard(key)
            try:
                await self._serve(key)
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.recurring("nodes not asked for", error, job=key)
                if isinstance(error, ApiError) and not error.retriable:
                    self._emit(key, "NodesNotRequested", f"no ProvisioningRequest is made: {error}")
                self._later(key, self._backoffs.setdefault(key, Backoff(1.0, 60.0)).delay())
            else:
                self._backoffs.pop(key, None)

    def _later(self, key: str, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._enqueue, key)

    async def _serve(self, key: str) -> None:
        """Bring the requests of a PodGroup in line with the wanted one."""
        wanted, requests = self._wanted.get(key), dict(self._requests.get(key, {}))
        for own, request in requests.items():
            said = answer_of(request)
            if wanted is None or not _serves(request, said, sum(count for _, count in wanted.pods)):
                await self._delete(request)
            elif said is not None and said["type"] in OVER:
                left = wanted.retry - (time.time() - (readers.seconds(said.get("lastTransitionTime") or "") or 0.0))
                if left > 0:
                    self._later(key, left)
                    return
                await self._delete(request)
            else:
                return
            self._requests[key].pop(own, None)
        if wanted is not None:
            await self._create(wanted, 1 + max(map(_number, requests), default=0))

    async def _create(self, wanted: RequestNodes, number: int) -> None:
        root, name = f"/api/v1/namespaces/{wanted.namespace}", f"{wanted.name}-{number}"
        # A request whose owner does not exist would be deleted, so the owner for a native group is the group itself.
        group = self._events.translate(_group(wanted.namespace, wanted.name, wanted.uid))
        keys = {"apiVersion": group.api_version, "kind": group.kind, "name": group.name, "uid": group.uid}
        owned = {"ownerReferences": [keys]}
        sets = []
        for at, (pod, count) in enumerate(wanted.pods):
            template = {
                "metadata": {"name": f"{name}-{at}", **owned},
                "template": _template(await self._kube.get(f"{root}/pods/{pod}")),
            }
            await self._post(f"{root}/podtemplates", {"apiVersion": "v1", "kind": "PodTemplate", **template})
            sets.append({"podTemplateRef": {"name": f"{name}-{at}"}, "count": count})
        spec = {"provisioningClassName": wanted.class_name, "parameters": dict(wanted.parameters), "podSets": sets}
        meta = {"namespace": wanted.namespace, "name": name, **owned}
        manifest = {"kind": "ProvisioningRequest", "metadata": meta, "spec": spec}
        await self._post(f"/apis/{_GROUP}/v1/namespaces/{wanted.namespace}/provisioningrequests", manifest)
        # The watch may show it only after the next event of this gang.
        own = object_key(manifest)
        self._group_of[own] = wanted.key
        self._requests[wanted.key].setdefault(own, manifest)
        log.info("nodes asked for", job=wanted.key, request=name, pods=sum(count for _, count in wanted.pods))

    async def _post(self, path: str, manifest: Object) -> None:
        """Create an object. An older API server has requests as v1beta1."""
        beta = path.replace(f"/apis/{_GROUP}/v1/", f"/apis/{_GROUP}/v1beta1/")
        for each in dict.fromkeys((path, beta)):
            versioned = {"apiVersion": "/".join(each.split("/")[2:4]), **manifest}
            try:
                await self._kube.persist("POST", each, msgspec.json.encode(versioned))
            except ApiError as error:
                if already_exists(error):
                    return
                if error.status != 404 or each == beta:
                    raise
            else:
                return

    async def _delete(self, request: Object) -> None:
        meta = request["metadata"]
        templates = (each["podTemplateRef"]["name"] for each in request["spec"]["podSets"])
        version = str(request.get("apiVersion") or f"{_GROUP}/v1")
        paths = [f"/apis/{version}/namespaces/{meta['namespace']}/provisioningrequests/{meta['name']}"]
        for path in (*paths, *(f"/api/v1/namespaces/{meta['namespace']}/podtemplates/{name}" for name in templates)):
            try:
                await self._kube.delete(path)
            except ApiError as error:
                if error.status != 404:
                    raise


def _group(namespace: str, name: str, uid: str) -> Reference:
    return Reference(SCHEDULING, "PodGroup", namespace, name, uid)


def _needs_none(group: PodGroup | None) -> bool:
    """Whether the pods of a PodGroup have the nodes that they start on."""
    return group is not None and group.status.phase in (PodGroupPhase.Running, PodGroupPhase.Completed)


def _pods(request: Object) -> int:
    return sum(each.get("count", 0) for each in request["spec"].get("podSets") or ())


def _serves(request: Object, said: Object | None, pods: int) -> bool:
    """Whether a request is for this number of pods; if it has brought nodes, for at least as many."""
    brought = said is not None and said["type"] not in OVER
    return _pods(request) >= pods if brought else _pods(request) == pods


def _number(key: str) -> int:
    return readers.count(key.rpartition("-")[2]) or 0


def _template(pod: Object) -> Object:
    """The template of a waiting pod, without the fields that the API server added."""
    spec = {field: value for field, value in pod["spec"].items() if field not in _OF_PODS}
    meta = {field: pod["metadata"][field] for field in ("labels", "annotations") if pod["metadata"].get(field)}
    return {"metadata": meta, "spec": spec}
