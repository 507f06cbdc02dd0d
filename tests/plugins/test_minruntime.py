"""minruntime: gangs run for a minimum time, of their queue or of the policy, before they are preempted or reclaimed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api import crds
from stromboli.api.duration import parse
from stromboli.api.errors import InvalidObjectError, PolicyError
from stromboli.api.objects import Metadata, PriorityClass
from stromboli.engine import Engine, SessionResult
from stromboli.explain.evictions import why_no_evictions
from tests.builders import NOON, gang, node, pod, pod_group, queue, state
from tests.fuzz import tried

CLASSES = [PriorityClass(metadata=Metadata(name=name), value=value) for name, value in (("low", 1), ("high", 10))]
ACTIONS = ("preempt", "reclaim", "gangpreempt", "gangreclaim")


def policy(action: str, **arguments: Any) -> str:
    """A policy with one action that evicts."""
    plugin = {"name": "minruntime", "arguments": arguments}
    share = "capacity" if "reclaim" in action else "predicates"
    tiers = [["priority", "gang", "conformance"], list({"predicates": 0, share: 0})]
    listed: list[dict[str, Any]] = [{"plugins": [{"name": name} for name in tier]} for tier in tiers]
    listed[1]["plugins"].append(plugin)
    return yaml.safe_dump({"actions": f"allocate, {action}", "tiers": listed})


def at(ago: float) -> str:
    """A time so many seconds before the session."""
    return datetime.fromtimestamp(NOON - ago, UTC).isoformat()


def runs(name: str, *ages: float | None, least: int | None = None, **group: Any) -> list[Any]:
    """A gang whose pods have run for some seconds each, on one node; None for a pod that does not say."""
    started = [{"startTime": at(age)} if age is not None else {} for age in ages]
    job = pod_group(
        name, len(ages) if least is None else least, phase="Running", **{"priorityClassName": "low", **group}
    )
    return [job, *(pod(f"{name}-{i}", name, node="n", status=said) for i, said in enumerate(started))]


def session(action: str, *objects: Any, count: int = 1, by: str = "") -> SessionResult:
    """A gang of high priority wants room: of the same queue for preemption, of another one to reclaim."""
    wanting = "mine" if "reclaim" in action else "team"
    waits = [pod_group("waits", count, queue=wanting, priorityClassName="high"), *gang("waits", count)]
    cluster = state(CLASSES, queue("mine", deserved={"cpu": "10"}), waits, *objects)
    return Engine(by or policy(action)).decide(cluster.snapshot(), now=NOON)


def evicted(action: str, *objects: Any, **options: Any) -> set[str]:
    """The pods that are evicted for it."""
    return {key.partition("/")[2] for key in session(action, *objects, **options).session.evicted}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(("age", "goes"), [(599, False), (601, True), (None, True)])
def test_a_gang_is_kept_for_its_minimum(action: str, age: float | None, goes: bool) -> None:
    field = "reclaimMinRuntime" if "reclaim" in action else "preemptMinRuntime"
    old = runs("old", age, queue="team")
    found = evicted(action, node("n", cpu="1"), queue("team", **{field: "10m"}), old)
    assert found == ({"old-0"} if goes else set())


@pytest.mark.parametrize("action", ACTIONS)
def test_the_other_minimum_does_not_matter(action: str) -> None:
    other = "preemptMinRuntime" if "reclaim" in action else "reclaimMinRuntime"
    assert evicted(action, node("n", cpu="1"), queue("team", **{other: "10m"}), runs("old", 1, queue="team")) == {
        "old-0"
    }


@pytest.mark.one_in(2)
@pytest.mark.parametrize("action", ACTIONS)
@given(st.lists(st.sampled_from([30, 90]), min_size=1, max_size=5), st.integers(1, 5), st.integers(1, 5))
@tried(15)
def test_a_young_gang_gives_what_it_can_spare(action: str, ages: list[float], least: int, wanted: int) -> None:
    """It is young until its minimum of pods has run for a minute."""
    least = min(least, len(ages))
    young = sorted(ages)[len(ages) - least] < 60
    field = "reclaimMinRuntime" if "reclaim" in action else "preemptMinRuntime"
    team = queue("team", **{field: "1m"})
    full = node("n", cpu=str(len(ages)))
    found = evicted(action, full, team, runs("old", *ages, least=least, queue="team"), count=wanted)
    assert len(found) in (0, wanted, len(ages))
    assert not young or len(found) <= len(ages) - least
    if young and wanted <= len(ages) - least:
        assert len(found) == wanted


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), st.integers(1, 3))
@tried(15)
def test_pods_that_start_in_the_same_session_are_as_good_as_those_that_run(
    least: int, running: int, starting: int, wanted: int
) -> None:
    """A young gang gives what it then has beyond its minimum, and no more."""
    least = min(least, running)
    team, full = queue("team", preemptMinRuntime="1m"), node("n", cpu=str(running))
    old = runs("old", *[1] * running, least=least, queue="team")
    more = [pod(f"old-more-{i}", "old", cpu="", memory="") for i in range(starting)]
    by = policy("preempt").replace("allocate", "allocate, backfill")
    result = session("preempt", full, team, old, more, count=wanted, by=by)
    assert len(result.session.bound) == starting
    fits = wanted <= running + starting - least and wanted <= running
    assert len(result.session.evicted) == (wanted if fits else 0)


CLASS = {"priorityClasses": {"low": {"preemptMinRuntime": "1h", "reclaimMinRuntime": "0s"}}}


@pytest.mark.parametrize(
    ("action", "spec", "arguments", "goes"),
    [
        ("preempt", {}, {"defaultPreemptMinRuntime": "1h"}, False),
        ("preempt", {"preemptMinRuntime": "0s"}, {"defaultPreemptMinRuntime": "1h"}, True),
        ("preempt", {"preemptMinRuntime": "1s"}, CLASS, False),
        ("reclaim", {"reclaimMinRuntime": "1h"}, CLASS, True),
        ("reclaim", {}, {"defaultReclaimMinRuntime": "1h"}, False),
        ("reclaim", {}, {"defaultPreemptMinRuntime": "1h"}, True),
    ],
)
def test_a_priority_class_outweighs_a_queue_and_that_the_default(
    action: str, spec: dict[str, Any], arguments: dict[str, Any], goes: bool
) -> None:
    young = runs("old", 60, queue="team")
    found = evicted(action, node("n", cpu="1"), queue("team", **spec), young, by=policy(action, **arguments))
    assert bool(found) is goes


#: a, with b and c below, and d and e below b
PARENTS = {"a": "", "b": "a", "c": "a", "d": "b", "e": "b"}


def minimum(victim: str, reclaimer: str, said: dict[str, str], method: str) -> float:
    """What KAI takes for the minimum run time by its two methods."""

    def path(name: str) -> list[str]:
        return [*(path(PARENTS[name]) if name else []), *([name] if name else [])]

    above, other = path(victim), path(reclaimer)
    if method == "lca":
        common = sum(one == two for one, two in zip(above, other, strict=False))
        above = above[: common + 1]
    return next((parse(said[name]) for name in reversed(above) if name in said), 0.0)


@given(
    st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["0s", "1m", "3m"])),
    st.permutations(["c", "d", "e"]),
    st.sampled_from(["lca", "queue"]),
)
@tried(30)
def test_queues_above_are_asked_as_kai_asks_them(said: dict[str, str], pair: list[str], method: str) -> None:
    victim, reclaimer, _ = pair
    given = [
        queue(name, parent=above, deserved={"cpu": str(int(name == reclaimer))}) for name, above in PARENTS.items()
    ]
    for each in given:
        each.spec.reclaim_min_runtime = said.get(each.metadata.name, "")
    waits = [pod_group("waits", queue=reclaimer, priorityClassName="high"), *gang("waits", 1)]
    cluster = state(
        CLASSES, node("n", cpu="2"), given, waits, runs("old", 120, queue=victim), runs("more", 120, queue=victim)
    )
    by = policy("reclaim", reclaimResolveMethod=method)
    session = Engine(by).decide(cluster.snapshot(), now=NOON).session
    assert bool(session.evicted) is (minimum(victim, reclaimer, said, method) <= 120)


@pytest.mark.parametrize(("scheduled", "goes"), [(599, False), (601, True), (None, False)])
def test_a_pod_that_has_not_started_counts_from_when_it_was_scheduled(scheduled: float | None, goes: bool) -> None:
    said = {"type": "PodScheduled", "status": "True"}
    conditions = [] if scheduled is None else [{**said, "lastTransitionTime": at(scheduled)}]
    bound = pod("old-0", "old", node="n", phase="Pending", status={"conditions": conditions})
    group = pod_group("old", queue="team", phase="Running", priorityClassName="low")
    found = evicted("preempt", node("n", cpu="1"), queue("team", preemptMinRuntime="10m"), group, bound)
    assert bool(found) is goes


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_a_start_in_the_future_protects_for_no_longer(action: str) -> None:
    field = "reclaimMinRuntime" if action == "reclaim" else "preemptMinRuntime"
    team = queue("team", **{field: "10m"})
    assert evicted(action, node("n", cpu="1"), team, runs("old", -30, queue="team")) == set()
    assert evicted(action, node("n", cpu="1"), team, runs("old", -3600, queue="team")) == {"old-0"}


def test_sessions_wait_for_the_minimum_only_where_something_would_be_evicted() -> None:
    full, old = node("n", cpu="1"), runs("old", 60, queue="team")
    kept = session("preempt", full, queue("team", preemptMinRuntime="10m"), old).session
    assert kept.view.volatile
    assert not kept.evicted
    idle = state(CLASSES, full, queue("team", preemptMinRuntime="10m"), old)
    for cluster in (idle, state(CLASSES, full, queue("team"), old)):
        assert not Engine(policy("preempt")).decide(cluster.snapshot(), now=NOON).session.view.volatile


def test_nobody_is_asked_where_no_minimum_is_given() -> None:
    def asked(**spec: Any) -> bool:
        team = queue("team", **spec)
        found = session(
            "preempt", node("n", cpu="1"), team, runs("old", 60, queue="team", priorityClassName="high")
        ).session
        (waiting,) = found.view.members(found.view.jobs["default/waits"])
        return "minruntime" in dict(found.points.named("preemptable", waiting, []))

    assert asked(preemptMinRuntime="1s")
    assert not asked()


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_it_is_told_until_when_a_gang_is_kept(action: str) -> None:
    field = "reclaimMinRuntime" if action == "reclaim" else "preemptMinRuntime"
    found = session(action, node("n", cpu="1"), queue("team", **{field: "10m"}), runs("old", 60, queue="team")).session
    (why,) = [reason for _, reason in why_no_evictions(found, found.view.jobs["default/waits"])]
    assert why.reason == "NoVictims"
    assert f"their minimum run time protects default/old until {at(60 - 600)}" in why.told


@pytest.mark.parametrize("text", ["soon", "-1s", "10"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidObjectError, match=r"Queue q: spec\.preemptMinRuntime"):
        crds.Queue.parse({"metadata": {"name": "q"}, "spec": {"preemptMinRuntime": text}})
    with pytest.raises(PolicyError, match="defaultPreemptMinRuntime"):
        Engine(policy("preempt", defaultPreemptMinRuntime=text))
