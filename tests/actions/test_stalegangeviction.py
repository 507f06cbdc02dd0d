"""stalegangeviction: what is left of a gang goes when the gang stays below its minimum."""

from __future__ import annotations

from typing import Any

from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.environment import OFFLINE, Environment
from tests import builders
from tests.actions.evictions import evicted, running
from tests.builders import NOON, gang, node, pod, pod_group, queue

POLICY = builders.policy("gang", "predicates", actions="allocate, stalegangeviction")
OBJECTS = [queue("rich"), node("n", cpu="4")]
#: a gang of three that has lost one pod, which does not fit
SHORT = [*running("gang", "n", "n", least=3), pod("gang-new", "gang", cpu="3")]


def decide(*objs: Any, after: float = 0, environment: Environment = OFFLINE, policy: str = POLICY) -> SessionResult:
    snapshot = builders.state(OBJECTS, *objs).snapshot()
    return Engine(policy).decide(snapshot, now=NOON + after, environment=environment)


def test_a_gang_that_stays_short_is_evicted_whole() -> None:
    first = decide(SHORT)
    assert evicted(first) == []
    soon = decide(SHORT, after=59, environment=first.environment)
    assert evicted(soon) == []
    assert evicted(decide(SHORT, after=60, environment=soon.environment)) == ["gang-0", "gang-1"]


def test_the_time_begins_anew_when_the_gang_was_complete() -> None:
    first = decide(SHORT)
    complete = decide(running("gang", "n", "n", "n", least=3), after=30, environment=first.environment)
    again = decide(SHORT, after=60, environment=complete.environment)
    assert evicted(again) == []
    assert evicted(decide(SHORT, after=120, environment=again.environment)) == ["gang-0", "gang-1"]


def test_the_time_begins_anew_when_the_clock_was_ahead() -> None:
    ahead = decide(SHORT, after=86_400 * 365)
    now = decide(SHORT, environment=ahead.environment)
    assert evicted(decide(SHORT, after=60, environment=now.environment)) == ["gang-0", "gang-1"]


def test_a_gang_that_is_about_to_be_complete_stays() -> None:
    leaving = pod("other", "", cpu="2", node="n", scheduler="default-scheduler", deleted=True)
    pods = [*running("gang", "n", "n", least=3), pod("gang-new", "gang", cpu="2")]
    first = decide(pods, leaving)
    assert evicted(decide(pods, leaving, after=99, environment=first.environment)) == []


def test_jobs_that_need_no_more_pods_stay_and_nobody_protects_a_broken_gang() -> None:
    at_once = POLICY + "\nconfigurations: [{name: stalegangeviction, arguments: {gracePeriod: 0s}}]"
    elastic = [*running("elastic", "n", least=1), *gang("elastic", 1, cpu="9")]
    done = [*running("done", "n", least=2), pod("done-1", "done", node="n", phase="Succeeded")]
    stubborn = [*running("gang", "n", least=2, annotations={"volcano.sh/preemptable": "false"}), pod("x", "gang", "9")]
    assert evicted(decide(elastic, done, stubborn, policy=at_once)) == ["gang-0"]


def test_whom_the_cluster_itself_needs_stays() -> None:
    at_once = POLICY + "\nconfigurations: [{name: stalegangeviction, arguments: {gracePeriod: 0s}}]"
    for of in ({"priority": 2_000_000_000}, {"namespace": "kube-system"}):
        where = {"namespace": of["namespace"]} if "namespace" in of else {}
        group = pod_group("gang", 2, phase="Running", queue="rich", **where)
        pods = [pod("gang-0", "gang", node="n", **of), pod("gang-1", "gang", "9", **of)]
        assert evicted(decide(group, pods, policy=at_once)) == []
