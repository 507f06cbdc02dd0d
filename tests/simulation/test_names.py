"""Names in files: of two objects of one name the second is refused, and each names the place of the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stromboli.api.documents import read_yaml
from stromboli.api.validation import describe
from stromboli.simulation.manifests import CLUSTER_KINDS, Loaded, load
from tests.cli.conftest import stromboli

(_EVERYTHING,) = read_yaml(Path(__file__).with_name("everything.yaml").read_text())
#: an object of each kind that files may hold, beside Kubernetes' kinds that do not bear on scheduling
OBJECTS: dict[str, dict[str, Any]] = {
    f"{each.get('apiVersion', '')} {each['kind']}": each for each in _EVERYTHING["items"]
}
TEMPLATE = {"spec": {"schedulerName": "stromboli", "containers": [{"name": "main"}]}}


def read(folder: Path, *, lenient: bool = False, **documents: Any) -> Loaded:
    """The objects of some documents, each in a file of its own."""
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return load([str(folder)], None, lenient=lenient)  # type: ignore[arg-type]


def workload(version: str, kind: str, replicas: int, name: str = "web") -> dict[str, Any]:
    spec = {"replicas": replicas, "template": TEMPLATE}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_second_object_of_one_name_is_refused_with_both_places(tmp_path: Path, kind: str) -> None:
    manifest = OBJECTS[kind]
    other = {**manifest, "metadata": {**manifest["metadata"], "labels": {"other": "yes"}}}
    once = read(tmp_path, a=manifest)
    twice = read(tmp_path, a=manifest, b={"kind": "List", "items": [other]})
    assert (once.problems, twice.objects) == ([], once.objects)
    (problem,) = twice.problems
    named = describe(manifest["kind"], manifest)
    assert problem.startswith(f"{tmp_path}/b.json: document 1: item 1: {named}: metadata.name: {manifest['kind']} ")
    assert problem.endswith(f" is given twice, first in {tmp_path}/a.json: document 1")


@pytest.mark.parametrize("kind", OBJECTS)
def test_dumps_may_overlap_and_may_not_contradict_each_other(tmp_path: Path, kind: str) -> None:
    manifest = OBJECTS[kind]
    other = {**manifest, "metadata": {**manifest["metadata"], "labels": {"other": "yes"}}}
    once = read(tmp_path, a=manifest, lenient=True)
    assert read(tmp_path, b=manifest, lenient=True) == once
    assert len(read(tmp_path, b=other, lenient=True).problems) == 1


def test_one_name_may_stand_in_several_namespaces_and_for_several_kinds(tmp_path: Path) -> None:
    for number, kind in enumerate(("Pod", "PodGroup", "Queue", "Node", "ResourceQuota")):
        spaces = [None] if kind in CLUSTER_KINDS else ["default", "other"]
        for space in spaces:
            spec = TEMPLATE["spec"] if kind == "Pod" else {}
            document = {"kind": kind, "metadata": {"name": "a", "namespace": space}, "spec": spec}
            found = read(tmp_path, **{f"f{number}{space}": document})
    assert (found.problems, len(found.objects)) == ([], 8)


def test_what_names_no_namespace_is_in_the_default_one(tmp_path: Path) -> None:
    pods = [{"kind": "Pod", "metadata": {"name": "a", **more}, **TEMPLATE} for more in ({}, {"namespace": "default"})]
    assert len(read(tmp_path, a=pods[0], b=pods[1]).problems) == 1


def test_workloads_of_one_name_have_each_their_own_pods(tmp_path: Path) -> None:
    """Kubernetes would draw the names of all but the StatefulSet's."""
    found = read(
        tmp_path,
        a=workload("apps/v1", "Deployment", 2),
        b=workload("apps/v1", "StatefulSet", 1),
        c={**workload("batch/v1", "Job", 1), "spec": {"parallelism": 2, "template": TEMPLATE}},
        d=workload("apps/v1", "Deployment", 2, "web2"),
    )
    assert found.problems == []
    names = [obj.metadata.name for _, obj in found.objects]
    assert sorted(names) == ["web-0", "web-1", "web-2", "web-3", "web-4", "web2-0", "web2-1"]


def test_a_pod_may_not_have_the_name_of_one_that_a_workload_makes(tmp_path: Path) -> None:
    pod = {"kind": "Pod", "metadata": {"name": "web-1"}, **TEMPLATE}
    (problem,) = read(tmp_path, a=workload("apps/v1", "StatefulSet", 2), b=pod).problems
    assert problem == (
        f"{tmp_path}/b.json: document 1: Pod web-1: metadata.name: Pod default/web-1 is given twice,"
        f" first in {tmp_path}/a.json: document 1"
    )


def test_each_of_one_generated_name_has_its_own(tmp_path: Path) -> None:
    drawn = {"metadata": {"generateName": "web-"}}
    made = {**workload("apps/v1", "ReplicaSet", 1), **drawn}
    pod = {"kind": "Pod", "spec": TEMPLATE["spec"], **drawn}
    found = read(tmp_path, a=made, b={"kind": "List", "items": [made, pod]})
    assert found.problems == []
    names = [obj.metadata.name for kind, obj in found.objects if kind == "Pod"]
    assert sorted(names) == ["web-0", "web-0-0", "web-1-0"]


def test_two_changes_of_one_object_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("kind: Queue\nmetadata: {name: q}\n")
    change = "kind: Queue\nmetadata: {name: q}\nspec: {%s}\n"
    (tmp_path / "change.yaml").write_text(f"{change % 'weight: 2'}---\n{change % 'priority: 3'}")
    result = stromboli("whatif", "-f", tmp_path / "change.yaml", "--on", tmp_path / "cluster.yaml")
    assert result.exit_code == 2
    assert "document 2: Queue q: metadata.name: Queue q is given twice, first in " in result.stderr
    assert result.stderr.endswith("change.yaml: document 1\n")
