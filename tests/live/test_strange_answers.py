"""Answers of an API server, or of what stands before it, that hold something else than an object."""

from __future__ import annotations

import pytest

from tests.live.cluster import Cluster, Fault
from tests.live.conftest import StartService, until

#: JSON that is none of what was asked for
STRANGE = [b"{}", b'{"metadata": null}', b'{"metadata": 7}', b"[]", b"<html>"]
#: what is asked for, of an owner by its number, and whether pods are bound though no answer makes sense
ASKED = {
    "a status that was written": ("PATCH", "/status", True),
    "an owner": ("GET", "/replicasets/web-{}", False),
}


@pytest.mark.parametrize(("method", "where", "binds"), ASKED.values(), ids=ASKED)
async def test_the_service_goes_on(cluster: Cluster, start: StartService, method: str, where: str, binds: bool) -> None:
    service = await start()
    for number, content in enumerate(STRANGE):
        path = where.format(number)
        strange = Fault(method, path, 200, content=content, times=1_000)
        cluster.proxy.faults.append(strange)
        name = f"strange-{number}"
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"web-{number}", "controller": True}
        owner["uid"] = f"u-{number}"
        cluster.pod(name, metadata={"ownerReferences": [owner]} if "replicasets" in where else {})
        asked = len(cluster.proxy.answers)
        await until(lambda at=asked, path=path: any(path in each for _, each, _ in cluster.proxy.answers[at:]))
        if binds:
            await until(lambda pod=name: bool(cluster.pods()[pod]))
        cluster.proxy.faults.remove(strange)
        assert not service.stuck()
    cluster.gang("fine", 2)
    await until(lambda: all(cluster.pods()[f"fine-{number}"] for number in range(2)))
    assert not service.stuck()
