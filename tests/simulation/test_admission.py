"""What a cluster would have added to files, and what it would have missed in them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import load
from tests.cli.conftest import stromboli


def admitted(*documents: dict[str, Any], lenient: bool = False) -> tuple[dict[tuple[str, str], Any], list[str]]:
    """The objects by kind and name, and the problems."""
    loaded = load(["-"], io.BytesIO(json.dumps({"kind": "List", "items": documents}).encode()), lenient=lenient)
    found = admit(loaded, ("stromboli",))
    return {(kind, obj.metadata.name): obj for kind, obj in found}, loaded.problems


def pod(name: str, **spec: Any) -> dict[str, Any]:
    spec |= {"schedulerName": "stromboli", "containers": [{"name": "c"}]}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": spec}


def priority_class(name: str) -> dict[str, Any]:
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": 5}


def test_annotations_that_cannot_be_read_are_named_once() -> None:
    def group(name: str) -> dict[str, Any]:
        noted = {"name": name, "annotations": {"stromboli.io/run-time": "1 hour"}}
        return {"kind": "PodGroup", "metadata": noted, "spec": {"minMember": 1}}

    assert admitted(group("a"), group("b"), group("c"))[1] == [
        "standard input: document 1: item 1: PodGroup default/a: metadata.annotations[stromboli.io/run-time]:"
        " cannot be read: '1 hour', in 2 more objects as well"
    ]


@pytest.mark.parametrize("lenient", [False, True])
def test_a_class_that_is_not_there_is_named_once(lenient: bool) -> None:
    group = {"kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 1, "priorityClassName": "hgih"}}
    pods = [pod(f"p{number}", priorityClassName="hgih") for number in range(3)]
    _, problems = admitted(priority_class("high"), pod("good", priorityClassName="high"), *pods, group, lenient=lenient)
    assert problems == [
        "standard input: document 1: item 3: Pod default/p0: spec.priorityClassName:"
        " there is no PriorityClass hgih, which 3 more name, did you mean 'high'?"
    ]


def test_pods_that_have_their_priority_need_no_class() -> None:
    assert admitted(pod("p", priorityClassName="high", priority=5))[1] == []


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("policy", [None, "Never", "PreemptLowerPriority"])
def test_a_class_says_whether_its_pods_preempt(policy: str | None, default: bool) -> None:
    given = priority_class("high") | {"preemptionPolicy": policy, "globalDefault": default}
    found, problems = admitted(given, pod("p", **({} if default else {"priorityClassName": "high"})))
    assert problems == []
    assert (found["Pod", "p"].spec.priority, found["Pod", "p"].spec.preemption_policy) == (5, policy)


@pytest.mark.parametrize(("name", "value"), [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2e9)])
def test_the_classes_of_the_system_are_there(name: str, value: int) -> None:
    found, problems = admitted(pod("p", priorityClassName=name))
    assert problems == []
    assert (found["Pod", "p"].spec.priority, found["PriorityClass", name].value) == (value, value)
    given = {"kind": "PriorityClass", "metadata": {"name": name}, "value": int(value), "description": "from a dump"}
    assert admitted(given)[0]["PriorityClass", name].value == value


@pytest.mark.parametrize(
    ("status", "allocatable"),
    [
        ({"capacity": {"cpu": 4}}, {"cpu": 4}),
        ({"capacity": {"cpu": 4}, "allocatable": {"cpu": 3}}, {"cpu": 3}),
        ({"capacity": {"cpu": 4}, "allocatable": {}}, {}),
        ({"capacity": {"cpu": 4}, "allocatable": None}, {"cpu": 4}),
        ({}, None),
    ],
)
def test_a_node_gives_pods_its_capacity_unless_it_says_otherwise(status: Any, allocatable: Any) -> None:
    found, _ = admitted({"kind": "Node", "metadata": {"name": "n"}, "status": status})
    assert found["Node", "n"].status.allocatable == allocatable


def test_a_pod_on_a_node_that_is_not_there_is_named() -> None:
    node = {"kind": "Node", "metadata": {"name": "node-1"}}
    ended = {**pod("ended", nodeName="gone"), "status": {"phase": "Succeeded"}}
    documents = {"kind": "List", "items": [node, pod("good", nodeName="node-1"), pod("bad", nodeName="nod-1"), ended]}
    told = stromboli("simulate", "-", stdin=json.dumps(documents))
    where = "standard input: document 1: item 3: Pod default/bad: spec.nodeName"
    assert (told.exit_code, told.stderr) == (2, f"{where}: there is no Node nod-1, did you mean 'node-1'?\n")
    assert stromboli("simulate", "-", "--lenient", stdin=json.dumps(documents)).exit_code == 0


UIDS = tuple(f"{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "12")


def reference(kind: str, version: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "name": "train", "uid": uid, "controller": True}


def test_the_gang_of_a_dump_is_known_by_the_owners_that_are_in_it() -> None:
    """Pods that wait name no group: that of a JobSet has its uid, and the pods know their Job."""
    whole, job = reference("JobSet", "jobset.x-k8s.io/v1alpha2", UIDS[0]), reference("Job", "batch/v1", UIDS[1])
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    counted = {"parallelism": 3, "template": template}
    owners = [
        {**{key: whole[key] for key in ("apiVersion", "kind")}, "metadata": {"name": "train", "uid": UIDS[0]}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "uid": UIDS[1]}},
    ]
    owners[0]["spec"] = {"replicatedJobs": [{"name": "w", "template": {"spec": counted}}]}
    owners[1] |= {"spec": counted}
    owners[1]["metadata"]["ownerReferences"] = [whole]
    group = {"kind": "PodGroup", "metadata": {"name": f"podgroup-{UIDS[0]}", "ownerReferences": [whole]}}
    members = [pod(f"p-{number}") for number in range(3)]
    for each in members:
        each["metadata"]["ownerReferences"] = [job]
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": 2, "memory": 9, "pods": 2}}}
    dumped = [node, {**group, "spec": {"minMember": 3}}, *members]
    for more, bound in ((owners, 0), ([], 2)):
        listed = {"kind": "List", "items": [*dumped, *more]}
        told = stromboli("simulate", "-", "--format", "outcome", stdin=json.dumps(listed))
        assert len(json.loads(told.stdout)["outcome"]["bindings"]) == bound, told.stdout
        said = " ".join(stromboli("simulate", "-", stdin=json.dumps(listed)).stdout.split())
        assert ("Job default/train is not among the files, so the gang of its pods is not known" in said) == (not more)


def test_a_change_to_a_cluster_without_pods_may_bring_the_first(tmp_path: Path) -> None:
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": 4, "memory": "4Gi", "pods": 9}}}
    changes = tmp_path / "changes"
    changes.mkdir()
    (tmp_path / "cluster.json").write_text(json.dumps(node))
    (changes / "a.json").write_text(json.dumps(pod("p")))
    (changes / "b.yaml").write_text("kind: Queue\nmetadata: {name: q}\n")
    told = stromboli("whatif", "-f", changes, "--on", tmp_path / "cluster.json")
    assert told.exit_code == 0, told.stderr
    assert "+ bind default/p to n (queue default)" in told.stdout


def test_a_policy_among_objects_is_known_as_one() -> None:
    told = stromboli("simulate", "-", stdin="actions: allocate\ntiers: []\n")
    assert (told.exit_code, told.stderr) == (2, "standard input: document 1: is a policy, which --policy takes\n")


def test_ports_of_pods_on_the_network_of_their_node_are_ports_of_the_node() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]
    told = {"containers": [{"name": "c", "ports": ports}], "initContainers": [{"name": "i", "ports": ports[:1]}]}

    def host_ports(**spec: Any) -> list[list[int]]:
        document = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {**told, **spec}}
        found = admitted(document)[0]["Pod", "p"].spec
        return [[port.host_port for port in of[0].ports] for of in (found.containers, found.init_containers)]

    assert host_ports(hostNetwork=True) == [[80, 8081], [80]]
    assert host_ports() == [[0, 8081], [0]]


def test_a_runtime_class_adds_overhead_node_selector_and_tolerations() -> None:
    toleration = {"key": "sandboxed", "operator": "Exists"}
    runtime = {
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [toleration]},
    }
    pods = [
        pod("kata", runtimeClassName="kata", nodeSelector={"disk": "ssd"}, tolerations=[toleration, {"key": "mine"}]),
        pod("plain", runtimeClassName="runc"),
    ]
    found, problems = admitted(runtime, *pods)
    assert problems == []
    assert ("RuntimeClass", "kata") not in found
    spec = found["Pod", "kata"].spec
    assert (spec.overhead, spec.node_selector) == ({"cpu": "250m"}, {"disk": "ssd", "kata": "yes"})
    assert [each.key for each in spec.tolerations] == ["sandboxed", "mine"]
    plain = found["Pod", "plain"].spec
    assert (plain.overhead, plain.node_selector, plain.tolerations) == (None, None, None)


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("required", [True, False])
def test_match_label_keys_become_part_of_the_selector(kind: str, required: bool) -> None:
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["revision", "absent"],
        "mismatchLabelKeys": ["tenant"],
    }
    terms = (
        {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        if required
        else {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    )
    document = pod("p", affinity={kind: terms})
    document["metadata"]["labels"] = {"app": "web", "revision": "7", "tenant": "us"}
    affinity = admitted(document)[0]["Pod", "p"].spec.affinity
    of_kind = affinity.pod_affinity or affinity.pod_anti_affinity
    found = of_kind.required[0] if required else of_kind.preferred[0].pod_affinity_term
    expressions = [(each.key, each.operator, each.values) for each in found.label_selector.match_expressions]
    assert expressions == [("revision", "In", ["7"]), ("tenant", "NotIn", ["us"])]
