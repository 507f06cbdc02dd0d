"""Jobs are found by every name that people know them by, and told of in the words of what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import stromboli

NODE = {
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "6", "memory": "64Gi", "pods": "20"}},
}


def template(cpu: str = "1", **resources: Any) -> dict[str, Any]:
    asked = {"requests": {"cpu": cpu, **resources}}
    containers = [{"name": "main", "image": "x", "resources": asked}]
    return {"spec": {"schedulerName": "stromboli", "restartPolicy": "Never", "containers": containers}}


SERVER = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "vllm"},
    "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": template()}},
}
TRAINING = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "train"},
    "spec": {
        "replicatedJobs": [
            {"name": "workers", "template": {"spec": {"parallelism": 9, "completions": 9, "template": template()}}}
        ]
    },
}
NATIVE = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "own"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
}


def member(number: int, group: dict[str, Any]) -> dict[str, Any]:
    pod = {"kind": "Pod", "metadata": {"name": f"solve-{number}"}, "spec": {**template()["spec"]}}
    pod["spec"]["schedulingGroup"] = {"podGroupName": group["metadata"]["name"]}
    return pod


def said(folder: Path, *arguments: str, of: tuple[dict[str, Any], ...]) -> str:
    """All that a command on files says, in one line."""
    (folder / "all.json").write_text(json.dumps({"kind": "List", "items": [NODE, *of]}))
    return " ".join(stromboli(*arguments, "-f", folder / "all.json").output.split())


@pytest.mark.parametrize(
    ("name", "of", "title"),
    [
        ("vllm", (SERVER,), "LeaderWorkerSet default/vllm (PodGroup podgroup-leaderworkerset-default-vllm-1) waits"),
        ("vllm-0", (SERVER,), "LeaderWorkerSet default/vllm (PodGroup podgroup-leaderworkerset-default-vllm-0): "),
        ("vllm-1", (SERVER,), "LeaderWorkerSet default/vllm (PodGroup podgroup-leaderworkerset-default-vllm-1) waits"),
        ("train-workers-0", (TRAINING,), "JobSet default/train"),
        ("own", (NATIVE, member(0, NATIVE)), "waits at Gang: NotEnoughPods"),
        ("solve", (NATIVE, member(0, NATIVE)), "waits at Gang: NotEnoughPods"),
    ],
)
def test_a_job_is_found_by_its_names(tmp_path: Path, name: str, of: tuple[dict[str, Any], ...], title: str) -> None:
    assert title in said(tmp_path, "why", "job", name, of=of)


@pytest.mark.parametrize("name", ["trai", "train-worker", "train-2", "vllm-2", "worker"])
def test_a_job_is_not_found_by_part_of_a_name(tmp_path: Path, name: str) -> None:
    assert f"there is no job default/{name}" in said(tmp_path, "why", "job", name, of=(SERVER, TRAINING))


def test_the_parts_of_a_workload_are_told_apart_in_lists(tmp_path: Path) -> None:
    text = said(tmp_path, "job", "list", of=(SERVER,))
    assert "default vllm-0 default" in text
    assert "default vllm-1 default" in text


def test_a_server_whose_parts_make_one_whole_is_not_started_with_some(tmp_path: Path) -> None:
    text = said(tmp_path, "why", "job", "vllm-1", of=(SERVER,))
    assert (
        "user: set spec.leaderWorkerTemplate.size: 2 in LeaderWorkerSet default/vllm, if that many are enough ->"
        in text
    )
    assert "group-min-member" not in text


def test_how_many_start_together_is_told_by_the_field_that_was_written(tmp_path: Path) -> None:
    text = said(tmp_path, "why", "job", "own", of=(NATIVE, member(0, NATIVE)))
    assert "PodGroup default/own of scheduling.k8s.io lacks pods: minCount is 4" in text
    assert "minMember" not in text


@pytest.mark.parametrize(
    ("asked", "change"),
    [
        ({"cpu": "500"}, "ask for 500m cpu instead of 500, if thousandths are meant"),
        ({"cpu": "2k"}, "ask for 2000m cpu instead of 2,000, if thousandths are meant"),
        ({"memory": "32Ti"}, "ask for 32Gi memory instead of 32Ti"),
    ],
)
def test_a_unit_that_is_confused_is_told(tmp_path: Path, asked: dict[str, str], change: str) -> None:
    pod = {"kind": "Pod", "metadata": {"name": "a"}, "spec": template(**asked)["spec"]}
    text = said(tmp_path, "why", "pod", "a", of=(pod,))
    assert f"user: {change} -> 1 pod bound" in text
    assert "add 1 node" not in text


@pytest.mark.parametrize(("memory", "told"), [("512", "512 bytes"), ("100m", "1 byte"), ("512Ki", "512Ki")])
@pytest.mark.parametrize("command", [("why", "pod", "a"), ("why", "job", "a"), ("simulate", "--explain")])
def test_memory_that_lacks_its_unit_is_told_where_the_pod_starts(
    tmp_path: Path, command: tuple[str, ...], memory: str, told: str
) -> None:
    pod = {"kind": "Pod", "metadata": {"name": "a"}, "spec": template(memory=memory)["spec"]}
    if command[0] == "simulate":
        (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": [NODE, pod]}))
        text = " ".join(stromboli(*command, tmp_path / "all.json").output.split())
    else:
        text = said(tmp_path, *command, of=(pod,))
    assert f"container main is given {told} of memory: give it a unit, such as Mi or Gi" in text


def test_lists_say_that_a_job_with_places_does_not_run(tmp_path: Path) -> None:
    waiting = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
    pod = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {**template()["spec"], "nodeName": "n"}}
    pod["status"] = {"phase": "Pending", "containerStatuses": [waiting]}
    assert "Binding NotRunning" in said(tmp_path, "job", "list", of=(pod,))
    assert "a on n: image cannot be pulled" in said(tmp_path, "job", "list", "-o", "wide", of=(pod,))
