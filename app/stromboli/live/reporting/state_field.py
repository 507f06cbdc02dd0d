"""Writes the state of queues under the field manager of Volcano's queue controller.

That controller applies `status.state` without force, so a field owned by another manager would be a permanent conflict.
As one manager both can write it, and either can replace the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stromboli.api.crds import SCHEDULING
from stromboli.live.api_server.client import AGENT, APPLY_PATCH, JSON_PATCH, ApiError, Kube, Object
from stromboli.live.process.logs import Logger

log = Logger(__name__)

#: field manager of Volcano's queue controller
MANAGER = "queue-controller"
#: attempts to release a field, since others write queues too
_ATTEMPTS = 3
_QUEUES = f"/apis/{SCHEDULING}/queues"


async def write_state(kube: Kube, name: str, state: str, version: str = "") -> bytes:
    """Set the state of a queue, whichever manager owns it; with a `version` only if that is the queue's.

    Returns the updated queue. Raises ApiError.
    """
    holds = {"resourceVersion": version} if version else {}
    configuration = {
        "apiVersion": SCHEDULING,
        "kind": "Queue",
        "metadata": {"name": name, **holds},
        "status": {"state": state},
    }
    path = f"{_QUEUES}/{name}/status?fieldManager={MANAGER}&force=true"
    return await kube.persist("PATCH", path, msgspec.json.encode(configuration), APPLY_PATCH)


async def release_states(kube: Kube) -> None:
    """Release states that are owned by our own field manager, as earlier versions wrote them.

    Raises ApiError if queues cannot be listed.
    """
    async for page in kube.pages(_QUEUES, {}):
        for item in page.items or ():
            await _release(kube, msgspec.json.decode(item))


async def _release(kube: Kube, queue: Object) -> None:
    path = f"{_QUEUES}/{queue['metadata']['name']}"
    for _ in range(_ATTEMPTS):
        owned = [{"op": "remove", "path": at} for at in _owned(queue)]
        if not owned:
            return
        # Indices into the list of managed fields are valid for this version only.
        version = queue["metadata"]["resourceVersion"]
        patch = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *owned]
        try:
            # Through the status subresource the API server would keep the owners.
            await kube.persist("PATCH", path, msgspec.json.encode(patch), JSON_PATCH)
        except ApiError as error:
            if error.status == 404:
                return
            failure = error
            queue = await kube.get(path)
        else:
            return
    # For example by Volcano's webhook, which rejects all changes of a closing queue.
    log.warning("state of a queue not released to Volcano's controller", error=failure, queue=path)


def _owned(queue: Mapping[str, Any]) -> Iterator[str]:
    """The index of our own field manager where it owns a queue's state."""
    for number, entry in enumerate(queue["metadata"].get("managedFields") or ()):
        fields = entry.get("fieldsV1", {}).get("f:status", {})
        if entry.get("manager") == AGENT and "f:state" in fields:
            yield f"/metadata/managedFields/{number}/fieldsV1/f:status/f:state"
