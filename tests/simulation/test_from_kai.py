"""A cluster that KAI-Scheduler runs, as the example `from_kai.py` writes it for a first look."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stromboli.cli import make_app
from tests.builders import policy

SCRIPT = Path(__file__).parents[2] / "examples" / "from_kai.py"
GPU = "nvidia.com/gpu"
GROUP = {"pod-group-name": "train"}


def kai(kind: str, name: str, spec: dict[str, Any], version: str = "v2", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"scheduling.run.ai/{version}",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def pod(name: str, cpu: str = "1", **metadata: Any) -> dict[str, Any]:
    limits = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {GPU: "1"}}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "i", "resources": limits}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": spec,
    }


def shares(quota: float, limit: float = -1, weight: float = 1) -> dict[str, float]:
    return {"quota": quota, "limit": limit, "overQuotaWeight": weight}


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: "8"}},
}
CLUSTER = [
    NODE,
    kai("Queue", "lab", {"resources": {each: shares(-1) for each in ("cpu", "memory", "gpu")}}),
    kai(
        "Queue",
        "team",
        {
            "parentQueue": "lab",
            "priority": 200,
            "preemptMinRuntime": "20m",
            "resources": {"cpu": shares(2500), "memory": shares(2000000, weight=0.5), "gpu": shares(1.5, 3)},
        },
    ),
    kai("Queue", "nothing", {"parentQueue": "lab"}),
    kai(
        "PodGroup",
        "train",
        {"minMember": 2, "queue": "team", "preemptibility": "non-preemptible", "subGroups": [{"name": "a"}]},
        "v2alpha2",
        namespace="default",
    ),
    *(pod(f"train-{i}", annotations=GROUP) for i in range(4)),
    pod("part", labels={"kai.scheduler/queue": "team"}, annotations={"gpu-fraction": "0.5"}),
]


def converted(items: list[dict[str, Any]], *arguments: str) -> tuple[list[Any], str]:
    """The objects that come out, and what is said to be lost."""
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        input=json.dumps({"kind": "List", "items": items}),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout)["items"], ran.stderr


@pytest.fixture(scope="module")
def told() -> tuple[list[Any], str]:
    return converted(CLUSTER)


def test_queues_keep_their_numbers_in_units_of_kubernetes(told: tuple[list[Any], str]) -> None:
    queues = {each["metadata"]["name"]: each for each in told[0] if each["kind"] == "Queue"}
    found = {
        name: json.loads(each["metadata"]["annotations"]["stromboli.io/fair-share"]) for name, each in queues.items()
    }
    assert found["team"] == {
        "cpu": {"quota": "2500m", "limit": "unlimited", "weight": 1},
        "memory": {"quota": "2000000M", "limit": "unlimited", "weight": 0.5},
        GPU: {"quota": "1.5", "limit": "3", "weight": 1},
    }
    assert found["nothing"]["cpu"] == {"quota": "0m", "limit": "0m", "weight": 0}
    assert queues["team"]["spec"] == {"priority": 200, "parent": "lab", "preemptMinRuntime": "20m"}
    assert queues["lab"]["spec"] == {"priority": 100}


def test_what_has_no_counterpart_is_said(told: tuple[list[Any], str]) -> None:
    assert [line.partition(":")[2].split()[:2] for line in told[1].splitlines()] == [["1", "PodGroups"], ["1", "pods"]]


def test_the_queues_alone_can_be_applied() -> None:
    assert {each["kind"] for each in converted(CLUSTER, "--queues")[0]} == {"Queue"}


def test_simulate_takes_it_with_queues_and_gangs(told: tuple[list[Any], str], tmp_path: Path) -> None:
    """A gang that is never evicted has 1.5 GPUs of quota and starts with two."""
    cluster, rules = tmp_path / "cluster.json", tmp_path / "policy.conf"
    cluster.write_text(json.dumps({"kind": "List", "items": told[0]}))
    rules.write_text(policy("gang", "predicates fairshare", actions="enqueue, allocate"))
    asked = ["simulate", str(cluster), "--lenient", "--policy", str(rules), "--scheduler-name", "kai-scheduler"]
    ran = CliRunner().invoke(make_app(), asked)
    lines = {line.split()[0]: line.split() for line in ran.stdout.splitlines() if line.strip().startswith("default/")}
    assert lines["default/train"][1:4] == ["team", "Pending", "0/4"]
    assert "NeverFits" in ran.stdout
    assert lines["default/podgroup-default-part"][1:4] == ["team", "Inqueue", "1/1"]
