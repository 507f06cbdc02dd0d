"""Queues whose parents lead in a circle, nowhere, or further up than is meant: they get nothing, others go on."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import SessionResult
from tests.builders import decide, node, policy, queue, state
from tests.plugins.queues import bound, refused, wants

ACTIONS = "enqueue, allocate, reclaim, backfill"
POLICIES = {
    "hierarchy": policy("gang predicates capacity", actions=ACTIONS) + "\n    enableHierarchy: true",
    "fairshare": policy("gang predicates fairshare", actions=ACTIONS),
}
EVERY = pytest.mark.parametrize("by", POLICIES.values(), ids=POLICIES)


def run(*objs: Any, by: str) -> SessionResult:
    return decide(state(node("n"), queue("root"), queue("other", capability={"cpu": "4"}), *objs), by)


def chain(length: int, top: str = "root") -> list[Any]:
    """q0 below `top`, and each below the one before."""
    return [queue(f"q{at}", parent=f"q{at - 1}" if at else top) for at in range(length)]


@EVERY
def test_64_levels_are_served(by: str) -> None:
    assert bound(run(chain(64), wants("q63", 2), by=by)) == {"q63": 2}


@pytest.mark.one_in(2)
@EVERY
@pytest.mark.parametrize("length", [65, 2_000])
def test_what_lies_deeper_waits_and_says_so_while_others_keep_their_limits(by: str, length: int) -> None:
    last = f"q{length - 1}"
    result = run(chain(length), wants(last, 2), wants("other", 8), by=by)
    assert not result.session.failures
    assert bound(result) == {"other": 4}
    why = refused(result, last)
    assert why.message == f"queue {last} has more than 64 queues above it"
    assert (why.reason, why.actionable) == ("QueueMisconfigured", "admin")


@pytest.mark.one_in(3)
@EVERY
@pytest.mark.parametrize("length", [1, 3, 2_000])
def test_circles_wait(by: str, length: int) -> None:
    result = run(chain(length, top=f"q{length - 1}"), wants("q0", 2), wants("other", 8), by=by)
    assert not result.session.failures
    assert bound(result) == {"other": 4}
    assert refused(result, "q0").reason == "QueueMisconfigured"


@EVERY
def test_nothing_is_kept_for_who_gets_nothing(by: str) -> None:
    """A queue below one that does not exist has a guarantee, of all there is."""
    lost = queue("q", parent="nowhere", guarantee={"resource": {"cpu": "8"}})
    assert bound(run(lost, wants("q", 2), wants("other", 8), by=by)) == {"other": 4}
