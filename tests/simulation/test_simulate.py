"""`stromboli simulate`: manifests, scenarios, mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stromboli.cli import make_app

CLUSTER = """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n1}
  status: {allocatable: {cpu: "2", memory: 8Gi, pods: "10"}}
- apiVersion: scheduling.volcano.sh/v1beta1
  kind: Queue
  metadata: {name: default}
  spec: {weight: 1}
  status: {state: Open}
- apiVersion: scheduling.volcano.sh/v1beta1
  kind: PodGroup
  metadata: {name: job, namespace: default}
  spec: {minMember: 1, queue: default}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {name: job-%d, namespace: default, annotations: {scheduling.k8s.io/group-name: job}}
spec:
  schedulerName: stromboli
  containers: [{name: main, resources: {requests: {cpu: %s}}}]
"""


def simulate(*arguments: str, stdin: str = "") -> Result:
    """Run the command."""
    return CliRunner().invoke(make_app(), ["simulate", *arguments], input=stdin)


def test_a_list_from_standard_input() -> None:
    result = simulate("-", "--format", "outcome", "--explain", stdin=CLUSTER + "".join(POD % (i, 1) for i in range(3)))
    assert result.exit_code == 0, result.output
    line = json.loads(result.stdout)
    assert line["outcome"]["bindings"] == {"default/job-0": "n1", "default/job-1": "n1"}
    why = line["explain"]["pods"]["default/job-2"]
    assert (why["stage"], why["reason"], why["actionable"]) == ("QueueShare", "QueueShareExceeded", "wait")
    assert "cpu" in why["message"]


def test_cycles_go_on_where_the_last_ended(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER + POD % (0, 1))
    result = simulate(str(tmp_path), "--format", "outcome", "--cycles", "2")
    outcome = json.loads(result.stdout)["outcome"]
    assert outcome["podGroups"]["default/job"]["phase"] == "Running"
    assert [cycle["bound"] for cycle in outcome["cycles"]] == [1, 0]


def test_a_table_for_people() -> None:
    result = simulate("-", "--explain", stdin=CLUSTER + POD % (0, 1) + POD % (1, 9))
    assert result.exit_code == 0
    assert "default/job" in result.stdout
    assert "1/2" in result.stdout
    assert "QueueShare" in result.stdout


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (POD % (0, "1x"), "document 1: Pod default/job-0: spec.containers[0].resources.requests.cpu: '1x' is not a"),
        ("kind: Gadget\n", "document 1: kind: unknown kind 'Gadget'"),
        ("- 1\n", "document 1: kind: an object with a kind is needed, not [1]"),
        ("a: b: c\n", "line 1, column 5: not valid YAML: mapping values are not allowed"),
        ("kind: Node\nmetadata: 5\n", "document 1: Node: metadata: "),
        (
            "kind: Queue\nmetadata: {name: q}\nspec: {capability: {cpu: lots}}\n",
            "document 1: Queue q: spec.capability.cpu: ",
        ),
    ],
)
def test_a_mistake_is_one_line_and_the_rest_still_runs(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "a-bad.yaml").write_text(text)
    (tmp_path / "b-good.yaml").write_text(CLUSTER + POD % (1, 1))
    result = simulate(str(tmp_path), "--format", "outcome")
    assert result.exit_code == 2
    problems = result.stderr.splitlines()
    assert len(problems) == 1
    assert problems[0].startswith(f"{tmp_path}/a-bad.yaml: ")
    assert line in problems[0]
    assert json.loads(result.stdout)["outcome"]["bindings"] == {"default/job-1": "n1"}


def test_a_scenario_with_a_bad_policy_is_named_and_the_others_run(tmp_path: Path) -> None:
    scenario = "name: {0}\nconfig: |\n  actions: {1}\n  tiers: []\ncycles: 1\nobjects: []\n"
    (tmp_path / "one.yaml").write_text(scenario.format("one", "alocate"))
    (tmp_path / "two.yaml").write_text(scenario.format("two", "allocate"))
    result = simulate(str(tmp_path), "--format", "outcome")
    assert result.exit_code == 2
    assert "unknown action 'alocate'" in result.stderr
    assert "allocate" in result.stderr
    assert [json.loads(line)["name"] for line in result.stdout.splitlines()] == ["two"]


def test_a_missing_file_is_named() -> None:
    result = simulate("nowhere.yaml")
    assert result.exit_code == 2
    assert "nowhere.yaml: No such file or directory" in result.stderr
