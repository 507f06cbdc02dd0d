"""ResourceQuotas refuse in files what the API server would, and answers name quota, usage, limit and request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import stromboli

NODE = {
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "20", "nvidia.com/gpu": "8"}},
}
GPU = {"cpu": "1", "nvidia.com/gpu": "2"}


def quota(hard: dict[str, str], status: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    meta = {"name": "small", "namespace": "team"}
    return {"kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard, **more}, "status": status or {}}


def spec(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    resources = {"requests": requests or {}, "limits": limits or {}}
    containers = [{"name": "main", "image": "x", "resources": resources}]
    return {"schedulerName": "stromboli", "restartPolicy": "Never", "containers": containers, **more}


def runs(name: str = "old", **more: Any) -> dict[str, Any]:
    given = {**spec({"cpu": "2"}), "nodeName": "n", **more}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team"},
        "spec": given,
        "status": {"phase": "Running"},
    }


def job(given: dict[str, Any], pods: int = 2, **metadata: Any) -> dict[str, Any]:
    meta = {"name": "train", "namespace": "team", **metadata}
    many = {"parallelism": pods, "completions": pods, "template": {"spec": given}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": many}


def said(folder: Path, *arguments: str, of: tuple[dict[str, Any], ...]) -> str:
    """All that a command on files says, in one line."""
    file = folder / "all.json"
    file.write_text(json.dumps({"kind": "List", "items": [NODE, *of]}))
    command, *rest = arguments
    files = [file] if command == "simulate" else ["-f", file]
    return " ".join(stromboli(command, *rest, *files).output.split())


REFUSED = [
    (quota({"requests.cpu": "3"}), spec({"cpu": "2"}), "requests.cpu: 2 of 3 used, 2 more requested"),
    (quota({"cpu": "3"}), spec({"cpu": "2"}), "cpu: 2 of 3 used, 2 more requested"),
    (quota({"limits.memory": "1Gi"}), spec(limits={"memory": "2Gi"}), "limits.memory: 0 of 1Gi used, 2Gi more"),
    (quota({"requests.nvidia.com/gpu": "1"}), spec(GPU, GPU), "requests.nvidia.com/gpu: 0 of 1 used, 2 more requested"),
    (quota({"pods": "1"}), spec(), "pods: 1 of 1 used, 1 more requested"),
    (quota({"count/pods": "1"}), spec(), "count/pods: 1 of 1 used, 1 more requested"),
    (quota({"count/jobs.batch": "0"}), spec(), "count/jobs.batch: 0 of 0 used, 1 more requested"),
    (quota({"requests.cpu": "3"}), spec(), "main has no requests.cpu, which the quota limits (say it, or"),
    (quota({"pods": "9"}, {"used": {"pods": "9"}}), spec(), "pods: 9 of 9 used, 1 more requested"),
    (quota({"pods": "0"}, scopes=["BestEffort"]), spec(), "pods: 1"),
    (quota({"pods": "0"}, scopes=["Terminating"]), spec(activeDeadlineSeconds=9), "pods: 0 of 0 used, 1 more"),
    (
        quota(
            {"pods": "0"}, scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}
        ),
        spec(priorityClassName="system-node-critical"),
        "pods: 0 of 0 used, 1 more",
    ),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("limit", "given", "why"), REFUSED)
def test_what_is_beyond_a_quota_is_not_made_and_that_is_said(
    tmp_path: Path, limit: dict[str, Any], given: dict[str, Any], why: str
) -> None:
    there = runs(containers=[{"name": "main", "image": "x"}]) if "1" in why.partition(" of ")[0] else runs()
    for command in (("why", "job", "team/train"), ("simulate",), ("simulate", "--explain")):
        text = said(tmp_path, *command, of=(limit, there, job(given)))
        assert "Job team/train: 2 pods are not made: ResourceQuota team/small forbids it: " in text
        assert why in text


@pytest.mark.parametrize(
    ("limit", "given"),
    [
        (quota({"requests.cpu": "6"}), spec({"cpu": "2"})),
        (quota({"pods": "0"}, scopes=["BestEffort"]), spec({"cpu": "1"})),
        (quota({"pods": "0"}, scopes=["NotTerminating"]), spec(activeDeadlineSeconds=9)),
        (quota({"requests.cpu": "6"}), {**spec(), "resources": {"requests": {"cpu": "2"}}}),
        (quota({"count/jobs.batch": "1", "requests.storage": "0"}), spec()),
    ],
)
def test_what_a_quota_leaves_or_does_not_cover_is_made(
    tmp_path: Path, limit: dict[str, Any], given: dict[str, Any]
) -> None:
    assert "2/2 n x2" in said(tmp_path, "simulate", of=(limit, runs(), job(given)))


@pytest.mark.parametrize(
    ("operator", "covered"), [("In", True), ("NotIn", False), ("Exists", True), ("DoesNotExist", False)]
)
def test_a_pod_that_names_no_class_is_counted_under_the_default_one(
    tmp_path: Path, operator: str, covered: bool
) -> None:
    scope: dict[str, Any] = {"scopeName": "PriorityClass", "operator": operator}
    scope |= {"values": ["usual"]} if operator in ("In", "NotIn") else {}
    limit = quota({"pods": "0"}, scopeSelector={"matchExpressions": [scope]})
    usual = {"kind": "PriorityClass", "metadata": {"name": "usual"}, "value": 7, "globalDefault": True}
    text = said(tmp_path, "why", "job", "team/train", of=(limit, usual, job(spec())))
    assert ("2 pods are not made: ResourceQuota team/small forbids it" in text) is covered, text


def test_a_gang_that_a_quota_leaves_in_part_is_told_what_it_lacks_and_who_can_change_that(tmp_path: Path) -> None:
    limit = quota({"requests.cpu": "8"})
    of = (limit, runs(), job(spec({"cpu": "2"}), pods=4))
    text = said(tmp_path, "why", "job", "team/train", of=of)
    assert "NotEnoughPods" in text
    assert text.count("8 of 8 used") == 1
    assert "ResourceQuota small would be exceeded by one more (requests.cpu: 8 of 8 used, 2 more requested)" in text
    assert "admin: raise ResourceQuota team/small (of 8 cpu 0 left), and create 1 more pod of Job team/train" in text
    assert "Job team/train: 1 of 4 pods is not made: ResourceQuota team/small" in said(tmp_path, "simulate", of=of)


def test_a_pod_and_a_claim_beyond_a_quota_are_not_made(tmp_path: Path) -> None:
    meta = {"name": "one", "namespace": "team"}
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "team"}}
    claim["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "5Gi"}},
    }
    hard = {"pods": "1", "fast.storageclass.storage.k8s.io/requests.storage": "1Gi"}
    of = (quota(hard), runs(), {"kind": "Pod", "metadata": meta, "spec": spec()}, claim)
    text = said(tmp_path, "simulate", of=of)
    assert "Pod team/one: ResourceQuota team/small forbids it: pods: 1 of 1 used, 1 more requested" in text
    assert "fast.storageclass.storage.k8s.io/requests.storage: 0 of 1Gi used, 5Gi more requested" in text
    assert "pod team/one is not made: ResourceQuota" in said(tmp_path, "why", "pod", "team/one", of=of)


@pytest.mark.parametrize(
    ("pods", "hard", "says"),
    [
        (3, None, "1 of 3 pods is not made: ResourceQuota team/small forbids it: requests.cpu: 8 of 8 used"),
        (3, "10", "3 pods bound, 0 evicted"),
    ],
)
def test_a_change_is_held_to_the_quotas_that_are_there_or_come_with_it(
    tmp_path: Path, pods: int, hard: str | None, says: str
) -> None:
    cluster, added = tmp_path / "cluster.json", tmp_path / "added.json"
    old = job(spec({"cpu": "2"}), name="old")
    cluster.write_text(json.dumps({"kind": "List", "items": [NODE, quota({"requests.cpu": "8"}), old]}))
    raised = [quota({"requests.cpu": hard})] if hard else []
    added.write_text(json.dumps({"kind": "List", "items": [job(spec({"cpu": "2"}), pods), *raised]}))
    assert says in " ".join(stromboli("whatif", "--on", cluster, "-f", added).output.split())


@pytest.mark.parametrize(("pods", "says"), [(4, "2 pods bound, 0 evicted"), (5, "1 of 5 pods is not made")])
def test_a_workload_that_grows_leaves_what_it_has_of_a_quota_to_itself(tmp_path: Path, pods: int, says: str) -> None:
    cluster, added = tmp_path / "cluster.json", tmp_path / "added.json"
    of = [NODE, quota({"requests.cpu": "8"}), job(spec({"cpu": "2"}))]
    cluster.write_text(json.dumps({"kind": "List", "items": of}))
    added.write_text(json.dumps(job(spec({"cpu": "2"}), pods)))
    assert says in " ".join(stromboli("whatif", "--on", cluster, "-f", added).output.split())
