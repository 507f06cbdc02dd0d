"""The gate by which a pod waits for room in its queue: who loses it, and when."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api import objects
from stromboli.api.decisions import LiftGate
from stromboli.engine import Engine, SessionResult
from stromboli.simulation.run import run
from stromboli.state.pods import QUEUE_GATE
from tests import builders
from tests.builders import node, pod_group, queue
from tests.plugins.queues import bound, holds, why
from tests.plugins.sessions import decide, policy

PLUGINS = pytest.mark.parametrize("plugin", ["proportion", "capacity", "fairshare"])
ELSEWHERE = {"kubernetes.io/fake": "n"}


def gated(name: str, group: str, *gates: str, annotated: str | None = "true", **more: Any) -> Any:
    """A pod of one CPU with the gate, and maybe others."""
    annotations = {} if annotated is None else {QUEUE_GATE: annotated}
    names = [{"name": gate} for gate in (QUEUE_GATE, *gates)]
    return builders.pod(name, group, cpu="1", memory="", annotations=annotations, schedulingGates=names, **more)


def through(name: str, group: str, cpu: str, **more: Any) -> Any:
    """A pod whose gate was lifted, and which waits for a node that is not there."""
    return builders.pod(
        name, group, cpu=cpu, memory="", annotations={QUEUE_GATE: "true"}, nodeSelector=ELSEWHERE, **more
    )


def session(plugin: str, *objs: Any, **options: Any) -> SessionResult:
    return decide(node("n", cpu="100"), *objs, by=policy(plugin, actions="allocate"), **options)


def placed(result: SessionResult) -> set[str]:
    return {key.partition("/")[2] for key in result.session.bound}


def lifted(result: SessionResult) -> set[str]:
    return {each.name for each in result.decisions if isinstance(each, LiftGate)}


@PLUGINS
def test_gates_are_lifted_as_far_as_the_queue_has_room(plugin: str) -> None:
    objs = (queue("a", capability={"cpu": "4"}), *holds("a", 1), pod_group("job", queue="a"))
    pods = [gated(f"job-{number}", "job") for number in range(5)]
    result = session(plugin, *objs, *pods)
    assert len(lifted(result)) == 3
    assert bound(result) == {}
    assert lifted(session(plugin, *objs, *pods, compatibility="volcano")) == set()


@PLUGINS
def test_what_was_let_through_keeps_its_room_from_other_gated_pods(plugin: str) -> None:
    objs = (queue("a", capability={"cpu": "3"}), pod_group("job", queue="a"), through("job-0", "job", "2"))
    waiting = [gated(f"job-{number}", "job") for number in (1, 2)]
    assert lifted(session(plugin, *objs, *waiting)) == {"job-1"}


@PLUGINS
@pytest.mark.parametrize("group", ["job", "other"])
def test_it_keeps_its_room_from_pods_without_a_gate(plugin: str, group: str) -> None:
    objs = (queue("a", capability={"cpu": "3"}), pod_group("job", queue="a"), pod_group("other", queue="a"))
    plain = [builders.pod(f"{group}-{number}", group, cpu="1", memory="") for number in (1, 2)]
    result = session(plugin, *objs, through("job-0", "job", "2"), *plain)
    assert placed(result) == {f"{group}-1"}
    refusal = why(result, f"{group}-2")
    assert refusal.reason in ("QueueCapabilityExceeded", "QueueShareExceeded")
    assert "keeps 2 more for pods whose scheduling gate was lifted" in refusal.detail
    # Volcano keeps nothing unless its feature gate is on.
    assert len(placed(session(plugin, *objs, through("job-0", "job", "2"), *plain, compatibility="volcano"))) == 2


@PLUGINS
def test_pods_that_were_let_through_do_not_stand_in_each_others_way(plugin: str) -> None:
    """Each keeps its own amount, in a gang and alone, and it is there for the pod that it was kept for."""
    objs = (queue("a", capability={"cpu": "3"}), pod_group("gang", 2, queue="a"), pod_group("job", queue="a"))
    asked = {"annotations": {QUEUE_GATE: "true"}, "cpu": "1", "memory": ""}
    pods = [builders.pod(name, name.partition("-")[0], **asked) for name in ("gang-0", "gang-1", "job-0")]
    assert placed(session(plugin, *objs, *pods)) == {"gang-0", "gang-1", "job-0"}


@PLUGINS
def test_pods_of_different_shape_are_measured_in_what_they_ask_for(plugin: str) -> None:
    objs = (queue("a", capability={"cpu": "4", "memory": "8Gi"}), pod_group("job", queue="a"))
    wide = builders.pod("job-1", "job", cpu="1", memory="6Gi")
    assert placed(session(plugin, *objs, through("job-0", "job", "3"), wide)) == {"job-1"}


@pytest.mark.parametrize(("kept", "victims"), [("2", {"low-0"}), ("3", set())])
def test_a_preemptor_does_not_take_what_is_kept(kept: str, victims: set[str]) -> None:
    objs = (
        *(queue("a", capability={"cpu": "4"}), pod_group("job", queue="a"), through("job-0", "job", kept)),
        *(pod_group("low", 0, queue="a", phase="Running", priorityClassName="low"),),
        *(pod_group("high", queue="a", priorityClassName="high"), builders.pod("high-0", "high", cpu="2", memory="")),
        *(
            objects.PriorityClass(metadata=objects.Metadata(name=name), value=value)
            for name, value in (("low", 1), ("high", 2))
        ),
        builders.pod("low-0", "low", cpu="2", memory="", node="n"),
    )
    full = (node("full", cpu="9"), queue("b"), *holds("b", 1, "full", cpu="9"))
    result = decide(node("n", cpu="2"), *full, *objs, by=policy("capacity", actions="preempt"))
    assert {key.partition("/")[2] for key in result.session.evicted} == victims


def test_a_sibling_does_not_take_it_from_their_parent() -> None:
    tree = policy("capacity", actions="allocate", enableHierarchy=True)
    objs = (
        *(queue("root"), queue("team", capability={"cpu": "3"}), queue("a", parent="team"), queue("b", parent="team")),
        *(pod_group("job", queue="a"), through("job-0", "job", "2"), pod_group("other", queue="b")),
        *(builders.pod(f"other-{number}", "other", cpu="1", memory="") for number in (1, 2)),
    )
    assert placed(decide(node("n", cpu="100"), *objs, by=tree)) == {"other-1"}


@PLUGINS
def test_other_gates_and_pods_that_did_not_ask_for_it_are_left(plugin: str) -> None:
    objs = (
        *(queue("a"), pod_group("job", queue="a")),
        gated("other-gate", "job", "example.com/wait"),
        gated("not-asked", "job", annotated=None),
        gated("declined", "job", annotated="false"),
        builders.pod("others", "job", annotations={QUEUE_GATE: "true"}, schedulingGates=[{"name": "example.com/w"}]),
    )
    assert lifted(session(plugin, *objs)) == set()


@pytest.mark.parametrize("state", ["Closed", "Open"])
def test_what_is_not_admitted_keeps_its_gate(state: str) -> None:
    phase = "Pending" if state == "Open" else "Inqueue"
    objs = (queue("a", state=state), pod_group("job", queue="a", phase=phase), gated("job-0", "job"))
    by = (
        policy("capacity", actions="enqueue, allocate") if state == "Closed" else policy("capacity", actions="backfill")
    )
    assert lifted(decide(node("n"), *objs, by=by)) == set()


def test_a_refused_pod_says_what_its_queue_lacks() -> None:
    objs = (queue("a", capability={"cpu": "1"}), *holds("a", 1), pod_group("job", queue="a"), gated("job-0", "job"))
    assert why(session("capacity", *objs), "job-0").reason == "QueueCapabilityExceeded"


def test_simulate_places_what_it_lets_through() -> None:
    cluster = builders.state(
        *(node("n"), queue("a", capability={"cpu": "2"}), pod_group("job", 2, queue="a")),
        *(gated(f"job-{number}", "job") for number in range(3)),
    )
    found = run(Engine(policy("capacity", actions="enqueue, allocate")), cluster, now=builders.NOON)
    assert len(found.bindings) == 2
