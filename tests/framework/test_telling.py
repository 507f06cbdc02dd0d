"""What a session says of a mass of jobs: a part, and all of it in some sessions."""

from __future__ import annotations

from collections import Counter

from stromboli.api import crds
from stromboli.api.decisions import SetPodGroupStatus, SetPodUnscheduled
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.explain.rehearsal import advance
from stromboli.framework.cluster.environment import Environment
from stromboli.framework.session.turns import TOLD
from stromboli.state.cluster import ClusterState
from tests import builders

#: jobs that a session tells of, and those that ended
MOST, MASS = 11, 40


def successive(steps: int = (MOST - 1) * TOLD) -> Successive:
    return Successive(Engine(f"{builders.policy('gang', 'predicates')}\nsession: {{steps: {steps}}}\n"), Environment())


def job(name: str, namespace: str = "default") -> list[object]:
    """A job whose pod has ended, and whose PodGroup still says that it runs."""
    ready = {"type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled"}
    group = builders.pod_group(name, 1, phase="Running", namespace=namespace)
    group.status.running, group.status.conditions = 1, [crds.PodGroupCondition(**ready)]
    return [group, builders.pod(name, group=name, node="n0", phase="Succeeded", namespace=namespace)]


def ended(*more: object) -> ClusterState:
    """A mass of jobs that ended."""
    mass = [each for at in range(MASS) for each in job(f"ended-{at:02}")]
    return builders.state(builders.node("n0"), builders.queue("default"), *mass, *more)


def session(decide: Successive, cluster: ClusterState) -> SessionResult:
    return decide.decide(cluster.snapshot(), now=builders.NOON)


def told(result: SessionResult) -> set[str]:
    return {each.key for each in result.decisions if isinstance(each, SetPodGroupStatus)}


def test_each_of_a_mass_of_jobs_is_told_once_before_one_is_told_again() -> None:
    cluster, decide = ended(), successive()
    results = [session(decide, cluster) for _ in range(8)]
    times = Counter(key for result in results[:4] for key in told(result))
    assert len(times) == MASS
    assert sum(times.values()) == 4 * MOST
    assert all(len(told(result)) == MOST == len(result.session.view.jobs.made) for result in results)
    # What was told and is not written yet stands, and no session follows for it alone.
    assert all(len(told(result) | set(result.put_off)) == MASS for result in results)
    assert [result.unfinished for result in results] == [True, True, True, *[False] * 5]
    assert len({key for result in results[4:] for key in told(result)}) == MASS


def test_what_is_written_is_told_no_more() -> None:
    cluster, decide = ended(), successive()
    for _ in range(4):
        advance(cluster, session(decide, cluster).decisions, builders.NOON)
    last = session(decide, cluster)
    assert not told(last)
    assert not last.put_off
    assert not last.unfinished
    assert {group.status.phase for group in cluster.jobs.pod_groups if group is not None} == {"Completed"}


def test_a_namespace_does_not_wait_until_those_of_another_are_told() -> None:
    assert "quiet/late" in told(session(successive(), ended(*job("late", "quiet"))))


def test_without_a_budget_all_are_told() -> None:
    assert len(told(session(successive(steps=0), ended()))) == MASS


def waiting() -> ClusterState:
    """A mass of jobs that are new and find no places."""
    objs: list[object] = [builders.node("n0"), builders.queue("default"), builders.pod("full", cpu="8", node="n0")]
    for at in range(10 * MASS):
        objs.append(builders.pod_group(f"large-{at:03}", 1, phase=""))
        objs.append(builders.pod(f"large-{at:03}", group=f"large-{at:03}", cpu=f"{1000 + at}m"))
    return builders.state(*objs)


def test_what_a_turn_found_is_not_replaced_while_others_were_not_told() -> None:
    cluster, decide = waiting(), successive()
    first, second = session(decide, cluster), session(decide, cluster)
    tried = {job.key for job in first.session.view.jobs.made if job.unschedulable}
    assert tried
    assert tried <= told(first)
    assert not tried & told(second)
    assert tried <= set(second.put_off)


def test_of_pods_that_say_nothing_yet_a_part_is_told_that_their_turn_is_to_come() -> None:
    """Those in turns of their own say what these found."""
    steps = 5 * TOLD
    result = session(successive(steps), waiting())
    refused = [each.reason for each in result.decisions if isinstance(each, SetPodUnscheduled)]
    assert refused.count("TurnPending") == steps // TOLD + 1
    assert len(refused) > steps // TOLD + 1


def test_groups_of_queues_that_do_not_exist_are_told_a_few_at_a_time_and_each_in_the_end() -> None:
    groups = [
        builders.pod_group(f"g{at:03}", queue=f"no-{at}", phase="Pending", namespace=f"n{at % 3}") for at in range(60)
    ]
    cluster, decide = builders.state(builders.node("n0"), builders.queue("default"), groups), successive(5 * TOLD)
    told_of = list[str]()
    for _ in range(10):
        result = session(decide, cluster)
        now = told(result)
        assert len(now) <= 6
        assert {key[:2] for key in now} == {"n0", "n1", "n2"}
        told_of += now
    assert sorted(told_of) == sorted(group.key for group in groups)
    assert not result.unfinished
