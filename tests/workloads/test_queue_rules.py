"""Which queue a workload gets by the rules of a policy, in `simulate` and in `whatif`."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import yaml

from stromboli.api import objects
from stromboli.api.errors import PolicyError
from stromboli.engine import Engine
from stromboli.explain.rehearsal import Rehearsal
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.simulation.admission import admit
from stromboli.simulation.changes import try_changes
from stromboli.simulation.manifests import load
from stromboli.simulation.run import feed
from stromboli.state.cluster import ClusterState
from stromboli.workloads import family_of
from tests.builders import NOON, READS
from tests.explain.asking import why

POLICY = """
actions: "enqueue, allocate"
tiers: [{plugins: [{name: gang}, {name: predicates}]}]
queueRules:
"""
NODE = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "10"}}}
CEO = {"stromboli.io/user": "ceo@example.com", "stromboli.io/groups": "board\nstaff"}


def job(name: str = "job", namespace: str = "team-a", **metadata: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"schedulerName": "stromboli", "restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "namespace": namespace, **metadata}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


def namespace(name: str = "team-a", **metadata: Any) -> dict[str, Any]:
    return {"kind": "Namespace", "metadata": {"name": name, **metadata}}


def named_queue(name: str) -> dict[str, Any]:
    return {"kind": "Queue", "metadata": {"name": name}}


def engine(*rules: dict[str, Any]) -> Engine:
    return Engine(POLICY + " " + json.dumps(rules))


def fed(by: Engine, *manifests: dict[str, Any]) -> ClusterState:
    loaded = load(["-"], io.BytesIO(yaml.safe_dump_all(manifests).encode()))
    state = ClusterState(("stromboli",), reads=READS)
    feed(state, admit(loaded, state.scheduler_names, rules=by.policy.queue_rules))
    assert loaded.problems == []
    return state


def queues(state: ClusterState) -> dict[str, str]:
    """The queue of each PodGroup, by the name of its Job."""
    groups = [group for group in state.jobs.pod_groups if group is not None]
    return {str(group.metadata.owner_references[0]["name"]): group.queue for group in groups}


def queue_of(*manifests: dict[str, Any], rules: list[dict[str, Any]]) -> str:
    return queues(fed(engine(*rules), *manifests))["job"]


@pytest.mark.parametrize(
    ("team", "found"), [("ml.vision", "ml.vision"), ("ML.Vision", "ml.vision"), ("ml_vision", "ml-vision"), ("..", "q")]
)
def test_a_label_whose_value_is_a_name_names_that_queue(team: str, found: str) -> None:
    rules = [{"queue": "{label:team}"}, {"queue": "q"}]
    assert queue_of(NODE, job(annotations={"team": team}), rules=rules) == found


@pytest.mark.parametrize("name", ["Team A", "{namespace}_jobs", "x/{user}"])
def test_a_name_that_no_queue_can_have_is_refused(name: str) -> None:
    with pytest.raises(PolicyError, match="no queue is named"):
        engine({"queue": name})


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ({"queue": "research"}, "research"),
        ({"queue": "{namespace}"}, "team-a"),
        ({"queue": "ns-{namespace}-jobs"}, "ns-team-a-jobs"),
        ({"queue": "{label:team}"}, "vision"),
        ({"queue": "{label:site}"}, "north"),
        ({"queue": "{user}"}, "ceo-example-com"),
        ({"queue": "{label:team}-{label:site}"}, "vision-north"),
        ({"queue": "{provided}"}, "asked-for"),
        # What is not known makes no queue.
        ({"queue": "{label:unknown}"}, "default"),
        ({"queue": "x-{label:unknown}"}, "default"),
        # Each filter alone, and two of them.
        ({"queue": "q", "namespaces": ["team-*"]}, "q"),
        ({"queue": "q", "namespaces": ["team-b", "web"]}, "default"),
        ({"queue": "q", "users": ["ceo@*"]}, "q"),
        ({"queue": "q", "users": ["cfo@example.com"]}, "default"),
        ({"queue": "q", "groups": ["board"]}, "q"),
        ({"queue": "q", "groups": ["boar"]}, "default"),
        ({"queue": "q", "labels": {"team": "vision"}}, "q"),
        ({"queue": "q", "labels": {"site": "north", "team": "speech"}}, "default"),
        ({"queue": "q", "users": ["ceo@*"], "namespaces": ["team-b"]}, "default"),
    ],
)
def test_a_rule_says_the_queue_of_the_workloads_that_it_is_for(rule: dict[str, Any], found: str) -> None:
    asks = {"team": "vision", "kueue.x-k8s.io/queue-name": "asked-for"}
    made = job(labels=asks, annotations=CEO)
    assert queue_of(NODE, namespace(labels={"site": "north"}), made, rules=[rule]) == found


def test_the_first_rule_that_is_for_a_workload_counts() -> None:
    rules = [{"queue": "{provided}"}, {"queue": "board", "groups": ["board"]}, {"queue": "{namespace}"}]
    asks = {"labels": {"kueue.x-k8s.io/queue-name": "asked-for"}}
    assert queue_of(NODE, job(**asks, annotations=CEO), rules=rules) == "asked-for"
    assert queue_of(NODE, job(annotations=CEO), rules=rules) == "board"
    assert queue_of(NODE, job(), rules=rules) == "team-a"
    # A namespace provides a queue like a workload.
    assert queue_of(NODE, namespace(**asks), job(annotations=CEO), rules=rules) == "asked-for"


def test_what_a_workload_names_counts_only_where_a_rule_lets_it() -> None:
    asks = {"labels": {"kueue.x-k8s.io/queue-name": "board"}}
    assert queue_of(NODE, job(**asks), rules=[{"queue": "{namespace}"}]) == "team-a"
    assert queue_of(NODE, job(**asks), rules=[]) == "board"


def test_the_nearest_user_above_a_pod_counts() -> None:
    """A reference to another user's object lends no rights, and controllers have none of their own."""

    def owner(kind: str, user: str) -> dict[str, Any]:
        annotations = {"stromboli.io/user": user} if user else {}
        return {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": kind.lower(), "annotations": annotations}}

    def found(pod_user: str, *owners: dict[str, Any]) -> str:
        annotations = {"stromboli.io/user": pod_user}
        metadata = objects.Metadata(name="p", namespace="team-a", annotations=annotations)
        rules = engine({"queue": "{user}"}).policy.queue_rules
        pod = objects.Pod(metadata=metadata, spec=objects.PodSpec(containers=[]))
        return family_of(pod, owners, rules=rules).assigned(pod).queue

    assert found("", owner("Job", "eve"), owner("CronJob", "ceo")) == "eve"
    assert found("", owner("Job", ""), owner("CronJob", "ceo")) == "ceo"
    assert found("eve", owner("Job", "ceo")) == "eve"
    assert found("") == "default"


def test_a_queue_that_is_missing_is_said_and_made_only_where_the_rule_says_so() -> None:
    by = engine({"queue": "{namespace}"})
    state = fed(by, NODE, job())
    session = by.decide(state.snapshot(), now=NOON).session
    assert "team-a" not in state.queues
    assert [group.queue for group in session.view.lost] == ["team-a"]

    by = engine({"queue": "{namespace}", "create": True, "parent": "tenants"})
    state = fed(by, NODE, named_queue("tenants"), job())
    assert state.queues["team-a"].spec.parent == "tenants"
    assert len(by.decide(state.snapshot(), now=NOON).session.bound) == 1
    # One that is there stays as it is.
    state = fed(by, NODE, named_queue("team-a"), job())
    assert state.queues["team-a"].spec.parent == ""


@pytest.mark.parametrize(
    ("rule", "advice"),
    [
        ("rest", "admin: have queueRules in the policy name queue default for Job team-a/job"),
        (
            "{provided}",
            "user: set the annotation scheduling.volcano.sh/queue-name: default on Job team-a/job, and create it again",
        ),
    ],
)
def test_whoever_says_the_queue_is_told_to_say_another(rule: str, advice: str) -> None:
    """What a workload names has no effect where rules do not let it name anything."""
    named = job(labels={"kueue.x-k8s.io/queue-name": "rest"})
    by = engine({"queue": rule})
    state = fed(by, NODE, named_queue("default"), named)
    (lost,) = by.decide(state.snapshot(), now=NOON).session.view.lost
    answer = why(state, f"job {lost.key}", f"{POLICY} {json.dumps([{'queue': rule}])}")
    first = answer.remedies[0]
    assert f"{first.who}: {first.change}" == advice


def test_a_native_group_gets_its_queue_by_the_rules() -> None:
    version = "scheduling.k8s.io/v1beta1"
    group = {
        "apiVersion": version,
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "team-a"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    }
    state = fed(engine({"queue": "{namespace}"}), NODE, group)
    assert [each.queue for each in state.jobs.pod_groups if each is not None] == ["team-a"]


def test_whatif_gives_a_new_workload_its_queue_by_the_rules_of_the_policy_that_is_tried() -> None:
    by = engine({"queue": "{namespace}", "create": True})
    state = fed(by, NODE, named_queue("research"))
    rehearsal = Rehearsal(by, state, OFFLINE, NOON)
    found = try_changes({"f": yaml.safe_dump(job())}, rehearsal, Engine)
    assert [each.pod for each in found.bound] == ["team-a/job-0"]

    # The policy that is tried makes no queue, and its rules are for the new workload.
    other = yaml.safe_load(POLICY + " " + json.dumps([{"queue": "missing"}]))
    rehearsal = Rehearsal(by, fed(by, NODE, named_queue("research")), OFFLINE, NOON)
    found = try_changes({"f": yaml.safe_dump_all([job(), other])}, rehearsal, Engine)
    assert found.bound == []
    assert [(each.pod, each.reason) for each in found.waiting] == [("team-a/job-0", "QueueNotFound")]


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ([{"queue": ""}], "queueRules[0].queue: should be a name in which"),
        ([{"queue": "{usr}"}], "queueRules[0].queue: should be a name in which"),
        ([{"queue": "a"}, {"users": ["x"]}], "queueRules[1].queue: is required"),
        ([{"queue": "a", "user": ["x"]}], "queueRules[0]: unknown key 'user', did you mean 'users'?"),
        ([{"queue": "a", "create": "perhaps"}], "queueRules[0].create"),
        ("research", "queueRules: should be a list"),
    ],
)
def test_a_mistake_in_a_rule_is_named(rules: Any, problem: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Engine(POLICY.replace("queueRules:\n", yaml.safe_dump({"queueRules": rules})))
    assert problem in str(caught.value)
