"""Gangs whose owner becomes larger or smaller, ends, or goes without its pods: none is split, or waits for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from stromboli.live.groups import podgroups
from stromboli.live.groups.podgroups import PodGroupMaker
from tests.live.cluster import SCHEDULING, Cluster, Object
from tests.live.conftest import StartService, until
from tests.live.test_workloads import (
    JOBS,
    TEMPLATE,
    define,
    engine,
    group_of,
    groups,
    job,
    make,
    pods_of,
    reference,
)

PODS = "/api/v1/namespaces/default/pods"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"


@pytest.fixture
def cluster(bare_cluster: Cluster, definitions: list[Path]) -> Cluster:
    """A cluster with our custom resources and no nodes."""
    bare_cluster.define(*definitions)
    return bare_cluster


def bound(cluster: Cluster) -> int:
    return sum(map(bool, cluster.pods().values()))


async def running_job(cluster: Cluster, start: StartService, pods: int) -> Object:
    """A Job whose pods all run, one CPU each on a node with room for no more."""
    cluster.node("n1", cpu=str(pods))
    await start(engine)
    made = job(cluster, "train", pods)
    pods_of(cluster, made, pods)
    await until(lambda: cluster.all_bound(pods))
    return made


async def test_pods_that_come_before_it_is_seen_that_more_start_together_wait_for_all_of_them(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PodGroupMaker, "owner_changed", lambda *_: None)
    cluster.node("n1", cpu="3")
    service = await start(engine)
    made = job(cluster, "train", 1)
    pods_of(cluster, made, 1)
    await until(lambda: cluster.all_bound(1))
    cluster.patch(f"{JOBS}/train", {"spec": {"parallelism": 4, "completions": 4}})
    pods_of(cluster, made, 3, 1)
    await until(lambda: group_of(cluster, made)["spec"]["minMember"] == 4)
    named = [f"default/train-{number}" for number in range(4)]
    await until(lambda: all((record := service.state.record(key)) is not None and record.job for key in named))
    assert bound(cluster) == 1
    cluster.node("n2", cpu="1")
    await until(lambda: cluster.all_bound(4))


async def test_a_gang_of_replicas_that_waits_starts_once_there_are_to_be_fewer(
    cluster: Cluster, start: StartService
) -> None:
    cluster.node("n1", cpu="2")
    await start(engine)
    noted = {"scheduling.volcano.sh/group-min-member": "3"}
    spec = {"replicas": 3, "podManagementPolicy": "Parallel", "selector": {}, "template": TEMPLATE}
    made = make(cluster, "apps/v1", "StatefulSet", "store", spec, annotations=noted)
    pods_of(cluster, made, 3)
    await until(lambda: group_of(cluster, made)["spec"].get("minMember") == 3)
    cluster.patch(f"{SETS}/store", {"spec": {"replicas": 2}})
    cluster.delete("/api/v1/namespaces/default/pods/store-2")
    await until(lambda: cluster.all_bound(2))
    assert group_of(cluster, made)["spec"]["minMember"] == 2


async def test_the_group_of_a_job_that_has_ended_lacks_no_pods(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its success policy its other pods are ended when the first one has succeeded."""
    monkeypatch.setattr(podgroups, "_LASTING", 0.1)
    made = await running_job(cluster, start, 3)
    pods = "/api/v1/namespaces/default/pods"
    cluster.patch(f"{pods}/train-0/status", {"status": {"phase": "Succeeded"}})
    for number in (1, 2):
        cluster.delete(f"{pods}/train-{number}")
    complete = [{"type": "Complete", "status": "True"}]
    cluster.patch(f"{JOBS}/train/status", {"status": {"succeeded": 1, "conditions": complete}})
    await until(lambda: group_of(cluster, made).get("status", {}).get("phase") == "Completed")


async def test_a_job_all_of_whose_pods_succeed_costs_no_write_when_it_ends(
    cluster: Cluster, start: StartService
) -> None:
    made = await running_job(cluster, start, 2)
    for number in range(2):
        path = f"/api/v1/namespaces/default/pods/train-{number}/status"
        cluster.patch(path, {"status": {"phase": "Succeeded"}})
    complete = [{"type": "Complete", "status": "True"}]
    cluster.patch(f"{JOBS}/train/status", {"status": {"succeeded": 2, "conditions": complete}})
    await until(lambda: group_of(cluster, made).get("status", {}).get("phase") == "Completed")
    assert group_of(cluster, made)["spec"]["minMember"] == 2


async def test_a_group_whose_owner_leaves_its_pods_goes_with_the_last_of_them(
    cluster: Cluster, start: StartService
) -> None:
    await running_job(cluster, start, 2)
    (name,) = groups(cluster)
    cluster.patch(f"{SCHEDULING}/namespaces/default/podgroups/{name}", {"metadata": {"ownerReferences": None}})

    def owners() -> set[str]:
        listed = groups(cluster)[name]["metadata"].get("ownerReferences") or []
        return {f"{owner['kind']}/{owner['name']}" for owner in listed}

    await until(lambda: owners() == {"Pod/train-0", "Pod/train-1"})
    for number in range(2):
        cluster.delete(f"/api/v1/namespaces/default/pods/train-{number}")
    await until(lambda: not cluster.pods())
    cluster.patch(f"{SCHEDULING}/namespaces/default/podgroups/{name}", {"metadata": {"ownerReferences": None}})
    await until(lambda: not groups(cluster))


def end(cluster: Cluster, *numbers: int) -> None:
    for number in numbers:
        cluster.patch(f"{PODS}/train-{number}/status", {"status": {"phase": "Succeeded"}})


async def test_the_last_pods_of_a_job_do_not_wait_for_those_that_succeeded_and_are_gone(
    cluster: Cluster, start: StartService
) -> None:
    """With the nodes on which nothing ran any longer, for example."""
    cluster.node("n1", cpu="4")
    await start(engine)
    made = make(cluster, "batch/v1", "Job", "train", {"parallelism": 4, "completions": 8, "template": TEMPLATE})
    pods_of(cluster, made, 4)
    await until(lambda: cluster.all_bound(4))
    end(cluster, 0, 1, 2, 3)
    pods_of(cluster, made, 4, 4)
    await until(lambda: cluster.all_bound(8))
    end(cluster, 4, 5)
    cluster.patch(f"{JOBS}/train/status", {"status": {"succeeded": 6}})
    for number in range(8):
        cluster.delete(f"{PODS}/train-{number}")
    pods_of(cluster, made, 2, 8)
    await until(lambda: bound(cluster) == 2)
    assert group_of(cluster, made)["spec"]["minMember"] == 2


async def test_the_last_pods_of_a_job_that_wait_start_once_those_that_succeeded_are_gone(
    cluster: Cluster, start: StartService
) -> None:
    cluster.node("n1", cpu="3")
    await start(engine)
    made = make(cluster, "batch/v1", "Job", "train", {"parallelism": 3, "completions": 5, "template": TEMPLATE})
    pods_of(cluster, made, 3)
    await until(lambda: cluster.all_bound(3))
    cluster.delete("/api/v1/nodes/n1")
    end(cluster, 0, 1, 2)
    cluster.patch(f"{JOBS}/train/status", {"status": {"succeeded": 3}})
    pods_of(cluster, made, 2, 3)
    await until(lambda: "train-4" in cluster.pods())
    for number in range(3):
        cluster.delete(f"{PODS}/train-{number}")
    await until(lambda: group_of(cluster, made)["spec"]["minMember"] == 2)
    cluster.node("n2", cpu="2")
    await until(lambda: cluster.all_bound(2))


@pytest.mark.parametrize("watched", [True, False])
async def test_pods_of_a_job_set_do_not_wait_for_those_of_jobs_that_succeeded_and_are_gone(
    cluster: Cluster, start: StartService, watched: bool
) -> None:
    """One that failed comes anew while others go on; when all of it starts anew all are waited for again.

    The kind is watched if it was there when the service started, and is only read in the minute after it came.
    """
    kind = "jobset.x-k8s.io", "v1alpha2", "JobSet"
    if watched:
        define(cluster, *kind)
    cluster.node("n1", cpu="4")
    await start(engine)
    if not watched:
        define(cluster, *kind)
    replicated = [{"name": name, "template": {"spec": {"parallelism": pods, "completions": pods, "template": TEMPLATE}}}
        for name, pods in (("driver", 1), ("worker", 3))]  # fmt: skip
    made = make(cluster, "jobset.x-k8s.io/v1alpha2", "JobSet", "train", {"replicatedJobs": replicated})
    driver, worker = job(cluster, "driver", 1, made), job(cluster, "worker", 3, made)
    pods_of(cluster, worker, 3)
    pods_of(cluster, driver, 1)
    await until(lambda: cluster.all_bound(4))

    def say(succeeded: int, restarts: int = 0) -> None:
        path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/train"
        listed = [{"name": "driver", "succeeded": succeeded}, {"name": "worker", "succeeded": 0}]
        cluster.patch(path, {"status": {"replicatedJobsStatus": listed, "restarts": restarts}})

    cluster.patch(f"{PODS}/driver-0/status", {"status": {"phase": "Succeeded"}})
    say(1)
    for name in ("driver-0", "worker-0"):
        cluster.delete(f"{PODS}/{name}")
    pods_of(cluster, worker, 1, 3)
    await until(lambda: cluster.pods().get("worker-3"))
    assert group_of(cluster, made)["spec"]["minMember"] == 3
    for number in (1, 2, 3):
        cluster.delete(f"{PODS}/worker-{number}")
    await until(lambda: not cluster.pods())
    say(0, 1)
    pods_of(cluster, worker, 3, 4)
    await until(lambda: group_of(cluster, made)["spec"]["minMember"] == 4)
    assert bound(cluster) == 0
    pods_of(cluster, driver, 1, 1)
    await until(lambda: cluster.all_bound(4))


@pytest.mark.parametrize("kind", ["AppWrapper", "JobSet"])
async def test_pods_that_come_anew_wait_for_none_that_succeeded_and_are_gone_in_the_same_attempt(
    cluster: Cluster, start: StartService, kind: str
) -> None:
    """One of the pods of a Job, or all of a Job that is deleted when it ends; in another attempt all are waited for."""
    group, version, plural = {
        "AppWrapper": ("workload.codeflare.dev", "v1beta2", "appwrappers"),
        "JobSet": ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    }[kind]
    define(cluster, group, version, kind)
    cluster.node("n1", cpu="4")
    await start(engine)
    part = {"spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE}}
    spec = {
        "AppWrapper": {"components": [{"template": {}, "podSets": [{"replicas": 4}]}]},
        "JobSet": {"replicatedJobs": [{"name": name, "template": part} for name in ("a", "b")]},
    }[kind]
    made = make(cluster, f"{group}/{version}", kind, "train", spec)

    def begin(attempt: int) -> None:
        status = {"phase": "Running", "resettingCount": attempt, "restarts": attempt}
        cluster.patch(f"/apis/{group}/{version}/namespaces/default/{plural}/train", {"status": status})

    begin(0)
    first, second = (job(cluster, name, 2, made) for name in ("a", "b"))
    pods_of(cluster, first, 2)
    pods_of(cluster, second, 2)
    await until(lambda: cluster.all_bound(4))
    for name in ("a-0", "a-1", "b-0"):
        cluster.patch(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}})
        cluster.delete(f"{PODS}/{name}")
    await until(lambda: group_of(cluster, made)["spec"]["minMember"] == 1)
    cluster.delete(f"{PODS}/b-1")
    pods_of(cluster, second, 1, 2)
    await until(lambda: cluster.pods() == {"b-2": "n1"})
    begin(1)
    await until(lambda: group_of(cluster, made)["spec"]["minMember"] == 4)
    cluster.delete(f"{PODS}/b-2")
    pods_of(cluster, second, 2, 3)
    await until(lambda: len(cluster.pods()) == 2)
    assert bound(cluster) == 0
    pods_of(cluster, first, 2, 2)
    await until(lambda: cluster.all_bound(4))


async def test_replicas_of_two_revisions_are_gangs_of_their_own_sizes(cluster: Cluster, start: StartService) -> None:
    """A rollout that stops at a partition leaves replicas of the size before, which start anew with that."""
    serving = "leaderworkerset.x-k8s.io/v1"
    define(cluster, "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")
    cluster.node("n1", cpu="6")
    await start(engine)

    def spec(size: int) -> Object:
        return {"replicas": 2, "leaderWorkerTemplate": {"size": size, "workerTemplate": TEMPLATE}}

    whole = make(cluster, serving, "LeaderWorkerSet", "s", spec(2))

    def replica(index: int, size: int, of: str) -> None:
        labels = {"leaderworkerset.sigs.k8s.io/group-index": str(index)}
        noted = {"leaderworkerset.sigs.k8s.io/size": str(size)}
        for number in range(size):
            meta = {"ownerReferences": [reference(whole)], "labels": labels, "annotations": noted}
            cluster.pod(f"s-{index}-{number}-{of}", metadata=meta)

    def gone(index: int, of: str) -> None:
        for number in range(2):
            cluster.delete(f"{PODS}/s-{index}-{number}-{of}")

    def sizes() -> list[int]:
        return sorted(each["spec"]["minMember"] for each in groups(cluster).values())

    replica(0, 2, "old")
    replica(1, 2, "old")
    await until(lambda: cluster.all_bound(4))
    cluster.patch(f"/apis/{serving}/namespaces/default/leaderworkersets/s", {"spec": spec(5)})
    gone(1, "old")
    replica(1, 5, "new")
    # There is no room for the larger one: it waits as a whole.
    await until(lambda: sizes() == [2, 5])
    await until(lambda: len(cluster.pods()) == 7)
    assert bound(cluster) == 2
    gone(0, "old")
    replica(0, 2, "again")
    await until(lambda: bound(cluster) in (2, 5))
    cluster.node("n2", cpu="1")
    await until(lambda: cluster.all_bound(7))
    assert sizes() == [2, 5]
