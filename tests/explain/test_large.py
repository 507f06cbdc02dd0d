"""How much work an answer is on a cluster with thousands of pods that wait."""

from __future__ import annotations

import pytest

from stromboli.engine import Engine
from stromboli.explain.past_runs import PastRuns
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.remedies import explained
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.lab.forecast import with_start
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
