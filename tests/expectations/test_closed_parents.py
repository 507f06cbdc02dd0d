"""A queue that is closed closes all that is below it for new work, at once."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import SessionResult
from tests.builders import decide, gang, node, pod, pod_group, policy, queue, state
from tests.plugins.queues import admitted, bound, refused

FLAT = "gang predicates proportion"
TREE = policy("gang predicates capacity", actions="enqueue, allocate, backfill") + "\n    enableHierarchy: true"
POLICIES = {
    "proportion": policy(FLAT, actions="enqueue, allocate, backfill"),
    "capacity": policy("gang predicates capacity", actions="enqueue, allocate, backfill"),
    "hierarchy": TREE,
    "no shares at all": policy("gang predicates", actions="enqueue, allocate, backfill"),
    "without enqueue": policy("gang predicates", actions="allocate, backfill"),
}
EVERY = pytest.mark.parametrize("by", POLICIES.values(), ids=POLICIES)


def tree(closed: str, how: str = "Closed") -> list[Any]:
    """root > dept > team and root > other, all open but one."""
    parents = {"root": "", "dept": "root", "team": "dept", "other": "root"}
    return [queue(name, parent=parent, state=how if name == closed else "Open") for name, parent in parents.items()]


def run(*objs: Any, by: str, rules: Any = "strict") -> SessionResult:
    return decide(state(node("n"), *objs), by, compatibility=rules)


def job(name: str, in_queue: str, phase: str = "Pending") -> list[Any]:
    return [pod_group(name, 2, queue=in_queue, phase=phase, minResources={"cpu": "2"}), *gang(name, 2)]


@EVERY
@pytest.mark.parametrize("how", ["Closed", "Closing"])
def test_a_closed_parent_closes_its_children(by: str, how: str) -> None:
    result = run(tree("dept", how), job("x", "team"), job("y", "other"), by=by)
    assert (admitted(result), bound(result)) == (["y"], {"y": 2})
    why = refused(result, "x")
    assert why.message == f"queue team takes no new work: queue dept, above it, is {how}"
    assert (why.reason, why.actionable) == ("QueueNotOpen", "admin")


@EVERY
def test_what_was_admitted_before_does_not_start_any_more_and_what_runs_stays(by: str) -> None:
    runs = [pod_group("r", 1, queue="team", phase="Running"), pod("r-0", "r", node="n"), pod("r-1", "r")]
    best_effort = [pod_group("b", 1, queue="team"), pod("b-0", "b", cpu="", memory="")]
    result = run(tree("dept"), job("x", "team", "Inqueue"), runs, best_effort, by=by)
    assert (bound(result), result.session.evicted) == ({}, {})


@EVERY
def test_when_the_parent_opens_the_children_do(by: str) -> None:
    assert bound(run(tree("nobody"), job("x", "team"), by=by)) == {"x": 2}


@EVERY
def test_the_root_cannot_be_closed(by: str) -> None:
    assert bound(run(tree("root"), job("x", "team"), by=by)) == {"x": 2}


def test_parents_in_a_circle_close_nobody() -> None:
    circle = [queue("a", parent="b"), queue("b", parent="a")]
    assert bound(run(circle, job("x", "a"), by=POLICIES["proportion"])) == {"x": 2}


def test_volcano_takes_new_work_until_its_controller_closes_the_child() -> None:
    assert bound(run(tree("dept"), job("x", "team"), by=POLICIES["proportion"], rules="volcano")) == {"x": 2}
