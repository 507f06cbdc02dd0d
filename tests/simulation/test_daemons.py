"""DaemonSets in files: a pod for each node on which their controller would run one."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from stromboli.engine import Engine
from stromboli.explain.rehearsal import Rehearsal
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.simulation.admission import admit
from stromboli.simulation.changes import read_changes, try_changes
from stromboli.simulation.manifests import Loaded, load
from stromboli.simulation.run import feed, run
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, READS

Object = dict[str, Any]


def node(name: str, cpu: int = 4, labels: Object | None = None, **spec: Any) -> Object:
    metadata = {"name": name, "labels": labels or {}}
    return {"kind": "Node", "metadata": metadata, "spec": spec, "status": {"allocatable": {"cpu": cpu, "pods": 99}}}


def daemons(name: str = "agent", cpu: str = "1", **spec: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
    template["spec"]["schedulerName"] = "stromboli"
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": {"template": template}}


def read(*manifests: Object) -> Loaded:
    return load(["-"], io.BytesIO("\n---\n".join(map(json.dumps, manifests)).encode()))


def fed(*manifests: Object) -> ClusterState:
    loaded = read(*manifests)
    state = ClusterState(("stromboli",), reads=READS)
    feed(state, admit(loaded, state.scheduler_names))
    assert loaded.problems == []
    return state


def placed(*manifests: Object) -> dict[str, str]:
    return {key.removeprefix("default/"): where for key, where in run(Engine(), fed(*manifests)).bindings.items()}


def taint(effect: str, key: str = "gpu") -> list[Object]:
    return [{"key": key, "effect": effect}]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SSD = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}
NODES = (
    node("plain"),
    node("fast", labels={"disk": "ssd"}),
    node("tainted", taints=taint("NoSchedule")),
    node("disliked", taints=taint("PreferNoSchedule")),
    node("cordoned", unschedulable=True, taints=taint("NoSchedule", "node.kubernetes.io/unschedulable")),
    node("pressed", taints=taint("NoSchedule", "node.kubernetes.io/memory-pressure")),
    node("offline", taints=taint("NoSchedule", "node.kubernetes.io/network-unavailable")),
)
USUAL = {"plain", "fast", "disliked", "cordoned", "pressed"}


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        ({}, USUAL),
        ({"nodeSelector": {"disk": "ssd"}}, {"fast"}),
        ({"affinity": {"nodeAffinity": {REQUIRED: SSD}}}, {"fast"}),
        ({"nodeSelector": {"disk": "none"}}, set()),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, {*USUAL, "tainted"}),
        ({"hostNetwork": True}, {*USUAL, "offline"}),
        ({"tolerations": [{"operator": "Exists"}]}, {*USUAL, "tainted", "offline"}),
    ],
    ids=("any", "selector", "affinity", "none", "tolerating", "host", "everywhere"),
)
def test_a_daemon_set_has_a_pod_on_each_node_that_is_to_run_one(spec: Object, nodes: set[str]) -> None:
    assert placed(daemons(**spec), *NODES) == {f"agent-{each}": each for each in nodes}


def test_a_pod_waits_for_its_own_node_and_the_others_start() -> None:
    assert placed(node("small", cpu=1), daemons(cpu="2"), node("a"), node("b")) == {"agent-a": "a", "agent-b": "b"}


def test_its_pods_are_beside_those_of_a_deployment_of_its_name() -> None:
    deployment = {**daemons(), "kind": "Deployment"}
    assert set(placed(node("a"), daemons(), deployment)) == {"agent-a", "agent-0"}


def test_one_that_an_api_server_has_seen_has_its_pods_beside_it_and_speaks_for_them() -> None:
    made = daemons()
    made["metadata"] |= {"uid": "u", "annotations": {"scheduling.volcano.sh/queue-name": "system"}}
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
    metadata = {"name": "agent-x", "ownerReferences": [reference]}
    pod = {"kind": "Pod", "metadata": metadata, "spec": made["spec"]["template"]["spec"]}
    queue = {"kind": "Queue", "metadata": {"name": "system"}, "spec": {}}
    done = run(Engine(), fed(node("a"), node("b"), queue, made, pod))
    assert list(done.bindings) == ["default/agent-x"]
    assert [job.queue.name for job in done.session.view.jobs.values()] == ["system"]


def test_one_that_no_node_is_to_run_is_told() -> None:
    told = "DaemonSet default/agent has no pods: no node is to run one"
    nowhere = daemons(nodeSelector={"disk": "none"})
    assert list(read(node("a"), nowhere).without_pods().values()) == [told]
    found = read_changes({"change": json.dumps(nowhere)}, fed(node("a")))
    assert (found.objects, found.problems) == ([], [told])
    assert read(node("a"), daemons()).without_pods() == {}


def test_a_template_that_cannot_be_read_is_named() -> None:
    terms = [{"matchExpressions": [{"key": "disk"}]}]
    (told,) = read(node("a"), daemons(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})).problems
    assert "DaemonSet agent" in told
    assert "operator" in told


def test_what_if_has_the_nodes_that_are_there_and_those_that_come() -> None:
    def tried(*changes: Object) -> list[str]:
        text = "\n---\n".join(map(json.dumps, changes))
        found = try_changes({"change": text}, Rehearsal(Engine(), state, OFFLINE, NOON), Engine)
        assert (found.problems, found.evicted) == ([], [])
        return sorted(each.pod.removeprefix("default/") for each in found.bound)

    state = fed(node("a"), node("b"))
    assert tried(daemons()) == ["agent-a", "agent-b"]
    assert tried(daemons(), node("c")) == ["agent-a", "agent-b", "agent-c"]
    assert tried(daemons(), {**node("b"), "$patch": "delete"}) == ["agent-a"]


def test_what_if_leaves_a_pod_where_it_runs_and_adds_those_of_other_nodes() -> None:
    there = daemons()
    there["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": True}
    metadata = {"name": "agent-x", "ownerReferences": [{**reference, "uid": there["metadata"]["uid"]}]}
    spec = {**there["spec"]["template"]["spec"], "nodeName": "a"}
    pod = {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}
    state = fed(node("a"), node("b"), there, pod)
    found = try_changes({"change": json.dumps(daemons())}, Rehearsal(Engine(), state, OFFLINE, NOON), Engine)
    assert [(each.pod, each.node) for each in found.bound] == [("default/agent-b", "b")]
    assert (found.evicted, found.lost) == ([], [])


@pytest.mark.parametrize(
    ("version", "kind", "told"),
    [
        ("extensions/v1beta1", "DaemonSet", "apiVersion: should be of apps, not 'extensions/v1beta1'"),
        ("v1", "Deployment", "apiVersion: should be of apps, not 'v1'"),
        ("example.com/v1", "Job", "apiVersion: should be of batch or batch.volcano.sh, not 'example.com/v1'"),
        ("serving.knative.dev/v1", "Service", "kind: unknown kind 'Service' of 'serving.knative.dev/v1'"),
    ],
)
def test_a_kind_of_another_group_is_not_taken_for_one_that_is_known(version: str, kind: str, told: str) -> None:
    manifest = {**daemons(), "apiVersion": version, "kind": kind}
    (line,) = read(manifest).problems
    assert line.endswith(f"{kind} agent: {told}")
    row = {"group": version.partition("/")[0], "kind": kind, "plural": "k", "roles": [{"template": "spec.template"}]}
    known = {"apiVersion": "stromboli.io/v1alpha1", "kind": "WorkloadKind", "metadata": {"name": "k"}, "spec": row}
    if "." in version:
        assert len(read(manifest, known).objects) == 1


@pytest.mark.parametrize("kind", ["PodTemplate", "Workload", "CompositePodGroup"])
def test_templates_of_which_nothing_is_made_are_told(kind: str) -> None:
    manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "t"}}
    (told,) = read(manifest).problems
    assert told.endswith(f"{kind} t: its pods do not follow from it: add what it makes, or its pods")
    assert read({**manifest, "metadata": {"name": "t", "uid": "u"}}).problems == []
