"""What people submit, of each kind of `docs/workloads.md`, on a real API server with the definitions that are released.

One cluster has all of it, each workload with nodes of its own that at first lack one CPU.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from stromboli.workloads import known_kinds
from tests.controlplane.cluster import eventually
from tests.controlplane.projects import released
from tests.e2e.conftest import Start
from tests.e2e.submitted import NODES_OF, PRIORITY, QUEUE, SUBMITTED, Made, Submitted, pods_of
from tests.e2e.world import CORE, Object, World, define

pytestmark = pytest.mark.e2e

#: kinds without a controller here, that of which the Deployment's makes one, those whose own makes the PodGroups, and
#: those that labels of pods name (`test_labelled.py`)
ELSEWHERE = {
    *(("apps", "DaemonSet"), ("", "ReplicationController"), ("apps", "ReplicaSet"), ("batch.volcano.sh", "Job")),
    ("batch.volcano.sh", "CronJob"),
    ("flow.volcano.sh", "JobFlow"),
    *(("scheduling.x-k8s.io", "PodGroup"), ("scheduling.sigs.k8s.io", "PodGroup")),
}


def kinds(made: Made) -> set[tuple[str, str]]:
    found = {(made.version.rpartition("/")[0], made.kind)}
    return found.union(*(kinds(part) for part in made.parts))


def test_each_kind_of_the_table_is_submitted_here() -> None:
    submitted = set[tuple[str, str]]().union(*(kinds(each.tree(each.name, 2)) for each in SUBMITTED))
    assert submitted | ELSEWHERE == {(kind.row.group, kind.row.kind) for kind in known_kinds()}


def notebooks() -> Object:
    """A definition that takes any Notebook: that of Kubeflow is in no module."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": "notebooks", "kind": "Notebook", "singular": "notebook", "listKind": "NotebookList"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    spec = {"group": "kubeflow.org", "scope": "Namespaced", "names": names, "versions": versions}
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**definition, "metadata": {"name": "notebooks.kubeflow.org"}, "spec": spec}


class Cluster:
    """All workloads in a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.all = {each.name: each for each in SUBMITTED}
        self._pods = f"{CORE}/namespaces/{world.namespace}/pods"

    def submit(self, size: int) -> None:
        for each in SUBMITTED:
            each.submit(self.world, size)

    def nodes(self, cpus: dict[str, int], prefix: str) -> None:
        """Nodes with so many CPUs for the pods of workloads."""
        listed = []
        for name, cpu in cpus.items():
            amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
            status = {"capacity": amounts, "allocatable": amounts}
            listed.append({"metadata": {"name": f"{prefix}-{name}", "labels": {NODES_OF: name}}, "status": status})
        self.world.create_all(f"{CORE}/nodes", listed)

    def groups(self) -> dict[str, list[Object]]:
        """The PodGroups of each workload, whose names begin with its name."""
        found: dict[str, list[Object]] = {name: [] for name in self.all}
        for group in self.world.groups():
            found[group["metadata"]["ownerReferences"][0]["name"].partition("-")[0]].append(group)
        return found

    def together(self) -> dict[str, list[int]]:
        """How many pods of each workload start together."""
        return {name: sorted(each["spec"]["minMember"] for each in groups) for name, groups in self.groups().items()}

    def pods(self) -> list[Object]:
        return self.world.items(self._pods)

    def started(self) -> dict[str, Any]:
        """How many pods of each workload that ask for a CPU have a node."""
        return Counter(
            pod["spec"]["nodeSelector"][NODES_OF]
            for pod in self.pods()
            if pod["spec"].get("nodeName") and pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] != "0"
        )

    def made_here(self, each: Submitted, size: int) -> list[str]:
        return list(pods_of(each.tree(each.name, size), each.name))

    def end(self, names: Iterable[str], phase: str) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        for name in names:
            change = {"status": {"phase": phase}}
            self.world.api.patch(f"{self._pods}/{name}/status", json=change, headers=headers).raise_for_status()

    def delete_pod(self, name: str) -> None:
        self.world.api.delete(f"{self._pods}/{name}", params={"gracePeriodSeconds": "0"}).raise_for_status()


def settles(found: Callable[[], dict[str, Any]], wanted: dict[str, Any], seconds: float) -> None:
    """Wait until what is found of each workload is what is wanted; else show that of those where it is not."""
    deadline = time.monotonic() + seconds
    while (now := found()) != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    assert [each for each in now.items() if each[1] != wanted.get(each[0])] == []
    assert now == wanted


def expected(size: int) -> dict[str, list[int]]:
    return {each.name: sorted([*each.together(size), *each.beside]) for each in SUBMITTED}


def test_what_people_submit_starts_whole_scales_restarts_and_ends(world: World, start: Start) -> None:
    define(world.api, [*released((kind.row.group, kind.row.kind) for kind in known_kinds()), notebooks()])
    world.queue(QUEUE)
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    if not world.api.get(f"{path}/{PRIORITY}").is_success:
        world.create(path, {"metadata": {"name": PRIORITY}, "value": 1000})
    cluster = Cluster(world)
    cluster.nodes({each.name: each.short(2) for each in SUBMITTED}, "short")
    start()

    cluster.submit(2)
    settles(cluster.together, expected(2), 60)
    for name, groups in cluster.groups().items():
        said = {(group["spec"].get("queue"), group["spec"].get("priorityClassName")) for group in groups}
        assert said == {(QUEUE, PRIORITY)}, name
    before = {each.name: each.started(2) for each in SUBMITTED if each.started(2)}
    settles(cluster.started, before, 60)

    cluster.submit(3)
    settles(cluster.together, expected(3), 60)
    assert cluster.started() == before
    cluster.nodes({each.name: each.count(3) - each.short(2) for each in SUBMITTED}, "rest")
    whole = {each.name: each.count(3) for each in SUBMITTED}
    settles(cluster.started, whole, 60)

    # Pods that fail are made anew, in the groups that there are.
    groups = {group["metadata"]["uid"] for group in world.groups()}
    failing = [(each, cluster.made_here(each, 3)[-1]) for each in SUBMITTED if cluster.made_here(each, 3)]
    cluster.end((name for _, name in failing), "Failed")
    for _, name in failing:
        cluster.delete_pod(name)
    for each, _ in failing:
        each.submit(world, 3)
    settles(cluster.started, whole, 60)
    assert {group["metadata"]["uid"] for group in world.groups()} == groups

    for each in SUBMITTED:
        cluster.end(cluster.made_here(each, 3), "Succeeded")

    def phases() -> dict[str, Any]:
        found = {name: [group["status"].get("phase") for group in groups] for name, groups in cluster.groups().items()}
        return {each.name: set(found[each.name]) for each in SUBMITTED if each.ends}

    settles(phases, {each.name: {"Completed"} for each in SUBMITTED if each.ends}, 60)
    for each in SUBMITTED:
        each.withdraw(world)
    eventually(lambda: world.groups() == [], 90)
