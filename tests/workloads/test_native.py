"""Kubernetes' own PodGroups, as `simulate` reads them."""

from __future__ import annotations

import io
from typing import Any

import pytest
import yaml

from stromboli.api import objects
from stromboli.api.crds import PodGroup, PodGroupCondition, PodGroupStatus
from stromboli.api.decisions import Evict
from stromboli.engine import Engine
from stromboli.explain.checkup import ignored_findings
from stromboli.explain.remedies import explained
from stromboli.explain.words import lines
from stromboli.framework.diagnosis.ignored import ignored_of_job
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import load
from stromboli.simulation.run import Run, feed, run
from stromboli.state.cluster import ClusterState
from stromboli.workloads.native import as_pod_group, conditions
from tests import builders
from tests.plugins.sessions import decide, policy

VERSIONS = ("v1alpha2", "v1alpha3", "v1beta1")
Object = dict[str, Any]


def group(version: str = "v1alpha2", policy: Object | None = None, **spec: Any) -> Object:
    chosen = {"gang": {"minCount": 3}} if policy is None else policy
    meta = {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "research"}}
    whole = {"schedulingPolicy": chosen, **spec}
    return {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup", "metadata": meta, "spec": whole}


def pods(count: int) -> list[Object]:
    requests = {"resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "stromboli", "schedulingGroup": {"podGroupName": "train"}}
    spec["containers"] = [{"name": "c", **requests}]  # type: ignore[assignment]
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p-{n}"}, "spec": spec} for n in range(count)]


def simulated(*manifests: Object, cpu: int = 3, engine: Engine | None = None) -> Run:
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": cpu, "pods": 9}}}
    queue = {"kind": "Queue", "metadata": {"name": "research"}, "spec": {"weight": 1}}
    loaded = load(["-"], io.BytesIO(yaml.safe_dump_all([node, queue, *manifests]).encode()))
    assert loaded.problems == []
    state = ClusterState(("stromboli",), reads=builders.READS)
    feed(state, admit(loaded, state.scheduler_names))
    return run(engine or Engine(), state)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_gang_starts_whole_or_not_at_all_in_the_queue_that_its_label_names(version: str) -> None:
    assert simulated(group(version), *pods(3), cpu=2).bindings == {}
    done = simulated(group(version), *pods(3))
    assert len(done.bindings) == 3
    (job,) = done.session.view.jobs.values()
    assert job.queue.name == "research"


def test_pods_of_a_basic_policy_start_one_by_one() -> None:
    assert len(simulated(group(policy={"basic": {}}), *pods(4)).bindings) == 3


def test_pods_wait_for_their_group() -> None:
    done = simulated(*pods(2))
    assert done.bindings == {}


def test_volcanos_group_of_the_same_name_is_another() -> None:
    other = {"kind": "PodGroup", "metadata": {"name": "train"}, "spec": {"minMember": 1}}
    done = simulated(group(), other, *pods(3))
    assert len(done.session.view.jobs) == 2
    assert len(done.bindings) == 3


def test_why_knows_it_by_its_name() -> None:
    answer = explained(simulated(group(), *pods(3), cpu=2).session, "job", "default/train", None)
    assert answer is not None
    assert (answer.workload, answer.min_member) == ("PodGroup/train", 3)


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ({}, "spec.schedulingPolicy: should be gang or basic, not {}"),
        ({"gang": {"minCount": 3}, "basic": {}}, "spec.schedulingPolicy: should be gang or basic, not both"),
        ({"gang": {"minCount": 0}}, "spec.schedulingPolicy.gang.minCount: should be at least 1"),
        ({"gang": {"minCount": "3"}}, "spec.schedulingPolicy.gang.minCount: should be a whole number"),
        ({"gang": {"minCont": 3}}, "unknown field, with the value 3, did you mean 'minCount'?"),
    ],
)
def test_what_cannot_be_read_is_named(policy: Object, problem: str) -> None:
    (told,) = load(["-"], io.BytesIO(yaml.safe_dump(group(policy=policy)).encode())).problems
    assert problem in told


def test_the_condition_is_true_once_and_false_while_it_waits() -> None:
    waits = PodGroupCondition(type="Unschedulable", status="True", reason="NotEnough", message="NotEnough: no room")
    waiting = PodGroupStatus(phase="Inqueue", conditions=[waits])
    (found,) = conditions(waiting, group(), "v1alpha2")
    assert found == {
        "type": "PodGroupScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "NotEnough: no room",
    }
    shown = {**group(), "status": {"conditions": [{**found, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
    assert conditions(waiting, shown, "v1alpha2") == []
    (scheduled,) = conditions(PodGroupStatus(phase="Running"), shown, "v1beta1")
    assert (scheduled["type"], scheduled["status"]) == ("PodGroupInitiallyScheduled", "True")
    assert conditions(waiting, {"status": {"conditions": [scheduled]}}, "v1beta1") == []
    assert conditions(PodGroupStatus(phase="Inqueue"), group(), "v1alpha2") == []


def test_a_condition_says_which_of_its_fields_have_no_effect() -> None:
    ignored = PodGroupCondition(type="FieldIgnored", status="True", reason="GroupStartsAlone", message="no effect")
    over = PodGroupCondition(type="FieldIgnored", status="False", reason="PolicyReadsIt")
    (found,) = conditions(PodGroupStatus(phase="Inqueue", conditions=[ignored]), group(), "v1beta1")
    assert found == {"type": "FieldIgnored", "status": "True", "reason": "GroupStartsAlone", "message": "no effect"}
    started = PodGroupStatus(phase="Running", conditions=[ignored])
    assert [each["type"] for each in conditions(started, group(), "v1beta1")] == [
        "PodGroupInitiallyScheduled",
        "FieldIgnored",
    ]
    heeded = PodGroupStatus(phase="Inqueue", conditions=[over])
    assert conditions(heeded, group(), "v1beta1") == []
    (found,) = conditions(heeded, {"status": {"conditions": [found]}}, "v1beta1")
    assert (found["status"], found["reason"]) == ("False", "PolicyReadsIt")


def test_a_topology_key_that_is_a_label_of_nodes_is_a_level_that_the_policy_lacks() -> None:
    racks = [
        {
            "kind": "Node",
            "metadata": {"name": f"{rack}-{number}", "labels": {"rack": rack}},
            "status": {"allocatable": free},
        }
        for rack in "ab"
        for number in range(2)
        for free in ({"cpu": 2, "pods": 9},)
    ]
    bound = {"topology": [{"key": "rack"}]}
    waits = simulated(group(schedulingConstraints=bound), *racks, *pods(3), cpu=1)
    assert waits.bindings == {}
    answer = explained(waits.session, "job", "default/train", waits.rehearsal)
    assert answer is not None
    assert "add {nodeLabel: rack} to topology.levels of the policy" in [each.change for each in answer.remedies]
    level = Engine(DEFAULT_POLICY + "topology: {levels: [{nodeLabel: rack}]}")
    done = simulated(group(schedulingConstraints=bound), *racks, *pods(3), cpu=1, engine=level)
    assert len({node[0] for node in done.bindings.values()}) == 1
    assert len(done.bindings) == 3


@pytest.mark.parametrize(
    ("mode", "gone"), [("Pod", 1), ("PodGroup", 4), ({"single": {}}, 1), ({"all": {}}, 4)], ids=str
)
def test_a_group_that_is_disrupted_as_one_is_evicted_whole(mode: Any, gone: int) -> None:
    found = as_pod_group(group(policy={"gang": {"minCount": 3}}, disruptionMode=mode))
    metadata = {**found["metadata"], "namespace": "default", "name": "train"}
    running = PodGroup.parse({**found, "metadata": metadata, "spec": {"minMember": 3}, "status": {"phase": "Running"}})
    high = objects.PriorityClass(metadata=objects.Metadata(name="high"), value=9)
    urgent = builders.pod_group("urgent", 1, phase="Inqueue", priorityClassName="high")
    by = policy("drf", actions="allocate, preempt")
    victims = builders.gang("train", 4, cpu="1", node="n")
    objs = (running, *victims, high, urgent, *builders.gang("urgent", 1, cpu="1"))
    result = decide(builders.node("n", cpu="4"), *objs, by=by)
    assert sum(isinstance(each, Evict) for each in result.decisions) == gone


PREEMPTING = DEFAULT_POLICY.replace("backfill", "preempt, backfill")


@pytest.mark.parametrize(("said", "gone"), [({}, 1), ({"preemptionPolicy": "Never"}, 0)], ids=str)
@pytest.mark.parametrize("later", [False, True])
def test_no_pod_is_evicted_for_a_group_that_does_not_preempt(said: Object, gone: int, *, later: bool) -> None:
    low = builders.pod_group("low", 1, phase="Running")
    urgent = {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 7}
    mine = group(policy={"gang": {"minCount": 1}}, priorityClassName="urgent", **said)
    del mine["metadata"]["labels"]
    running = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "low", "namespace": "default"}}
    running["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "low"}  # type: ignore[index]
    running |= {"spec": {**pods(1)[0]["spec"], "nodeName": "n"}, "status": {"phase": "Running"}}
    del running["spec"]["schedulingGroup"]  # type: ignore[attr-defined]
    held = low.model_dump(by_alias=True, exclude_unset=True, mode="json") | {"kind": "PodGroup"}
    made = [*pods(1), mine] if later else [mine, *pods(1)]
    done = simulated(urgent, held, running, *made, cpu=1, engine=Engine(PREEMPTING))
    assert len(done.session.evicted) == gone
    answer = explained(done.session, "pod", "default/p-0", done.rehearsal)
    assert answer is not None
    assert ("preemptionPolicy is Never" in str(answer)) == (gone == 0)


def test_a_group_of_groups_is_told_to_start_by_itself() -> None:
    done = simulated(group(parentCompositePodGroupName="whole"), *pods(3))
    (job,) = done.session.view.jobs.values()
    why = "has no effect: it starts by itself, and not together with the other parts of CompositePodGroup whole"
    assert ignored_of_job(done.session, job) == {"parentCompositePodGroupName": why}
    # Where all is well but for that, too.
    answer = explained(done.session, "job", "default/train", None)
    assert answer is not None
    assert list(lines(answer)) == [
        "PodGroup default/train (PodGroup train.podgroups.scheduling.k8s.io): 3 of 3 pods have a place",
        "Ignored",
        f"  spec.parentCompositePodGroupName {why}",
    ]
    (found,) = ignored_findings(done.session)
    assert found.problem == f"1 job (default/train of scheduling.k8s.io): spec.parentCompositePodGroupName {why}"


def test_a_claim_that_is_made_for_a_group_is_told_to_be_none_of_its_pods() -> None:
    claims = [{"name": "own", "resourceClaimName": "c"}, {"name": "gpus", "resourceClaimTemplateName": "t"}]
    done = simulated(group(resourceClaims=claims), *pods(3))
    (job,) = done.session.view.jobs.values()
    assert ignored_of_job(done.session, job) == {
        "resourceClaims": (
            "has no effect: pods that name gpus wait for a claim of their own, while one claim is made for the group"
        )
    }


@pytest.mark.parametrize(
    ("spec", "noted", "priority"),
    [
        ({"priorityClassName": "urgent", "priority": 5}, {}, 5),
        ({"priorityClassName": "deleted", "priority": 5}, {}, 5),
        ({"priority": 5}, {}, 5),
        ({"priority": 0}, {}, 7),
        ({"priorityClassName": "urgent"}, {"stromboli.io/priority": "9"}, 7),
    ],
    ids=str,
)
def test_the_number_that_admission_found_for_a_class_counts(spec: Object, noted: Object, priority: int) -> None:
    """A class that was made anew since, or is gone, changes no group, as for kube-scheduler."""
    urgent = {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 7}
    mine, members = group(**spec), pods(3)
    mine["metadata"]["annotations"] = noted
    members[0]["spec"]["priorityClassName"] = "urgent"
    done = simulated(urgent, mine, *members)
    (job,) = done.session.view.jobs.values()
    assert job.priority == priority
    assert ignored_of_job(done.session, job) == {}


def test_a_group_is_in_the_queue_of_its_namespace_and_as_important_as_its_pods() -> None:
    bare = group()
    del bare["metadata"]["labels"]
    namespace = {"kind": "Namespace", "metadata": {"name": "default", "labels": {"kai.scheduler/queue": "research"}}}
    urgent = {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 7}
    members = pods(3)
    members[1]["spec"]["priorityClassName"] = "urgent"
    (job,) = simulated(bare, namespace, urgent, *members).session.view.jobs.values()
    assert (job.queue.name, job.priority) == ("research", 7)
    (named,) = simulated(group(), namespace, urgent, *pods(3)).session.view.jobs.values()
    assert (named.queue.name, named.priority) == ("research", 0)
    # Nobody can label the group that a Job makes, but its template.
    members[0]["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "default"}
    for of, queue in ((bare, "default"), (group(), "research")):
        (job,) = simulated(of, namespace, urgent, *members).session.view.jobs.values()
        assert job.queue.name == queue


def test_members_that_another_scheduler_bound_count() -> None:
    """As for kube-scheduler: two of three run, so the last one is placed by itself."""
    others = pods(2)
    for other in others:
        other["spec"] |= {"schedulerName": "default-scheduler", "nodeName": "n"}
        other["status"] = {"phase": "Running"}
    mine = {**pods(1)[0], "metadata": {"name": "mine"}}
    assert list(simulated(group(), *others, mine).bindings) == ["default/mine"]
