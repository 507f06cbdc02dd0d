"""LimitRanges give and refuse in files what the API server would, and answers name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import stromboli

NODE = {
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "20"}},
}


def limits(*items: dict[str, Any], name: str = "bounds") -> dict[str, Any]:
    return {"kind": "LimitRange", "metadata": {"name": name, "namespace": "team"}, "spec": {"limits": list(items)}}


def container(**bounds: Any) -> dict[str, Any]:
    return limits({"type": "Container", **bounds})


def spec(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    resources = {"requests": requests or {}, "limits": limits or {}}
    containers = [{"name": "main", "image": "x", "resources": resources}]
    return {"schedulerName": "stromboli", "restartPolicy": "Never", "containers": containers, **more}


def pod(given: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "a", "namespace": "team", **metadata}, "spec": given}


def job(given: dict[str, Any]) -> dict[str, Any]:
    many = {"parallelism": 2, "completions": 2, "template": {"spec": given}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "team"}, "spec": many}


def said(folder: Path, *arguments: str, of: tuple[dict[str, Any], ...]) -> str:
    """All that a command on files says, in one line."""
    file = folder / "all.json"
    file.write_text(json.dumps({"kind": "List", "items": [NODE, *of]}))
    command, *rest = arguments
    files = [file] if command == "simulate" else ["-f", file]
    return " ".join(stromboli(command, *rest, *files).output.split())


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("bounds", "given", "asks"),
    [
        ({"defaultRequest": {"cpu": "3"}}, spec(), "3 cpu"),
        ({"default": {"cpu": "3"}}, spec(), "3 cpu"),
        ({"max": {"cpu": "3"}}, spec(), "3 cpu"),
        ({"min": {"cpu": "3"}}, spec(), "3 cpu"),
        ({"default": {"cpu": "4"}, "defaultRequest": {"cpu": "3"}}, spec(), "3 cpu"),
        ({"default": {"cpu": "3"}}, spec({"cpu": "2"}), "2 cpu"),
        ({"defaultRequest": {"cpu": "3"}}, spec(limits={"cpu": "2"}), "2 cpu"),
        ({"defaultRequest": {"cpu": "3"}}, spec(initContainers=[{"name": "i", "image": "x"}] * 2), "3 cpu"),
    ],
)
def test_containers_ask_for_what_they_get_by_default(
    tmp_path: Path, bounds: dict[str, Any], given: dict[str, Any], asks: str
) -> None:
    busy = {**pod({**spec({"cpu": "7"}), "nodeName": "n"}, name="busy"), "status": {"phase": "Running"}}
    assert f"a pod asks for {asks}" in said(
        tmp_path, "why", "pod", "team/a", of=(container(**bounds), busy, pod(given))
    )


def test_pods_that_are_there_stay_as_they_are(tmp_path: Path) -> None:
    seen = pod(spec({"cpu": "99"}), uid="1")
    text = said(tmp_path, "why", "pod", "team/a", of=(container(max={"cpu": "3"}), seen))
    assert "a pod asks for 99 cpu" in text


REFUSED = [
    (container(max={"memory": "1Gi"}), spec({"memory": "2Gi"}, {"memory": "2Gi"}), "2Gi memory, more than the maximum"),
    (container(min={"cpu": "1"}), spec({"cpu": "500m"}), "0.5 cpu, less than the minimum of 1 cpu"),
    (container(default={"cpu": "1"}), spec({"cpu": "2"}), "requests 2 cpu, above its default limit, 1 cpu"),
    (container(maxLimitRequestRatio={"cpu": "2"}), spec({"cpu": "1"}, {"cpu": "3"}), "more than 2x its request"),
    (
        container(maxLimitRequestRatio={"cpu": "2"}),
        spec(),
        "has to request cpu, with a limit of at most 2x the request",
    ),
    (limits({"type": "Pod", "max": {"cpu": "1"}}), spec({"cpu": "2"}, {"cpu": "2"}), "the pod asks for 2 cpu"),
    (limits({"type": "Pod", "max": {"cpu": "1"}}), spec({"cpu": "1"}), "the pod has to have a limit of cpu, 1 cpu at"),
    (limits({"type": "Pod", "min": {"cpu": "1"}}), spec(), "the pod has to request 1 cpu at least"),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("bounds", "given", "why"), REFUSED)
def test_what_is_out_of_bounds_is_not_made_and_that_is_said(
    tmp_path: Path, bounds: dict[str, Any], given: dict[str, Any], why: str
) -> None:
    text = said(tmp_path, "why", "pod", "team/a", of=(bounds, pod(given)))
    assert "pod team/a is not made: LimitRange team/bounds forbids it: " in text
    assert why in text
    for command in (("why", "job", "team/train"), ("simulate",), ("simulate", "--explain")):
        text = said(tmp_path, *command, of=(bounds, job(given)))
        assert "Job team/train: 2 pods are not made: LimitRange team/bounds forbids it: " in text
        assert why in text


def test_a_gang_whose_pods_are_refused_says_so(tmp_path: Path) -> None:
    task = {"name": "w", "replicas": 2, "template": {"spec": spec(limits={"cpu": "4"})}}
    gang = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team"},
    }
    gang["spec"] = {"minAvailable": 2, "schedulerName": "stromboli", "tasks": [task]}
    text = said(tmp_path, "why", "job", "team/train", of=(container(max={"cpu": "3"}), gang))
    assert "NotEnoughPodsOfTask" in text
    assert "2 pods are not made: LimitRange team/bounds forbids it" in text


@pytest.mark.parametrize(
    ("size", "bounds"), [("5Gi", {"max": {"storage": "1Gi"}}), ("1Gi", {"min": {"storage": "2Gi"}})]
)
def test_a_claim_of_a_size_out_of_bounds_is_not_made(tmp_path: Path, size: str, bounds: dict[str, Any]) -> None:
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "team"}}
    claim["spec"] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    text = said(tmp_path, "simulate", of=(limits({"type": "PersistentVolumeClaim", **bounds}), claim))
    assert f"PersistentVolumeClaim team/data: LimitRange team/bounds forbids it: it asks for {size} storage" in text


def test_what_is_added_to_files_is_bounded_by_what_is_in_them(tmp_path: Path) -> None:
    cluster, added = tmp_path / "cluster.json", tmp_path / "added.json"
    cluster.write_text(json.dumps({"kind": "List", "items": [NODE, container(max={"cpu": "3"})]}))
    added.write_text(json.dumps(job(spec(limits={"cpu": "4"}))))
    text = " ".join(stromboli("whatif", "--on", cluster, "-f", added).output.split())
    assert "Job team/train: 2 pods are not made: LimitRange team/bounds forbids it" in text
