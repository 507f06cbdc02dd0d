"""Numbers that nobody can compute with, or that no API server takes: the line that refuses them says whose they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import stromboli


def _simulated(tmp_path: Path, manifest: dict[str, Any]) -> Any:
    file = tmp_path / "file.json"
    file.write_text(json.dumps(manifest))
    return stromboli("simulate", file)


@pytest.mark.parametrize(
    ("version", "kind", "path"),
    [
        *(("apps/v1", kind, "spec.replicas") for kind in ("Deployment", "ReplicaSet", "StatefulSet")),
        *(("batch/v1", "Job", path) for path in ("spec.parallelism", "spec.completions")),
        *(("batch.volcano.sh/v1alpha1", "Job", path) for path in ("spec.minAvailable", "spec.tasks[0].replicas")),
        ("kubeflow.org/v1", "PyTorchJob", "spec.pytorchReplicaSpecs.Worker.replicas"),
        ("ray.io/v1", "RayCluster", "spec.workerGroupSpecs[0].minReplicas"),
    ],
)
@pytest.mark.parametrize("count", [-1, 1e99, 10**30])
def test_numbers_of_pods_that_cannot_be_are_named(
    tmp_path: Path, version: str, kind: str, path: str, count: float
) -> None:
    spec: Any = count
    for key in reversed(path.replace("[0]", ".0").split(".")[1:]):
        spec = [spec] if key == "0" else {key: spec}
    result = _simulated(tmp_path, {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec})
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"file.json: document 1: {kind} w: {path}: should be " in result.stderr


@pytest.mark.parametrize("amount", [-1, 1e99, "1e99", 2**63, "9E30"])
def test_amounts_that_cannot_be_are_named(tmp_path: Path, amount: float | str) -> None:
    template = {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": amount}}}]}}
    spec = {"replicas": 2, "template": template}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": spec}
    result = _simulated(tmp_path, workload)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "document 1: Deployment w: spec.template.spec.containers[0].resources.requests.cpu: " in result.stderr


def test_a_number_that_json_cannot_have_is_named_by_its_item(tmp_path: Path) -> None:
    node = '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": %s}}}'
    (tmp_path / "file.json").write_text(f'{{"kind": "List", "items": [{node % 1}, {node % ("9" * 400)}]}}')
    result = stromboli("simulate", tmp_path / "file.json")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "file.json: document 1: item 2: line 1, column " in result.stderr
    assert "status.allocatable.cpu: " in result.stderr


@pytest.mark.parametrize("number", [".inf", "-.Inf", ".nan", "9" * 70, "1.0e+999", "!!int x"])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("kind: Node\nmetadata: {name: n}\nstatus: {allocatable: {cpu: %s}}\n", 3),
        ("kind: NodeList\nitems:\n- kind: Node\n  metadata: {name: n}\n  status: {allocatable: {cpu: %s}}\n", 5),
        ("config: ''\nobjects:\n- {kind: Node, metadata: {name: n}, status: {allocatable: {cpu: %s}}}\n", 3),
    ],
)
def test_a_number_that_yaml_can_have_is_named_by_its_object(tmp_path: Path, text: str, line: int, number: str) -> None:
    (tmp_path / "file.yaml").write_text(text % number)
    result = stromboli("simulate", tmp_path / "file.yaml")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"file.yaml: line {line}, column " in result.stderr
    assert ": Node n: " in result.stderr
    assert "status.allocatable.cpu: " in result.stderr


@pytest.mark.parametrize("wrong", ["spec: {weight: -1}", "spec: [1]", "metadata: {name: B}"])
def test_an_object_of_a_change_is_named_by_its_own_document(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "cluster.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n}\n")
    rest = wrong if "name" in wrong else f"metadata: {{name: b}}\n{wrong}"
    first = "$patch: delete\nkind: Node\nmetadata: {name: n}\n---\nkind: Queue\nmetadata: {name: a}\n"
    text = f"{first}---\nkind: Queue\n{rest}\n"
    (tmp_path / "change.yaml").write_text(text)
    result = stromboli("whatif", "-f", tmp_path / "change.yaml", "--on", tmp_path / "cluster.yaml")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "change.yaml: document 3: Queue " in result.stderr


def test_what_is_to_be_removed_has_a_kind(tmp_path: Path) -> None:
    (tmp_path / "change.yaml").write_text("$patch: delete\nmetadata: {name: a}\n")
    (tmp_path / "cluster.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n}\n")
    result = stromboli("whatif", "-f", tmp_path / "change.yaml", "--on", tmp_path / "cluster.yaml")
    assert (result.exit_code, result.stderr) == (2, f"{tmp_path}/change.yaml: document 1: kind: is required\n")
