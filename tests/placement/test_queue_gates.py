"""The gate by which a pod waits for room in its queue: who loses it, and when."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.decisions import LiftGate
from stromboli.engine import Engine, SessionResult
from stromboli.simulation.run import run
from stromboli.state.pods import QUEUE_GATE
from tests import builders
from tests.builders import node, pod_group, queue
from tests.plugins.queues import bound, holds, why
from tests.plugins.sessions import decide, policy

PLUGINS = pytest.mark.parametrize("plugin", ["proportion", "capacity"])


def gated(name: str, group: str, *gates: str, annotated: str | None = "true", **more: Any) -> Any:
    """A pod of one CPU with the gate, and maybe others."""
    annotations = {} if annotated is None else {QUEUE_GATE: annotated}
    names = [{"name": gate} for gate in (QUEUE_GATE, *gates)]
    return builders.pod(name, group, cpu="1", memory="", annotations=annotations, schedulingGates=names, **more)


def session(plugin: str, *objs: Any, **options: Any) -> SessionResult:
    return decide(node("n", cpu="100"), *objs, by=policy(plugin, actions="allocate"), **options)


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
    """The first waits for a node that is not there."""
    through = builders.pod(
        "job-0", "job", cpu="2", memory="", annotations={QUEUE_GATE: "true"}, nodeSelector={"kubernetes.io/fake": "n"}
    )
    objs = (queue("a", capability={"cpu": "3"}), pod_group("job", queue="a"), through)
    waiting = [gated(f"job-{number}", "job") for number in (1, 2)]
    assert lifted(session(plugin, *objs, *waiting)) == {"job-1"}


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
