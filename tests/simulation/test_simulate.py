"""`stromboli simulate`: manifests, scenarios, mistakes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stromboli.api.documents import read_yaml
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
    assert (why["stage"], why["reason"], why["actionable"]) == ("Placement", "ClusterFull", "wait")
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
    assert "NeverFits" in result.stdout


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (POD % (0, "1x"), "document 1: Pod default/job-0: spec.containers[0].resources.requests.cpu: '1x' is not a"),
        ("kind: Gadget\n", "document 1: Gadget: kind: unknown kind 'Gadget'"),
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


def test_the_examples_fit_80_columns_and_show_every_resource_and_reason(repository: Path) -> None:
    for example in sorted((repository / "examples").glob("*.yaml")):
        result = simulate(str(example), "--explain")
        assert (result.exit_code, result.stderr) == (0, "")
        assert max(map(len, result.stdout.splitlines())) <= 80
    shown = simulate(str(repository / "examples" / "workloads.yaml")).stdout.splitlines()
    assert ["nvidia.com/gpu", "9", "4", "8"] in [line.split() for line in shown]
    assert ["default/train", "research", "Pending", "0/5", "QueueCapabilityExceeded"] in [
        line.split() for line in shown
    ]


def test_the_examples_for_operators_are_gangs_of_the_queue_that_they_name(repository: Path) -> None:
    examples = [str(repository / f"deploy/examples/{name}.yaml") for name in ("queues", "operators")]
    node = "kind: Node\nmetadata: {name: n0}\nstatus: {allocatable: {cpu: '32', memory: 64Gi, pods: '110'}}"
    result = simulate(*examples, "-", "--format", "outcome", stdin=node)
    assert (result.exit_code, result.stderr) == (0, "")
    outcome = json.loads(result.stdout)["outcome"]
    owners = Counter(name.split("/")[1].split("-")[0] for name in outcome["bindings"])
    sizes = {"jobset": 4, "serve": 4, "pytorch": 4, "mpi": 3, "ray": 3, "spark": 3, "volcano": 3}
    assert owners == sizes
    shown = simulate(*examples, "-", stdin=node).stdout
    assert shown.count(" research ") == 10, "one for the queue, and one for each of the nine gangs"


def test_fields_that_are_not_known_pass_leniently() -> None:
    newer = CLUSTER + POD % (0, 1) + "  newField: {a: 1}\n---\nkind: Gadget\n"
    assert simulate("-", stdin=newer).exit_code == 2
    result = simulate("-", "--lenient", "--format", "outcome", stdin=newer)
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["outcome"]["bindings"] == {"default/job-0": "n1"}


def test_what_does_not_bear_on_scheduling_passes() -> None:
    services = "\n---\n".join(f"kind: {kind}\nmetadata: {{name: a}}\nspec: 5" for kind in ("Service", "ConfigMap"))
    assert simulate("-", stdin=CLUSTER + "---\n" + services).exit_code == 0


def test_json_of_kubectl_is_what_yaml_is() -> None:
    text = CLUSTER + POD % (0, 1) + POD % (1, 9)
    manifests = list(read_yaml(text))
    items = [*manifests[0]["items"], *manifests[1:]]
    as_json = json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
    results = [simulate("-", "--explain", "--format", "outcome", stdin=each) for each in (text, as_json)]
    assert results[0].exit_code == 0
    assert results[0].stdout == results[1].stdout
