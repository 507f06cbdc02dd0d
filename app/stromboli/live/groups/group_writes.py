"""Writes to PodGroups that were made for workloads, and to their pods.

An object that is gone or was replaced is left alone: the watch reports which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stromboli.api import objects
from stromboli.api.crds import SCHEDULING, PodGroup
from stromboli.live.api_server.client import MERGE_PATCH, ApiError, Kube, Object
from stromboli.live.process.logs import Logger
from stromboli.live.process.turnstile import Turnstile
from stromboli.live.watch.mirror import Mirror

log = Logger(__name__)

_GONE = (404, 409)


def path_of(key: str) -> str:
    """The address of a PodGroup."""
    namespace, _, name = key.rpartition("/")
    return f"/apis/{SCHEDULING}/namespaces/{namespace}/podgroups/{name}"


class GroupWrites:
    """Writes, and shows what came of it to sessions before the watch does; methods raise ApiError and
    CONNECTION_ERRORS when the API server does not answer."""

    def __init__(self, kube: Kube, mirror: Mirror) -> None:
        self._kube = kube
        self._mirror = mirror
        #: for all work on one of many groups, such as with the answer to a write
        self.turnstile = Turnstile()

    async def make(self, key: str, manifest: Object) -> bool:
        """Create a PodGroup. Returns False if it was deleted again before the response arrived."""
        made = await self._kube.persist("POST", path_of(key).rpartition("/")[0], msgspec.json.encode(manifest))
        await self.turnstile.wait()
        log.info("pod group made", job=key, pods=manifest["spec"]["minMember"])
        return self._mirror.looked_up("PodGroup", msgspec.json.decode(made))

    async def change(self, key: str, changes: Object) -> None:
        """Change a PodGroup."""
        await self._patch(key, changes)
        log.info("pod group changed", job=key, changed=", ".join(changes.get("spec") or changes))

    async def belong(self, group: PodGroup, pods: Sequence[tuple[str, str]]) -> None:
        """Add some pods, by name and uid, to the owners of a PodGroup: it is deleted with the last owner."""
        before = [{**each} for each in group.metadata.owner_references]
        known = {each.get("uid") for each in before}
        kind = {"apiVersion": "v1", "kind": "Pod"}
        more = [{**kind, "name": name, "uid": uid} for name, uid in pods if uid not in known]
        if more:
            await self._patch(group.key, {"metadata": {"ownerReferences": [*before, *more]}})

    async def leave_to_pods(self, key: str) -> None:
        """Let a PodGroup whose owner was deleted without its pods be deleted with the last of them."""
        group, records = self._mirror.state.pod_group(key), self._mirror.state.pods.records
        if group is None or group.metadata.owner_references:
            return
        pods = [(record.name, record.uid) for record in records if record is not None and record.job == key]
        await (self.belong(group, pods) if pods else self.remove(group))

    async def remove(self, group: PodGroup) -> None:
        """Delete a PodGroup."""
        condition = msgspec.json.encode({"preconditions": {"uid": group.metadata.uid}})
        try:
            await self._kube.persist("DELETE", path_of(group.key), condition)
        except ApiError as error:
            if error.status not in _GONE:
                raise
        log.info("pod group removed", job=group.key)

    async def annotate(self, pod: objects.Pod, annotations: Mapping[str, str]) -> None:
        """Annotate a pod."""
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid, "annotations": dict(annotations)}}
        path = f"/api/v1/namespaces/{meta.namespace or 'default'}/pods/{meta.name}"
        try:
            await self._kube.persist("PATCH", path, msgspec.json.encode(patch), MERGE_PATCH)
        except ApiError as error:
            if error.status not in _GONE:
                raise

    async def _patch(self, key: str, patch: Object) -> None:
        try:
            changed = await self._kube.persist("PATCH", path_of(key), msgspec.json.encode(patch), MERGE_PATCH)
        except ApiError as error:
            if error.status != 404:
                raise
        else:
            await self.turnstile.wait()
            self._mirror.looked_up("PodGroup", msgspec.json.decode(changed))
