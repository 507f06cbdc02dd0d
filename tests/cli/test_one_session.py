"""Commands on files tell of one session: `simulate` in both forms, `why` of jobs, pods and queues, and `job list`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stromboli.cli.question import Question
from stromboli.cli.sources import Source, opened
from stromboli.cli.which import Which
from stromboli.dashboard.filters import JobFilter
from stromboli.explain.answers import Answer, QueueAnswer
from stromboli.policy.document import DEFAULT_POLICY
from tests.cli.conftest import stromboli
from tests.fuzz import tried

NOW = "2026-11-23T20:38:00Z"
GATES = ("scheduling.volcano.sh/queue-allocation-gate", "example.com/wait")
POLICIES = [
    DEFAULT_POLICY,
    DEFAULT_POLICY.replace("allocate", "allocate, preempt"),
    DEFAULT_POLICY.replace("proportion", "capacity").replace("allocate", "allocate, reclaim"),
]


def node(number: int, gpus: int) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "20", "example.com/gpu": str(gpus)}
    labels = {"kubernetes.io/hostname": f"n{number}", "zone": "ab"[number % 2]}
    return {"kind": "Node", "metadata": {"name": f"n{number}", "labels": labels}, "status": {"allocatable": amounts}}


def job(chance: Random, number: int) -> list[dict[str, Any]]:
    """A gang that may be admitted or not, and that may fit some nodes, or none."""
    name, size = f"job-{number}", chance.randint(1, 8)
    asks = {"cpu": str(chance.choice((1, 2, 9))), "example.com/gpu": str(chance.choice((0, 1, 2)))}
    running = chance.random() < 0.2
    least = {key: str(int(amount) * size) for key, amount in asks.items()}
    spec = {"minMember": size, "queue": chance.choice("ab"), **({"minResources": least} if number % 3 else {})}
    meta = {"name": name, "namespace": "default", "creationTimestamp": f"2026-11-23T19:{number:02}:00Z"}
    group = {
        "kind": "PodGroup",
        "metadata": meta,
        "spec": spec,
        **({"status": {"phase": "Inqueue"}} if running else {}),
    }
    more: dict[str, Any] = chance.choice(({}, {}, {"nodeSelector": {"zone": chance.choice("abc")}}))
    gates = {"schedulingGates": [{"name": chance.choice(GATES)}]} if chance.random() < 0.2 else {}
    annotations = {"scheduling.k8s.io/group-name": name}
    return [
        group,
        *(
            {
                "kind": "Pod",
                "metadata": {
                    **meta,
                    "name": f"{name}-{index}",
                    "uid": f"{name}-{index}",
                    "annotations": {
                        **annotations,
                        **({"scheduling.volcano.sh/queue-allocation-gate": "true"} if gates else {}),
                    },
                },
                "spec": {
                    "schedulerName": "volcano",
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": asks, "limits": asks}}],
                    **more,
                    **gates,
                },
                "status": {"phase": "Pending"},
            }
            for index in range(size)
        ),
    ]


def made_up(seed: int) -> tuple[str, list[dict[str, Any]]]:
    chance = Random(seed)
    queues = [{"kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}} for name in "ab"]
    queues = [{**queue, "status": {"state": "Open"}} for queue in queues]
    nodes = [node(number, chance.choice((0, 2, 4))) for number in range(chance.randint(2, 4))]
    jobs = [each for number in range(chance.randint(2, 7)) for each in job(chance, number)]
    return chance.choice(POLICIES), [*queues, *nodes, *jobs]


def simulated(*arguments: object) -> str:
    result = stromboli("simulate", *arguments, "--explain")
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.one_in(2)
@pytest.mark.parametrize("scenario", [False, True])
def test_commands_on_files_tell_of_one_session(tmp_path_factory: pytest.TempPathFactory, scenario: bool) -> None:
    compare_made_up(tmp_path_factory, scenario, seed=3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scenario", [False, True])
@given(seed=st.integers(0, 10_000))
@tried(2)
def test_commands_on_files_of_any_kind_tell_of_one_session(
    tmp_path_factory: pytest.TempPathFactory, scenario: bool, seed: int
) -> None:
    compare_made_up(tmp_path_factory, scenario, seed)


def compare_made_up(tmp_path_factory: pytest.TempPathFactory, scenario: bool, seed: int) -> None:
    by, objects = made_up(seed)
    folder = tmp_path_factory.mktemp("files")
    file, rules = folder / "cluster.yaml", folder / "policy.conf"
    rules.write_text(by)
    if scenario:
        file.write_text(
            yaml.safe_dump({"name": "made up", "config": by, "now": NOW, "cycles": 1 + seed % 2, "objects": objects})
        )
    else:
        file.write_text(yaml.safe_dump_all(objects))
    compare(file, None if scenario else rules)


def compare(file: Path, policy: Path | None = None) -> dict[str, str]:
    """Ask about all jobs of a file in each way, and return why they wait, by name."""
    options = ["--policy", policy] if policy else []
    outcome = json.loads(simulated(file, *options, "--format", "outcome"))
    table = " ".join(simulated(file, *options).split())
    explained, groups = outcome["explain"]["pods"], outcome["outcome"]["podGroups"]

    def asked() -> Source:
        """What a command asks that is called once."""
        return opened(Which(filename=[str(file)], policy=policy))

    def why(kind: str, name: str) -> Answer:
        found = asked().explain(Question(kind, "default", name, tries=False))
        assert isinstance(found, Answer)
        return found

    rows = asked().jobs(JobFilter())
    waiting: dict[str, Counter[str]] = {"a": Counter(), "b": Counter()}
    for row in rows:
        key, answer = f"default/{row.name}", why("job", row.name)
        assert (answer.stage, answer.reason, answer.who) == (row.stage, row.reason, row.who), key
        assert groups[key]["phase"] == row.phase, key
        told = {c["reason"] for c in groups[key]["conditions"] if (c["type"], c["status"]) == ("Unschedulable", "True")}
        assert told <= {row.reason}, key
        pods = [each for each in explained if each.startswith(f"{key}-")]
        assert bool(row.reason) == bool(pods), key
        for pod in pods[:1]:
            one, found = why("pod", pod.partition("/")[2]), explained[pod]
            of_simulate = found["stage"], found["reason"], found["message"], found["actionable"]
            assert (one.stage, one.reason, one.message, one.who) == of_simulate, pod
            assert f"{found['stage']}: {found['reason']}: " in table
            waiting[row.queue][row.reason] += 1
            assert row.reason in {explained[pod]["reason"] for pod in pods}, key
    for name, counted in waiting.items():
        of_queue = asked().explain(Question("queue", "", name))
        assert isinstance(of_queue, QueueAnswer)
        assert of_queue.waiting == counted
    return {row.name: row.reason for row in rows}


def test_what_a_session_prepares_for_the_next_one_is_told_by_all(tmp_path: Path) -> None:
    chance = Random(0)
    hopeless, other = (job(chance, number) for number in (1, 2))
    for objects, size, more in ((hopeless, 3, {"nodeSelector": {"zone": "c"}}), (other, 2, {})):
        group, pod = objects[0], objects[1]
        group["spec"] = {"minMember": size, "queue": "a", "minResources": {"example.com/gpu": str(2 * size)}}
        asks = {"requests": {"cpu": "1", "example.com/gpu": "2"}, "limits": {"example.com/gpu": "2"}}
        spec = {"schedulerName": "volcano", "containers": [{"name": "c", "image": "i", "resources": asks}], **more}
        name = group["metadata"]["name"]
        objects[1:] = [
            {**pod, "metadata": {**pod["metadata"], "name": f"{name}-{index}", "uid": f"{name}-{index}"}, "spec": spec}
            for index in range(size)
        ]
    queues = [{"kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}} for name in "ab"]
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([*queues, node(0, 4), node(1, 4), *hopeless, *other]))
    assert compare(file) == {"job-1": "NoMatchingNode", "job-2": ""}
