"""How the tenants of a cluster share the work of sessions."""

from __future__ import annotations

import math

import pytest

from stromboli.api import objects
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.explain.rehearsal import advance
from stromboli.framework.environment import Environment
from stromboli.framework.explain import pending_reasons
from stromboli.state.cluster import ClusterState
from tests import builders

ACTIONS = "enqueue, allocate, backfill"


def engine(steps: int, compatibility: str = "strict") -> Engine:
    text = builders.policy("priority gang", "drf predicates proportion nodeorder", actions=ACTIONS)
    return Engine(f"{text}\ncompatibility: {compatibility}\nsession: {{steps: {steps}}}\n")


def mass(name: str, number: int, cpu: int, queue: str = "mass", **fields: object) -> list[object]:
    """Pods in PodGroups of their own, each with a request that no other has, in milli-CPUs from `cpu` on."""
    found: list[object] = []
    for at in range(number):
        key = f"{name}-{at:04}"
        found.append(builders.pod_group(key, 1, queue=queue, phase="Inqueue", **fields))
        found.append(builders.pod(key, group=key, cpu=f"{cpu + at}m"))
    return found


def busy(*more: object, nodes: int = 4) -> ClusterState:
    """A cluster whose nodes have 8 CPUs, of which 4 are taken: 5 would fit if others went."""
    return builders.state(
        *(builders.node(f"n{at}") for at in range(nodes)),
        builders.queue("mass"),
        builders.queue("other", created=1),
        builders.pod_group("runs", nodes, phase="Running"),
        builders.queue("default"),
        *(builders.pod(f"runs-{at}", group="runs", cpu="4", node=f"n{at}") for at in range(nodes)),
        *more,
    )


def session(decide: Successive, cluster: ClusterState) -> SessionResult:
    result = decide.decide(cluster.snapshot(), now=builders.NOON)
    advance(cluster, result.decisions, builders.NOON)
    return result


def not_reached(result: SessionResult) -> set[str]:
    """The pods whose turn is still to come; it did not come in an earlier session either."""
    reasons = pending_reasons(result.session).items()
    return {key for key, why in reasons if why.reason == "TurnPending" and "in the next sessions" in why.message}


def tried(result: SessionResult, pods: set[str]) -> set[str]:
    return pods - not_reached(result)


def names(number: int, name: str = "mass") -> set[str]:
    return {f"default/{name}-{at:04}" for at in range(number)}


STEPS = 100_000


@pytest.mark.parametrize("cpu", [5_000, 100], ids=["no room", "room"])
def test_a_gang_of_another_queue_is_placed_in_the_first_session(cpu: int) -> None:
    gang = [builders.pod_group("late", 3, queue="other", created=9), *builders.gang("late", 3, cpu="1500m")]
    result = session(Successive(engine(STEPS), Environment()), busy(*mass("mass", 60, cpu), *gang, nodes=6))
    assert {f"default/late-{at}" for at in range(3)} <= result.session.bound.keys()
    assert result.unfinished
    assert not_reached(result) <= names(60)


def test_what_is_left_over_comes_in_order_until_all_had_their_turns() -> None:
    cluster, decide = busy(*mass("mass", 60, 5_000)), Successive(engine(STEPS), Environment())
    left = names(60)
    for _ in range(60):
        result = session(decide, cluster)
        waiting = not_reached(result)
        had = left - waiting
        assert had
        assert waiting <= left
        assert not waiting or max(had) < min(waiting)
        left = waiting
        if not left:
            break
    assert not left
    assert not result.unfinished
    assert decide.environment.left["turns of allocate"] == {}


def test_nothing_more_is_tried_when_all_had_their_turns_and_nothing_changes() -> None:
    cluster, decide = busy(*mass("mass", 60, 5_000)), Successive(engine(STEPS), Environment())
    results = [decide.decide(cluster.snapshot(), now=builders.NOON) for _ in range(math.ceil(60 / 5))]
    ends = [number for number, result in enumerate(results) if not result.unfinished]
    assert ends
    assert all(not result.conclusive for result in results if result.unfinished)


def test_a_namespace_does_not_delay_the_others_in_its_queue() -> None:
    late = [builders.pod_group("late", 2, queue="mass", created=9, namespace="other")]
    late += [builders.pod(f"late-{at}", group="late", cpu="1", namespace="other") for at in range(2)]
    result = session(Successive(engine(STEPS), Environment()), busy(*mass("mass", 60, 5_000), *late))
    assert result.session.bound.keys() == {"other/late-0", "other/late-1"}


def test_no_pod_goes_before_one_of_higher_priority_that_had_no_turn() -> None:
    """Neither by a namespace that has work left, nor by the order of leftovers."""
    low = [builders.pod_group("low", 1, queue="mass", namespace="other"), builders.pod("low", "low", namespace="other")]
    urgent = objects.PriorityClass(metadata=objects.Metadata(name="high"), value=100)
    above = mass("mass", 60, 5_000, priorityClassName="high")
    cluster, decide = busy(urgent, *above, *low), Successive(engine(STEPS), Environment())
    for _ in range(60):
        result = session(decide, cluster)
        if result.session.bound:
            break
    assert result.session.bound.keys() == {"other/low"}
    assert not_reached(result) == set()


def test_a_turn_is_taken_to_its_end_and_what_it_took_counts_later() -> None:
    """A gang larger than the budget is placed whole; then its queue waits while others have their turns."""
    large = [builders.pod_group("large", 12, queue="mass"), *mass("other", 30, 5_000, "other")]
    large += [builders.pod(f"large-{at}", group="large", cpu=f"{100 + at}m") for at in range(12)]
    cluster, decide = busy(*large, *mass("mass", 20, 5_000, created=5)), Successive(engine(20_000), Environment())
    first = session(decide, cluster)
    assert len(first.session.bound) == 12
    assert tried(first, names(30, "other"))
    assert decide.environment.left["turns of allocate"]["owed"]["mass"] > 20_000 / 2
    second = session(decide, cluster)
    assert not tried(first, names(20))
    others = tried(second, names(30, "other")) - tried(first, names(30, "other"))
    assert len(others) > len(tried(second, names(20)))


EVICTING = ("preempt", "reclaim", "gangpreempt", "gangreclaim")


@pytest.mark.parametrize("action", EVICTING)
def test_searches_for_victims_share_a_budget_too(action: str) -> None:
    """The queue behind one with a mass of pods that find no victims gets its victims in the first session."""
    reclaiming = "reclaim" in action
    objs: list[object] = [objects.PriorityClass(metadata=objects.Metadata(name="high"), value=100)]
    above = {"priorityClassName": "high"}
    objs += mass("mass", 40, 7_000, **above)
    objs += [builders.queue("held", created=2), builders.pod_group("holds", 1, queue="held" if reclaiming else "other")]
    objs += [builders.node("big", cpu="64", labels={"for": "late"})]
    objs += [builders.pod(f"holds-{at}", group="holds", cpu="7500m", node="big") for at in range(8)]
    objs += [builders.pod_group("late", 1, queue="other", created=9, **above)]
    objs += [builders.pod("late", group="late", cpu="5", priority=100, nodeSelector={"for": "late"})]
    text = builders.policy("priority gang", "predicates proportion nodeorder", actions=f"allocate, {action}")
    decide = Successive(Engine(f"{text}\nsession: {{steps: {STEPS}}}\n"), Environment())
    result = session(decide, busy(*objs))
    assert any(key.startswith("default/holds-") for key in result.session.evicted)
    assert action in result.session.unfinished


@pytest.mark.parametrize(("steps", "compatibility"), [(0, "strict"), (1, "volcano")])
def test_without_a_budget_all_are_tried(steps: int, compatibility: str) -> None:
    result = session(Successive(engine(steps, compatibility), Environment()), busy(*mass("mass", 30, 5_000)))
    assert not result.unfinished
    assert not not_reached(result)


def test_sessions_decide_the_same_again() -> None:
    def decisions() -> list[object]:
        cluster = busy(*mass("mass", 30, 100), *mass("other", 30, 5_000, "other"))
        decide = Successive(engine(STEPS), Environment())
        return [session(decide, cluster).decisions for _ in range(5)]

    assert decisions() == decisions()
