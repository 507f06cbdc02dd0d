"""`dequeueStrategy: fifo`: no job in the queue is served before one that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import Engine, SessionResult
from stromboli.policy.document import DEFAULT_POLICY
from tests.actions.evictions import evicted
from tests.builders import NOON, gang, node, pod_group, queue, state
from tests.expectations.test_preemption import CLASSES
from tests.expectations.test_preemption import job as running
from tests.plugins.queues import bound, why


def decide(*objs: Any, text: str = DEFAULT_POLICY, strategy: str = "fifo", by: Any = None) -> SessionResult:
    """One session on 4 CPUs."""
    queues = [queue("default"), queue("line", dequeueStrategy=strategy), queue("other", weight=9)]
    cluster = state(CLASSES, *queues, node("n", cpu="4"), *objs)
    return Engine(text, compatibility=by).decide(cluster.snapshot(), now=NOON)


def job(name: str, count: int, created: int, of: str = "line", least: int | None = None, **spec: Any) -> list[Any]:
    group = pod_group(name, count if least is None else least, of, created=created, **spec)
    return [group, *gang(name, count, memory="")]


#: on 4 CPUs, of which others hold 2: the first does not fit, the second would
LINE = [*running("holds", "n", "n", of="critical"), *job("first", 3, 1), *job("second", 1, 2)]


@pytest.mark.parametrize(("strategy", "served"), [("fifo", {}), ("traverse", {"second": 1})])
def test_the_jobs_behind_one_that_does_not_fit_wait(strategy: str, served: dict[str, int]) -> None:
    result = decide(*LINE, strategy=strategy)
    assert bound(result) == served
    if strategy == "fifo":
        told = "BehindInQueue: queue line serves its jobs strictly in order, and a PodGroup before this one"
        assert why(result, "second-0").told.startswith(told)


def test_volcano_passes_over_it() -> None:
    assert bound(decide(*LINE, by="volcano")) == {"second": 1}


def test_other_queues_go_on() -> None:
    assert bound(decide(*LINE, *job("theirs", 1, 3, "other"))) == {"theirs": 1}


def test_who_is_served_holds_up_nobody() -> None:
    """An elastic job that has what it starts with is served, and what can never run is no part of the line."""
    jobs = [job("elastic", 6, 1, least=1), job("second", 1, 2, priorityClassName="high")]
    assert bound(decide(*jobs[0], *jobs[1])) == {"second": 1, "elastic": 3}
    assert bound(decide(*job("huge", 9, 1), *job("second", 1, 2))) == {"second": 1}
    assert bound(decide(*job("one", 1, 1), *job("two", 2, 2), *job("three", 1, 3))) == {"one": 1, "two": 2, "three": 1}


def test_priority_says_who_is_first() -> None:
    assert bound(decide(*LINE[:-2], *job("second", 1, 2, priorityClassName="high"))) == {"second": 1}


def test_nobody_is_admitted_before_one_that_is_not() -> None:
    def asks(name: str, cpu: str, created: int) -> list[Any]:
        return job(name, 1, created, phase="Pending", minResources={"cpu": cpu})

    jobs = [*running("holds", "n", "n", of="critical"), *asks("first", "3", 1), *asks("second", "1", 2)]
    assert bound(decide(*jobs)) == {}
    assert why(decide(*jobs), "second-0").reason == "BehindInQueue"
    assert bound(decide(*jobs, strategy="traverse")) == {"second": 1}


@pytest.mark.parametrize(("strategy", "victims"), [("fifo", 0), ("traverse", 1)])
@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_nobody_is_evicted_for_who_is_behind(strategy: str, victims: int, action: str) -> None:
    """Three pods can go, which is enough for the second and not for the first."""
    low, kept = running("low", "n", "n", "n"), running("kept", "n", of="critical")
    low[0].spec.queue = "line"
    line = [*job("first", 4, 1, priorityClassName="high"), *job("second", 1, 2, priorityClassName="middle")]
    text = DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}, backfill")
    assert len(evicted(decide(*low, *kept, *line, text=text, strategy=strategy))) == victims
