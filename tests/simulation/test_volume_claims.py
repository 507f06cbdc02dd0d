"""Claims are made for pods that are new, as controllers do: of ephemeral volumes, and of templates of workloads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import stromboli

CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}
DEFAULT = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}


def node(name: str) -> dict[str, Any]:
    status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}}
    return {"kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": status}


def volume(name: str, node: str) -> dict[str, Any]:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "10Gi"},
        "storageClassName": "local",
        "local": {"path": "/mnt"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    status = {"phase": "Available"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec, "status": status}


def job(pods: int, storage_class: str | None = "local") -> dict[str, Any]:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    if storage_class is not None:
        claim["storageClassName"] = storage_class
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "stromboli", "restartPolicy": "Never", "containers": [container], "volumes": [scratch]}
    each = {"parallelism": pods, "completions": pods, "template": {"spec": spec}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": each}


def why(folder: Path, *manifests: dict[str, Any]) -> str:
    file = folder / "cluster.yaml"
    volumes = [volume(f"v{number}", "n") for number in range(2)]
    file.write_text(yaml.safe_dump_all([node("m"), node("n"), *volumes, *manifests]))
    return " ".join(stromboli("why", "job", "train", "-f", file).output.split())


def test_pods_go_where_the_volumes_of_their_claims_are(tmp_path: Path) -> None:
    assert "2 of 2 pods have a place" in why(tmp_path, CLASS, job(2))


def test_a_gang_gets_no_more_volumes_than_there_are(tmp_path: Path) -> None:
    assert "0 of 3 pods placed" in why(tmp_path, CLASS, job(3))


def test_a_claim_that_names_no_class_is_of_the_default_one(tmp_path: Path) -> None:
    default = {**CLASS, "metadata": {**CLASS["metadata"], **DEFAULT}}
    assert "2 of 2 pods have a place" in why(tmp_path, default, job(2, None))
    assert "0 of 2 pods placed" in why(tmp_path, CLASS, job(2, None))


@pytest.mark.parametrize("known", [False, True])
def test_a_claim_that_is_there_is_left_as_it_is(tmp_path: Path, known: bool) -> None:
    spec = job(1)["spec"]["template"]["spec"]
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a-scratch"}}
    claim["spec"] = spec["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["spec"]
    pod = {"kind": "Pod", "metadata": {"name": "a", **({"uid": "1"} if known else {})}, "spec": spec}
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([node("n"), volume("v", "n"), CLASS, pod, claim]))
    assert "pod is not owner" in " ".join(stromboli("simulate", file, "--explain").output.split())


# -- templates of workloads --------------------------------------------------------------------------------------------


def stateful_set(replicas: int, storage_class: str | None = "local") -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    mounts = [{"name": "data", "mountPath": "/data"}]
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}, "volumeMounts": mounts}
    template = {
        "metadata": {"labels": {"app": "db"}},
        "spec": {"schedulerName": "stromboli", "containers": [container]},
    }
    said = {
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "db"}},
        "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": spec}],
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": said}


def leader_worker_set() -> dict[str, Any]:
    of = stateful_set(1)["spec"]
    workers = {"size": 2, "workerTemplate": of["template"], "volumeClaimTemplates": of["volumeClaimTemplates"]}
    spec = {"replicas": 1, "leaderWorkerTemplate": workers}
    kind = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    return {**kind, "metadata": {"name": "db"}, "spec": spec}


def placed(folder: Path, *manifests: dict[str, Any]) -> list[str]:
    """The nodes of the pods that get one, in order."""
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([node("m"), *manifests]))
    outcome = json.loads(stromboli("simulate", file, "--format", "outcome").output)["outcome"]
    return sorted(outcome["bindings"].values())


@pytest.mark.parametrize("workload", [stateful_set(2), leader_worker_set()], ids=["StatefulSet", "LeaderWorkerSet"])
def test_each_pod_of_a_workload_goes_where_a_volume_for_it_is(tmp_path: Path, workload: dict[str, Any]) -> None:
    volumes = [volume("v1", "n"), volume("v2", "n")]
    assert placed(tmp_path, node("n"), CLASS, *volumes, workload) == ["n", "n"]
    assert len(placed(tmp_path, node("n"), CLASS, volume("v1", "n"), workload)) < 2


def test_a_pod_goes_where_the_claim_that_was_kept_for_it_is_bound(tmp_path: Path) -> None:
    kept = {**volume("v1", "n"), "status": {"phase": "Bound"}}
    spec = {**stateful_set(1)["spec"]["volumeClaimTemplates"][0]["spec"], "volumeName": "v1"}
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-db-0", **bound}}
    claim = {**head, "spec": spec, "status": {"phase": "Bound"}}
    assert placed(tmp_path, node("n"), CLASS, kept, claim, stateful_set(1)) == ["n"]
    assert placed(tmp_path, CLASS, kept, claim, stateful_set(1)) == []


@pytest.mark.parametrize("storage_class", ["elsewhere", None])
def test_where_the_class_is_not_known_nothing_is_mounted(tmp_path: Path, storage_class: str | None) -> None:
    assert placed(tmp_path, stateful_set(2, storage_class)) == ["m", "m"]


@pytest.mark.parametrize("name", [{"volumeClaimName": "shared"}, {}])
def test_all_pods_of_a_volcano_job_mount_its_volumes(tmp_path: Path, name: dict[str, str]) -> None:
    template = {"spec": {"containers": stateful_set(1)["spec"]["template"]["spec"]["containers"]}}
    claim = stateful_set(1)["spec"]["volumeClaimTemplates"][0]["spec"]
    spec = {
        "minAvailable": 2,
        "schedulerName": "stromboli",
        "volumes": [{"mountPath": "/data", "volumeClaim": claim, **name}],
        "tasks": [{"name": "worker", "replicas": 2, "template": template}],
    }
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    assert placed(tmp_path, node("n"), CLASS, volume("v1", "n"), job) == ["n", "n"]
    assert placed(tmp_path, node("n"), CLASS, job) == []
    assert len(placed(tmp_path, node("n"), job)) == 2
