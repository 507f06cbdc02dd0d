"""How much work an answer is on a cluster with thousands of pods that wait."""

from __future__ import annotations

import pytest

from stromboli.engine import Engine
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.remedies import explained
from stromboli.framework.cluster.environment import OFFLINE
from tests.builders import NOON, gang, node, pod_group, queue, state


@pytest.mark.exhaustive
def test_an_answer_about_four_thousand_pods_takes_no_more_steps_than_two_seconds_have() -> None:
    queues = [queue(name, weight=weight) for weight, name in enumerate("abcd", 1)]
    nodes = [node(f"n{number}", cpu="32", memory="128Gi") for number in range(100)]
    jobs = [
        each
        for number in range(400)
        for each in (
            pod_group(f"job-{number}", 10, queue="abcd"[number % 4], created=number),
            *gang(f"job-{number}", 10, cpu=str(4 + number % 5), memory=f"{8 + number % 9}Gi"),
        )
    ]
    rehearsal = Rehearsal(Engine(), state(*queues, *nodes, *jobs).fork(), OFFLINE, NOON)
    answer = explained(rehearsal.session(), "job", "default/job-399", rehearsal)
    assert answer is not None
    assert answer.reason
    assert answer.tried
    assert rehearsal.steps < 70_000_000
