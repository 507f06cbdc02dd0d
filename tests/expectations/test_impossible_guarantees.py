"""A guarantee that cannot be kept is clipped to what exists, which its queue is told; others go on."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import SessionResult
from tests.builders import decide, node, policy, queue, state
from tests.plugins.queues import bound, wants

SHARES = {
    "proportion": policy("gang predicates proportion"),
    "capacity": policy("gang predicates capacity"),
    "hierarchy": policy("gang predicates capacity") + "\n    enableHierarchy: true",
}
EVERY = pytest.mark.parametrize("by", SHARES.values(), ids=SHARES)


def guaranteed(name: str, cpu: str, resource: str = "cpu", **more: Any) -> Any:
    return queue(name, guarantee={"resource": {resource: cpu}}, **more)


def run(*objs: Any, by: str) -> SessionResult:
    """One session on 8 CPUs."""
    return decide(state(node("n", cpu="8"), queue("root", weight=1), *objs), by)


def told(result: SessionResult) -> dict[str, str]:
    """What queues are told of their guarantees."""
    conditions = result.session.report.queue_conditions
    return {name: of["GuaranteeClipped"].message for name, of in conditions.items() if "GuaranteeClipped" in of}


@EVERY
@pytest.mark.parametrize("asks", [0, 3])
def test_others_go_on_with_what_the_queue_does_not_ask_for(by: str, asks: int) -> None:
    result = run(guaranteed("a", "100"), queue("b"), wants("a", asks), wants("b", 8), by=by)
    assert bound(result) == ({"a": 3} if asks else {}) | {"b": 8 - asks}
    assert told(result) == {"a": "spec.guarantee is more than can be kept: cpu 100"}


@EVERY
def test_the_queue_has_what_there_is(by: str) -> None:
    assert bound(run(guaranteed("a", "100"), queue("b", created=1), wants("a"), wants("b"), by=by)).get("a", 0) >= 4


@EVERY
def test_guarantees_that_are_too_much_together_are_clipped_alike(by: str) -> None:
    queues = [guaranteed("a", "6"), guaranteed("b", "10"), queue("c")]
    result = run(*queues, wants("a", 2), wants("b", 2), wants("c", 8), by=by)
    assert bound(result) == {"a": 2, "b": 2, "c": 4}
    assert set(told(result)) == {"a", "b"}


@EVERY
def test_of_a_resource_that_nobody_has(by: str) -> None:
    result = run(guaranteed("a", "4", "nvidia.com/gpu"), queue("b"), wants("a", 4), wants("b", 4), by=by)
    assert bound(result) == {"a": 4, "b": 4}
    assert told(result) == {"a": "spec.guarantee is more than can be kept: nvidia.com/gpu 4"}


@EVERY
def test_above_its_own_capability(by: str) -> None:
    limited = guaranteed("a", "6", capability={"cpu": "2"})
    result = run(limited, queue("b"), wants("a", 4), wants("b", 8), by=by)
    assert bound(result) == {"a": 2, "b": 6}
    assert set(told(result)) == {"a"}


def test_above_the_parent() -> None:
    """The parent may have 4; what one child does not ask for of it goes to the other."""
    tree = [queue("p", capability={"cpu": "4"}), guaranteed("a", "6", parent="p"), queue("b", parent="p")]
    result = run(*tree, queue("o"), wants("a", 1), wants("b", 4), wants("o", 4), by=SHARES["hierarchy"])
    assert bound(result) == {"a": 1, "b": 3, "o": 4}
    assert set(told(result)) == {"a"}


@EVERY
def test_one_that_can_be_kept_is_kept_even_for_nobody(by: str) -> None:
    result = run(guaranteed("a", "3"), queue("b"), wants("b", 8), by=by)
    assert told(result) == {}
    assert bound(result) == ({"b": 8} if by == SHARES["hierarchy"] else {"b": 5})
