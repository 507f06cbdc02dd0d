"""overcommit: jobs are admitted up to a multiple of what the cluster has."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import SessionResult
from tests.builders import gang, node, pod
from tests.plugins.queues import BOTH, admitted, asks, holds, refused
from tests.plugins.sessions import decide, policy


def enqueue(*objs: Any, factor: float | None = None, compatibility: Any = "strict") -> SessionResult:
    """A session that only admits, on 10 CPUs."""
    by = policy("overcommit", {"overcommit-factor": factor} if factor else None, actions="enqueue")
    return decide(node("n", cpu="10"), *objs, by=by, compatibility=compatibility)


@BOTH
@pytest.mark.parametrize(
    ("factor", "most"),
    [(None, 12), (1.0, 10), (1.5, 15), (pytest.param(0.5, 12, id="below 1 is the default"))],
)
def test_jobs_are_admitted_up_to_a_multiple_of_the_cluster(compatibility: Any, factor: float | None, most: int) -> None:
    before = asks("before", "6", phase="Inqueue")
    for wanted, expected in ((most - 6, ["before", "job"]), (most - 5, ["before"])):
        result = enqueue(before, asks("job", str(wanted), created=1), factor=factor, compatibility=compatibility)
        assert admitted(result) == expected


@BOTH
def test_each_admission_leaves_less_for_the_next(compatibility: Any) -> None:
    """7 of 12, 6 do not fit any more, 5 do."""
    jobs = [asks(name, cpu, created=i) for i, (name, cpu) in enumerate((("a", "7"), ("b", "6"), ("c", "5")))]
    result = enqueue(*jobs, compatibility=compatibility)
    assert admitted(result) == ["a", "c"]
    reason = refused(result, "b")
    assert (reason.stage.name, reason.reason, reason.actionable) == ("Admission", "ClusterOvercommitted", "wait")
    assert reason.message == "running pods and admitted jobs claim all of the cluster's cpu"


@BOTH
def test_a_job_without_min_resources_is_always_admitted(compatibility: Any) -> None:
    jobs = [asks("large", "10"), asks("small", "2", created=1), asks("any", None, created=2)]
    assert admitted(enqueue(*jobs, compatibility=compatibility)) == ["any", "large", "small"]


@BOTH
@pytest.mark.parametrize(
    ("before", "left"),
    [
        pytest.param(holds("default", 4), 8, id="pods that run"),
        pytest.param([pod("alien", scheduler="other", node="n", cpu="4")], 8, id="pods of other schedulers"),
        pytest.param([asks("waits", "4", phase="Inqueue")], 8, id="a job that was admitted before"),
        pytest.param(holds("default", 4, minResources={"cpu": "6"}), 6, id="a job that may still grow to its minimum"),
        pytest.param(holds("default", 4, minResources={"cpu": "3"}), 8, id="a job beyond its minimum"),
    ],
)
def test_what_is_taken_already(compatibility: Any, before: list[Any], left: int) -> None:
    for wanted, expected in ((left, True), (left + 1, False)):
        result = enqueue(*before, asks("job", str(wanted), created=9), compatibility=compatibility)
        assert ("job" in admitted(result)) is expected, wanted


@pytest.mark.parametrize(("compatibility", "left"), [("strict", 6), ("volcano", 2)])
def test_what_an_admitted_job_holds_is_not_claimed_once_more(compatibility: Any, left: int) -> None:
    """Of 12 CPUs it holds 4 and waits for 2, and its phase does not say yet that it runs."""
    begun = [asks("begun", "6", phase="Inqueue"), *gang("begun", 4, cpu="1", memory="", node="n")]
    for wanted, expected in ((left, True), (left + 1, False)):
        result = enqueue(begun, asks("job", str(wanted), created=9), compatibility=compatibility)
        assert ("job" in admitted(result)) is expected, wanted


def test_only_what_a_job_asks_for_is_compared() -> None:
    """The node is full in cpu; a job that asks for memory alone comes in."""
    job = asks("job", None, minResources={"memory": "1Gi"})
    assert admitted(enqueue(holds("default", 13), job)) == ["job"]
