"""extender: an HTTP service has a say; here it answers by rules."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.errors import InvalidObjectError
from stromboli.api.objects import Metadata, PriorityClass
from stromboli.framework.cluster.environment import Environment, ExtenderError
from stromboli.plugins.extender import wire
from stromboli.simulation.scripted_extender import ScriptedExtender
from tests.builders import gang, node, pod, pod_group, queue
from tests.plugins.sessions import decide, policy

NODES = [node("n1"), node("n2")]
FAILS = 500


class Asked:
    """A session with an extender."""

    def __init__(self, *objs: Any, verbs: str, compatibility: Any = None, actions: str = "allocate", **options: Any):
        script = {key: value for key, value in options.items() if not key.startswith("extender_")}
        arguments: dict[str, Any] = {"extender.urlPrefix": "http://extender/", "extender.httpTimeout": "2s"}
        arguments |= {f"extender.{verb}Verb": verb for verb in verbs.split()}
        arguments |= {key.replace("_", "."): value for key, value in options.items() if key.startswith("extender_")}
        self.extender = ScriptedExtender.parse(script)
        self.session = decide(
            *objs,
            by=policy("extender", arguments, actions=actions),
            environment=Environment(extender=self.extender),
            compatibility=compatibility,
        ).session

    @property
    def bound(self) -> dict[str, str]:
        return {key.partition("/")[2]: where for key, where in self.session.bound.items()}

    @property
    def admitted(self) -> set[str]:
        return {job.name for job in self.session.view.jobs.values() if job.phase == "Inqueue"}


def job(count: int = 1, name: str = "job", **spec: Any) -> list[Any]:
    return [pod_group(name, min_member=count, **spec), *gang(name, count)]


def test_a_refused_node_is_not_used() -> None:
    rules = [{"pods": "default/job-.*", "nodes": ["n1"], "message": "broken", "code": 2}]
    asked = Asked(*NODES, *job(2), verbs="predicate", predicate=rules)
    assert set(asked.bound.values()) == {"n2"}
    refused = Asked(NODES[0], *job(), verbs="predicate", predicate=rules)
    (why,) = refused.session.view.trace.pods.values()
    assert "an extender refused node(s): broken" in str(why)


@pytest.mark.parametrize(("ignorable", "placed"), [(False, 0), (True, 1)])
def test_an_error_refuses_unless_it_is_ignorable(ignorable: bool, placed: int) -> None:
    asked = Asked(*NODES, *job(), verbs="predicate", httpStatus={"predicate": FAILS}, extender_ignorable=ignorable)
    assert len(asked.bound) == placed


def test_scores_decide() -> None:
    rules = [{"nodeScore": {"n2": 10}}]
    assert Asked(*NODES, *job(), verbs="prioritize", prioritize=rules).bound == {"job-0": "n2"}


def test_no_score_is_no_reason_to_wait_except_for_volcano() -> None:
    assert Asked(*NODES, *job(), verbs="prioritize").bound == {"job-0": "n1"}
    assert Asked(*NODES, *job(), verbs="prioritize", compatibility="volcano").bound == {}
    assert Asked(NODES[0], *job(), verbs="prioritize", compatibility="volcano").bound == {"job-0": "n1"}


def test_only_managed_pods_are_asked_about() -> None:
    rules = [{"message": "no"}]
    resource = {"example.com/foo": "1"}
    nodes = [node("n1", resources={"example.com/foo": "4"})]
    managed = pod("foo-0", "foo", resources=resource)
    asked = Asked(
        *nodes,
        *job(),
        pod_group("foo"),
        managed,
        verbs="predicate",
        predicate=rules,
        extender_managedResources=["example.com/foo"],
    )
    assert set(asked.bound) == {"job-0"}
    assert {payload["task"]["Name"] for _, payload in asked.extender.requests} == {"foo-0"}


def test_queues_and_admission() -> None:
    minimum = {"minResources": {"cpu": "1"}, "phase": "Pending"}
    rules = [{"pods": "default/no", "status": -1}, {"pods": "default/yes", "status": 1}]
    groups = [pod_group(name, **minimum) for name in ("no", "yes", "whatever")]
    assert Asked(*groups, verbs="jobEnqueueable", actions="enqueue", jobEnqueueable=rules).admitted == {
        "yes",
        "whatever",
    }
    full = Asked(*NODES, queue("full"), *job(queue="full"), verbs="queueOverused", queueOverused=["full"])
    assert full.bound == {}
    assert full.session.view.trace.jobs["default/job"].reason == "QueueOverused"


@pytest.mark.parametrize(
    ("compatibility", "ignorable", "placed"),
    [("strict", False, 0), ("strict", True, 2), ("volcano", False, 2), ("volcano", True, 0)],
)
def test_an_error_about_readiness(compatibility: str, ignorable: bool, placed: int) -> None:
    asked = Asked(
        *NODES,
        *job(2),
        verbs="jobReady",
        httpStatus={"jobReady": FAILS},
        extender_ignorable=ignorable,
        compatibility=compatibility,
    )
    assert len(asked.bound) == placed


def test_a_job_that_is_not_ready_is_not_bound() -> None:
    asked = Asked(*NODES, *job(2), *job(1, "other"), verbs="jobReady", jobNotReady=["default/job"])
    assert set(asked.bound) == {"other-0"}


def test_a_refused_place_passes_the_pod_over() -> None:
    rules = [{"pods": "default/job-1", "message": "not this one"}]
    objects = [*NODES, pod_group("job"), *gang("job", 3)]
    asked = Asked(*objects, verbs="allocateFunc", allocateFunc=rules)
    assert set(asked.bound) == {"job-0", "job-2"}
    (why,) = asked.session.view.trace.pods.values()
    assert (why.reason, "not this one" in str(why)) == ("RefusedByExtender", True)


def test_what_is_sent() -> None:
    asked = Asked(*NODES, *job(), verbs="onSessionOpen onSessionClose predicate")
    verbs = [verb for verb, _ in asked.extender.requests]
    assert (verbs[0], verbs[-1]) == ("onSessionOpen", "onSessionClose")
    _, payload = asked.extender.requests[1]
    assert payload["task"]["Resreq"] == {
        "MilliCPU": 1000.0,
        "Memory": 2.0**30,
        "ScalarResources": {"pods": 1.0},
        "MaxTaskNum": 0,
    }
    assert payload["task"]["Pod"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert payload["node"]["Node"]["status"]["allocatable"]["cpu"] == "8"


def test_without_a_network_nobody_answers() -> None:
    by = policy("extender", {"extender.urlPrefix": "http://extender", "extender.predicateVerb": "predicate"})
    assert decide(*NODES, *job(), by=by).session.bound == {}


def test_rules_that_cannot_be_read_are_an_error() -> None:
    with pytest.raises(InvalidObjectError, match=r"extender\.predicate\[0\]\.pod"):
        ScriptedExtender.parse({"predicate": [{"pod": "x"}]})


# -- victims ---------------------------------------------------------------------------------------------------------

RUNNING = [pod_group("runs", 0, phase="Running"), *gang("runs", 2, cpu="4", node="n1")]


def evicting(verb: str = "preemptable", action: str = "preempt", **options: Any) -> Asked:
    """A job of 4 CPUs that matters more, on a node of 8 that is full; for reclaim it is in another queue."""
    where = "other" if action == "reclaim" else "default"
    high = PriorityClass(metadata=Metadata(name="high"), value=10)
    waits = [high, queue("other"), pod_group("job", queue=where, priorityClassName="high"), *gang("job", 1, cpu="4")]
    return Asked(node("n1", cpu="8"), *RUNNING, *waits, verbs=verb, actions=action, **options)


VERBS = pytest.mark.parametrize(("verb", "action"), [("preemptable", "preempt"), ("reclaimable", "reclaim")])


@VERBS
@pytest.mark.parametrize("kept", ["runs-0", "runs-1"])
def test_victims_are_those_that_it_names(verb: str, action: str, kept: str) -> None:
    rules = {verb: [{"pods": "default/job-0", "keep": f"default/{kept}"}]}
    asked = evicting(verb=verb, action=action, **rules)
    assert list(asked.session.evicted) == [f"default/{kept}"]
    (path, payload), *_ = asked.extender.requests
    assert (path, sorted(payload)) == (verb, ["evictees", "evictor"])
    assert (payload["evictor"]["Namespace"], payload["evictor"]["Name"]) == ("default", "job-0")
    assert {task["UID"] for task in payload["evictees"]} == {"uid-runs-0", "uid-runs-1"}


@VERBS
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"rules": [{"keep": "nobody"}]}, id="names nobody"),
        pytest.param({"httpStatus": FAILS}, id="fails"),
    ],
)
def test_nobody_is_evicted_whom_it_does_not_name(verb: str, action: str, options: dict[str, Any]) -> None:
    script = {verb: options.get("rules", []), "httpStatus": {verb: options.get("httpStatus", 200)}}
    more = {key: value for key, value in options.items() if key.startswith("extender_")}
    assert evicting(verb=verb, action=action, **script, **more).session.evicted == {}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"preemptable": [{"keep": "nobody", "status": 0}]}, id="has no opinion"),
        pytest.param({"httpStatus": {"preemptable": FAILS}, "extender_ignorable": True}, id="fails, which is ignored"),
        pytest.param({"preemptable": [{"keep": "nobody"}], "extender_managedResources": ["x/y"]}, id="not its pod"),
    ],
)
def test_without_its_opinion_that_of_others_counts(options: dict[str, Any]) -> None:
    assert len(evicting(**options).session.evicted) == 1


def test_an_answer_names_victims_by_uid_in_any_spelling() -> None:
    answer = wire.parse(wire.VictimsAnswer, {"Status": 1, "Victims": [{"UID": "a", "Name": "x"}, {"uid": "b"}]})
    assert (answer.status, [victim.uid for victim in answer.victims]) == (1, ["a", "b"])
    with pytest.raises(ExtenderError, match=r"victims\.0"):
        wire.parse(wire.VictimsAnswer, {"status": 1, "victims": [5]})
    assert wire.parse(wire.VictimsAnswer, {"status": 1, "victims": None}).victims == []
