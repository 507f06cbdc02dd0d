"""Limits of users and node pools, and minimum run times: which pods are evicted for a gang that they concern."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from stromboli.api.decisions import Bind, Evict, Nominate
from stromboli.engine import Engine
from stromboli.state.pods import USER_ANNOTATION
from tests.builders import NOON, gang, node, pod_group, queue, state
from tests.expectations.world import CLASSES, VALUES

PREEMPT, RECLAIM = ("preempt", "gangpreempt"), ("reclaim", "gangreclaim")
#: what the policy has beside shares
_PLUGINS = {
    "userlimits": {"limits": [{"users": ["limited"], "maxPods": 2}]},
    "nodepools": {"pools": [{"name": name, "nodeSelector": {"pool": name}} for name in ("old", "new")]},
    "minruntime": {},
}


@cache
def _engine(plugin: str, action: str) -> Engine:
    first = [{"name": name} for name in ("priority", "gang", "conformance")]
    second = [{"name": plugin, "arguments": _PLUGINS[plugin]}, {"name": "predicates"}, {"name": "capacity"}]
    tiers = [{"plugins": first}, {"plugins": second}]
    return Engine(json.dumps({"actions": f"allocate, {action}", "tiers": tiers}))


def job(
    name: str, on: Sequence[str], least: int = 1, of: str = "mine", priority: str = "low", **more: Any
) -> list[Any]:
    """A job with a pod on each of some nodes; one without a node waits."""
    user, status = more.pop("user", ""), more.pop("status", None)
    phase = "Running" if any(on) else "Inqueue"
    group = pod_group(name, least, of, phase, priorityClassName=priority, created=9 if phase == "Inqueue" else 0)
    group.metadata.annotations.update({USER_ANNOTATION: user} if user else {})
    pods: list[Any] = [group]
    for number, at in enumerate(on):
        said = {"status": status} if status and at else {}
        pods += gang(f"{name}-{number}", 1, node=at, priority=VALUES[priority], **said)
        pods[-1].metadata.annotations["scheduling.k8s.io/group-name"] = name
    return pods


def decided(plugin: str, action: str, *objs: Any, **queues: dict[str, Any]) -> tuple[set[str], dict[str, str]]:
    """The jobs that lose pods, and the nodes that pods get or are promised."""
    due = {"mine": {"cpu": "4"}, "theirs": {"cpu": "0"}}
    made = [queue(name, deserved=deserved, **queues.get(name, {})) for name, deserved in due.items()]
    decisions = _engine(plugin, action).decide(state(CLASSES, made, *objs).snapshot(), now=NOON).decisions
    gone = {each.name.partition("-")[0] for each in decisions if isinstance(each, Evict)}
    return gone, {each.name: each.node for each in decisions if isinstance(each, Bind | Nominate)}


@pytest.mark.parametrize("action", [*PREEMPT, *RECLAIM])
def test_no_pod_goes_for_a_user_who_may_hold_no_more(action: str) -> None:
    of = "theirs" if action in RECLAIM else "mine"
    others = job("kept", ["n", "n"], priority="critical", user="limited"), job("low", ["n", "n"], of=of)
    wants = job("wants", [""], priority="high", user="limited")
    assert decided("userlimits", action, node("n", cpu="4"), *others, wants) == (set(), {})


@pytest.mark.parametrize("action", PREEMPT)
def test_a_user_at_the_limit_takes_the_place_of_own_pods(action: str) -> None:
    """Those of another would be as cheap, and there is a free place."""
    others = job("own", ["n", "n"], user="limited"), job("low", ["n"])
    wants = job("wants", [""], priority="high", user="limited")
    gone, places = decided("userlimits", action, node("n", cpu="4"), *others, wants)
    assert (gone, [*places]) == ({"own"}, ["wants-0-0"])


@pytest.mark.parametrize("action", PREEMPT)
@pytest.mark.parametrize("most", [0, 1])
def test_pods_go_in_the_pool_that_their_queue_may_use(action: str, most: int) -> None:
    nodes = [node("n0", cpu="2", labels={"pool": "old"}), node("n1", cpu="2", labels={"pool": "new"})]
    pools = {"pools": [{"name": "old", "capability": {"cpu": str(most)}}]}
    stays = job("stays", ["n0", "n0"], of="theirs")
    low, wants = job("low", ["n1", "n1"]), job("wants", ["", ""], least=2, priority="high")
    gone, places = decided("nodepools", action, *nodes, stays, low, wants, mine=pools)
    assert (gone, {*places.values()}) == ({"low"}, {"n1"})


@pytest.mark.parametrize("action", [*PREEMPT, *RECLAIM])
@pytest.mark.parametrize("seconds", [60, 7200])
def test_a_gang_that_just_began_is_spared(action: str, seconds: int) -> None:
    """It has no pod to spare. NOON is 22:13:20."""
    of = "theirs" if action in RECLAIM else "mine"
    since = {60: "2023-11-14T22:12:20Z", 7200: "2023-11-14T20:13:20Z"}[seconds]
    low = job("low", ["n", "n"], least=2, of=of, status={"startTime": since})
    spared = {of: {"preemptMinRuntime": "1h", "reclaimMinRuntime": "1h"}}
    wants = job("wants", [""], priority="high")
    gone, _ = decided("minruntime", action, node("n", cpu="2"), low, wants, **spared)
    assert gone == ({"low"} if seconds > 3600 else set())
