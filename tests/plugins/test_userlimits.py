"""userlimits: what one user may hold in a queue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stromboli.api.errors import PolicyError
from stromboli.api.objects import Metadata, PriorityClass
from stromboli.engine import Engine
from tests.builders import decide, gang, node, pod, pod_group, queue, state
from tests.explain.asking import why
from tests.plugins.queues import bound

USER, GROUPS = "stromboli.io/user", "stromboli.io/groups"


def limiting(*limits: dict[str, Any], actions: str = "enqueue, allocate, backfill") -> str:
    plugins = [{"name": "gang"}, {"name": "userlimits", "arguments": {"limits": list(limits)}}, {"name": "predicates"}]
    return json.dumps({"actions": actions, "tiers": [{"plugins": plugins}]})


def job(name: str, user: str, count: int, least: int = 1, in_queue: str = "q", **pods: Any) -> list[Any]:
    """A job of a user; `groups` are theirs, one a line."""
    groups, phase = pods.pop("groups", ""), pods.pop("phase", "Pending")
    group = pod_group(name, least, queue=in_queue, phase=phase, minResources=pods.pop("min_resources", None))
    notes = {USER: user, GROUPS: groups} if user else {}
    group = group.model_copy(update={"metadata": group.metadata.model_copy(update={"annotations": notes})})
    return [group, *gang(name, count, **pods)]


def outcome(*objs: Any, by: str) -> dict[str, int]:
    return dict(bound(decide(state(node("n", cpu="32"), queue("q"), queue("r"), *objs), by)))


def test_each_user_may_hold_so_many_pods_in_each_queue() -> None:
    jobs = [job("a", "ann", 3), job("b", "ann", 3), job("c", "bob", 3), job("d", "ann", 3, in_queue="r")]
    found = outcome(*jobs, by=limiting({"users": ["*"], "maxPods": 4}))
    assert found.get("a", 0) + found.get("b", 0) == 4
    assert (found["c"], found["d"]) == (3, 3)


def test_each_user_may_hold_so_much_of_a_resource() -> None:
    found = outcome(job("a", "ann", 5, cpu="2"), job("b", "bob", 1), by=limiting({"resources": {"cpu": "7"}}))
    assert found == {"a": 3, "b": 1}


def test_a_resource_that_no_limit_names_is_unlimited_and_one_that_is_zero_is_none() -> None:
    limit = {"resources": {"nvidia.com/gpu": "0"}}
    asks = job("g", "ann", 1, resources={"nvidia.com/gpu": "1"})
    with_cards = node("n", cpu="32", resources={"nvidia.com/gpu": "8"})
    result = decide(state(with_cards, queue("q"), asks, job("c", "ann", 3)), limiting(limit))
    assert bound(result) == {"c": 3}


@pytest.mark.parametrize(
    ("limits", "held"),
    [
        ([{"users": ["ann"], "maxPods": 1}, {"maxPods": 2}], {"a": 1, "b": 2}),
        ([{"maxPods": 2}, {"users": ["ann"], "maxPods": 1}], {"a": 2, "b": 2}),
        ([{"groups": ["staff"], "maxPods": 1}], {"a": 3, "b": 1}),
        ([{"groups": ["st*"], "users": ["ann"], "maxPods": 1}], {"a": 1, "b": 1}),
        ([{"queues": ["r"], "maxPods": 1}], {"a": 3, "b": 3}),
        ([{"queues": ["q*"], "maxPods": 1}], {"a": 1, "b": 1}),
        ([], {"a": 3, "b": 3}),
    ],
)
def test_the_first_limit_for_a_queue_and_a_user_counts(limits: list[dict[str, Any]], held: dict[str, int]) -> None:
    jobs = job("a", "ann", 3), job("b", "bob", 3, groups="guests\nstaff")
    assert outcome(*jobs, by=limiting(*limits)) == held


def test_jobs_of_unknown_users_count_as_those_of_one() -> None:
    found = outcome(job("a", "", 3), job("b", "", 3), by=limiting({"maxPods": 4}))
    assert sum(found.values()) == 4


@pytest.mark.parametrize("starts", [True, False])
def test_a_pod_in_the_job_of_another_user_counts_for_who_made_it_as_well(starts: bool) -> None:
    """Else whoever may use a namespace gets beyond a limit in the job of a user whom none holds for."""
    by = limiting({"groups": ["board"]}, {"users": ["*"], "maxPods": 2})
    theirs = job("theirs", "ceo", 1, groups="board", phase="Running", node="n")
    guests = [pod(f"guest-{at}", "theirs", annotations={USER: "ann"}) for at in range(3)]
    runs = [pod("guest-r", "theirs", node="n", annotations={USER: "ann"})]
    assert outcome(theirs, *guests, *([] if starts else runs), by=by) == {"guest": 2 if starts else 1}
    own = job("own", "ann", 2)
    assert outcome(theirs, *runs, own, by=by) == {"own": 1}
    members = [pod(f"more-{at}", "theirs", annotations={USER: "ceo"}) for at in range(3)]
    assert outcome(theirs, *members, by=by) == {"more": 3}


def test_terminating_pods_in_the_job_of_another_user_count_until_they_are_gone() -> None:
    by = limiting({"users": ["ann"], "maxPods": 1})
    ends = pod("guest-0", "theirs", node="n", annotations={USER: "ann"}, deleted=True)
    assert outcome(job("theirs", "ceo", 1), ends, job("own", "ann", 1), by=by) == {"theirs": 1}


def test_a_user_whose_groups_changed_is_still_one_user() -> None:
    jobs = job("a", "ann", 3, groups="staff"), job("b", "ann", 3, groups="staff\nboard")
    assert sum(outcome(*jobs, by=limiting({"groups": ["staff"], "maxPods": 4})).values()) == 4


def test_a_gang_starts_whole_within_the_limit_or_not_at_all() -> None:
    assert outcome(job("a", "ann", 4, least=4), job("b", "ann", 2, least=2), by=limiting({"maxPods": 5})) in (
        {"a": 4},
        {"b": 2},
    )


def test_what_runs_counts_and_pods_that_request_nothing_do_too() -> None:
    running = job("run", "ann", 2, node="n", phase="Running")
    waiting = job("wait", "ann", 3, cpu="", memory="", phase="Inqueue")
    assert outcome(running, waiting, by=limiting({"maxPods": 3})) == {"wait": 1}


def test_a_job_above_the_limit_is_not_admitted_and_claims_nothing() -> None:
    many = job("many", "ann", 0, least=4, min_resources={"cpu": "4"})
    other = job("other", "bob", 0, least=2, min_resources={"cpu": "2"})
    result = decide(state(node("n"), queue("q"), many, other), limiting({"resources": {"cpu": "3"}}))
    phases = {each.name: each.phase for each in result.session.view.jobs.values()}
    assert phases == {"many": "Pending", "other": "Inqueue"}
    told = result.session.view.trace.jobs["default/many"]
    assert (told.reason, told.actionable) == ("UserLimitReached", "user")


def test_what_was_admitted_counts_until_it_runs() -> None:
    jobs = [job(name, "ann", 0, least=2, min_resources={"cpu": "2"}) for name in "ab"]
    result = decide(state(node("n"), queue("q"), *jobs), limiting({"resources": {"cpu": "3"}}))
    assert sorted(each.phase for each in result.session.view.jobs.values()) == ["Inqueue", "Pending"]


def test_what_keeps_a_job_from_admission_names_what_others_claim() -> None:
    jobs = [job(name, "ann", 1, cpu="1500m", min_resources={"cpu": "1500m"}) for name in ("a", "b")]
    result = decide(state(node("n", cpu="32"), queue("q"), *jobs), limiting({"resources": {"cpu": "2"}}))
    reason = result.session.view.reason(result.session.view.jobs["default/b"])
    assert reason is not None
    assert reason.detail == "cpu: holds 0, 1.5 more claimed by admitted jobs, may have 2, 1.5 more requested"


def test_evicting_pods_of_the_same_user_makes_room_within_the_limit() -> None:
    low = job("low", "ann", 2, node="n", phase="Running")
    high = job("high", "ann", 1, phase="Inqueue")
    high[0] = high[0].model_copy(update={"spec": high[0].spec.model_copy(update={"priority_class_name": "high"})})
    plugins = [{"name": name} for name in ("priority", "gang", "predicates")]
    plugins.insert(2, {"name": "userlimits", "arguments": {"limits": [{"maxPods": 2}]}})  # type: ignore[dict-item]
    by = json.dumps({"actions": "allocate, preempt", "tiers": [{"plugins": plugins}]})
    urgent = PriorityClass(metadata=Metadata(name="high"), value=10)
    result = decide(state(node("n", cpu="2"), queue("q"), urgent, low, high), by)
    assert len(result.session.evicted) == 1


def test_why_names_the_user_and_the_limit() -> None:
    by = limiting({"users": ["ann"], "maxPods": 2})
    asked = state(node("n", cpu="32"), queue("q"), job("run", "ann", 2, node="n", phase="Running"), job("a", "ann", 1))
    told = why(asked, "job default/a", by)
    assert (told.reason, told.who) == ("UserLimitReached", "wait")
    assert told.message == "user ann may not hold more in queue q: pods"
    assert told.detail == "pods: holds 2, may have 2, 1 more requested"


@pytest.mark.parametrize("asks", [{}, {"min_resources": {"cpu": "5"}}])
def test_a_gang_wider_than_the_limit_is_said_to_be_impossible(asks: dict[str, Any]) -> None:
    cluster = state(node("n", cpu="32"), queue("q"), job("wide", "ann", 5, 5, **asks), job("other", "bob", 1))
    told = why(cluster, "job default/wide", limiting({"maxPods": 3}))
    assert (told.reason, told.who) == ("NeverFits", "user")
    assert told.message.endswith("starts with more than queue q ever lets user ann hold in pods")
    assert told.detail == "pods: asks for 5, it may have 3"
    changes = [remedy.change.partition(" in ")[0] for remedy in told.remedies]
    assert changes == ["set minMember: 3", "raise maxPods to 5"]
    assert not told.holders


def test_what_a_gang_asks_for_is_told_once_though_some_of_its_pods_were_tried() -> None:
    running = job("run", "ann", 1, cpu="4", node="n", phase="Running")
    gang_of_three = job("a", "ann", 3, 3, cpu="4", min_resources={"cpu": "12"}, phase="Inqueue")
    cluster = state(node("n", cpu="32"), queue("q"), running, gang_of_three)
    told = why(cluster, "job default/a", limiting({"resources": {"cpu": "12"}}))
    assert "cpu: holds 4, may have 12, 12 more requested" in told.detail


def test_jobs_of_the_same_user_hold_what_is_missing() -> None:
    mine, other = (job(name, name, 2, node="n", phase="Running") for name in ("ann", "bob"))
    cluster = state(node("n", cpu="32"), queue("q"), mine, other, job("more", "ann", 1))
    told = why(cluster, "job default/more", limiting({"maxPods": 2}))
    assert [each.name for each in told.holders] == ["ann"]


@pytest.mark.parametrize("most", [2, 3])
def test_pods_that_terminate_count_until_they_are_gone(most: int) -> None:
    """A user who deletes pods holds their places as long as they end, and blocks no other user."""
    ends = job("ends", "ann", 2, node="n", deleted=True, phase="Running")
    objects = [node("n", cpu="32"), queue("q"), ends, job("next", "ann", 2), job("other", "bob", 2)]
    by = limiting({"maxPods": most})
    assert bound(decide(state(*objects), by)) == {"other": 2, **({"next": 1} if most == 3 else {})}
    told = decide(state(*objects), by).session
    reason = str(told.view.reason(told.view.jobs["default/next"]))
    assert most == 3 or "user ann may not hold more in queue q until pods of it have terminated" in reason


def test_a_mistake_in_a_limit_is_named() -> None:
    with pytest.raises(PolicyError, match=r"limits\[0\].maxPod"):
        Engine(limiting({"maxPod": 3}))
