"""Jobs of a session: what is decided without an object for each of them is what is decided with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.discovery import discover
from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.registry import Registry
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.simulation.synthetic import write_statuses
from tests.builders import NOON, node, pod, pod_group, policy, queue, state
from tests.fuzz import tried

KNOWN = discover()
ACTIONS = "enqueue, allocate, backfill, preempt, reclaim, gangpreempt, gangreclaim, stalegangeviction"
TIERS = ("priority gang conformance", "overcommit drf predicates {shares} nodeorder binpack asks")
PHASES = ("", "Pending", "Inqueue", "Running", "Unknown", "Completed")
CONDITIONS: dict[str, dict[str, str]] = {
    "ready": {"type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled"},
    "blocked": {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources"},
    "over": {"type": "Unschedulable", "status": "False", "reason": "EnoughResources"},
    "ignored": {"type": "FieldIgnored", "status": "True", "reason": "NotInPolicy"},
}


def engine(compatibility: Any, shares: str, opening: Callable[[View], object]) -> Engine:
    """With a plugin that does something when a session opens."""

    class Asks(Plugin):
        name = "asks"

        def open(self, view: View) -> None:
            opening(view)

    text = policy(*(tier.format(shares=shares) for tier in TIERS), actions=ACTIONS)
    registry = Registry(KNOWN.actions, KNOWN.plugins | {"asks": Asks})
    return Engine(text, registry=registry, compatibility=compatibility)


@st.composite
def clusters(draw: st.DrawFn) -> list[Any]:
    """A few jobs in all phases, with pods in all states and conditions that hold or do not hold any more."""
    objs: list[Any] = [queue("a"), queue("b", state=draw(st.sampled_from(("Open", "Closed")))), queue("c")]
    objs += [node(f"n{number}", cpu="4") for number in range(3)]
    for number in range(draw(st.integers(2, 7))):
        name, least = f"j{number}", draw(st.integers(0, 3))
        spec: dict[str, Any] = {"minResources": {"cpu": draw(st.sampled_from(("1", "3", "90")))}}
        group = pod_group(
            name,
            least,
            queue=draw(st.sampled_from(("a", "b", "c", "lost"))),
            phase=draw(st.sampled_from(PHASES)),
            created=number,
            **(spec if draw(st.booleans()) else {}),
        )
        said = draw(st.lists(st.sampled_from(sorted(CONDITIONS)), max_size=2, unique=True))
        conditions = [
            type(group.status).model_validate({"conditions": [CONDITIONS[word]]}).conditions[0] for word in said
        ]
        status = {"conditions": conditions, "running": draw(st.integers(0, 2))}
        objs.append(group.model_copy(update={"status": group.status.model_copy(update=status)}))
        for member in range(draw(st.integers(0, 3))):
            kind = draw(st.sampled_from(("waits", "waits", "runs", "done", "failed", "goes", "little")))
            cpu = "" if kind == "little" else draw(st.sampled_from(("1", "2", "9")))
            there = {} if kind in ("waits", "little") else {"node": f"n{draw(st.integers(0, 2))}"}
            phase = {"done": "Succeeded", "failed": "Failed"}.get(kind, "")
            objs.append(pod(f"{name}-{member}", name, cpu=cpu, phase=phase, deleted=kind == "goes", **there))
    return objs


def decided(result: SessionResult) -> tuple[Any, ...]:
    reasons = {key: reason.told for key, reason in result.session.view.trace.jobs.items()}
    return result.decisions, reasons, result.session.report.queue_conditions


@tried(8)
@given(clusters(), st.sampled_from(("strict", "volcano")), st.sampled_from(("proportion", "capacity", "fairshare")))
def test_a_session_decides_the_same_whoever_asked_for_jobs(objs: list[Any], compatibility: str, shares: str) -> None:
    cluster = state(*objs)
    quick = engine(compatibility, shares, lambda view: None)
    asking = engine(compatibility, shares, lambda view: list(view.jobs.values()))
    for _ in range(2):
        result = quick.decide(cluster.snapshot(), now=NOON)
        assert decided(result) == decided(asking.decide(cluster.snapshot(), now=NOON))
        # What was told is not told again, and columns go on with it.
        write_statuses(cluster, result.decisions)


def test_columns_say_of_jobs_what_their_objects_say() -> None:
    groups = [pod_group(f"j{n}", n, queue="ab"[n % 2], phase=PHASES[n], minResources={"cpu": str(n)}) for n in range(4)]
    cluster = state(queue("a"), queue("b"), *groups, pod("j1-0", "j1"), pod("j2-0", "j2", cpu=""), pod("alone"))
    cluster.delete("PodGroup", "default/j0")
    view = Engine().decide(cluster.snapshot(), now=NOON).session.view
    jobs = list(view.jobs.values())
    assert [job.key for job in jobs] == list(view.jobs) == ["default/j1", "default/j2", "default/j3"]
    assert "default/j0" not in view.jobs
    assert view.jobs.get("default/j0") is None
    assert view.jobs.min_available.tolist() == [job.min_available for job in jobs]
    assert view.jobs.queue.tolist() == [job.queue.index for job in jobs]
    assert view.jobs.min_resources[:, 0].tolist() == [1_000, 2_000, 3_000]
    assert view.jobs.in_phase("Inqueue").tolist() == [False, True, False]
    assert [[job.name for job in each.jobs] for each in view.queues.values()] == [["j2"], ["j1", "j3"]]


OTHERS = [
    policy("priority gang", f"predicates nodeorder {name}") for name in ("capacity", "fairshare", "task-topology")
]


@pytest.mark.parametrize("text", [DEFAULT_POLICY, *OTHERS])
def test_jobs_that_nobody_asks_for_have_no_objects(text: str) -> None:
    group = pod_group("runs", phase="Running")
    cluster = state(queue("default"), node("n0"), group, pod("runs-0", "runs", node="n0"))
    engine = Engine(text)
    write_statuses(cluster, engine.decide(cluster.snapshot(), now=NOON).decisions)
    assert not engine.decide(cluster.snapshot(), now=NOON).session.view.jobs.made
    cluster.upsert("PodGroup", pod_group("waits"))
    cluster.upsert("Pod", pod("waits-0", "waits"))
    result = engine.decide(cluster.snapshot(), now=NOON)
    assert [job.name for job in result.session.view.jobs.made] == ["waits"]
    assert result.session.bound == {"default/waits-0": "n0"}
