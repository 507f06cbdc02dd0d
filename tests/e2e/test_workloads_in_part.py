"""Gangs of which some pods have come to their end, on a real API server with the Job controller and no kubelets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.controlplane.cluster import Cluster, eventually
from tests.controlplane.projects import released
from tests.e2e.service import Service
from tests.e2e.test_workloads import group_of, job, jobs, patch
from tests.e2e.world import CORE, Object, World, define

pytestmark = pytest.mark.e2e


@pytest.fixture
def world(new_cluster: Callable[..., Cluster], definitions: list[Object], tmp_path: Path) -> Iterator[World]:
    """Three CPUs, and the service; pods run until the test says otherwise."""
    cluster = new_cluster()
    cluster.start_controller_manager()
    with cluster.client() as api:
        define(api, definitions)
    world = World(cluster, "part")
    world.begin()
    world.nodes(1, cpu="3")
    service = Service(cluster.kubeconfig(), tmp_path / "stromboli.log").wait_ready()
    yield world
    service.end()
    world.api.close()


class Pods:
    """The pods of the world, whose kubelet is the test."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._path = f"{CORE}/namespaces/{world.namespace}/pods"

    def names(self, of: str = "") -> list[str]:
        return sorted(
            each["metadata"]["name"]
            for each in self._world.items(self._path)
            if each["metadata"]["name"].startswith(of)
        )

    def succeed(self, name: str) -> None:
        patch(self._world, f"{self._path}/{name}/status", {"status": {"phase": "Succeeded"}})

    def end(self, name: str) -> None:
        """Delete it, at once."""
        self._world.api.delete(f"{self._path}/{name}", params={"gracePeriodSeconds": "0"})

    def end_those_that_terminate(self) -> None:
        for each in self._world.items(self._path):
            if "deletionTimestamp" in each["metadata"]:
                self.end(each["metadata"]["name"])


def succeeded(world: World, name: str) -> int:
    found: int = world.get(f"{jobs(world)}/{name}")["status"].get("succeeded", 0)
    return found


def test_a_pod_of_a_job_set_comes_anew_when_one_of_its_jobs_has_succeeded_and_is_gone(world: World) -> None:
    define(world.api, released([("jobset.x-k8s.io", "JobSet")]))
    pods, sizes = Pods(world), {"driver": 1, "worker": 2}
    parts = [{"name": name, "template": {"spec": job("", size)["spec"]}} for name, size in sizes.items()]
    named = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "train"}}
    sets = f"/apis/{named['apiVersion']}/namespaces/{world.namespace}/jobsets"
    whole = {**named, **world.create(sets, {**named, "spec": {"replicatedJobs": parts}})}
    for name, size in sizes.items():
        world.create(jobs(world), job(f"train-{name}-0", size, owner=whole))
    eventually(lambda: len(world.placed()) == 3)
    (driver,) = pods.names("train-driver")
    pods.succeed(driver)
    eventually(lambda: succeeded(world, "train-driver-0") == 1)
    counts = dict.fromkeys(("active", "failed", "ready", "suspended"), 0)
    listed = [{"name": name, "succeeded": int(name == "driver"), **counts} for name in sizes]
    patch(world, f"{sets}/train/status", {"status": {"replicatedJobsStatus": listed}})
    world.api.delete(f"{jobs(world)}/train-driver-0", params={"propagationPolicy": "Background"}).raise_for_status()
    pods.end(driver)
    eventually(lambda: pods.names("train-driver") == [])
    first = pods.names()[0]
    pods.end(first)
    eventually(lambda: first not in pods.names() and len(world.placed()) == 2)
    assert group_of(world, whole)["spec"]["minMember"] == 2


def test_a_job_that_is_suspended_and_resumed_larger_starts_whole(world: World) -> None:
    pods, path = Pods(world), f"{jobs(world)}/train"
    made = world.create(jobs(world), job("train", 2))
    eventually(lambda: len(world.placed()) == 2)
    patch(world, path, {"spec": {"suspend": True}})

    def gone() -> bool:
        pods.end_those_that_terminate()
        return pods.names() == []

    eventually(gone)
    patch(world, path, {"spec": {"parallelism": 4, "completions": 4}})
    patch(world, path, {"spec": {"suspend": False}})
    eventually(lambda: len(pods.names()) == 4 and group_of(world, made)["spec"].get("minMember") == 4)
    assert world.placed() == {}
    patch(world, path, {"spec": {"parallelism": 3, "completions": 3}})

    def placed() -> bool:
        pods.end_those_that_terminate()
        return len(world.placed()) == 3

    eventually(placed)


def test_a_job_whose_success_policy_is_met_holds_and_claims_nothing(world: World) -> None:
    """Its other pods are ended with the first that succeeds, and the next gang gets their places."""
    pods, made = Pods(world), job("train", 3)
    made["spec"]["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    made = world.create(jobs(world), made)
    eventually(lambda: len(world.placed()) == 3)
    pods.succeed(pods.names("train-0")[0])
    world.create(jobs(world), job("next", 3))

    def placed() -> bool:
        pods.end_those_that_terminate()
        return sum(name.startswith("next") for name in world.placed()) == 3

    eventually(placed, 90)
    name = group_of(world, made)["metadata"]["name"]
    eventually(lambda: world.group_status(name).get("phase") == "Completed")
