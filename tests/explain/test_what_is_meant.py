"""Names, numbers and places that are not what a submitter meant: the answer names them, and what is there instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stromboli.api.crds import PodGroup
from stromboli.state.cluster import ClusterState
from tests.builders import gang, node, pod, pod_group, policy, queue, state
from tests.explain.asking import said, why

GATED = [{"name": "kueue.x-k8s.io/topology"}]
PORT = {"hostPort": 80, "containerPort": 80}
CARDS = {"nvidia.com/gpu": "8"}
DIVIDED = policy("gang", "predicates proportion")


def _claiming(pod_of: Callable[..., list[Any]], *nodes: Any) -> ClusterState:
    """A job whose data is in zone a."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    cluster = state(
        queue("default"),
        *nodes,
        pod_group("train"),
        pod_of("train", 1, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]),
    )
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    size = {"storage": "1Gi"}
    claim = {"accessModes": ["ReadWriteOnce"], "volumeName": "disk", "resources": {"requests": size}}
    volume = {
        "capacity": size,
        "accessModes": ["ReadWriteOnce"],
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    named = {"name": "data", "namespace": "default", "annotations": bound}
    cluster.upsert("PersistentVolumeClaim", {"metadata": named, "spec": claim, "status": {"phase": "Bound"}})
    cluster.upsert("PersistentVolume", {"metadata": {"name": "disk"}, "spec": volume, "status": {"phase": "Bound"}})
    return cluster


def _with_a_card(name: str, count: int, **spec: Any) -> list[Any]:
    return gang(name, count, resources={"nvidia.com/gpu": "1"}, **spec)


def _spread(key: str) -> dict[str, Any]:
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}


def _one(*others: Any, **spec: Any) -> ClusterState:
    return state(queue("default"), *others, pod_group("train"), gang("train", 1, **spec))


def _owned(version: str) -> PodGroup:
    """A PodGroup of two pods that a Job makes."""
    group = pod_group("train", 2)
    owner = {"apiVersion": version, "kind": "Job", "name": "bert", "uid": "u", "controller": True}
    return group.model_copy(update={"metadata": group.metadata.model_copy(update={"owner_references": [owner]})})


CASES: dict[str, tuple[Callable[[], ClusterState], tuple[str, ...]]] = {
    "a label's value": (
        lambda: _one(node("n", labels={"card": "H100"}), nodeSelector={"card": "H1OO"}),
        ("no node has card: H1OO (nodes have H100)", "user: correct card: H1OO to H100 in nodeSelector"),
    ),
    "a label": (
        lambda: _one(node("n"), nodeSelector={"card": "H100"}),
        ("no node has card: H100 (or any other value of that label)",),
    ),
    "a topology": (
        lambda: _one(node("n", labels={"zone": "a"}), topologySpreadConstraints=[_spread("zones")]),
        ("no node has the label zones", "user: correct topologyKey: zones to zone in the topology spread constraints"),
    ),
    "data in a zone without nodes": (
        lambda: _claiming(gang, node("n", labels={"zone": "b"})),
        (
            "the volume disk of claim data is in zone: a, as 0 of 1 node are",
            "user: move the data of PersistentVolumeClaim default/data to zone: b, where n is -> 1 pod bound",
            "admin: add 1 node like n with zone: a",
        ),
    ),
    "data in a zone without cards": (
        lambda: _claiming(
            _with_a_card, node("n", labels={"zone": "a"}), node("gpu", labels={"zone": "b"}, resources=CARDS)
        ),
        (
            "the volume disk of claim data is in zone: a, as 1 of 2 nodes is",
            "user: move the data of PersistentVolumeClaim default/data to zone: b, where gpu is -> 1 pod bound",
            "admin: add 1 node like gpu with zone: a",
        ),
    ),
    "a port": (
        lambda: _one(
            *(node("n"), pod_group("old", phase="Running"), pod("old-0", "old", node="n", ports=[PORT])), ports=[PORT]
        ),
        ("it asks for host port 80/TCP", "wait: wait until default/old ends"),
    ),
    "a minimum far above what there is": (
        lambda: state(node("n"), queue("default"), pod_group("train", 80), gang("train", 8)),
        ("user: set minMember: 8 in PodGroup default/train, if these are all its pods -> 8 pods bound",),
    ),
    "a gang that lacks one": (
        lambda: state(node("n"), queue("default"), pod_group("train", 4), gang("train", 3)),
        ("user: set minMember: 3 in PodGroup default/train, or create 1 more pod of it -> 3 pods bound",),
    ),
    "a gang one pod of which failed": (
        lambda: state(
            *(node("n"), queue("default"), pod_group("train", 4), gang("train", 3)),
            pod("train-3", "train", node="n", phase="Failed"),
        ),
        ("user: set minMember: 3 in PodGroup default/train, or create 1 pod in place of the one that failed -> 3",),
    ),
    "a gang whose controller makes no pods": (
        lambda: state(node("n"), queue("default"), _owned("batch/v1")),
        ("kubectl describe job bert -n default says what keeps pods from being made",),
    ),
    "a gang whose controller makes too few pods": (
        lambda: state(
            *(node("n"), queue("default"), gang("train", 1)),
            _owned("batch.volcano.sh/v1alpha1"),
        ),
        ("kubectl describe job.batch.volcano.sh bert -n default says what keeps pods from being made",),
    ),
    "a role, and one that is missing": (
        lambda: state(
            *(node("n"), queue("default"), pod_group("train", 3, minTaskMember={"master": 1, "worker": 2})),
            gang("train", 3, annotations={"volcano.sh/task-spec": "wroker"}),
        ),
        (
            "role master needs 1 pod and has 0, role worker needs 2 pods and has 0, 3 pods are of role wroker",
            "user: set the annotation volcano.sh/task-spec: worker on the pods of role wroker, and create 1 more pod of"
            " role master in PodGroup default/train",
        ),
    ),
    "gates of another controller on one pod of two": (
        lambda: state(
            *(node("n"), queue("default"), pod_group("train", 2), pod("train-0", "train")),
            pod("train-1", "train", schedulingGates=GATED),
        ),
        (
            "Kueue lifts its gates when it admits the workload: kubectl get workloads -n default",
            "user: have the scheduling gates kueue.x-k8s.io/topology lifted by what set them -> 2 pods bound",
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_there_is_named_with_what_is(name: str) -> None:
    made, says = CASES[name]
    question = "pod default/train-1" if "gates" in name else "job default/train"
    text = said(made(), question)
    assert [each for each in says if each not in text.replace("1 pod bound, 1 more", "2 pods bound")] == [], text
    assert "ask for no" not in text


def test_labels_are_named_only_where_no_node_has_them() -> None:
    labelled = node("n", labels={"card": "H100"}, cpu="1")
    full = (pod_group("old", phase="Running"), pod("old-0", "old", node="n"))
    found = why(_one(labelled, node("m"), *full, nodeSelector={"card": "H100"}), "job default/train")
    assert (found.reason, found.detail) == ("Unschedulable", "")


def test_a_queue_that_has_all_it_asks_for_is_not_said_to_lack_a_share() -> None:
    cluster = state(node("n"), queue("default"), pod_group("run", phase="Running"), pod("run-0", "run", node="n"))
    text = said(cluster, "queue default", DIVIDED)
    assert "holds all that its jobs ask for" in text
    assert "gets nothing more" not in text
