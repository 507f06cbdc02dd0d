"""How the tenants of a cluster share the work of sessions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stromboli.api import objects
from stromboli.api.decisions import SetPodGroupStatus, SetPodUnscheduled
from stromboli.discovery import discover
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.explain.rehearsal import advance
from stromboli.framework.cluster.environment import Admitted, Environment
from stromboli.framework.cluster.job import Job
from stromboli.framework.diagnosis.explain import pending_reasons
from stromboli.framework.registry import Registry
from stromboli.framework.session.turns import TOLD, TURN, Beyond, Turns
from stromboli.plugins.drf import Drf
from stromboli.state.cluster import ClusterState
from tests import builders

ACTIONS = "enqueue, allocate, backfill"


def engine(steps: int, compatibility: str = "strict", actions: str = ACTIONS) -> Engine:
    text = builders.policy("priority gang", "drf predicates proportion nodeorder", actions=actions)
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


def not_reached_jobs(result: SessionResult) -> set[str]:
    """The jobs whose first turn is still to come."""
    reasons = result.session.view.trace.jobs
    return {key for key in result.session.view.trace.not_reached if "in the next sessions" in reasons[key].message}


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
    assert not decide.environment.left["turns of allocate"].get("had")


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
    text = builders.policy("priority gang", "predicates proportion nodeorder", actions=action)
    decide = Successive(Engine(f"{text}\nsession: {{steps: {STEPS}}}\n"), Environment())
    result = session(decide, busy(*objs))
    assert any(key.startswith("default/holds-") for key in result.session.evicted)
    assert action in result.session.budget.unfinished


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


# -- what is lined up ------------------------------------------------------------------------------------------------


def many(number: int, **fields: object) -> ClusterState:
    """So many jobs, in two queues and three namespaces with several priorities."""
    rank = objects.PriorityClass(metadata=objects.Metadata(name="high"), value=100)
    objs: list[object] = [rank]
    for at in range(number):
        name, namespace = f"mass-{at:04}", f"team-{at % 3}"
        more = {"priorityClassName": "high"} if at % 5 == 0 else {}
        queue = "other" if at % 4 == 0 else "mass"
        objs.append(builders.pod_group(name, 1, queue=queue, phase="Inqueue", namespace=namespace, **more))
        objs.append(builders.pod(name, group=name, cpu=f"{5_000 + at}m", namespace=namespace))
    return busy(*objs)


def test_the_work_for_jobs_follows_from_the_budget_and_not_from_their_number() -> None:
    few, more = (session(Successive(engine(STEPS), Environment()), many(number)) for number in (60, 240))
    assert len(more.session.view.jobs.made) <= len(few.session.view.jobs.made)
    assert len(pending_reasons(more.session)) == 240


def test_plugins_answer_for_all_jobs_what_they_answer_for_each() -> None:
    text = builders.policy("priority gang sla tdm", "drf predicates", actions=ACTIONS)
    late = {"annotations": {"sla-waiting-time": "1h", "volcano.sh/preemptable": "true"}}
    cluster = busy(*mass("mass", 4, 5_000), *mass("late", 3, 5_000, **late), *mass("grown", 2, 5_000, created=3))
    cluster.upsert("Pod", builders.pod("grown-one", group="grown-0000", cpu="1", node="n0"))
    result = Engine(text).decide(cluster.snapshot(), now=builders.NOON).session
    jobs = result.view.jobs
    everybody = np.arange(len(jobs))[::-1]
    by_key = sorted(everybody.tolist(), key=lambda index: result.ask.job_key(jobs.at(index)))
    assert result.ask.in_job_order(jobs, everybody).tolist() == by_key


def test_a_plugin_that_only_answers_for_each_is_asked_about_all() -> None:
    class Backwards(Drf):
        """Another order than that of the class which answers for all at once."""

        name = "backwards"

        def job_order(self, job: Job) -> float:
            return -job.created

    known = discover()
    registry = Registry(known.actions, {**known.plugins, Backwards.name: Backwards})
    text = builders.policy("backwards", "predicates", actions=ACTIONS) + "\nsession: {steps: 100000}\n"
    result = Engine(text, registry=registry).decide(many(60).snapshot(), now=builders.NOON).session
    assert result.points.columns("job_orders", len(result.view.jobs)) is None


def test_a_budget_that_is_enough_for_all_changes_nothing() -> None:
    def decisions(steps: int) -> list[object]:
        objs = [*mass("mass", 8, 300), *mass("other", 6, 5_000, "other"), *mass("third", 5, 4_000, "default")]
        cluster, decide = busy(*objs), Successive(engine(steps), Environment())
        return [session(decide, cluster).decisions for _ in range(3)]

    assert decisions(10**9) == decisions(0)
    # Three queues that are each given a third would use it up before the others.
    assert decisions(19 * (5_000 + 4 * 2_004)) == decisions(0)


def test_what_is_put_off_shows_what_its_last_turn_found() -> None:
    cluster, decide = many(60), Successive(engine(STEPS), Environment())
    for _ in range(12):
        result = session(decide, cluster)
        if not result.unfinished:
            break
    later = session(decide, cluster)
    assert later.session.view.trace.not_reached
    written = {each.key for each in later.decisions if isinstance(each, SetPodGroupStatus)}
    assert not written & later.session.view.trace.not_reached
    why = pending_reasons(later.session)
    assert {why[key].reason for key in later.session.view.trace.not_reached} == {"TurnPending"}


def test_pods_of_a_mass_are_told_a_few_at_a_time_that_their_turn_is_to_come() -> None:
    cluster, decide = many(300), Successive(engine(40_000), Environment())
    told, sessions = list[str](), list[int]()
    while len(sessions) < 60:
        result = decide.decide(cluster.snapshot(), now=builders.NOON)
        waiting = not_reached(result)
        told += [each.key for each in result.decisions if isinstance(each, SetPodUnscheduled) and each.key in waiting]
        sessions.append(len(result.decisions))
        if len(told) >= len(waiting):
            break
    assert max(sessions) <= 2 * (40_000 // TOLD + 10)
    # Nothing of it was written yet, and the next session goes on where this one ended.
    first = told[: len(waiting)]
    assert len(set(first)) >= 0.9 * len(first)


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_admissions_share_a_budget_too(phase: str) -> None:
    objs: list[object] = [builders.queue("mass"), builders.queue("other", created=1), builders.node("n0")]
    objs += [
        builders.pod_group(f"mass-{at:04}", 2, queue="mass", phase=phase, minResources={"cpu": "6"}) for at in range(60)
    ]
    objs += [builders.pod_group("late", 1, queue="other", phase=phase, minResources={"cpu": "1"}, created=9)]
    decide = Successive(engine(STEPS), Environment(admitted=Admitted([], np.zeros(0, np.bool_))))
    cluster = builders.state(*objs)
    first = session(decide, cluster)
    assert first.session.view.jobs["default/late"].phase == "Inqueue"
    assert first.unfinished
    assert len(first.session.view.jobs.made) < 60


def test_admissions_end_with_their_budget_and_go_on_in_order() -> None:
    """Also those that are refused; and the gang of another queue is admitted at once."""
    objs: list[object] = [builders.queue("mass", capability={"cpu": "8"}), builders.queue("other", created=1)]
    objs += [builders.node("n0", cpu="16"), builders.pod_group("runs", 1, queue="mass", phase="Running")]
    objs += [builders.pod("runs", "runs", cpu="4", node="n0", phase="Running")]
    objs += [
        builders.pod_group(f"mass-{at:04}", 2, queue="mass", minResources={"cpu": "6"}, phase="Pending")
        for at in range(60)
    ]
    cluster, decide = builders.state(*objs), Successive(engine(STEPS), Environment())
    left = {f"default/mass-{at:04}" for at in range(60)}
    for number in range(12):
        result = session(decide, cluster)
        waiting = not_reached_jobs(result)
        had = left - waiting
        assert 0 < len(had) <= STEPS / (TURN + TOLD) + 2
        assert waiting <= left
        assert not waiting or max(had) < min(waiting)
        left = waiting
        if not left:
            break
        if number == 0:
            cluster.upsert(
                "PodGroup",
                builders.pod_group("late", 1, queue="other", minResources={"cpu": "1"}, phase="Pending", created=9),
            )
        assert number == 0 or result.session.view.jobs["default/late"].phase == "Inqueue"
    assert not left
    assert not result.unfinished


def test_jobs_that_cannot_be_tried_do_not_keep_their_place_in_the_line() -> None:
    """Gangs whose pods are not there yet come first, and all others get their turns nevertheless."""
    lacking = [
        each
        for at in range(60)
        for each in (
            builders.pod_group(f"early-{at}", 2, queue="mass", phase="Inqueue"),
            builders.pod(f"early-{at}", group=f"early-{at}", cpu="1"),
        )
    ]
    late = mass("late", 1, 1_000, created=9)
    cluster, decide = busy(*lacking, *late), Successive(engine(STEPS), Environment())
    assert any("default/late-0000" in session(decide, cluster).session.bound for _ in range(12))


@pytest.mark.parametrize(("action", "cpu"), [("allocate", "5"), ("backfill", "")])
def test_jobs_in_the_line_that_are_put_off_count_as_not_tried(action: str, cpu: str) -> None:
    jobs = [
        each
        for at in range(60)
        for each in (
            builders.pod_group(f"lone-{at}", 1, queue="mass", phase="Inqueue"),
            *(
                builders.pod(f"{at}-{n}", group=f"lone-{at}", cpu=cpu, memory="", nodeSelector={"no": f"{at}-{n}"})
                for n in range(5)
            ),
        )
    ]
    result = session(Successive(engine(STEPS, actions=action), Environment()), busy(*jobs))
    had = result.environment.left[f"turns of {action}"]["had"]["mass"]
    assert had
    assert not had & result.session.view.trace.not_reached


# -- accounts --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    """Jobs of two queues and two namespaces, of two priorities."""
    groups = [
        builders.pod_group(f"job-{at}", 1, queue=("mass", "other")[at % 2], namespace=("a", "b")[at // 2 % 2])
        for at in range(12)
    ]
    cluster = builders.state(builders.queue("mass"), builders.queue("other"), *groups)
    found = Engine().decide(cluster.snapshot(), now=builders.NOON).session.view.jobs
    return [found[f"{group.metadata.namespace}/{group.metadata.name}"] for group in groups]


@settings(max_examples=60)
@given(
    limit=st.integers(1, 200_000),
    owed=st.dictionaries(st.sampled_from(["mass", "other"]), st.integers(1, 50_000)),
    taken=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 20_000)), max_size=30),
    dropped=st.sets(st.integers(0, 11)),
)
def test_turns_that_are_noted_down_first_count_as_if_they_had_been_counted_at_once(
    jobs: list[Job], limit: int, owed: dict[str, int], taken: list[tuple[int, int]], dropped: set[int]
) -> None:
    of = {name: [job for job in jobs if job.queue.name == name] for name in ("mass", "other")}
    noted, counted = (Turns(limit, {"owed": owed}, of, Beyond(), divided=True) for _ in range(2))
    counted.scarce = True
    for at, steps in taken:
        for turns in (noted, counted):
            turns.had(jobs[at], steps)
        assert noted.puts_off_queue(jobs[at].queue) == counted.puts_off_queue(jobs[at].queue)
        assert [noted.puts_off(job) for job in jobs] == [counted.puts_off(job) for job in jobs]
    for turns in (noted, counted):
        turns.drop(jobs[at] for at in dropped)
    assert noted.done == counted.done
    assert noted.left() == counted.left()
    assert noted.without() == counted.without()
