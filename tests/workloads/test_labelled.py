"""Groups that labels of pods name, as `simulate` reads them: Kueue's, the coscheduling plugin's, and KAI's words."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
import yaml

from stromboli.api import objects
from stromboli.engine import Engine
from stromboli.framework.diagnosis.ignored import ignored_of_job
from stromboli.simulation.admission import admit
from stromboli.simulation.changes import read_changes
from stromboli.simulation.manifests import Loaded, load
from stromboli.simulation.run import Run, feed, run
from stromboli.state.cluster import ClusterState
from stromboli.workloads import known_kinds, label_of
from tests import builders

Object = dict[str, Any]
KUEUE, COUNT = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
NEW, OLD = "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"
LIGHT, LEAST = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"


def pod(
    name: str, labels: Object, annotations: Object | None = None, cpu: str = "1", owner: Object | None = None
) -> Object:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": name, "labels": labels, "annotations": annotations or {}}
    meta |= {"ownerReferences": [owner]} if owner else {}
    spec = {"schedulerName": "stromboli", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def of_kueue(count: int, total: str = "3", cpu: str = "1", **more: str) -> list[Object]:
    noted = {COUNT: total, **more}
    return [pod(f"p-{number}", {KUEUE: "train"}, noted, cpu) for number in range(count)]


def named(count: int, key: str = NEW, name: str = "train") -> list[Object]:
    return [pod(f"{name}-{number}", {key: name}) for number in range(count)]


def pod_group(least: int = 3, version: str = "scheduling.x-k8s.io/v1alpha1", **more: Any) -> Object:
    spec = {"minMember": least, "scheduleTimeoutSeconds": 10, **more}
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "train"}, "spec": spec}


def loaded(*manifests: Object, cpu: int = 3) -> Loaded:
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": cpu, "pods": 9}}}
    queue = {"kind": "Queue", "metadata": {"name": "research"}, "spec": {"weight": 1}}
    return load(["-"], io.BytesIO(yaml.safe_dump_all([node, queue, *manifests]).encode()))


def simulated(*manifests: Object, cpu: int = 3) -> Run:
    found, state = loaded(*manifests, cpu=cpu), ClusterState(("stromboli",), reads=builders.READS)
    feed(state, admit(found, state.scheduler_names))
    assert found.problems == []
    return run(Engine(), state)


GANGS = {
    "Kueue": of_kueue(3),
    "an object": [pod_group(), *named(3)],
    "an object of the legacy group": [pod_group(version="scheduling.sigs.k8s.io/v1alpha1"), *named(3, OLD)],
    "labels alone": [pod(f"p-{number}", {LIGHT: "train", LEAST: "3"}) for number in range(3)],
}


@pytest.mark.parametrize("manifests", GANGS.values(), ids=GANGS)
def test_they_start_whole_or_not_at_all(manifests: list[Object]) -> None:
    assert simulated(*manifests, cpu=2).bindings == {}
    done = simulated(*manifests, cpu=3)
    assert len(done.bindings) == 3
    (job,) = done.session.view.jobs.values()
    assert job.min_available == 3


@pytest.mark.parametrize("manifests", GANGS.values(), ids=GANGS)
def test_they_wait_for_pods_that_are_not_there(manifests: list[Object]) -> None:
    assert simulated(*manifests[:-1], cpu=9).bindings == {}


def test_an_object_may_ask_for_fewer_and_for_resources() -> None:
    assert len(simulated(pod_group(2), *named(3), cpu=2).bindings) == 2
    found = simulated(pod_group(2, minResources={"cpu": "4"}), *named(3), cpu=3)
    assert found.bindings == {}


def test_pods_of_different_templates_claim_no_more_than_they_ask_for() -> None:
    large = pod("driver", {KUEUE: "train"}, {COUNT: "3"}, cpu="2")
    assert len(simulated(large, *of_kueue(2), cpu=4).bindings) == 3


@pytest.mark.parametrize("key", ["kueue.x-k8s.io/pod-group-fast-admission", "kueue.x-k8s.io/pod-group-serving"])
def test_some_groups_of_kueue_start_one_by_one(key: str) -> None:
    assert len(simulated(*of_kueue(3, **{key: "true"}), cpu=2).bindings) == 2


def test_two_groups_of_one_name_are_two_in_two_namespaces() -> None:
    other = [{**each, "metadata": {**each["metadata"], "namespace": "other"}} for each in of_kueue(3)]
    done = simulated(*of_kueue(3), *other, cpu=5)
    assert len(done.bindings) == 3
    assert len(done.session.view.jobs) == 2


@pytest.mark.parametrize("total", ["none", "0", "-1", "2.5", ""])
def test_a_number_that_is_none_is_told(total: str) -> None:
    found = loaded(*of_kueue(2, total))
    admit(found, ("stromboli",))
    assert len(found.problems) == 1
    assert "should be a number from 1 to" in found.problems[0]


def test_an_object_that_is_not_there_is_told() -> None:
    found = loaded(*named(2))
    admit(found, ("stromboli",))
    assert any(f"label {NEW}: there is no PodGroup train" in line for line in found.problems)


def test_the_group_is_found_by_its_name_and_has_the_queue_and_priority_of_its_labels() -> None:
    labels = {KUEUE: "train", "kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/priority-class": "high"}
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}
    (job,) = simulated(high, pod("p", labels, {COUNT: "1"})).session.view.jobs.values()
    assert (job.queue.name, job.pod_group.spec.priority_class_name) == ("research", "high")
    assert job.pod_group.metadata.annotations["stromboli.io/workload"] == "PodGroup/train"
    assert job.pod_group.metadata.name == "podgroup-kueue-train"


def test_a_label_has_no_say_over_pods_of_a_gang() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    template = {"metadata": {"labels": {KUEUE: "other"}}, "spec": pod("x", {})["spec"]}
    spec = {"parallelism": 2, "completions": 2, "template": template}
    (found,) = simulated({**job, "spec": spec}).session.view.jobs.values()
    assert (found.min_available, found.pod_group.metadata.name) == (2, "podgroup-job-default-train")


def test_kueue_takes_no_gang_from_a_leader_worker_set() -> None:
    """Its pods belong to StatefulSets, and have Kueue's label beside those of the LeaderWorkerSet."""
    labels = {KUEUE: "serve", "leaderworkerset.sigs.k8s.io/group-index": "0"}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "serve-0", "uid": "u", "controller": True}
    parsed = msgspec.convert(pod("serve-0-1", labels, {COUNT: "2"}, owner=owner), objects.Pod)
    assert label_of(parsed, known_kinds()) is None


def test_an_annotation_of_kueue_names_the_group_before_its_label() -> None:
    noted = [pod(f"p-{number}", {KUEUE: "other"} if number else {}, {COUNT: "2", KUEUE: "train"}) for number in (0, 1)]
    assert simulated(*noted, cpu=1).bindings == {}
    (job,) = simulated(*noted, cpu=2).session.view.jobs.values()
    assert (job.pod_group.metadata.name, job.min_available) == ("podgroup-kueue-train", 2)
    found = loaded(pod("p", {}, {COUNT: "1", KUEUE: "a/b"}))
    admit(found, ("stromboli",))
    assert found.problems == [f"Pod default/p: {KUEUE}: should be a name, not 'a/b'"]


def test_pods_of_a_stateful_set_are_in_the_group_of_their_label() -> None:
    template = {"metadata": {"labels": {KUEUE: "set"}, "annotations": {COUNT: "3"}}, "spec": pod("x", {})["spec"]}
    whole = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set"}}
    spec = {"replicas": 3, "template": template}
    assert simulated({**whole, "spec": {**spec, "podManagementPolicy": "Parallel"}}, cpu=2).bindings == {}
    # Its second pod is made when the first one is ready.
    in_order = simulated({**whole, "spec": spec}, cpu=2)
    assert len(in_order.bindings) == 2
    (job,) = in_order.session.view.jobs.values()
    told = "is 1 instead of 3, since StatefulSet set makes the others when these are ready"
    assert ignored_of_job(in_order.session, job) == {"minMember": f"{told}, unless its podManagementPolicy is Parallel"}


def test_a_pod_that_is_tried_joins_the_group_that_is_there() -> None:
    found, state = loaded(*of_kueue(2), cpu=9), ClusterState(("stromboli",), reads=builders.READS)
    feed(state, admit(found, state.scheduler_names))
    (_, _, third) = of_kueue(3)
    changes = read_changes({"third": yaml.safe_dump(third)}, state)
    assert [kind for kind, _ in changes.objects] == ["Pod"]
    changes.apply(state)
    assert len(run(Engine(), state).bindings) == 3


@pytest.mark.parametrize(("least", "placed"), [(None, 0), (3, 3), (5, 0)])
def test_pods_that_are_tried_join_the_group_of_the_object_that_is_there(least: int | None, placed: int) -> None:
    """As it is there, and with another number."""
    found, state = loaded(pod_group(4), *named(1), cpu=9), ClusterState(("stromboli",), reads=builders.READS)
    feed(state, admit(found, state.scheduler_names))
    changed = [pod_group(least)] if least else []
    changes = read_changes({"more": yaml.safe_dump_all([*changed, *named(3)[1:]])}, state)
    assert (changes.problems, changes.removed) == ([], [])
    changes.apply(state)
    assert len(run(Engine(), state).bindings) == placed
    assert len([group for group in state.jobs.pod_groups if group]) == 1


def test_an_object_that_is_nowhere_is_named() -> None:
    (line,) = read_changes({"pods": yaml.safe_dump_all(named(1))}, ClusterState(("stromboli",))).problems
    assert line.endswith(f"label {NEW}: there is no PodGroup train of scheduling.x-k8s.io/v1alpha1")


@pytest.mark.parametrize(
    ("said", "agrees"),
    [("non-preemptible", "false"), ("Non-Preemptible", "false"), ("preemptible", "true"), ("semi-preemptible", None)],
)
def test_kai_says_whether_a_workload_may_be_evicted(said: str, agrees: str | None) -> None:
    labels = {"kai.scheduler/preemptibility": said}
    (lone,) = simulated(pod("p", labels)).session.view.jobs.values()
    assert lone.pod_group.metadata.annotations.get("volcano.sh/preemptable") == agrees
    template = {"spec": pod("x", {})["spec"]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "labels": labels}}
    (owned,) = simulated({**job, "spec": {"template": template}}).session.view.jobs.values()
    assert owned.pod_group.metadata.annotations.get("volcano.sh/preemptable") == agrees
