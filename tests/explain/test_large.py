"""How much work an answer is on a cluster with thousands of pods that wait."""

from __future__ import annotations

import pytest

from stromboli.api.decisions import Bind, Evict
from stromboli.engine import Engine, Successive
from stromboli.explain.past_runs import PastRuns
from stromboli.explain.rehearsal import Rehearsal, advance, remove, terminating
from stromboli.explain.remedies import explained
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.lab.forecast import with_start
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, gang, node, pod_group, queue, state


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("spec", "change"),
    [
        ({}, "wait until the other jobs that wait have places or are gone"),
        ({"nodeSelector": {"disk": "hddd"}}, "correct disk: hddd to hdd in nodeSelector"),
    ],
)
def test_an_answer_about_one_of_four_thousand_pods_takes_little_more_than_a_session(
    spec: dict[str, object], change: str
) -> None:
    queues = [queue(name, weight=weight) for weight, name in enumerate("abcd", 1)]
    nodes = [node(f"n{number}", cpu="32", memory="128Gi", labels={"disk": "hdd"}) for number in range(100)]
    jobs = [
        each
        for number in range(400)
        for each in (
            pod_group(f"job-{number}", 10, queue="abcd"[number % 4], created=number),
            *gang(
                f"job-{number}",
                10,
                cpu=str(4 + number % 5),
                memory=f"{8 + number % 9}Gi",
                **(spec if number == 399 else {}),
            ),
        )
    ]
    rehearsal = Rehearsal(Engine(), state(*queues, *nodes, *jobs).fork(), OFFLINE, NOON)
    session = rehearsal.session()
    of_a_session = rehearsal.steps
    answer = explained(session, "job", "default/job-399", rehearsal)
    assert answer is not None
    answer = with_start(answer, rehearsal, PastRuns())
    assert change in [remedy.change for remedy in answer.remedies]
    assert rehearsal.steps - of_a_session < of_a_session / 2


_EVICTING = """
actions: "enqueue, allocate, preempt, reclaim"
session: {{steps: {steps}}}
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: drf}}, {{name: predicates}}, {{name: proportion}}]
"""


def crowd(nodes: int, jobs: int, *, seed: int = 0) -> ClusterState:
    """A full cluster of two queues, in which gangs of ten pods wait for nodes, and for what others may have to give."""
    queues = [queue("a"), queue("b", weight=3)]
    machines = [node(f"n{number}", cpu="32", memory="128Gi") for number in range(nodes)]
    running = [
        each
        for number in range(nodes)
        for each in (
            pod_group(f"run-{number}", 1, queue="ab"[number % 4 > 0], phase="Running"),
            *gang(f"run-{number}", 7, cpu="4", memory="16Gi", node=f"n{number}"),
        )
    ]
    waiting = [
        each
        for number in range(jobs)
        for each in (
            pod_group(f"job-{number}", 10, queue="ab"[number % 2], created=number % 50),
            *gang(f"job-{number}", 10, cpu=f"{(number + seed) * 61 % 5000 + 5000}m", memory="8Gi"),
        )
    ]
    return state(*queues, *machines, *running, *waiting)


def settled(cluster: ClusterState, policy: str) -> ClusterState:
    """A cluster after the sessions of a service, until they have nothing to decide."""
    sessions = Successive(Engine(policy), OFFLINE)
    for number in range(60):
        result = sessions.decide(cluster.snapshot(), now=NOON + number)
        leaving = terminating(cluster)
        advance(cluster, result.decisions, NOON + number)
        for key in leaving:
            remove(cluster, key)
        if not result.unfinished and not any(isinstance(each, Bind | Evict) for each in result.decisions):
            break
    return cluster


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(3))
def test_a_session_about_a_job_that_reaches_but_some_of_the_others_says_what_one_of_all_says(seed: int) -> None:
    policy = _EVICTING.format(steps=2_000)
    cluster = settled(crowd(8, 40, seed=seed), policy)
    whole = Rehearsal(Engine(policy), cluster.fork(), OFFLINE, NOON)
    of_all, in_part, known = whole.session(), 0, 0
    for number in range(0, 40, 3):
        key = f"default/job-{number}"
        rehearsal = Rehearsal(Engine(policy), cluster.fork(), OFFLINE, NOON)
        session = rehearsal.session({key})
        said, of_whole = explained(session, "job", key, None), explained(of_all, "job", key, None)
        assert said is not None
        assert of_whole is not None
        assert rehearsal.begun is not None
        in_part += rehearsal.begun.in_part
        if said.reason != "TurnPending":
            known += 1
            assert (said.stage, said.reason, said.message, said.who) == (
                *(of_whole.stage, of_whole.reason),
                *(of_whole.message, of_whole.who),
            )
    assert in_part > 5
    assert known > 12


@pytest.mark.exhaustive
@pytest.mark.parametrize("whether", ["at once", "settled"])
def test_an_answer_beside_five_thousand_pods_for_which_others_may_be_evicted_costs_a_few_sessions(whether: str) -> None:
    policy = _EVICTING.format(steps=500_000)
    cluster = crowd(500, 500)
    if whether == "settled":
        settled(cluster, policy)
    rehearsal = Rehearsal(Engine(policy), cluster.fork(), OFFLINE, NOON)
    answer = explained(rehearsal.session({"default/job-499"}), "job", "default/job-499", rehearsal)
    assert answer is not None
    with_start(answer, rehearsal, PastRuns())
    assert answer.remedies
    # Without a bound a session takes 500 million.
    assert rehearsal.steps < 40 * 500_000
    assert rehearsal.sessions < 40
