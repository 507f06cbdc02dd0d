"""Kinds of workloads that others add."""

from __future__ import annotations

import io
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.api.errors import InvalidObjectError
from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import load
from stromboli.workloads import Gang, Kind, Kinds, Role, Workload, WorkloadKind, known_kinds, table
from stromboli.workloads.model import parse
from tests.cli.conftest import stromboli

Object = dict[str, Any]
SPEC: Object = {
    "group": "flink.apache.org",
    "kind": "FlinkDeployment",
    "plural": "flinkdeployments",
    "roles": [
        {"name": "jobmanager", "replicas": "spec.jobManager.replicas", "template": "spec.podTemplate"},
        {"each": "spec.taskManagers", "name": "name", "minReplicas": "least", "podsPerReplica": "slots"},
    ],
    "suspend": "spec.job.suspended",
    "queue": "spec.queue",
}
POD = {"spec": {"schedulerName": "stromboli", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
MADE = {
    "apiVersion": "flink.apache.org/v1",
    "kind": "FlinkDeployment",
    "metadata": {"name": "w"},
    "spec": {
        "podTemplate": POD,
        "jobManager": {"replicas": 1},
        "taskManagers": [{"name": "t", "replicas": 3, "least": 2, "slots": 2, "template": POD}],
        "queue": "research",
    },
}


def manifest(**changes: Any) -> Object:
    spec = {key: value for key, value in {**SPEC, **changes}.items() if value is not None}
    return {"apiVersion": "stromboli.io/v1alpha1", "kind": "WorkloadKind", "metadata": {"name": "flink"}, "spec": spec}


@pytest.mark.parametrize("documents", [[manifest(), MADE], [MADE, manifest()]], ids=["before", "after"])
def test_a_manifest_adds_a_kind_to_what_is_simulated(documents: list[Object]) -> None:
    loaded = load(["-"], io.BytesIO(yaml.safe_dump_all(documents).encode()))
    assert loaded.problems == []
    admitted = admit(loaded, ("stromboli",))
    (group,) = (obj for kind, obj in admitted if kind == "PodGroup")
    assert (group.spec.min_member, group.spec.queue) == (5, "research")
    assert sum(kind == "Pod" for kind, _ in admitted) == 7
    assert ("FlinkDeployment", "flink.apache.org") not in {(each.row.kind, each.row.group) for each in known_kinds()}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"roless": []}, "spec.roless: unknown field, did you mean 'roles'?"),
        ({"plural": None}, "spec.plural: is required"),
        ({"roles": [{"replica": "spec.n"}]}, "spec.roles[0].replica: unknown field, did you mean 'replicas'?"),
        ({"queue": "spec..queue"}, "spec.queue: should be names of fields with dots between them"),
        ({"queue": "spec[0]"}, "spec.queue: should be names of fields with dots between them"),
        ({"starts": "atOnce"}, "spec.starts: input should be 'together', 'oneByOne' or 'inParts'"),
        ({"reader": "jb"}, "spec.reader: unknown reader 'jb', did you mean 'job'?"),
    ],
)
def test_config_check_names_every_mistake(tmp_path: Path, changes: Object, problem: str) -> None:
    (tmp_path / "kinds.yaml").write_text(yaml.safe_dump_all([manifest(), manifest(**changes)]))
    found = stromboli("config", "check", tmp_path / "kinds.yaml")
    assert found.exit_code != 0
    assert f"document 2: WorkloadKind flink: {problem}" in found.output
    (tmp_path / "kinds.yaml").write_text(yaml.safe_dump(manifest()))
    good = stromboli("config", "check", tmp_path / "kinds.yaml")
    assert (good.exit_code, "1 more kind of workloads" in good.output) == (0, True)


def test_a_service_does_not_start_with_a_file_that_it_cannot_use(tmp_path: Path) -> None:
    (tmp_path / "kinds.yaml").write_text("kind: Policy\n")
    found = stromboli("run", "--workloads", tmp_path / "kinds.yaml")
    assert found.exit_code == 2
    assert "kind: should be WorkloadKind, not 'Policy'" in found.output


ROW = WorkloadKind(group="example.com", kind="Swarm", plural="swarms")
SWARM = Kind(ROW, lambda owner, row: Workload((Gang((Role("", {}, 4, 4, "w"),)),)))


@pytest.mark.parametrize(("value", "good"), [("SWARM", True), ("ROW", False), ("none", False)])
def test_a_package_adds_a_kind_by_an_entry_point(monkeypatch: pytest.MonkeyPatch, value: str, good: bool) -> None:
    entry = EntryPoint("swarm", f"{__name__}:{value}", "stromboli.workloads")
    monkeypatch.setattr(EntryPoint, "load", lambda self: globals()[value])
    monkeypatch.setattr(table, "entry_points", lambda group: [entry])
    table._known.cache_clear()
    try:
        if not good:
            with pytest.raises(InvalidObjectError, match="entry point swarm of"):
                known_kinds()
            return
        kind = known_kinds().get("example.com/v1", "Swarm")
        assert kind is not None
        assert kind.read({}).gangs[0].min_member == 4
    finally:
        table._known.cache_clear()


def test_a_kind_takes_the_place_of_one_with_its_name() -> None:
    kinds = Kinds(known_kinds())
    kinds.add(Kind.of(parse(manifest(group="batch", kind="Job", plural="jobs", starts="oneByOne", roles=None))))
    job = kinds.get("batch/v1", "Job")
    assert job is not None
    assert job.read({"spec": {"parallelism": 8}}).gangs[0].min_member == 1
