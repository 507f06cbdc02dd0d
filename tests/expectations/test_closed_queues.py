"""A queue that takes nothing new lays claim to nothing new: what waits in it leaves others their shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from stromboli.engine import SessionResult
from tests.builders import decide, gang, node, pod, pod_group, policy, queue, state
from tests.expectations.world import CLASSES
from tests.plugins.pools import in_pool
from tests.plugins.pools import policy as pools
from tests.plugins.queues import bound

ACTIONS = "enqueue, allocate, preempt, reclaim, backfill"
TREE = policy("gang predicates capacity", actions=ACTIONS) + "\n    enableHierarchy: true"
POLICIES = {
    "proportion": policy("priority gang predicates proportion", actions=ACTIONS),
    "proportion and overcommit": policy("priority gang overcommit predicates proportion", actions=ACTIONS),
    "capacity": policy("priority gang overcommit predicates capacity", actions=ACTIONS),
    "hierarchy": TREE,
    "fairshare": policy("priority gang predicates fairshare", actions=ACTIONS),
    "no shares at all": policy("priority gang predicates", actions=ACTIONS),
}
EVERY = pytest.mark.parametrize("by", POLICIES.values(), ids=POLICIES)


def job(name: str, in_queue: str, count: int, phase: str = "Pending", **spec: Any) -> list[Any]:
    amounts = {"cpu": str(count)}
    return [pod_group(name, count, queue=in_queue, phase=phase, minResources=amounts), *gang(name, count, **spec)]


def ones(name: str, in_queue: str, count: int) -> list[Any]:
    """Pods each of which may run alone."""
    return [pod_group(name, 1, queue=in_queue), *gang(name, count)]


def queues(*closed: str, **spec: Any) -> list[Any]:
    """root > dept > team, root > other; `spec` is for team."""
    parents = {"root": "", "dept": "root", "team": "dept", "other": "root"}
    mine = {"team": spec}
    return [
        queue(name, parent=parent, state="Closed" if name in closed else "Open", **mine.get(name, {}))
        for name, parent in parents.items()
    ]


def run(*objs: Any, by: str, rules: Any = "strict") -> SessionResult:
    return decided(node("n"), *objs, by=by, rules=rules)


def decided(*objs: Any, by: str, rules: Any = "strict") -> SessionResult:
    return decide(state(*objs), by, compatibility=rules)


#: of 8 CPUs, what waits in the queue `team`
WAITING: dict[str, list[Any]] = {
    "a job that was never admitted": job("x", "team", 8),
    "one that was admitted while the queue was open": job("x", "team", 8, "Inqueue"),
    "more pods of one that ran": [pod_group("x", 1, queue="team", phase="Running"), *gang("x", 8)],
    "pods that are still to come": [
        pod_group("x", 8, queue="team", phase="Inqueue", minResources={"cpu": "8"}),
    ],
    "one that could not run anyway": job("x", "team", 1, cpu="99"),
    "pods behind scheduling gates": job("x", "team", 8, schedulingGates=[{"name": "example.com/wait"}]),
}


@pytest.mark.one_in(4)
@EVERY
@pytest.mark.parametrize("waits", WAITING.values(), ids=WAITING)
@pytest.mark.parametrize("closed", ["team", "dept"])
def test_others_get_what_they_would_get_without_it(by: str, waits: list[Any], closed: str) -> None:
    result = run(queues(closed), waits, ones("z", "other", 8), by=by)
    assert bound(result) == {"z": 8}


@EVERY
@pytest.mark.parametrize("how", ["Closed", "Closing"])
def test_one_that_closes_is_as_one_that_is_closed(by: str, how: str) -> None:
    result = run(
        queue("root"), queue("team", state=how), queue("other"), job("x", "team", 8), job("z", "other", 8), by=by
    )
    assert bound(result) == {"z": 8}


def test_the_share_of_a_queue_that_is_about_to_open_is_kept() -> None:
    """A new queue has no state until the service opens it."""
    jobs = [*ones("x", "team", 8), *ones("z", "other", 8)]
    assert bound(run([queue("team", state=""), queue("other")], jobs, by=POLICIES["proportion"])) == {"z": 4}


@EVERY
def test_its_running_pods_keep_what_they_hold(by: str) -> None:
    runs = [pod_group("r", 2, queue="team", phase="Running"), *gang("r", 4, node="n")]
    grows = [pod("r-8", "r"), pod("r-9", "r")]
    result = run(queues("team"), runs, grows, job("z", "other", 4), by=by)
    assert (bound(result), result.session.evicted) == ({"z": 4}, {})


@EVERY
def test_nobody_is_evicted_for_what_waits_in_it(by: str) -> None:
    """Neither in its own queue by priority, nor in another for its share."""
    runs = [
        *(pod_group("r", 1, queue="team", phase="Running"), *gang("r", 4, node="n")),
        *(pod_group("s", 1, queue="other", phase="Running"), *gang("s", 4, node="n")),
    ]
    first = pod_group("x", 4, queue="team", phase="Inqueue", priorityClassName="high")
    result = run(CLASSES, queues("team", deserved={"cpu": "8"}), runs, first, gang("x", 4), by=by)
    assert (bound(result), result.session.evicted) == ({}, {})


GUARANTEED = {"guarantee": {"resource": {"cpu": "6"}}}
EITHER = pytest.mark.parametrize("by", [POLICIES["proportion"], POLICIES["capacity"], TREE])


@EITHER
@pytest.mark.parametrize("closed", ["team", "dept"])
@pytest.mark.parametrize("holds", [0, 2])
def test_of_its_guarantee_only_what_runs_is_kept(by: str, closed: str, holds: int) -> None:
    runs = [pod_group("r", 2, queue="team", phase="Running"), *gang("r", holds, node="n")] if holds else []
    wanted = [*ones("z", "other", 8), *job("x", "team", 1)]
    assert bound(run(queues(closed, **GUARANTEED), runs, wanted, by=by)) == {"z": 8 - holds}
    assert bound(run(queues(**GUARANTEED), runs, ones("z", "other", 8), by=by)) == {"z": 2}


def test_volcano_keeps_all_of_it() -> None:
    idle = [queue("team", state="Closed", **GUARANTEED), queue("other"), *ones("z", "other", 8)]
    assert bound(run(idle, by=POLICIES["capacity"], rules="volcano")) == {"z": 2}


@EITHER
def test_what_runs_within_its_guarantee_is_not_taken(by: str) -> None:
    runs = [pod_group("r", 0, queue="team", phase="Running"), *gang("r", 4, node="n")]
    borrowed = [pod_group("s", 0, queue="lender", phase="Running"), *gang("s", 4, node="n")]
    result = run(
        queues("team", **GUARANTEED, deserved={"cpu": "1"}),
        queue("lender", parent="root", deserved={"cpu": "2"}),
        *(runs, borrowed, ones("z", "other", 8)),
        by=by,
    )
    assert not [victim for victim in result.session.evicted if victim.startswith("default/r-")]


def test_a_parent_keeps_for_its_children_what_one_of_them_can_use() -> None:
    """What is guaranteed to the parent goes to whichever child is open."""
    tree = [queue("dept", parent="root", **GUARANTEED), queue("a", parent="dept"), queue("b", parent="dept")]
    others = [queue("root"), queue("other", parent="root"), *ones("z", "other", 8)]
    assert bound(run(tree, others, by=TREE)) == {"z": 2}
    tree[1] = queue("a", parent="dept", state="Closed")
    assert bound(run(tree, others, by=TREE)) == {"z": 2}
    tree[2] = queue("b", parent="dept", state="Closed")
    assert bound(run(tree, others, by=TREE)) == {"z": 8}


@pytest.mark.parametrize("closed", [(), ("a",), ("b",), ("a", "b"), ("dept",)])
@pytest.mark.parametrize("holds", [0, 2])
def test_a_guarantee_in_a_pool_is_kept_while_a_queue_below_can_use_it(closed: Sequence[str], holds: int) -> None:
    share = {"name": "a", "guarantee": {"resource": {"cpu": "6"}}}
    parents = {"root": "", "dept": "root", "a": "dept", "b": "dept", "other": "root"}
    tree = [
        queue(
            name, parent=parent, state="Closed" if name in closed else "Open", pools=[share] if name == "dept" else []
        )
        for name, parent in parents.items()
    ]
    runs = [pod_group("r", 1, queue="a", phase="Running"), *gang("r", holds, node="a")] if holds else []
    result = decided(in_pool("a", cpu="8"), tree, runs, ones("z", "other", 8), by=pools(enableHierarchy=True))
    usable = "dept" not in closed and not {"a", "b"} <= {*closed}
    assert bound(result) == {"z": 8 - (6 if usable else holds)}


@pytest.mark.parametrize("by", [POLICIES["proportion"], POLICIES["fairshare"]])
def test_it_gets_its_share_again_when_it_opens(by: str) -> None:
    jobs = [*ones("x", "team", 8), *ones("z", "other", 8)]
    assert bound(run(queues(), jobs, by=by)) == {"x": 4, "z": 4}
    assert bound(run(queues("team"), jobs, by=by)) == {"z": 8}


def test_its_weight_counts_for_nothing() -> None:
    """Where only queues without a weight ask for anything, they share what there is."""
    weighted, idle = queue("team", state="Closed", weight=5), queue("other", weight=0)
    result = run(weighted, idle, job("x", "team", 8), job("z", "other", 8), by=POLICIES["proportion"])
    assert bound(result) == {"z": 8}


def test_volcano_divides_for_what_never_gets_anything() -> None:
    shut = [queue("team", state="Closed"), queue("other")]
    jobs = [*job("x", "team", 8), *ones("z", "other", 8)]
    by = POLICIES["proportion"]
    assert (bound(run(shut, jobs, by=by, rules="volcano")), bound(run(shut, jobs, by=by))) == ({"z": 4}, {"z": 8})
