"""Changes to queues and jobs: what they do to a cluster, and what --dry-run says that they would do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stromboli.cli.completion import completed
from stromboli.devserver import Options
from stromboli.workloads.model import WorkloadKind
from stromboli.workloads.table import known_kinds
from tests.cli.conftest import stromboli
from tests.live.cluster import Cluster

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
JOBS, PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"


class World:
    """An API server, and the commands on it."""

    def __init__(self, url: str, kubeconfig: Path) -> None:
        self.url = url
        self.options = ("--kubeconfig", str(kubeconfig))

    def create(self, path: str, version: str, kind: str, name: str, **rest: Any) -> dict[str, Any]:
        meta = {"name": name, **rest.pop("metadata", {})}
        body = {"apiVersion": version, "kind": kind, "metadata": meta, **rest}
        answer = httpx.post(self.url + path, json=body).raise_for_status()
        made: dict[str, Any] = answer.json()
        return made

    def get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(self.url + path).json()
        return found

    def run(self, *words: str) -> tuple[int, str]:
        told = stromboli(*words, *self.options)
        return told.exit_code, told.output


@pytest.fixture
def world(tmp_path: Path, repository: Path) -> Iterator[World]:
    cluster = Cluster(Options(), tmp_path / "config")
    cluster.define(*sorted((repository / "charts/stromboli/files/crds").glob("*.yaml")))
    made = World(cluster.server.url, tmp_path / "config")
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    made.create("/api/v1/nodes", "v1", "Node", "n1", status={"allocatable": amounts})
    made.create(QUEUES, "scheduling.volcano.sh/v1beta1", "Queue", "team", spec={"weight": 1})
    yield made
    cluster.stop()


def anything(row: WorkloadKind, served: str = "v1") -> dict[str, Any]:
    """A definition of a kind of workload that takes any object."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "version": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "name": f"{row.plural}.{row.group}",
        "spec": {
            "group": row.group,
            "names": {"kind": row.kind, "plural": row.plural, "singular": row.kind.lower()},
            "scope": "Namespaced",
            "versions": [{"name": served, "served": True, "storage": True, "schema": schema}],
        },
    }


def job(world: World, name: str, *, owned: bool, count: int = 2) -> None:
    """A gang whose pods run on node n1, made by a batch Job or by hand."""
    spec = {"minMember": count, "queue": "team"}
    world.create(GROUPS, "scheduling.volcano.sh/v1beta1", "PodGroup", name, spec=spec)
    references = []
    if owned:
        template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
        made = world.create(JOBS, "batch/v1", "Job", name, spec={"template": template})
        uid = made["metadata"]["uid"]
        references = [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}]
    for number in range(count):
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
        annotations = {"scheduling.k8s.io/group-name": name}
        world.create(
            *(PODS, "v1", "Pod", f"{name}-{number}"),
            metadata={"annotations": annotations, "ownerReferences": references},
            spec={"schedulerName": "stromboli", "nodeName": "n1", "containers": [container]},
        )


def test_a_queue_is_created_changed_and_deleted(world: World) -> None:
    amounts = ("--capability", "cpu=8,memory=1Gi", "--guarantee", "cpu=1")
    assert world.run("queue", "create", "new", "--weight", "3", "--dry-run", *amounts)[0] == 0
    assert world.get(f"{QUEUES}/new")["kind"] == "Status"
    assert world.run("queue", "create", "new", "--weight", "3", *amounts) == (0, "queue new is created\n")
    spec = world.get(f"{QUEUES}/new")["spec"]
    assert (spec["weight"], spec["capability"]) == (3, {"cpu": "8", "memory": "1Gi"})
    assert spec["guarantee"] == {"resource": {"cpu": "1"}}
    assert world.run("queue", "set", "new", "--weight", "5", "--no-reclaimable") == (0, "queue new is changed\n")
    spec = world.get(f"{QUEUES}/new")["spec"]
    assert (spec["weight"], spec["reclaimable"], spec["capability"]["cpu"]) == (5, False, "8")
    assert world.run("queue", "delete", "new") == (0, "queue new is deleted\n")
    assert world.run("queue", "delete", "new") == (1, "there is no queue new\n")
    assert world.run("queue", "set", "gone", "--weight", "2") == (1, "there is no queue gone\n")


@pytest.mark.exhaustive
def test_a_change_is_written_to_the_cluster_whatever_service_the_environment_names(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STROMBOLI_URL", world.url)
    assert world.run("queue", "create", "new") == (0, "queue new is created\n")


def test_what_is_wrong_with_a_change_is_a_line(world: World) -> None:
    assert "'cpu=x' is no amount" in world.run("queue", "create", "new", "--capability", "cpu=x")[1]
    said = world.run("queue", "create", "new", "--capability", "cpuu=4")[1]
    assert "--capability: cpuu is no resource of nodes, did you mean 'cpu'?" in said
    assert world.run("queue", "set", "teem", "--weight", "2") == (1, "there is no queue teem, did you mean 'team'?\n")
    assert world.run("queue", "delete", "teem") == (1, "there is no queue teem, did you mean 'team'?\n")
    assert "nothing to change" in world.run("queue", "set", "team")[1]
    job(world, "held", owned=False)
    code, said = world.run("queue", "delete", "team")
    assert (code, said.count("\n")) == (2, 1)
    assert "default/held would have no queue" in said
    assert "files and --url are for --dry-run" in stromboli("queue", "delete", "team", "--url", world.url).output


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_queue_is_not_put_where_it_would_be_in_no_tree(world: World, more: tuple[str, ...]) -> None:
    for name, parent in (("research", "root"), ("vision", "research")):
        spec = {"parent": parent}
        world.create(QUEUES, "scheduling.volcano.sh/v1beta1", "Queue", name, spec=spec)
    for words, says in {
        ("create", "new", "--parent", "reserch"): "queue new: there is no parent reserch, did you mean 'research'?",
        ("create", "new", "--parent", "new"): "queue new: new cannot be its parent: it is the queue itself",
        ("create", "team"): "queue team: it exists already (stromboli queue set team changes it)",
        ("set", "vision", "--parent", "reserch"): "queue vision: there is no parent reserch, did you mean 'research'?",
        ("set", "research", "--parent", "research"): "research cannot be its parent: it is the queue itself",
        ("set", "research", "--parent", "vision"): "queue research: vision cannot be its parent: it is below research",
        ("delete", "research"): "queue research: vision would have no parent: move or delete them first",
        ("delete", "root"): "queue root: it cannot be deleted: all others are below it",
        ("delete", "default"): "queue default: it cannot be deleted: jobs that name no queue are in it",
    }.items():
        code, said = world.run("queue", *words, *more)
        assert (code, said.splitlines()[-1]) == (2, says if says.startswith("queue") else f"queue {words[1]}: {says}")
    assert world.get(f"{QUEUES}/vision")["spec"]["parent"] == "research"
    assert world.run("queue", "set", "vision", "--parent", "team") == (0, "queue vision is changed\n")


def test_a_dry_run_says_what_a_change_would_do(world: World) -> None:
    job(world, "runs", owned=True)
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    group = {"annotations": {"scheduling.k8s.io/group-name": "waits"}}
    world.create(GROUPS, "scheduling.volcano.sh/v1beta1", "PodGroup", "waits", spec={"minMember": 1, "queue": "team"})
    world.create(
        *(PODS, "v1", "Pod", "waits-0"), metadata=group, spec={"schedulerName": "stromboli", "containers": [container]}
    )
    code, said = world.run("job", "delete", "runs", "--dry-run")
    assert code == 0, said
    assert "+ bind default/waits-0 to n1" in said
    assert world.get(f"{PODS}/runs-0")["metadata"].get("deletionTimestamp") is None
    assert "no difference" in world.run("queue", "set", "team", "--weight", "2", "--dry-run")[1]


@pytest.mark.exhaustive
def test_a_dry_run_refuses_what_the_change_would_end_with(world: World) -> None:
    job(world, "held", owned=False)
    for words in (("set", "teem", "--weight", "2"), ("delete", "teem")):
        code, said = world.run("queue", *words, "--dry-run")
        assert (code, said.splitlines()[-1]) == (1, "there is no queue teem, did you mean 'team'?")
    assert "queue team: it exists already" in world.run("queue", "create", "team", "--dry-run")[1]
    assert "default/held would have no queue" in world.run("queue", "delete", "team", "--dry-run")[1]


@pytest.mark.parametrize(
    ("option", "amount", "says"),
    [
        ("--guarantee", "cpu=500", "promised 500 cpu by spec.guarantee, and the cluster has 4: lower them"),
        ("--guarantee", "memory=10", "spec.guarantee has 10 bytes of memory: give it a unit"),
        ("--capability", "memory=10", "spec.capability has 10 bytes of memory: give it a unit"),
        ("--capability", "nvidia.com/gpus=2", "names nvidia.com/gpus, which no node offers"),
        ("--parent", "teem", "there is no parent teem, did you mean 'team'?"),
        (
            "--capability",
            "memory=10GB",
            "'memory=10GB' is no amount such as cpu=8 or memory=32Gi, did you mean memory=10Gi?",
        ),
    ],
)
@pytest.mark.one_in(5)
def test_a_dry_run_says_what_is_likely_to_be_wrong_with_a_queue(
    world: World, option: str, amount: str, says: str
) -> None:
    assert says in world.run("queue", "create", "new", option, amount, "--dry-run")[1]
    right = {"--guarantee": "memory=1Mi", "--capability": "cpu=2,memory=1Gi", "--parent": "root"}[option]
    assert "!" not in world.run("queue", "create", "new", option, right, "--dry-run")[1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("owned", [True, False])
def test_a_job_is_suspended_resumed_and_deleted_by_what_made_it(world: World, owned: bool) -> None:
    job(world, "train", owned=owned)
    if owned:
        assert world.run("job", "suspend", "train") == (0, "Job default/train is suspended\n")
        assert world.get(f"{JOBS}/train")["spec"]["suspend"] is True
        assert world.run("job", "resume", "default/train") == (0, "Job default/train is resumed\n")
        assert world.get(f"{JOBS}/train")["spec"]["suspend"] is False
        assert world.run("job", "delete", "train") == (0, "Job default/train is deleted\n")
        assert world.get(f"{JOBS}/train")["kind"] == "Status"
    else:
        assert "no controller that could make them again" in world.run("job", "suspend", "train")[1]
        assert world.run("job", "delete", "train") == (0, "job default/train is deleted\n")
        assert world.get(f"{GROUPS}/train")["kind"] == "Status"
    assert world.run("job", "delete", "gone") == (1, "there is no job default/gone\n")


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_job_that_cannot_be_suspended_or_is_not_there_is_told_as_such(world: World, more: tuple[str, ...]) -> None:
    job(world, "train", owned=False, count=1)
    for words, code, says in (
        (("suspend", "train"), 2, "job default/train: its pods have no controller that could make them again"),
        (("suspend", "trian"), 1, "there is no job default/trian, did you mean "),
        (("delete", "trian"), 1, "there is no job default/trian, did you mean "),
    ):
        told = world.run("job", *words, *more)
        assert (told[0], told[1].splitlines()[-1][: len(says)]) == (code, says), told


def test_a_job_whose_group_was_made_by_hand_is_suspended_by_the_controller_of_its_pods(
    world: World, tmp_path: Path
) -> None:
    job(world, "train", owned=True, count=1)
    assert world.run("job", "suspend", "train", "--dry-run")[0] == 0
    # Files say nothing of what made the pods of a group.
    group = {"metadata": {"name": "train"}, "spec": {"minMember": 1, "queue": "default"}}
    manifest = tmp_path / "group.json"
    manifest.write_text(json.dumps({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **group}))
    told = world.run("job", "suspend", "train", "--dry-run", "-f", str(manifest))
    assert told[0] == 2
    assert "no controller that could make them again" in told[1]
    assert world.run("job", "suspend", "train") == (0, "Job default/train is suspended\n")


def test_a_job_is_found_by_the_name_of_what_made_it(world: World) -> None:
    """The PodGroup of a workload is called by a uid; people know the workload."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "tune", "uid": "u"}
    version, cluster = "scheduling.volcano.sh/v1beta1", {**owner, "kind": "RayCluster", "name": "tune-x7"}
    for name, owned in (("ray-tune-x7-pg", cluster), ("podgroup-2", owner)):
        meta = {"ownerReferences": [owned], "annotations": {"stromboli.io/workload": "RayJob/tune"}}
        world.create(GROUPS, version, "PodGroup", name, metadata=meta, spec={"minMember": 1, "queue": "team"})
    assert world.run("job", "delete", "tune") == (0, "job default/tune is deleted\n")
    assert len(httpx.get(world.url + GROUPS).json()["items"]) == 1
    meta = {"ownerReferences": [{**owner, "kind": "Job", "name": "tune", "apiVersion": "batch/v1"}]}
    world.create(GROUPS, version, "PodGroup", "podgroup-3", metadata=meta, spec={"minMember": 1, "queue": "team"})
    assert "Job/tune and RayJob/tune are called tune" in world.run("job", "delete", "tune")[1]


@pytest.mark.exhaustive
def test_each_kind_of_workload_is_suspended_by_its_own_field(world: World) -> None:
    rows = [kind.row for kind in known_kinds() if kind.row.suspend and kind.row.group != "batch"]
    assert len(rows) > 10
    for row in rows:
        name, version = row.kind.lower(), f"{row.group}/v1"
        path = f"/apis/{version}/namespaces/default/{row.plural}"
        world.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", **anything(row))
        made = world.create(path, version, row.kind, name, spec={})
        owner = {"apiVersion": version, "kind": row.kind, "name": name, "uid": made["metadata"]["uid"]}
        meta, spec = {"ownerReferences": [{**owner, "controller": True}]}, {"minMember": 1, "queue": "team"}
        world.create(GROUPS, "scheduling.volcano.sh/v1beta1", "PodGroup", f"of-{name}", metadata=meta, spec=spec)
        assert world.run("job", "suspend", name) == (0, f"{row.kind} default/{name} is suspended\n")
        found: Any = world.get(f"{path}/{name}")
        for part in row.suspend.split("."):
            found = found[part]
        assert found is True


@pytest.mark.exhaustive
def test_a_workload_is_found_in_whichever_version_of_its_group_has_the_kind(world: World) -> None:
    rows = {kind.row.kind: kind.row for kind in known_kinds() if kind.row.group == "kubeflow.org"}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    world.create(definitions, **anything(rows["PyTorchJob"]))
    world.create(definitions, **anything(rows["MPIJob"], "v2beta1"))
    path = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
    world.create(path, "kubeflow.org/v2beta1", "MPIJob", "train", spec={})
    assert world.run("job", "suspend", "train") == (0, "MPIJob default/train is suspended\n")
    assert world.get(f"{path}/train")["spec"]["runPolicy"]["suspend"] is True


@pytest.mark.exhaustive
def test_what_is_suspended_has_no_pods_and_is_resumed_by_its_name(world: World) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    world.create(JOBS, "batch/v1", "Job", "train", spec={"template": template, "suspend": True})
    assert world.run("job", "resume", "train") == (0, "Job default/train is resumed\n")
    assert world.get(f"{JOBS}/train")["spec"]["suspend"] is False


@pytest.mark.exhaustive
def test_names_are_completed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job(world, "train", owned=False)
    monkeypatch.setattr("stromboli.cli.sources.DEFAULT_URL", "http://127.0.0.1:1")
    for words, name in (
        (["queue", "set", *world.options, "te"], "team"),
        (["why", *world.options, "queue", "te"], "team"),
        (["why", *world.options, "job", "tr"], "train"),
        (["job", "delete", *world.options, "tr"], "train"),
        (["job", "delete", *world.options, "default/tr"], "default/train"),
    ):
        assert name in list(completed(words)), words
    assert list(completed(["queue", "set", *world.options, "zz"])) == [":0"]
