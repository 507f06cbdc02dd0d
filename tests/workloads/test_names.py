"""Jobs are found by the names that people gave them, and advice names what they can change."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api import objects
from stromboli.engine import Engine, SessionResult
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.remedies import explained
from stromboli.explain.words import lines
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.workloads.names import further_apart, in_queue, smaller_gang
from tests.builders import NOON, gang, node, pod, pod_group, queue, state
from tests.plugins.sessions import decide, policy

POLICY = policy("drf")


def group(name: str, kind: str, owner: str, version: str, annotation: str = "") -> Any:
    """A PodGroup of an owner, that starts with three pods."""
    found = pod_group(name, 3, minResources={"cpu": "3"}).model_copy(deep=True)
    found.metadata.owner_references = [
        {"apiVersion": version, "kind": kind, "name": owner, "uid": "u", "controller": True}
    ]
    if annotation:
        found.metadata.annotations = {"stromboli.io/workload": annotation}
    return found


def decided(made: Any, cpu: str = "1") -> SessionResult:
    return decide(node("n", cpu="2"), made, *gang(made.metadata.name, 3, cpu=cpu, memory=""), by=POLICY)


RAY = group("ray-raw-x7-pg", "RayCluster", "train-x7", "ray.io/v1", "RayJob/train")
TORCH = group("0d6e", "PyTorchJob", "llm", "kubeflow.org/v1")
JOB = group("podgroup-11111111-2222-3333-4444-555555555555", "Job", "sweep", "batch/v1")


@pytest.mark.parametrize(
    ("made", "called", "shown"),
    [
        (RAY, "train", "RayJob/train"),
        (RAY, "train-x7", "RayJob/train"),
        (RAY, "ray-raw-x7-pg", "RayJob/train"),
        (TORCH, "llm", "PyTorchJob/llm"),
        (JOB, "sweep", "Job/sweep"),
    ],
)
def test_a_job_is_found_by_the_name_of_its_workload(made: Any, called: str, shown: str) -> None:
    session = decided(made).session
    answer = explained(session, "job", f"default/{called}", None)
    assert answer is not None
    assert (answer.name, answer.workload) == (made.metadata.name, shown)
    kind, name = shown.split("/")
    assert next(iter(lines(answer))).startswith(f"{kind} default/{name} (PodGroup {made.metadata.name}) waits at ")
    assert explained(session, "job", f"other/{called}", None) is None
    assert explained(session, "job", "default/none", None) is None


@pytest.mark.parametrize(
    ("made", "advice"),
    [
        (
            TORCH,
            "set spec.runPolicy.schedulingPolicy.minAvailable: 2 in PyTorchJob default/llm, and minResources to match",
        ),
        (JOB, "set the annotation scheduling.volcano.sh/group-min-member: 2 on Job default/sweep"),
        (
            RAY,
            "lower the replicas, or minReplicas where it autoscales, of RayCluster default/train-x7 so that 2 of its "
            "pods start together",
        ),
        (
            pod_group("mine", 3, minResources={"cpu": "3"}),
            "set minMember: 2 in PodGroup default/mine, and minResources to match",
        ),
    ],
)
def test_advice_names_what_its_owner_does_not_undo(made: Any, advice: str) -> None:
    cluster = state(queue("default"), node("n", cpu="2"), made, *gang(made.metadata.name, 3, cpu="1", memory=""))
    engine = Engine(POLICY)
    session = engine.decide(cluster.snapshot(), now=NOON).session
    answer = explained(session, "job", made.key, Rehearsal(engine, cluster.fork(), OFFLINE, NOON))
    assert answer is not None
    assert advice in [each.change for each in answer.remedies]


NATIVE = pod_group("g.podgroups.scheduling.k8s.io", 3)


def test_a_queue_is_set_where_it_was_said() -> None:
    meta = TORCH.metadata.model_copy(update={"annotations": {"volcano.sh/queue-name": "reserach"}})
    said = TORCH.model_copy(update={"metadata": meta, "spec": TORCH.spec.model_copy(update={"queue": "reserach"})})
    assert in_queue(said, "research") == "set the annotation volcano.sh/queue-name: research on PyTorchJob default/llm"
    assert in_queue(TORCH, "q") == "set spec.runPolicy.schedulingPolicy.queue: q in PyTorchJob default/llm"


@pytest.mark.parametrize(
    ("made", "smaller", "queued", "wider", "apart"),
    [
        (
            NATIVE,
            "set schedulingPolicy.gang.minCount: 2 in PodGroup default/g of scheduling.k8s.io",
            "set the annotation scheduling.volcano.sh/queue-name: q on PodGroup default/g of scheduling.k8s.io",
            "set the key of schedulingConstraints.topology to zone in PodGroup default/g of scheduling.k8s.io",
            "leave schedulingConstraints.topology out of PodGroup default/g of scheduling.k8s.io",
        ),
        (
            JOB,
            "set the annotation scheduling.volcano.sh/group-min-member: 2 on Job default/sweep",
            "set the annotation scheduling.volcano.sh/queue-name: q on Job default/sweep",
            "set the annotation kueue.x-k8s.io/podset-required-topology: zone on Job default/sweep",
            "set the annotation volcano.sh/network-topology-mode: soft on Job default/sweep",
        ),
        (
            pod_group("mine", 3),
            "set minMember: 2 in PodGroup default/mine",
            "set queue: q in PodGroup default/mine",
            "set highestTierName: zone in PodGroup default/mine",
            "set networkTopology mode: soft in PodGroup default/mine",
        ),
    ],
)
def test_advice_names_what_a_group_follows_from(made: Any, smaller: str, queued: str, wider: str, apart: str) -> None:
    assert (smaller_gang(made, 2), in_queue(made, "q")) == (smaller, queued)
    assert (further_apart(made, "zone"), further_apart(made)) == (wider, apart)


def test_a_group_with_fewer_pods_than_it_starts_with_is_explained() -> None:
    made = pod_group("g", 2, phase="Running", minResources={"cpu": "2"})
    cluster = state(queue("default"), node("n", cpu="4"), made, *gang("g", 1, cpu="1", node="n"))
    session = Engine(POLICY).decide(cluster.snapshot(), now=NOON).session
    answer = explained(session, "job", "default/g", None)
    assert answer is not None
    assert answer.reason == "NotEnoughPods"


def test_a_higher_priority_that_is_not_admitted_is_said_to_evict_nothing() -> None:
    low, high = (
        pod_group("low", 1, minResources={"cpu": "4"}),
        pod_group("high", 1, phase="Pending", minResources={"cpu": "4"}),
    )
    high.spec.priority_class_name = "high"
    urgent = objects.PriorityClass(metadata=objects.Metadata(name="high"), value=1000)
    by = policy("overcommit", {"overcommit-factor": 1.0}, actions="enqueue, allocate, preempt")
    low.status.phase = "Running"
    pods = [*gang("low", 1, cpu="4", memory="", node="n"), *gang("high", 1, cpu="4", memory="")]
    cluster = state(queue("default"), node("n", cpu="4"), low, high, urgent, *pods)
    engine = Engine(by)
    session = engine.decide(cluster.snapshot(), now=NOON).session
    answer = explained(session, "job", "default/high", Rehearsal(engine, cluster.fork(), OFFLINE, NOON))
    assert answer is not None
    assert [(each.action, each.reason) for each in answer.evictions] == [("preempt", "NotAdmitted")]
    assert "of 1 pod running in queue default, 1 has a lower priority" in answer.evictions[0].detail
    assert any("take enqueue out of the actions" in each.change for each in answer.remedies)


def test_a_job_that_grew_does_not_hold_what_it_waits_for() -> None:
    """Five pods of which three run: what they hold is no room that the others could wait for."""
    grown, other = pod_group("grown", 5, phase="Running"), pod_group("other", 1, phase="Running")
    pods = [*gang("grown", 3, cpu="1", memory="", node="n"), *gang("other", 1, cpu="1", memory="", node="n")]
    more = [pod(f"more-{number}", "grown", cpu="1", memory="") for number in range(2)]
    session = decide(node("n", cpu="4"), grown, other, *pods, *more, by=POLICY).session
    answer = explained(session, "job", "default/grown", None)
    assert answer is not None
    assert [each.name for each in answer.holders] == ["other"]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (JOB, "sweep"),
        (group(JOB.metadata.name, "Pod", "alone-0", "v1"), "alone-0"),
        (group(JOB.metadata.name, "Job", "part-0", "batch/v1", "JobSet/train"), "train"),
        (pod_group(JOB.metadata.name), ""),
        (RAY, ""),
    ],
)
def test_a_job_is_called_by_its_workload_where_its_own_name_says_nothing(made: Any, says: str) -> None:
    assert made.workload == says


def test_advice_about_files_names_what_their_groups_are_made_by() -> None:
    made = group("podgroup-job-default-sweep", "Job", "sweep", "batch/v1")
    made.metadata.owner_references[0]["uid"] = "job-default-sweep"
    assert smaller_gang(made, 2) == "set the annotation scheduling.volcano.sh/group-min-member: 2 on Job default/sweep"
    assert further_apart(made).endswith("network-topology-mode: soft on Job default/sweep")
