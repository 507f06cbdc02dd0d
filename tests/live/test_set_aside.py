"""Objects that are set aside say so in their conditions, until they are mended."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live.cluster import SCHEDULING, Cluster
from tests.live.conftest import StartService, until

_POD = "/api/v1/namespaces/default/pods/odd"
_QUEUE = f"{SCHEDULING}/queues/odd"
_GROUP = f"{SCHEDULING}/namespaces/default/podgroups/odd"


def conditions(cluster: Cluster, path: str) -> dict[str, dict[str, Any]]:
    """The conditions of an object by type."""
    return {each["type"]: each for each in (cluster.get(path).get("status") or {}).get("conditions") or ()}


async def test_a_pod_says_why_it_is_set_aside_until_it_is_mended(cluster: Cluster, start: StartService) -> None:
    await start()
    cluster.pod("odd", "train", tolerations="all of them")
    cluster.pod("foreign", "train", tolerations="all of them", schedulerName="default-scheduler")
    await until(lambda: conditions(cluster, _POD).get("PodScheduled", {}).get("reason") == "CannotBeRead")
    told = conditions(cluster, _POD)["PodScheduled"]
    assert told["status"] == "False"
    assert "$.spec.tolerations" in told["message"]
    # Another problem takes its place.
    cluster.patch(f"{_POD}/status", {"status": {"startTime": "0000-13-01T00:00:00Z"}})
    cluster.patch(_POD, {"spec": {"tolerations": None}})
    await until(lambda: "status.startTime" in conditions(cluster, _POD)["PodScheduled"]["message"])
    cluster.patch(f"{_POD}/status", {"status": {"startTime": None}})
    await until(lambda: conditions(cluster, _POD).get("PodScheduled", {}).get("reason") != "CannotBeRead")
    assert conditions(cluster, _POD.replace("odd", "foreign")) == {}


@pytest.mark.parametrize(
    ("path", "wrong"),
    [(_QUEUE, {"capability": {"cpu": "1e400"}}), (_GROUP, {"minMember": 1, "minResources": {"cpu": "1e400"}})],
)
async def test_a_queue_and_a_group_say_so_beside_their_other_conditions(
    cluster: Cluster, start: StartService, path: str, wrong: dict[str, Any]
) -> None:
    await start()
    cluster.create(path.rpartition("/")[0], {"metadata": {"name": "odd"}, "spec": wrong})
    cluster.patch(f"{path}/status", {"status": {"conditions": [{"type": "Other", "status": "True"}]}})
    await until(lambda: {"Other", "SetAside"} <= conditions(cluster, path).keys())
    told = conditions(cluster, path)["SetAside"]
    assert (told["status"], told["reason"]) == ("True", "CannotBeRead")
    assert "[cpu]" in told["message"] or ".cpu" in told["message"]
    field = list(wrong)[-1]
    cluster.patch(path, {"spec": {field: None}})
    await until(lambda: "SetAside" not in conditions(cluster, path))
    assert "Other" in conditions(cluster, path)
