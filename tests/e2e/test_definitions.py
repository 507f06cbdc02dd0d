"""A cluster with Volcano's definition of PodGroups, in which the status is no subresource."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.conftest import Start
from tests.e2e.world import Object, World, define, pod

pytestmark = pytest.mark.e2e


@pytest.fixture
def plain(new_cluster: Callable[..., Cluster], definitions: list[Object]) -> World:
    """An empty cluster whose PodGroups have no status subresource."""
    cluster = new_cluster()
    cluster.start_kwok()
    with cluster.client() as api:
        define(api, [without_status(d) if d["spec"]["names"]["kind"] == "PodGroup" else d for d in definitions])
    return World(cluster, "default")


def test_phases_and_conditions_arrive_without_a_status_subresource(plain: World, start: Start) -> None:
    plain.nodes(3, cpu="2")
    start(kubeconfig=plain.cluster.kubeconfig())
    plain.gang("small", 3)
    plain.pods([pod("bare")])

    eventually(lambda: plain.bound() == {"small": 3, plain_group(plain): 1})
    eventually(lambda: plain.group_status("small").get("running") == 3)
    assert plain.group_status("small")["phase"] == "Running"
    assert plain.condition("small", "Scheduled") != {}
    plain.gang("large", 4)
    eventually(lambda: plain.condition("large", "Unschedulable").get("message", "") != "")
    assert plain.group_status("large")["phase"] == "Inqueue"


def plain_group(world: World) -> str:
    """The group that was made for the bare pod."""
    names = {group["metadata"]["name"] for group in world.groups()} - {"small", "large"}
    return names.pop() if names else ""


def without_status(definition: Object) -> Object:
    changed = copy.deepcopy(definition)
    for version in changed["spec"]["versions"]:
        del version["subresources"]
    return changed


def test_what_the_definitions_of_others_drop_is_told_at_the_start(
    new_cluster: Callable[..., Cluster], definitions: list[Object], start: Start
) -> None:
    """An older definition, or Volcano's: a field of ours that is not in it, and one that it bounds more tightly."""
    theirs = copy.deepcopy(definitions)
    (queue,) = (each for each in theirs if each["spec"]["names"]["kind"] == "Queue")
    fields = queue["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del fields["extendClusters"]
    fields["weight"]["maximum"] = 100
    cluster = new_cluster()
    with cluster.client() as api:
        define(api, theirs)
    service = start(kubeconfig=cluster.kubeconfig())
    eventually(lambda: "definition differs" in service.text)
    (line,) = [each for each in service.text.splitlines() if "definition differs" in each]
    assert "definition=queues.scheduling.volcano.sh" in line
    assert "spec.extendClusters is dropped" in line
    assert "spec.weight" in line
