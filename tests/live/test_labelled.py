"""Groups that labels of pods name become PodGroups in the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live.cluster import SCHEDULING, Cluster
from tests.live.conftest import StartService, until
from tests.live.test_workloads import define, engine, groups, make

KUEUE, COUNT = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
NAMED = "scheduling.x-k8s.io/pod-group"
API = "scheduling.x-k8s.io/v1alpha1"
POD_GROUPS = f"/apis/{API}/namespaces/default/podgroups"


@pytest.fixture
def cluster(bare_cluster: Cluster, definitions: list[Path]) -> Cluster:
    """A cluster with our custom resources and no nodes."""
    bare_cluster.define(*definitions)
    return bare_cluster


def of_kueue(cluster: Cluster, *numbers: int, total: int = 3) -> None:
    for number in numbers:
        cluster.pod(f"p-{number}", metadata={"labels": {KUEUE: "train"}, "annotations": {COUNT: str(total)}})


def named(cluster: Cluster, *numbers: int) -> None:
    for number in numbers:
        cluster.pod(f"p-{number}", metadata={"labels": {NAMED: "train"}})


def owners(cluster: Cluster, name: str = "podgroup-kueue-train") -> set[str]:
    return {each["name"] for each in groups(cluster)[name]["metadata"]["ownerReferences"]}


async def test_a_group_of_kueue_starts_whole_and_belongs_to_all_of_its_pods(
    cluster: Cluster, start: StartService
) -> None:
    cluster.node("n", cpu="2")
    await start(engine)
    of_kueue(cluster, 0, 1)
    await until(lambda: groups(cluster).get("podgroup-kueue-train", {}).get("spec", {}).get("minMember") == 3)
    of_kueue(cluster, 2)
    await until(lambda: owners(cluster) == {"p-0", "p-1", "p-2"})
    assert not any(cluster.pods().values())
    cluster.node("other", cpu="1")
    await until(lambda: cluster.all_bound(3))
    assert list(groups(cluster)) == ["podgroup-kueue-train"]
    noted = cluster.get("/api/v1/namespaces/default/pods/p-2")["metadata"]["annotations"]
    assert noted["scheduling.k8s.io/group-name"] == "podgroup-kueue-train"


async def test_a_group_that_was_deleted_is_made_again(cluster: Cluster, start: StartService) -> None:
    await start(engine)
    of_kueue(cluster, 0, 1)
    await until(lambda: "podgroup-kueue-train" in groups(cluster))
    uid = groups(cluster)["podgroup-kueue-train"]["metadata"]["uid"]
    cluster.delete(f"{SCHEDULING}/namespaces/default/podgroups/podgroup-kueue-train")
    await until(
        lambda: groups(cluster).get("podgroup-kueue-train", {"metadata": {"uid": uid}})["metadata"]["uid"] != uid
    )


async def test_pods_that_wait_are_in_their_group_again_after_a_restart(cluster: Cluster, start: StartService) -> None:
    cluster.node("n", cpu="2")
    service = await start(engine)
    of_kueue(cluster, 0, 1, 2)
    await until(lambda: "podgroup-kueue-train" in groups(cluster) and len(owners(cluster)) == 3)
    await service.stop()
    service = await start(engine)
    cluster.node("other", cpu="1")
    await until(lambda: cluster.all_bound(3))
    assert len(groups(cluster)) == 1


async def test_a_total_that_is_none_is_told(cluster: Cluster, start: StartService) -> None:
    await start(engine)
    cluster.pod("p", metadata={"labels": {KUEUE: "train"}})
    await until(lambda: "PodGroupNotMade" in cluster.reasons())


def pod_group(cluster: Cluster, least: int, **spec: Any) -> Any:
    return make(cluster, API, "PodGroup", "train", {"minMember": least, **spec})


async def test_a_group_of_the_coscheduling_plugin_follows_its_object(cluster: Cluster, start: StartService) -> None:
    define(cluster, "scheduling.x-k8s.io", "v1alpha1", "PodGroup")
    cluster.node("n", cpu="2")
    await start(engine)
    uid = pod_group(cluster, 3)["metadata"]["uid"]
    named(cluster, 0, 1, 2)
    await until(lambda: groups(cluster).get(f"podgroup-{uid}", {}).get("spec", {}).get("minMember") == 3)
    assert not any(cluster.pods().values())
    assert groups(cluster)[f"podgroup-{uid}"]["metadata"]["ownerReferences"][0]["uid"] == uid
    cluster.patch(f"{POD_GROUPS}/train", {"spec": {"minMember": 2}})
    await until(lambda: sum(map(bool, cluster.pods().values())) == 2)


async def test_pods_wait_for_the_object_that_their_label_names(cluster: Cluster, start: StartService) -> None:
    define(cluster, "scheduling.x-k8s.io", "v1alpha1", "PodGroup")
    cluster.node("n", cpu="8")
    await start(engine)
    named(cluster, 0, 1)
    await until(lambda: "PodGroupNotMade" in cluster.reasons())
    assert not any(cluster.pods().values())
    pod_group(cluster, 2)
    await until(lambda: cluster.all_bound(2))


async def test_a_label_says_nothing_where_its_kind_is_not_there(cluster: Cluster, start: StartService) -> None:
    cluster.node("n", cpu="8")
    await start(engine)
    named(cluster, 0, 1)
    await until(lambda: cluster.all_bound(2))
