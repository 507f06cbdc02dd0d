"""Pods that a disruption budget kept from eviction are left alone for a while: others are evicted, or none."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import Engine
from stromboli.explain.evictions import why_no_evictions
from stromboli.framework.diagnosis.explain import pending_reasons
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.refusals import Refusal
from tests.builders import NOON, gang, node, pod_group, queue, state
from tests.expectations.test_preemption import CLASSES, gone, job, wants

BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
PREEMPTING = pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
RULES = pytest.mark.parametrize("compatibility", ["strict", "volcano"])


def decide(action: str, *objs: Any, refused: tuple[str, ...] = (), by: Any = None) -> Any:
    """One session, after evictions of some pods for default/wants were refused."""
    cluster = state(CLASSES, queue("default"), *objs)
    for name in refused:
        cluster.refused[f"uid-{name}"] = Refusal(f"default/{name.rpartition('-')[0]}", "default/wants", BUDGET)
    text = DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}, backfill")
    return Engine(text, compatibility=by).decide(cluster.snapshot(), now=NOON)


def two_jobs() -> list[Any]:
    return [node("n", cpu="4"), *job("cheap", "n", "n"), *job("dear", "n", "n", of="middle"), *wants(1)]


@PREEMPTING
@RULES
def test_another_victim_goes(action: str, compatibility: str) -> None:
    assert gone(decide(action, *two_jobs(), by=compatibility)) == {"cheap": 1}
    assert gone(decide(action, *two_jobs(), refused=("cheap-0", "cheap-1"), by=compatibility)) == {"dear": 1}


@PREEMPTING
def test_of_a_job_its_other_pods_go(action: str) -> None:
    for alone in ("cheap-0", "cheap-1"):
        result = decide(action, *two_jobs(), refused=(alone,))
        assert set(result.session.evicted) == {"default/cheap-0", "default/cheap-1"} - {f"default/{alone}"}


@PREEMPTING
def test_a_gang_does_not_go_without_the_pod_that_cannot(action: str) -> None:
    cluster = [node("n", cpu="4"), *job("gang", "n", "n", least=2), *job("dear", "n", "n", of="middle", least=2)]
    assert gone(decide(action, *cluster, *wants(1), refused=("gang-1",))) == {"dear": 2}


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_another_queue_gives(action: str) -> None:
    """Each of three queues deserves 4 of 12 CPUs."""
    holders = []
    for name in ("rich", "richer"):
        holders += [queue(name), *job(name, *["n"] * 6)]
        holders[-7].spec.queue = name
    waits = [queue("poor"), pod_group("wants", queue="poor"), *gang("wants", 4, memory="")]
    cluster = [node("n", cpu="12"), *holders, *waits]
    assert gone(decide(action, *cluster)) == {"rich": 2, "richer": 2}
    assert gone(decide(action, *cluster, refused=tuple(f"rich-{i}" for i in range(6)))) == {"richer": 2}


def test_nobody_moves_who_could_not_be_evicted() -> None:
    nodes = [node(name, cpu="2") for name in ("a", "b")]
    cluster = [*nodes, *job("one", "a"), *job("two", "b"), *wants(1, cpu="2")]
    assert sum(gone(decide("consolidation", *cluster)).values()) == 1
    assert gone(decide("consolidation", *cluster, refused=("one-0",))) == {"two": 1}
    assert gone(decide("consolidation", *cluster, refused=("one-0", "two-0"))) == {}


@PREEMPTING
def test_who_waits_is_told(action: str) -> None:
    cluster = [node("n", cpu="2"), *job("low", "n", "n"), *wants(2)]
    session = decide(action, *cluster, refused=("low-0", "low-1")).session
    told = {reason.told for reason in pending_reasons(session).values()}
    kept = "pods of PodGroup default/low were not evicted for it: " + BUDGET.rstrip(".")
    assert [kept in each for each in told] == [True] * len(told)
    ((_, why),) = why_no_evictions(session, session.view.jobs["default/wants"])
    assert (why.reason, why.detail) == ("EvictionRefused", f"2 of default/low: {BUDGET.rstrip('.')}")
