"""Pods that end slowly: they count in their queue until they are gone, and no others are evicted in their stead."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.framework.plugin.base import Plugin
from stromboli.policy.document import DEFAULT_POLICY
from tests.expectations.invariants import check_starts, holdings_now
from tests.expectations.test_histories import engine
from tests.expectations.test_situations import ENGINES
from tests.expectations.world import Job, World, evictions

#: a queue a that is limited to 4 CPUs, by itself or by a queue above it
QUEUES: dict[str, dict[str, dict[str, Any]]] = {
    "proportion": {"a": {"capability": {"cpu": "4"}}, "b": {}},
    "capacity": {"a": {"capability": {"cpu": "4"}, "deserved": {"cpu": "2"}}, "b": {"deserved": {"cpu": "2"}}},
    "capacity tree": {
        "root": {},
        "top": {"parent": "root", "capability": {"cpu": "4"}, "deserved": {"cpu": "2"}},
        "a": {"parent": "top", "deserved": {"cpu": "2"}},
        "b": {"parent": "root", "deserved": {"cpu": "2"}},
    },
    "fairshare": {"a": {"capability": {"cpu": "4"}}, "b": {}},
}
SHARES = pytest.mark.parametrize("shares", QUEUES)
#: the plugins that filter nodes; `extender` would ask a server
FILTERS = sorted(
    name
    for name, plugin in discover().plugins.items()
    if plugin.predicate is not Plugin.predicate and name not in ("predicates", "extender")
)
SPARE = pytest.mark.parametrize("spare", [False, True], ids=["full", "idle nodes"])


def world(shares: str, actions: str, *jobs: Job, spare: bool, patience: int = 0) -> World:
    """A node with 4 CPUs, and beside it one that is empty."""
    nodes: dict[str, tuple[int, ...]] = {"n0": (4, 16)} | ({"n1": (24, 64)} if spare else {})
    queues = {name: dict(spec) for name, spec in QUEUES[shares].items()}
    return World(
        engine(("allocate", *actions.split(", "), "backfill"), shares), nodes, queues, [*jobs], patience=patience
    )


@pytest.mark.one_in(2)
@SHARES
@SPARE
def test_a_preemptor_waits_for_its_victim_and_for_no_other(shares: str, spare: bool) -> None:
    """However slowly the victim ends: after a while the place is no longer reserved."""
    low = Job("low", "a", count=4, least=1, cpu=1)
    live = world(shares, "preempt, reclaim", low, spare=spare, patience=6)
    live.session()
    high = Job("high", "a", count=1, least=1, cpu=1, priority="middle", created=1)
    live.jobs.append(high)
    gone: list[str] = []
    for _ in range(8):
        before, leaving = holdings_now(live), bool(live.leaving)
        _, result = live.session()
        check_starts(live, before, result)
        gone += [each.name for each in evictions(result)]
        live.now += 120
        assert not (leaving and high.running), "it started while its victim was there"
    assert (len(gone), high.running, low.running) == (1, 1, 3)


@SHARES
def test_a_tenant_who_deletes_pods_again_and_again_stays_within_the_limit(shares: str) -> None:
    job = Job("j", "a", count=4, least=1, cpu=1)
    live = world(shares, "preempt, reclaim", job, spare=True)
    most: Counter[str] = Counter()
    for session in range(12):
        live.session()
        most["cpu"] = max(most["cpu"], live.held_now("a")["cpu"])
        if session % 3 == 1:
            live.delete_pods(job, sessions=6)
    assert most["cpu"] == 4
    for _ in range(8):
        live.session()
    assert job.running == 4


@SHARES
def test_a_reclaim_takes_once_what_ends_slowly(shares: str) -> None:
    """What the first session takes back is not taken again in those that follow, and whom it is for starts at last."""
    borrower = Job("borrower", "b", count=4, least=1, cpu=1)
    live = world(shares, "preempt, reclaim", borrower, spare=False, patience=8)
    live.session()
    live.jobs.append(Job("owner", "a", count=2, least=1, cpu=1, created=1))
    gone = 0
    for _ in range(12):
        _, result = live.session()
        gone += len(list(evictions(result)))
    assert (gone, live.jobs[1].running, borrower.running) == (2, 2, 2)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("frees", [3, 10])
@pytest.mark.parametrize("of_engine", ENGINES, ids=" ".join)
def test_a_job_whose_victim_never_ends_starts_on_a_node_that_becomes_free(
    of_engine: tuple[str, str], frees: int
) -> None:
    """Once its place is reserved no longer, without a second eviction."""
    tree = of_engine[1].endswith("tree")
    share = {"deserved": {"cpu": "16", "memory": "64Gi"}} | ({"parent": "root"} if tree else {})
    queues = ({"root": {}} if tree else {}) | {"a": share}
    live = World(ENGINES[of_engine], {"n1": (2, 64), "n2": (2, 64)}, queues)
    stuck = Job("stuck", "a", 1, 1, cpu=2, slow=1_000_000, created=9, phase="Running")
    other = Job("other", "a", 1, 1, cpu=2, priority="high", created=1, phase="Running")
    waits = Job("waits", "a", 1, 1, cpu=2, priority="high", created=20)
    for job, node in ((stuck, "n1"), (other, "n2")):
        job.pods = dict.fromkeys(job.pods, node)
    live.jobs = [stuck, other, waits]
    evicted = 0
    for session in range(12):
        if session == frees:
            live.jobs.remove(other)
        changes, _ = live.session()
        evicted += changes["evicted"]
        live.now += 100
    assert (evicted, waits.running) == (1, 1)


@pytest.mark.parametrize("plugin", FILTERS)
def test_a_host_port_is_waited_for_beside_every_plugin_that_filters_nodes(plugin: str) -> None:
    """Sessions run meanwhile, whatever else a plugin takes part in."""
    text = DEFAULT_POLICY.replace("allocate, backfill", "allocate, preempt, backfill") + f"  - name: {plugin}\n"
    if plugin == "nodegroup":
        text += "    arguments: {strict: false}\n"
    low = Job("low", "a", 1, 1, cpu=1, port=True, slow=3)
    live = World(Engine(text), {"n1": (4, 64)}, {"a": {}}, [low])
    live.session()
    high = Job("high", "a", 1, 1, cpu=1, port=True, priority="high", created=1)
    live.jobs.append(high)
    evicted = 0
    for _ in range(8):
        changes, result = live.session()
        evicted += changes["evicted"]
        assert not result.session.failures
    assert (evicted, high.running, low.running) == (1, 1, 0)
