"""Pods that terminate hold the room of their queue until they are gone, in every plugin that limits queues."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.reasons import Actionable
from stromboli.engine import Engine, SessionResult
from tests.builders import NOON, gang, node, pod_group, queue, state
from tests.plugins.queues import bound, evicted, holds, refused, wants, why
from tests.plugins.sessions import decide, policy

#: a queue a that is limited to 4 CPUs, by itself or by a queue above it
LIMITED: dict[str, list[Any]] = {
    "proportion": [queue("a", capability={"cpu": "4"})],
    "capacity": [queue("a", capability={"cpu": "4"})],
    "tree": [queue("root"), queue("top", parent="root", capability={"cpu": "4"}), queue("a", parent="top")],
    "fairshare": [queue("a", capability={"cpu": "4"})],
}
KINDS = pytest.mark.parametrize("kind", LIMITED)


def by(kind: str, actions: str = "allocate") -> str:
    text = policy("capacity" if kind == "tree" else kind, actions=actions)
    return text.replace("name: capacity", "name: capacity\n    enableHierarchy: true") if kind == "tree" else text


def run(kind: str, *objs: Any, actions: str = "allocate", **options: Any) -> SessionResult:
    """One session on two nodes with 16 CPUs each."""
    nodes = node("n", cpu="16"), node("m", cpu="16")
    return decide(*nodes, *LIMITED[kind], *objs, by=by(kind, actions), **options)


def ends(queue: str, count: int, **more: Any) -> list[Any]:
    """A job QUEUE-ends of which so many pods of a CPU terminate on node n."""
    name = f"{queue}-ends"
    return [pod_group(name, 0, queue=queue, phase="Running"), *gang(name, count, memory="", node="n", deleted=True)]


@KINDS
@pytest.mark.parametrize(("running", "ending", "starting"), [(0, 4, 0), (1, 2, 1), (0, 20, 0), (4, 0, 0), (0, 0, 4)])
def test_they_count_to_what_a_queue_may_have(kind: str, running: int, ending: int, starting: int) -> None:
    objs = (*holds("a", running), *ends("a", ending), *wants("a", 6))
    assert bound(run(kind, *objs)) == ({"a": starting} if starting else {})
    volcano = bound(run(kind, *objs, compatibility="volcano"))
    assert volcano.get("a", 0) == 4 - running


@KINDS
def test_a_pod_says_that_it_waits_for_them(kind: str) -> None:
    result = run(kind, *holds("a", 1), *ends("a", 3), *wants("a", 1))
    told = why(result, "a-0")
    assert (told.reason, told.actionable) == ("QueueCapabilityExceeded", Actionable.Wait)
    assert "holds 1, terminating pods 3 more" in (told.detail or "")
    assert refused(result, "a").reason == told.reason


@KINDS
def test_other_queues_and_pods_that_wait_with_a_finalizer_do_not_count(kind: str) -> None:
    other = queue("b", parent="root") if kind == "tree" else queue("b")
    unbound = [pod_group("gone", 0, "a"), *gang("gone", 4, memory="", deleted=True)]
    assert bound(run(kind, other, *ends("b", 4), *unbound, *wants("a", 6))) == {"a": 4}


@KINDS
def test_a_gang_waits_whole(kind: str) -> None:
    gangs = pod_group("g", 2, "a"), *gang("g", 2, memory="")
    assert bound(run(kind, *holds("a", 1), *ends("a", 2), *gangs)) == {}
    assert bound(run(kind, *holds("a", 1), *ends("a", 1), *gangs)) == {"g": 2}


@KINDS
@pytest.mark.parametrize("actions", ["allocate, preempt", "preempt, allocate", "preempt, allocate, preempt"])
def test_nobody_else_goes_while_a_victim_ends(kind: str, actions: str) -> None:
    """Neither a victim's place nor an idle one is the preemptor's before the victim is gone."""
    held = [pod_group("low", 0, "a", phase="Running"), *gang("low", 3, memory="", node="n", priority=1)]
    ending = [pod_group("was", 0, "a", phase="Running"), *gang("was", 1, memory="", node="n", deleted=True)]
    preemptor = [pod_group("high", 1, "a"), *gang("high", 1, memory="", priority=100)]
    result = run(kind, *held, *ending, *preemptor, actions=actions)
    assert (bound(result), evicted(result)) == ({}, {})


@KINDS
def test_what_a_session_evicts_is_not_given_away_in_it(kind: str) -> None:
    """A queue that loses a pod starts none for it elsewhere before it is gone."""
    other = queue("b", parent="root") if kind == "tree" else queue("b")
    objs = (other, *holds("a", 4, priorityClassName=""), *wants("a", 2), *wants("b", 1))
    result = run(kind, *objs, actions="reclaim, preempt, allocate")
    assert "a" not in bound(result)


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_a_guarantee_is_kept_while_a_borrowers_pods_end(plugin: str) -> None:
    """Of 8 CPUs 4 are guaranteed to b; the terminating pods of a leave nothing for c beyond that."""
    queues = queue("a"), queue("b", guarantee={"resource": {"cpu": "4"}}), queue("c")
    objs = (node("n", cpu="8"), *queues, *ends("a", 3), *wants("c", 6))
    assert bound(decide(*objs, by=policy(plugin))) == {"c": 1}
    assert bound(decide(*objs, *wants("b", 4), by=policy(plugin)))["b"] == 4


def test_who_is_full_of_terminating_pods_takes_nothing_back() -> None:
    queues = queue("a", capability={"cpu": "4"}, deserved={"cpu": "4"}), queue("b", deserved={"cpu": "12"})
    free = [node("m", cpu="1")]
    objs = (node("n", cpu="16"), *free, *queues, *holds("b", 12), *holds("b", 0), *ends("a", 4))
    filler = [pod_group("more", 0, "b", phase="Running"), *gang("more", 1, memory="", node="m")]
    wanted = [pod_group("w", 1, "a"), *gang("w", 1, memory="", nodeSelector={"kubernetes.io/hostname": "m"})]
    result = decide(*objs, *filler, *wanted, by=policy("capacity", actions="allocate, reclaim"))
    assert (bound(result), evicted(result)) == ({}, {})


@KINDS
@pytest.mark.parametrize("deleted", [True, False])
def test_pods_whose_group_was_deleted_count_until_they_are_gone(kind: str, deleted: bool) -> None:
    """As with a job that is deleted: its PodGroup goes at once, and its pods end slowly."""
    nodes, pods = (node("n", cpu="16"), node("m", cpu="16")), gang("gone", 3, memory="", node="n", deleted=deleted)
    cluster = state(queue("default"), *nodes, *LIMITED[kind], pod_group("gone", 0, "a"), *pods, *wants("a", 6))
    engine = Engine(by(kind))
    cluster.delete("PodGroup", "default/gone")
    assert bound(engine.decide(cluster.snapshot(), now=NOON)) == {"a": 1}
    for each in pods:
        cluster.delete("Pod", f"default/{each.metadata.name}")
    assert bound(engine.decide(cluster.snapshot(), now=NOON)) == {"a": 4}
    assert not cluster.jobs.left
