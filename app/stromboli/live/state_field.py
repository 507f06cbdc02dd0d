"""Writes the state of a queue under the name that Volcano's queue controller applies it under.

That controller applies `status.state` without force: where another field manager owns the field, any other value is a
conflict, for ever. As one manager both can write it in turn, and either can take over from the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stromboli.api.crds import SCHEDULING
from stromboli.live.client import AGENT, APPLY_PATCH, JSON_PATCH, ApiError, Kube, Object
from stromboli.live.logs import Logger

log = Logger(__name__)

#: the field manager of Volcano's queue controller
MANAGER = "queue-controller"
#: of a release: others change queues, too
_ATTEMPTS = 3
_QUEUES = f"/apis/{SCHEDULING}/queues"


async def write_state(kube: Kube, name: str, state: str, version: str = "") -> bytes:
    """Set the state of a queue, whoever set it before; with a `version` only while that is the queue's.

    Returns the queue as it then is. Raises ApiError.
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
    """Give up the states that were written under our own name, as by versions that merged them into the status.

    Raises ApiError when queues cannot be read.
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
        # Positions in the list are those of this version.
        version = queue["metadata"]["resourceVersion"]
        patch = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *owned]
        try:
            # By way of the status the API server would leave the owners of its fields as they are.
            await kube.persist("PATCH", path, msgspec.json.encode(patch), JSON_PATCH)
        except ApiError as error:
            if error.status == 404:
                return
            failure = error
            queue = await kube.get(path)
        else:
            return
    # Such as by a webhook of Volcano's, which lets nobody change a queue that is closing.
    log.warning("state of a queue not released to Volcano's controller", error=failure, queue=path)


def _owned(queue: Mapping[str, Any]) -> Iterator[str]:
    """Where our own name stands for the owner of a queue's state."""
    for number, entry in enumerate(queue["metadata"].get("managedFields") or ()):
        fields = entry.get("fieldsV1", {}).get("f:status", {})
        if entry.get("manager") == AGENT and "f:state" in fields:
            yield f"/metadata/managedFields/{number}/fieldsV1/f:status/f:state"
