"""`stromboli simulate --explain` and `why -f`: what waits, what does not run, and what would help."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from stromboli.cli import make_app

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "spec": {"unschedulable": True},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "20"}},
}


def pod(name: str, scheduler: str = "stromboli", **status: object) -> dict[str, object]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": scheduler, "containers": [container], **({"nodeName": "n"} if status else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec, "status": status}


def job(suspend: bool) -> dict[str, object]:
    template = {"spec": pod("")["spec"]}
    metadata = {"name": "train", "namespace": "team"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": suspend, "template": template},
    }


def asked(folder: Path, *manifests: object, words: tuple[str, ...] = ("simulate", "--explain")) -> str:
    """What a command prints about manifests, in one line."""
    (folder / "all.yaml").write_text(yaml.safe_dump_all(manifests))
    command, *rest = words
    files = [str(folder / "all.yaml")] if command == "simulate" else ["-f", str(folder / "all.yaml")]
    done = CliRunner().invoke(make_app(), [command, *rest, *files])
    return " ".join(f"{done.output} {done.exception or ''}".split())


def test_what_would_help_is_told(tmp_path: Path) -> None:
    text = asked(tmp_path, NODE, pod("a"))
    assert "An administrator can change this." in text
    assert "What would help (tried on a copy of the cluster) admin: uncordon node n -> 1 pod bound" in text


def test_a_claim_that_a_controller_has_to_make_is_not_laid_at_the_job(tmp_path: Path) -> None:
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
    using = pod("a")
    known = {**using["metadata"], "uid": "as-a-cluster-knows-it"}
    using = {**using, "metadata": known, "spec": {**using["spec"], "volumes": [scratch]}}
    text = asked(tmp_path, {**NODE, "spec": {}}, using)
    assert "waiting for ephemeral volume controller" in text
    assert "must be changed" not in text


def test_it_is_tried_for_some_only_where_many_wait(tmp_path: Path) -> None:
    text = asked(tmp_path, NODE, *(pod(f"p{number}") for number in range(7)))
    assert text.count("admin: uncordon node n -> 1 pod bound") == 5
    assert "What would help 2 more was not tried: stromboli why job NAME -f FILE says it of one." in text


def test_what_has_a_node_and_does_not_run_is_told(tmp_path: Path) -> None:
    waiting = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    text = asked(tmp_path, NODE, pod("a", phase="Pending", containerStatuses=[waiting]))
    assert "1 of them does not run as it should: a on n: image cannot be pulled" in text


@pytest.mark.parametrize(("scheduler", "told"), [("stromboly", True), ("stromboli-2", False), ("custom", False)])
def test_a_misspelt_scheduler_is_told(tmp_path: Path, scheduler: str, told: bool) -> None:
    said = "spec.schedulerName: there is no scheduler stromboly, did you mean 'stromboli'?"
    assert (said in asked(tmp_path, NODE, pod("a", scheduler))) is told
    assert (said in asked(tmp_path, NODE, pod("a", scheduler), words=("why", "pod", "a"))) is told


@pytest.mark.parametrize(("scheduler", "told"), [("custom", True), ("default-scheduler", True), ("volcano", False)])
def test_pods_of_another_scheduler_are_taken_for_ours_only_alone(tmp_path: Path, scheduler: str, told: bool) -> None:
    said = f"those of {scheduler} are taken for ours here"
    for words in (("simulate",), ("why", "pod", "a")):
        assert (said in asked(tmp_path, NODE, pod("a", scheduler), words=words)) is told
    beside = asked(tmp_path, NODE, pod("a", scheduler), pod("b"), words=("why", "pod", "a"))
    assert said not in beside
    foreign = f"pod default/a names scheduler {scheduler}, and only stromboli is served here"
    assert (foreign in beside) is told


@pytest.mark.parametrize("suspended", [True, False])
def test_a_suspended_job_is_told(tmp_path: Path, suspended: bool) -> None:
    said = "Job team/train is suspended, so it has no pods: stromboli job resume train -n team"
    assert (said in asked(tmp_path, NODE, job(suspended))) is suspended
    assert (said in asked(tmp_path, NODE, job(suspended), words=("why", "job", "team/train"))) is suspended


def test_a_job_of_a_cluster_that_has_no_pods_says_where_that_is_told(tmp_path: Path) -> None:
    made = job(False)
    seen = {**made, "metadata": {"name": "train", "namespace": "team", "uid": "u"}}
    text = asked(tmp_path, NODE, seen, words=("why", "job", "team/train"))
    assert "Job team/train has no pods: kubectl describe job train -n team says what keeps pods from being" in text


def test_names_of_workloads_are_known_where_one_is_misspelt(tmp_path: Path) -> None:
    text = asked(tmp_path, NODE, job(False), words=("why", "job", "team/trian"))
    assert "there is no job team/trian, did you mean 'team/train'?" in text
    elsewhere = asked(tmp_path, NODE, job(False), words=("why", "job", "train"))
    assert "there is no job default/train, did you mean 'team/train'?" in elsewhere


GROUP = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {"minMember": 4, "minResources": {"cpu": "4"}},
    "status": {"phase": "Pending"},
}


def test_a_job_that_has_no_pods_yet_is_listed_with_why_it_waits(tmp_path: Path) -> None:
    told = asked(tmp_path, NODE, GROUP | {"spec": {"minMember": 4, "minResources": {"cpu": "40"}}})
    assert "default/train default Pending 0/0 NeverFits" in told
    assert "default/train: Placement: NeverFits: PodGroup default/train starts with more than the whole" in told


def test_what_became_of_nodes_that_were_asked_for_is_read_in_files(tmp_path: Path) -> None:
    owner = {"apiVersion": GROUP["apiVersion"], "kind": "PodGroup", "name": "train", "uid": "u"}
    request = {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": "train-1", "ownerReferences": [owner]},
        "spec": {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io"},
        "status": {"conditions": [{"type": "Failed", "status": "True", "message": "no capacity in eu-1b"}]},
    }
    annotated = {"metadata": {"name": "train-0", "annotations": {"scheduling.k8s.io/group-name": "train"}}}
    objects = (NODE, GROUP | {"spec": {"minMember": 1}}, pod("train-0") | annotated, request)
    for words in (("simulate", "--explain"), ("why", "job", "train")):
        assert "ProvisioningRequest train-1: Failed: no capacity in eu-1b" in asked(tmp_path, *objects, words=words)
