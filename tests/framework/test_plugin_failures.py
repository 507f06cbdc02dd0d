"""A plugin that raises costs one job its turn, or the plugin its part in the session; never the session."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from stromboli.api.decisions import Bind
from stromboli.api.pod_state import PodState
from stromboli.discovery import discover
from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.plugin.report import Report
from stromboli.framework.registry import Registry
from stromboli.framework.runtime.questions import Questions
from stromboli.state.pods import PodRecord
from tests import builders


class Broken(Plugin):
    """Raises where the test wants it."""

    name = "broken"
    at: ClassVar[str] = ""

    def open(self, view: View) -> None:
        self._raise("open")

    def close(self, report: Report) -> None:
        self._raise("close")

    def job_order(self, job: Job) -> Any:
        self._raise("job_order")
        # no number: a key without this part cannot be compared with one that has it
        return ("",)

    def job_valid(self, job: Job) -> None:
        self._raise("job_valid", job.key)

    def allocatable(self, queue: Any, pod: PodRecord, count: int) -> Any:
        self._raise("allocatable", pod.job)
        return count, None

    def on_allocate(self, operation: Operation) -> None:
        self._raise("on_allocate")

    def _raise(self, point: str, job: str = "default/bad") -> None:
        if point == Broken.at and job == "default/bad":
            raise ZeroDivisionError(f"in {point}")


def decide(monkeypatch: pytest.MonkeyPatch, at: str) -> SessionResult:
    """One session over two jobs that take turns, default/bad the first."""
    monkeypatch.setattr(Broken, "at", at)
    known = discover()
    registry = Registry(known.actions, known.plugins | {Broken.name: Broken})
    cluster = builders.state(
        builders.node("n1", cpu="8"),
        builders.queue("default"),
        builders.pod_group("bad", 1, phase="Pending"),
        builders.gang("bad", 2),
        builders.pod_group("good", 1, phase="Pending"),
        builders.gang("good", 2),
    )
    engine = Engine(
        builders.policy("broken priority gang", "predicates proportion nodeorder", actions="enqueue, allocate"),
        registry=registry,
    )
    return engine.decide(cluster.snapshot(), now=builders.NOON)


def bound(result: SessionResult) -> dict[str, int]:
    """How many pods of each gang were bound."""
    names = [d.name.rpartition("-")[0] for d in result.decisions if isinstance(d, Bind)]
    return {name: names.count(name) for name in names}


@pytest.mark.parametrize("at", ["job_valid", "allocatable"])
def test_the_job_that_was_asked_about_is_set_aside(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    result = decide(monkeypatch, at)
    assert bound(result) == {"good": 2}
    reason = result.session.view.reason(result.session.view.jobs["default/bad"])
    assert reason is not None
    assert reason.reason == "PluginFailed"
    assert "plugin broken failed: ZeroDivisionError" in reason.message
    assert [(f.plugin, f.where) for f in result.session.failures] == [("broken", "default/bad")]
    assert result.session.view.pods.state.tolist().count(PodState.Binding) == 2


@pytest.mark.parametrize(
    ("at", "where"), [("open", "open"), ("close", "close"), ("job_order", "job_order"), ("on_allocate", "on_allocate")]
)
def test_a_plugin_that_fails_for_everybody_is_left_out(monkeypatch: pytest.MonkeyPatch, at: str, where: str) -> None:
    result = decide(monkeypatch, at)
    assert bound(result) == {"bad": 2, "good": 2}
    assert [(f.plugin, f.where) for f in result.session.failures] == [("broken", where)]


def test_an_error_that_is_no_plugins_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Questions, *_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(Questions, "overused", broken)
    with pytest.raises(RuntimeError, match="ours"):
        decide(monkeypatch, "")
