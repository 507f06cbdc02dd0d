"""nodepools: shares of queues by pools of nodes, and the pools that jobs may use, in order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.errors import PolicyError
from stromboli.api.reasons import Actionable, Stage
from stromboli.engine import Engine, SessionResult
from stromboli.explain.evictions import why_no_evictions
from tests.builders import gang, node, pod, queue, state
from tests.fuzz import tried
from tests.plugins.pools import CLASSES, in_pool, job, policy, running, shares


def session(*objects: Any, by: str = "") -> SessionResult:
    return Engine(by or policy()).decide(state(CLASSES, *objects).snapshot(), now=0.0)


def placed(*objects: Any, by: str = "") -> Counter[str]:
    """How many pods were bound to each node."""
    return Counter(session(*objects, by=by).session.bound.values())


def why(result: SessionResult, name: str):
    view = result.session.view
    return view.reason(view.jobs[f"default/{name}"])


# -- which pools, and in which order -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ("a", {"a": 4}),
        ("b", {"b": 4}),
        ("a,b", {"a": 4, "b": 2}),
        ("b, a", {"b": 4, "a": 2}),
        ("b,b,", {"b": 4}),
    ],
)
def test_a_job_uses_its_pools_in_order(pools: str, expected: dict[str, int]) -> None:
    nodes = [in_pool("b"), in_pool("a"), node("c", cpu="9")]
    assert placed(*nodes, queue("team"), job("job", 6, pools, least=1)) == expected


def test_the_order_of_pools_outweighs_other_scores() -> None:
    by = yaml.safe_load(policy())
    by["tiers"][2]["plugins"] += [{"name": "binpack", "arguments": {"binpack.weight": 100}}, {"name": "nodeorder"}]
    full = running("full", "b", "b", "b")
    bound = placed(in_pool("b"), in_pool("a"), queue("team"), full, job("job", 1, "a,b"), by=yaml.safe_dump(by))
    assert bound == {"a": 1}


def test_a_job_that_names_no_pool_uses_all_nodes() -> None:
    assert placed(in_pool("a"), node("c", cpu="4"), queue("team"), job("job", 8)) == {"a": 4, "c": 4}


def test_jobs_alike_of_different_pools() -> None:
    nodes = [in_pool("a"), in_pool("b")]
    assert placed(*nodes, queue("team"), job("one", 2, "a"), job("two", 2, "b")) == {"a": 2, "b": 2}


def test_a_gang_starts_whole_or_not_at_all() -> None:
    nodes = [in_pool("a"), in_pool("b")]
    assert placed(*nodes, queue("team"), job("job", 8, "a,b")) == {"a": 4, "b": 4}
    assert placed(*nodes, queue("team"), job("job", 5, "a")) == {}


def test_nodes_of_other_pools_say_so() -> None:
    result = session(in_pool("b"), node("c", cpu="4"), queue("team"), job("job", 1, "a"))
    assert why(result, "job").nodes == {"node(s) in no node pool that the job may use": 2}


def test_a_pool_that_the_policy_does_not_name() -> None:
    result = session(in_pool("a"), queue("team"), job("job", 1, "a,gold"))
    reason = why(result, "job")
    assert (result.session.bound, reason.reason, reason.actionable) == ({}, "NodePoolNotFound", Actionable.User)
    assert reason.message == "PodGroup default/job may use node pool gold, which the policy does not name"
    near = why(session(in_pool("a"), queue("team"), job("job", 1, "spat"), by=policy("spot")), "job")
    assert "node pool spat (did you mean spot?), which" in near.message


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_queue_holds_no_more_than_its_capability_in_a_pool() -> None:
    team = shares("team", a={"capability": "3"})
    nodes = [in_pool("a1"), in_pool("a2"), in_pool("b")]
    assert placed(*nodes, team, job("job", 6, "a,b", least=1))["b"] == 3
    assert sum(placed(*nodes, team, job("job", 6, "a", least=1)).values()) == 3
    assert sum(placed(*nodes, team, running("old", "a1", "a2"), job("job", 6, "a", least=1)).values()) == 1


def test_the_reason_names_the_pool_the_queue_and_the_amounts() -> None:
    team = shares("team", a={"capability": "2"}, b={"capability": "0"})
    result = session(in_pool("a"), in_pool("b"), team, running("old", "a", "a"), job("job", 1, "a,b"))
    reason = why(result, "job")
    assert (reason.reason, reason.actionable) == ("NodePoolLimitReached", Actionable.Wait)
    assert reason.message == "queue team may not hold more in node pools a or b"
    assert reason.detail == (
        "a: cpu: queue team holds 2, may have 2, 1 more requested; "
        "b: cpu: queue team holds 0, may have 0, 1 more requested"
    )


def test_what_is_never_allowed_is_said() -> None:
    result = session(in_pool("a"), shares("team", a={"capability": "500m"}), job("job", 1, "a"))
    assert why(result, "job").actionable is Actionable.User


def test_nodes_of_a_pool_that_is_used_up_say_so() -> None:
    team = shares("team", a={"capability": "1"})
    result = session(in_pool("a"), in_pool("b", cpu="0"), team, running("old", "a"), job("job", 1, "a,b"))
    reason = why(result, "job")
    assert reason.nodes["queue team has no capacity left in node pool a"] == 1


def test_a_job_that_names_no_pool_is_limited_in_pools_only() -> None:
    team = shares("team", a={"capability": "1"})
    assert placed(in_pool("a"), team, job("job", 3, least=1)) == {"a": 1}
    assert placed(in_pool("a"), node("c", cpu="4"), team, job("job", 5)) == {"a": 1, "c": 4}


def test_a_guarantee_is_kept_from_others() -> None:
    owner = shares("owner", a={"guarantee": "3"})
    nodes = [in_pool("a"), in_pool("b")]
    assert placed(*nodes, owner, queue("team"), job("job", 8, "a,b", least=1)) == {"a": 1, "b": 4}
    assert placed(*nodes, owner, job("job", 4, "a", owner="owner")) == {"a": 4}
    result = session(*nodes, owner, queue("team"), job("job", 2, "a"))
    reason = why(result, "job")
    assert (result.session.bound, reason.reason) == ({}, "NodePoolLimitReached")
    assert "may have 1 as other queues hold the rest or are guaranteed it" in reason.detail


def test_a_parent_limits_what_is_below_it() -> None:
    parent = shares("parent", a={"capability": "2"})
    children = [shares("one", parent="parent"), shares("two", parent="parent")]
    jobs = [job("first", 2, "a", owner="one", least=1), job("second", 2, "a", owner="two", least=1)]
    by = policy(enableHierarchy=True)
    assert placed(in_pool("a"), queue("root"), parent, *children, *jobs, by=by) == {"a": 2}


def test_a_gang_that_its_pools_may_never_hold_is_told_so() -> None:
    team = shares("team", a={"capability": "1"}, b={"capability": "2"})
    nodes = [in_pool("a"), in_pool("b")]
    reason = why(session(*nodes, team, job("job", 4, "a,b")), "job")
    assert (reason.reason, reason.actionable) == ("NeverFits", Actionable.User)
    assert reason.message.endswith("starts with more than queue team may ever hold in node pools a or b, in cpu")
    assert reason.detail == "cpu: asks for 4, it may have 3"
    # All pools together have room for as much, but not for whole pods.
    odd, (group, *_) = shares("team", a={"capability": "3"}, b={"capability": "3"}), job("job", 3, "a,b")
    reason = why(session(*nodes, odd, group, *gang("job", 3, cpu="2")), "job")
    assert (reason.reason, reason.actionable, reason.scalable) == ("CannotBePlacedTogether", Actionable.User, False)
    assert reason.detail == "it starts with 3 pods; " + "; ".join(
        f"what queue team may have in node pool {pool}: 3 pods, cpu: 3" for pool in "ab"
    )
    some = [*nodes, team, running("one", "b"), job("job", 3, "a,b")]
    assert why(session(*some), "job").actionable is Actionable.Wait


def test_a_guarantee_is_kept_from_siblings_within_what_the_parent_may_have() -> None:
    parent, one = shares("parent", a={"capability": "5"}), shares("one", parent="parent", a={"guarantee": "2"})
    tree = [in_pool("a", cpu="8"), queue("root"), parent, one, shares("two", parent="parent")]
    greedy = job("greedy", 8, "a", owner="two", least=1)
    by = policy(enableHierarchy=True)
    assert placed(*tree, *greedy, by=by) == {"a": 3}
    result = session(*tree, *running("greedy", "a", "a", "a", owner="two"), job("more", 1, "a", owner="two"), by=by)
    assert "may have 3 as other queues hold the rest or are guaranteed it" in why(result, "more").detail


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "a", "b", "a,b", "b,a"])), min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 3),
)
@tried(20)
def test_no_limit_is_exceeded_and_both_kernels_agree(
    jobs: list[tuple[int, str]], most_a: int, most_b: int, guaranteed: int
) -> None:
    team = shares("team", a={"capability": str(most_a)}, b={"capability": str(most_b)})
    owner = shares("owner", a={"guarantee": str(guaranteed)})
    made = [job(f"job-{at}", count, pools) for at, (count, pools) in enumerate(jobs)]
    cluster = state(CLASSES, in_pool("a1"), in_pool("a2"), in_pool("b"), node("c", cpu="2"), team, owner, *made)
    results = [Engine(policy(), plain=plain).decide(cluster.snapshot(), now=0.0) for plain in (False, True)]
    bound = results[0].session.bound
    assert bound == results[1].session.bound
    held = Counter(where.rstrip("0123456789") for where in bound.values())
    assert held["a"] <= min(most_a, 8 - guaranteed)
    assert held["b"] <= most_b
    for at, (count, _) in enumerate(jobs):
        assert sum(key.startswith(f"default/job-{at}-") for key in bound) in (0, count)


# -- evictions ---------------------------------------------------------------------------------------------------------


def evicted(*objects: Any, actions: str = "allocate, reclaim", **switches: bool) -> set[str]:
    result = session(*objects, by=policy(actions=actions, **switches))
    return {key.partition("/")[2] for key in result.session.evicted}


def test_a_queue_takes_back_what_it_deserves_in_a_pool() -> None:
    """Though the other holds no more than it deserves in all."""
    mine, team = shares("mine", a={"deserved": "2"}), shares("team", a={"deserved": "2"}, b={"deserved": "4"})
    nodes = [in_pool("a"), in_pool("b")]
    full = running("full", "a", "a", "a", "a")
    assert len(evicted(*nodes, mine, team, full, job("job", 2, "a", owner="mine"))) == 2
    assert evicted(*nodes, mine, team, full, job("job", 3, "a", owner="mine")) == set()


def test_a_queue_takes_nothing_in_pools_where_it_deserves_nothing() -> None:
    mine, team = shares("mine", a={"deserved": "2"}), shares("team", a={"deserved": "4"})
    others = running("others", "b", "b", "b", "b"), running("full", "a", "a", "a", "a")
    assert evicted(in_pool("a"), in_pool("b"), mine, team, *others, job("job", 2, "b,a", owner="mine")) == set()


def test_what_a_queue_is_guaranteed_in_a_pool_is_not_taken() -> None:
    mine = shares("mine", a={"deserved": "4"})
    full = running("full", "a", "a", "a", "a")
    kept = shares("team", a={"guarantee": "3"})
    assert len(evicted(in_pool("a"), mine, kept, full, job("job", 1, "a", owner="mine"))) == 1
    assert evicted(in_pool("a"), mine, kept, full, job("job", 2, "a", owner="mine")) == set()


@pytest.mark.parametrize("elsewhere", [0, 1, 2])
def test_what_a_queue_is_guaranteed_of_the_cluster_is_not_taken(elsewhere: int) -> None:
    """Whatever it holds in other pools counts."""
    mine = shares("mine", a={"deserved": "4"})
    kept = queue("team", guarantee={"resource": {"cpu": "3"}})
    full = running("full", *["a"] * 4, *["b"] * elsewhere)
    nodes = [in_pool("a"), in_pool("b")]
    for wanted in range(1, 5):
        found = evicted(*nodes, mine, kept, full, job("job", wanted, "a", owner="mine"))
        assert len(found) == (wanted if wanted <= 1 + elsewhere else 0)


def test_relatives_take_back_within_what_their_parent_holds() -> None:
    parent = shares("parent", a={"deserved": "4"})
    one = shares("one", parent="parent", a={"deserved": "2"})
    two = shares("two", parent="parent", a={"deserved": "2"})
    full = running("full", "a", "a", "a", "a", owner="two")
    objects = [in_pool("a"), queue("root"), parent, one, two, full, job("job", 1, "a", owner="one")]
    assert len(evicted(*objects, enableHierarchy=True)) == 1


def test_why_nothing_is_taken_back() -> None:
    mine, team = shares("mine", a={"deserved": "1"}), queue("team")
    full = running("full", "a", "a", "a"), running("has", "a", owner="mine")
    wants = job("job", 1, "a", owner="mine")
    result = session(in_pool("a"), mine, team, *full, wants, by=policy(actions="allocate, reclaim"))
    told = dict(why_no_evictions(result.session, result.session.view.jobs["default/job"]))["reclaim"]
    assert "queue mine takes back no more in node pool a than it deserves there" in f"{told.message} {told.detail}"


def test_a_job_preempts_its_queue_in_a_pool_that_is_used_up() -> None:
    team = shares("team", a={"capability": "2"})
    low = running("low", "a", "a", priorityClassName="low")
    objects = [in_pool("a"), team, low, job("job", 2, "a", priorityClassName="high")]
    assert evicted(*objects, actions="allocate, preempt") == {"low-0", "low-1"}


# -- admission ---------------------------------------------------------------------------------------------------------


def admitted(*objects: Any, **switches: bool) -> set[str]:
    """The waiting jobs that may compete for places."""
    return admissions(session(*objects, by=policy(actions="enqueue, allocate", **switches)))


def admissions(result: SessionResult) -> set[str]:
    jobs = result.session.view.jobs.values()
    return {job.key.partition("/")[2] for job in jobs if job.pod_group.status.phase == "Pending" != job.phase}


def asking(name: str, cpu: int, pools: str = "", **spec: Any):
    """A job that says what it starts with, and has no pods yet."""
    return job(name, cpu, pools, minResources={"cpu": str(cpu)}, phase="Pending", **spec)


@pytest.mark.parametrize(
    ("cpu", "pools", "starts"),
    [(2, "a", True), (3, "a", False), (5, "a,b", True), (6, "a,b", False), (9, "", True), (9, "b,c", True)],
)
def test_a_job_is_admitted_by_what_its_pools_leave(cpu: int, pools: str, starts: bool) -> None:
    team = shares("team", a={"capability": "3"}, b={"capability": "3"})
    nodes = [in_pool("a"), in_pool("b"), in_pool("c"), node("else", cpu="9")]
    wants = running("has", "a", minResources={"cpu": "1"}), asking("job", cpu, pools)
    by = policy("a", "b", "c", actions="enqueue")
    assert bool(admissions(session(*nodes, team, *wants, by=by))) is starts


def test_jobs_that_were_admitted_claim_their_pools() -> None:
    team = shares("team", a={"capability": "4"}, b={"capability": "4"})
    nodes = [in_pool("a"), in_pool("b")]
    one, two, both = asking("one", 3, "a"), asking("two", 2, "a"), asking("zone", 5, "a,b")
    assert admitted(*nodes, team, one, two) == {"one"}
    assert admitted(*nodes, team, one, both) == {"one", "zone"}
    claiming = job("one", 3, "a", minResources={"cpu": "3"}, phase="Inqueue")
    live = state(CLASSES, *nodes, team, claiming[0], *two)
    reason = why(Engine(policy(actions="enqueue")).decide(live.snapshot(), now=0.0), "two")
    assert (reason.stage, reason.reason) == (Stage.Admission, "NodePoolLimitReached")
    assert reason.detail == (
        "a: cpu: queue team holds 0, 3 more claimed by admitted jobs, may have 4, 2 more requested"
    )


def test_what_jobs_hold_beyond_their_minimum_keeps_none_from_being_admitted() -> None:
    team = shares("team", a={"capability": "4"})
    elastic = running("elastic", *"aaaa", minResources={"cpu": "1"})
    assert admitted(in_pool("a"), team, elastic, asking("job", 3, "a")) == {"job"}
    assert admitted(in_pool("a"), team, elastic, asking("job", 4, "a")) == set()


def test_a_job_that_may_reclaim_is_admitted_up_to_what_guarantees_leave() -> None:
    mine, team = shares("mine", a={"deserved": "4"}), shares("team", a={"guarantee": "1"})
    full = running("full", "a", "a", "a", "a")
    assert admitted(in_pool("a"), mine, team, full, asking("job", 3, "a", owner="mine")) == {"job"}
    assert admitted(in_pool("a"), mine, team, full, asking("job", 4, "a", owner="mine")) == set()


def test_queues_above_limit_admissions() -> None:
    parent = shares("parent", a={"capability": "2"})
    children = [shares("one", parent="parent"), shares("two", parent="parent")]
    jobs = [asking("first", 2, "a", owner="one"), asking("second", 1, "a", owner="two")]
    objects = [in_pool("a"), queue("root"), parent, *children, *jobs]
    assert admitted(*objects, enableHierarchy=True) == {"first"}
    assert admitted(*objects) == {"first", "second"}


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pools", "problem"),
    [
        ([{"name": "a", "nodeSelector": {"x": "1"}}, {"name": "a", "nodeSelector": {"x": "2"}}], "a is named twice"),
        (
            [{"name": "a", "nodeSelector": {"x": "1"}}, {"name": "b", "nodeSelector": {"x": "1", "y": "2"}}],
            "pool b never has a node",
        ),
        ([{"name": "a", "nodeSelector": {}}], "nodeSelector"),
        ([{"name": "a,b", "nodeSelector": {"x": "1"}}], "should be a name"),
    ],
)
def test_pools_that_cannot_be_meant(pools: list[dict[str, Any]], problem: str) -> None:
    by = yaml.safe_load(policy())
    by["tiers"][1]["plugins"][0]["arguments"]["pools"] = pools
    with pytest.raises(PolicyError, match=problem):
        Engine(yaml.safe_dump(by))


def test_a_node_is_of_the_first_pool_that_selects_it() -> None:
    by = yaml.safe_load(policy())
    by["tiers"][1]["plugins"][0]["arguments"]["pools"] = [
        {"name": "fast", "nodeSelector": {"pool": "a", "speed": "fast"}},
        {"name": "a", "nodeSelector": {"pool": "a"}},
    ]
    fast = node("fast", cpu="4", labels={"pool": "a", "speed": "fast"})
    assert placed(fast, in_pool("a"), queue("team"), job("job", 4, "a"), by=yaml.safe_dump(by)) == {"a": 4}


# -- pods that terminate -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deleted", ["its pod", "its PodGroup, too"])
@pytest.mark.parametrize(("cpu", "starts"), [("3", True), ("4", False)])
def test_pods_that_terminate_hold_their_part_of_a_pool(deleted: str, cpu: str, starts: bool) -> None:
    ends = pod("ends-0", "ends", cpu=cpu, node="a", deleted=True)
    live = state(
        CLASSES, in_pool("a", "8"), in_pool("b"), shares("team", a={"capability": "4"}),
        *running("ends", owner="team"), ends, *job("next", 1, "a"),
    )  # fmt: skip
    if deleted != "its pod":
        live.delete("PodGroup", "default/ends")
    result = Engine(policy()).decide(live.snapshot(), now=0.0)
    assert result.session.bound == ({"default/next-0": "a"} if starts else {})
    assert starts or "until pods of it have terminated" in str(why(result, "next"))


@pytest.mark.parametrize("allowed", ["a,b", ""])
def test_a_pod_is_promised_its_place_in_a_pool_where_others_terminate(allowed: str) -> None:
    """Its queue may hold more in the pool of its best place only later, and in another one at once."""
    live = state(
        CLASSES, in_pool("a", "8"), in_pool("b", "1"), shares("team", a={"capability": "2"}),
        *running("ends", owner="team"), pod("ends-0", "ends", cpu="2", node="a", deleted=True),
        *running("other", "b", owner="team"), *job("next", 1, allowed),
    )  # fmt: skip
    engine = Engine(policy())
    result = engine.decide(live.snapshot(), now=0.0)
    assert result.session.bound == {}
    assert "until pods of it have terminated" in str(why(result, "next"))
    live.delete("Pod", "default/ends-0")
    assert engine.decide(live.snapshot(), now=1.0).session.bound == {"default/next-0": "a"}
