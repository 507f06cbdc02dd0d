"""A plugin that fails at any of its calls, in any action, leaves nothing half done.

Afterwards the columns are what the decisions and promises of the session say, and jobs that the plugin was not asked
about in vain are decided as without it.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind, Evict
from stromboli.api.pod_state import ALLOCATED_STATES, ON_NODE_STATES, PodState
from stromboli.discovery import discover
from stromboli.engine import Engine, SessionResult
from stromboli.framework.plugin.base import Plugin, Vote
from stromboli.framework.registry import Registry
from tests import builders

#: what no opinion is at each point
NEUTRAL: dict[str, Callable[..., Any]] = {
    "open": lambda view: None,
    "close": lambda report: None,
    "leave": lambda: None,
    "queue_order": lambda queue: 0,
    "job_order": lambda job: 0,
    "task_order": lambda pod: 0,
    "sub_job_order": lambda sub_job: 0,
    "job_valid": lambda job: None,
    "job_enqueueable": lambda job: Vote.Abstain,
    "job_enqueued": lambda job: None,
    "job_missing": lambda job: 0,
    "job_pipelined": lambda job: Vote.Abstain,
    "overused": lambda queue: None,
    "allocatable": lambda queue, pod, count: (count, None),
    "preemptable": lambda pod, candidates: None,
    "reclaimable": lambda pod, candidates: None,
    "preemptive": lambda queue, pods: None,
    "victim_queue_order": lambda queue, reclaimer: 0,
    "evictable": lambda candidates: None,
    "victim_tasks": lambda running: [],
    "predicate": lambda pod, nodes: [("no", np.ones(len(nodes), np.bool_))],
    "node_order": lambda pod, nodes: None,
    "batch_node_order": lambda pod, nodes: None,
    "identity": lambda pod: None,
    "varies": lambda pod: False,
    "varies_on_node": lambda pod: False,
    "one_by_one": lambda pod: False,
    "by_amounts": lambda pod: True,
    "refusal": lambda pod, node: None,
    "starts_later": lambda pod, node: None,
    "bind_annotations": lambda pod, node: {},
    "bind_claims": lambda pod, node: [],
    "bind_volumes": lambda pod, node: [],
    "on_allocate": lambda operation: None,
    "on_deallocate": lambda operation: None,
}
ACTIONS = "enqueue, allocate, backfill, consolidation, preempt, reclaim, gangpreempt, gangreclaim, shuffle"
KNOWN = discover()


def failing(at: int, points: frozenset[str], answer: Any) -> type[Plugin]:
    """A plugin of no opinion that raises, or gives a wrong answer, at its `at`-th call."""
    calls = 0

    def method(point: str) -> Callable[..., Any]:
        def call(self: Plugin, *subject: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls != at:
                return NEUTRAL[point](*subject)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        call.__signature__ = inspect.signature(getattr(Plugin, point))  # type: ignore[attr-defined]
        return call

    return type("Failing", (Plugin,), {"name": "failing", **{point: method(point) for point in points}})


def decide(objs: list[Any], plugin: type[Plugin] | None) -> SessionResult:
    """One session under a policy with everything, and the plugin in front."""
    registry = Registry(KNOWN.actions, KNOWN.plugins | ({"failing": plugin} if plugin else {}))
    first = "failing priority gang" if plugin else "priority gang"
    text = builders.policy(first, "overcommit drf predicates proportion nodeorder binpack", actions=ACTIONS)
    return Engine(text, registry=registry).decide(builders.state(*objs).snapshot(), now=builders.NOON)


@st.composite
def clusters(draw: st.DrawFn, *, cpu: tuple[int, int] = (2, 6)) -> list[Any]:
    """Nodes of a few CPUs; gangs that run and gangs that wait, in two queues, some of their pods without requests."""
    objs: list[Any] = [builders.queue("a"), builders.queue("b", weight=2)]
    nodes = [f"n{index}" for index in range(draw(st.integers(1, 3)))]
    room = {name: draw(st.integers(*cpu)) for name in nodes}
    objs += [builders.node(name, cpu=str(free)) for name, free in room.items()]
    for number in range(draw(st.integers(1, 4))):
        name, size = f"j{number}", draw(st.integers(1, 3))
        running = [node for _ in range(size) if draw(st.booleans()) and room[node := draw(st.sampled_from(nodes))] > 0]
        least, queue = draw(st.integers(1, size)), draw(st.sampled_from("ab"))
        phase = "Running" if running else draw(st.sampled_from(["Pending", "Inqueue"]))
        objs.append(builders.pod_group(name, least, queue=queue, phase=phase))
        for index in range(size):
            node = running[index] if index < len(running) else ""
            asked = "1" if node else draw(st.sampled_from(["1", "2", ""]))
            if node:
                room[node] -= 1
            more = {"cpu": asked} if asked else {"cpu": "0", "memory": "0"}
            priority = draw(st.integers(0, 2))
            objs.append(builders.pod(f"{name}-{index}", name, node=node, priority=priority, **more))
    return objs


ERRORS = st.sampled_from([ZeroDivisionError("no"), SystemExit(1), StopIteration(), object(), "rubbish", np.ones(3)])


@given(clusters(), st.integers(1, 120), st.sets(st.sampled_from(sorted(NEUTRAL)), min_size=1), ERRORS)
def test_the_columns_are_what_was_decided(objs: list[Any], at: int, points: set[str], answer: Any) -> None:
    result = decide(objs, failing(at, frozenset(points), answer))
    view, pods = result.session.view, result.session.view.pods
    keys = {row: record.key for row, record in enumerate(pods.records) if record is not None}
    bound = {f"{d.namespace}/{d.name}" for d in result.decisions if isinstance(d, Bind)}
    evicted = {f"{d.namespace}/{d.name}" for d in result.decisions if isinstance(d, Evict)}
    assert bound == {key for row, key in keys.items() if pods.state[row] == PodState.Binding}
    assert evicted == {key for row, key in keys.items() if pods.state[row] == PodState.Releasing}
    held, promised, leaving = (np.zeros_like(view.nodes.used) for _ in range(3))
    for row in keys:
        state, node = PodState(pods.state[row]), pods.node[row]
        if node >= 0:
            request = view.request(view.record(row))
            held[:, node] += request * (state in (*ON_NODE_STATES, *ALLOCATED_STATES))
            promised[:, node] += request * (state == PodState.Pipelined)
            leaving[:, node] += request * (state == PodState.Releasing)
    for move in result.session.outcome.moved.values():
        promised[:, move.nodes[0]] += move.request
    np.testing.assert_array_equal(view.nodes.used, held)
    np.testing.assert_array_equal(view.nodes.idle, view.nodes.allocatable - held)
    np.testing.assert_array_equal(view.nodes.pipelined, promised)
    np.testing.assert_array_equal(view.nodes.releasing, leaving)
    for job in view.jobs.values():
        states = Counter(int(pods.state[pod.row]) for pod in view.members(job))
        assert job.counts == [states.get(state, 0) for state in range(len(job.counts))]


@given(clusters(cpu=(20, 30)), st.integers(1, 120), st.sets(st.sampled_from(sorted(NEUTRAL)), min_size=1), ERRORS)
def test_others_are_decided_as_without_the_plugin(objs: list[Any], at: int, points: set[str], answer: Any) -> None:
    """Where all pods fit, each that is not set aside gets what it gets without the plugin."""
    result = decide(objs, failing(at, frozenset(points), answer))
    aside = {failure.where for failure in result.session.failures}
    assert {failure.plugin for failure in result.session.failures} <= {"failing"}
    expected = decide(objs, None).session
    job_of = {record.key: record.job for record in expected.view.pods.records if record is not None}
    assert {key for key in result.session.bound if job_of[key] not in aside} == {
        key for key in expected.bound if job_of[key] not in aside
    }
