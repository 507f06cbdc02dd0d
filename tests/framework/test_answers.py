"""Whatever a plugin answers, the session goes on for all others; plugin, method and answer are named."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stromboli.api.decisions import Bind
from stromboli.discovery import discover
from stromboli.engine import Engine, SessionResult
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.registry import Registry
from tests import builders

NODES = 3
ACTIONS = "enqueue, allocate, preempt, reclaim, backfill"


def session(answering: dict[str, Any], *, nodes: int = NODES, least: int = 2) -> SessionResult:
    """Two jobs that fit, and a plugin that answers for `default/bad` as `answering` says and else has no opinion.

    The jobs have two pods each and start with `least`.
    """
    methods = {point: _method(point, answer) for point, answer in answering.items()}
    plugin = type("Odd", (Plugin,), {"name": "odd", **methods})
    known = discover()
    # No plugin is asked about the claims of pods that have none.
    claims: dict[str, Any] = {}
    if "bind_claims" in answering:
        claims = {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}
    if "bind_volumes" in answering:
        claims = {"volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}}]}
    cluster = builders.state(
        *(builders.node(f"n{index}", cpu="8") for index in range(nodes)),
        builders.queue("default"),
        builders.pod_group("bad", least, phase="Pending", minResources={"cpu": "1"}),
        builders.gang("bad", 2, **claims),
        builders.pod_group("good", least, phase="Pending", minResources={"cpu": "1"}),
        builders.gang("good", 2, priority=3),
    )
    allocated = {"allocation": {"devices": {}}}
    cluster.upsert("ResourceClaim", {"metadata": {"name": "c", "namespace": "default"}, "status": allocated})
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    bound = {"metadata": {"name": "c", "namespace": "default", "annotations": done}, "spec": {"volumeName": "v"}}
    cluster.upsert("PersistentVolumeClaim", bound)
    cluster.upsert("PersistentVolume", {"metadata": {"name": "v"}})
    registry = Registry(known.actions, known.plugins | {"odd": plugin})
    text = builders.policy("odd priority gang", "predicates proportion nodeorder", actions=ACTIONS)
    return Engine(text, registry=registry).decide(cluster.snapshot(), now=builders.NOON)


def _method(point: str, answer: Any) -> Any:
    """A method of a plugin's that gives one answer, or raises it."""
    expected = getattr(Plugin, point)

    def method(self: Plugin, *subject: Any) -> Any:
        if isinstance(answer, type) and issubclass(answer, BaseException):
            raise answer(f"in {point}")
        return answer(*subject) if callable(answer) else answer

    method.__name__ = point
    method.__signature__ = inspect.signature(expected)  # type: ignore[attr-defined]
    return method


def _midway(pod: Any, nodes: Any) -> Iterator[Any]:
    yield "fine", np.ones(len(nodes), np.bool_)
    raise ZeroDivisionError("midway")


MASK = np.ones(NODES, np.bool_)
WRONG = {
    "predicate": [
        None, MASK, 7, [MASK], [("cause", MASK[1:])], [("cause", MASK.astype(float))], [(3, MASK)], "text",
        [("cause", [True] * NODES)], _midway,
    ],
    "node_order": [
        7, [1.0] * NODES, np.ones(NODES + 1), np.full(NODES, np.nan), np.full(NODES, np.inf), np.array(["a"] * NODES),
    ],
    "batch_node_order": [7, np.ones(NODES - 1), np.full(NODES, np.nan), np.ones((NODES, 1))],
    "neighbourhoods": [3, np.ones(NODES), np.ones(NODES + 2, int)],
    "one_by_one": [None, "yes", 2.5],
    "by_amounts": [None, "yes", 2.5],
    "varies": [None, "no", MASK],
    "varies_on_node": [None, "no", MASK],
    "identity": [[1, 2], {}, np.ones(2)],
    "job_order": [None, float("nan"), object(), {}, (1, None), np.ones(2), [1]],
    "queue_order": [None, float("nan"), {1}],
    "task_order": [None, (float("nan"),)],
    "job_valid": [True, "no", 3],
    "job_enqueueable": [True, None, "yes", 1],
    "job_missing": [None, "1", 1.5, float("nan")],
    "job_pipelined": [True, None],
    "job_starving": [None, "yes"],
    "overused": [True, "yes"],
    "allocatable": [None, 3, (1,), ("1", None), (1, "why"), (None, None)],
    "bind_annotations": [None, {"a": 1}, {1: "a"}, [("a", "b")]],
    "bind_claims": [None, 7, ["claim"]],
    "bind_volumes": [None, 7, ["claim"]],
    "refusal": [True, "no"],
}  # fmt: skip


_CASES = [pytest.param(p, a, id=f"{p}-{number}") for p, answers in WRONG.items() for number, a in enumerate(answers)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("point", "answer"), _CASES)
def test_a_wrong_answer_is_named_and_stops_nobody_else(point: str, answer: Any) -> None:
    _names_the_plugin(session({point: answer}), point)


@pytest.mark.parametrize("answer", WRONG["by_amounts"])
def test_a_wrong_answer_about_amounts_is_named(answer: Any) -> None:
    answering = {"by_amounts": answer, "node_order": lambda pod, nodes: np.zeros(len(nodes))}
    failures = session(answering, nodes=8, least=1).session.failures
    assert {failure.plugin for failure in failures} == {"odd"}
    assert all("by_amounts() should return True or False" in str(failure.error) for failure in failures)


RAISED = [ZeroDivisionError, SystemExit, StopIteration, GeneratorExit, RecursionError, MemoryError]


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("point", [*WRONG, "open", "close", "leave", "on_allocate", "job_enqueued"])
@pytest.mark.one_in(4)
def test_an_exception_of_any_class_stops_nobody_else(point: str, error: type[BaseException]) -> None:
    _names_the_plugin(session({point: error}), point, says="")


def test_who_interrupts_the_process_is_obeyed() -> None:
    with pytest.raises(KeyboardInterrupt):
        session({"predicate": KeyboardInterrupt})


def _names_the_plugin(result: SessionResult, point: str, says: str | None = None) -> None:
    """The plugin failed, by name; each job has its places, or names plugin and error as what holds it."""
    if not result.session.failures:
        # A point that this session has no use for.
        assert point in ("job_starving", "job_pipelined", "by_amounts")
        return
    assert {failure.plugin for failure in result.session.failures} == {"odd"}
    if says is None:
        assert all(point in str(failure.error) for failure in result.session.failures if str(failure.error) != "midway")
    bound = {decision.name.partition("-")[0] for decision in result.decisions if isinstance(decision, Bind)}
    view = result.session.view
    for name in {"bad", "good"} - bound:
        reason = view.reason(view.jobs[f"default/{name}"])
        assert reason is not None
        assert reason.reason == "PluginFailed"
        assert reason.message.startswith("plugin odd failed: ")
    assert bound == {"bad", "good"} or point not in PREFERRING


#: points that only prefer: a failure there costs no pod its place
PREFERRING = frozenset(
    {
        *("node_order", "batch_node_order", "neighbourhoods", "one_by_one", "by_amounts", "varies", "varies_on_node"),
        *("identity", "job_order", "queue_order", "task_order"),
    }
)
