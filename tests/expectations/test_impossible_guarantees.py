"""A guarantee that cannot be kept is clipped to what exists, which its queue is told; others go on."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.reasons import Actionable
from stromboli.engine import SessionResult
from tests.builders import decide, node, policy, queue, state
from tests.plugins.queues import bound, evicted, holds, wants, why

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
    assert bound(result) == {"b": 5}


@EVERY
def test_it_is_kept_from_all_others_together(by: str) -> None:
    result = run(guaranteed("a", "3"), queue("b"), queue("c"), wants("b", 8), wants("c", 8), by=by)
    assert sum(bound(result).values()) == 5


@pytest.mark.parametrize("of", ["p", "a"])
def test_it_is_kept_from_those_below_other_parents(of: str) -> None:
    """What is guaranteed to a, or to its parent, is neither for those of the other parent nor for the root's."""
    tree = {"p": {}, "a": {"parent": "p"}, "q": {}, "b": {"parent": "q"}, "c": {"parent": "q"}, "d": {}}
    tree[of]["guarantee"] = {"resource": {"cpu": "3"}}
    queues = [queue(name, **spec) for name, spec in tree.items()]
    others = [wants(name, 4) for name in "bcd"]
    assert sum(bound(run(queues, *others, by=SHARES["hierarchy"])).values()) == 5
    assert bound(run(queues, *others, wants("a", 3), by=SHARES["hierarchy"]))["a"] == 3


def test_what_is_kept_for_a_parent_is_for_all_its_children() -> None:
    tree = [guaranteed("p", "3"), queue("a", parent="p"), queue("b", parent="p"), queue("c")]
    result = run(tree, wants("a", 1), wants("b", 8), wants("c", 8), by=SHARES["hierarchy"])
    assert sum(bound(result).get(name, 0) for name in "ab") >= 3
    assert sum(bound(result).values()) == 8


def test_who_waits_is_told_that_the_rest_is_guaranteed() -> None:
    result = run(guaranteed("a", "3"), queue("b"), wants("b", 8), by=SHARES["hierarchy"])
    assert why(result, "b-7").told == (
        "QueueCapabilityExceeded: queue b has no capacity left in cpu "
        "(cpu: holds 5, may have 5 as other queues hold the rest "
        "or keep it, 1 more requested). This may resolve when other workloads finish."
    )


@pytest.mark.parametrize("kept", [0, 3])
@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_a_branch_keeps_what_its_parent_is_guaranteed(action: str, kept: int) -> None:
    text = SHARES["hierarchy"].replace("'allocate'", f"'allocate, {action}'")
    parent = guaranteed("p", str(kept)) if kept else queue("p")
    queues = [parent, queue("a", parent="p"), queue("b", deserved={"cpu": "8"})]
    result = run(queues, holds("a", 3), holds("b", 5), wants("b", 1), by=text)
    assert evicted(result) == ({} if kept else {"a-uses": 1})


@EVERY
@pytest.mark.parametrize(("least", "who"), [(6, Actionable.Admin), (5, Actionable.Wait)])
def test_a_gang_is_told_that_guarantees_never_leave_it_enough(by: str, least: int, who: Actionable) -> None:
    """Of a gang that may start, the rest waits for its own pods to end."""
    result = run(guaranteed("a", "3"), queue("b"), wants("b", 8, min_member=least), by=by)
    reason = why(result, "b-7")
    assert reason.actionable is who
    assert ("even when nothing runs" in reason.told) == (who is Actionable.Admin)
