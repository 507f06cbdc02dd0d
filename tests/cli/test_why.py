"""`stromboli why` and `stromboli whatif` on files, on a cluster that is read, and what they do with wrong input."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from stromboli.cli import clusters
from tests.cli.conftest import stromboli
from tests.live.cluster import Cluster
from tests.live.conftest import bare_cluster, cluster, definitions, options

__all__ = ["bare_cluster", "cluster", "definitions", "options"]

CLUSTER = """
{kind: Node, metadata: {name: n}, status: {allocatable: {cpu: "4", memory: 16Gi, pods: "10"}}}
---
{kind: Queue, metadata: {name: small}, spec: {weight: 1, capability: {cpu: "2"}}}
---
{kind: PodGroup, metadata: {name: runs}, spec: {minMember: 1, queue: small}, status: {phase: Running}}
---
kind: Pod
metadata: {name: runs-0, annotations: {scheduling.k8s.io/group-name: runs}}
spec: {nodeName: n, schedulerName: stromboli, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
status: {phase: Running}
---
{kind: PodGroup, metadata: {name: train}, spec: {minMember: 2, queue: small}}
---
kind: Pod
metadata: {name: train-0, annotations: {scheduling.k8s.io/group-name: train}}
spec: {schedulerName: stromboli, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
---
kind: Pod
metadata: {name: train-1, annotations: {scheduling.k8s.io/group-name: train}}
spec: {schedulerName: stromboli, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
"""
LARGER = "{kind: Queue, metadata: {name: small}, spec: {capability: {cpu: 3}}}"


def test_why_tells_the_cause_and_what_would_help(files: Path) -> None:
    told = stromboli("why", "job", "train", "-f", files)
    assert told.exit_code == 0, told.output
    assert "waits at QueueShare: QueueShareExceeded" in told.output
    assert "admin: raise capability of queue small to 3 cpu -> 2 pods bound" in told.output
    assert "Pod default/train-0 of PodGroup train waits" in stromboli("why", "pod", "train-0", "-f", files).output
    assert "deserves 2 cpu: its limit: capability 2" in stromboli("why", "queue", "small", "-f", files).output


def test_programs_get_json_and_yaml(files: Path) -> None:
    arguments = ("why", "job", "default/train", "-f", files, "--no-try")
    told = json.loads(stromboli(*arguments, "-o", "json").output)
    assert (told["stage"], told["minMember"], told["remedies"]) == ("QueueShare", 2, [])
    assert yaml.safe_load(stromboli(*arguments, "-o", "yaml").output) == told


ODD = """
{kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 27200m, memory: "137438953472", pods: "10"}}}
---
{kind: Queue, metadata: {name: odd}, spec: {weight: 1, capability: {cpu: 13600m}}}
---
{kind: PodGroup, metadata: {name: train}, spec: {minMember: 1, queue: odd}}
---
kind: Pod
metadata: {name: train-0, annotations: {scheduling.k8s.io/group-name: train}}
spec:
  schedulerName: stromboli
  containers: [{name: c, image: i, resources: {requests: {cpu: 27100m, memory: "137438953472"}}}]
"""


def test_people_read_amounts_that_programs_get_as_quantities(tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(ODD)
    change = tmp_path / "change.yaml"
    change.write_text("{kind: Queue, metadata: {name: odd}, spec: {capability: {cpu: 27200m}}}")
    for arguments, words in (
        (("why", "job", "train", "-f"), ("asks for 27.1 cpu, 128Gi memory", "capability of queue odd to 27.1 cpu")),
        (("why", "queue", "odd", "-f"), ("cpu: holds 0, requests 27.1, deserves 0, may have 13.6", "requests 128Gi")),
        (("queue", "list", "-o", "wide", "-f"), ("27.1", "13.6", "128Gi")),
        (("whatif", "-f", change, "--on"), ("queue odd held cpu: 0 -> 27.1",)),
        (("simulate", "--explain"), ("27.1", "128Gi")),
    ):
        told = stromboli(*arguments, path)
        assert told.exit_code == 0, told.output
        assert [each for each in words if each not in told.output] == [], told.output
        assert re.findall(r"[0-9]+m\b|[0-9]{7,}", told.output) == []
    request = json.loads(stromboli("why", "job", "train", "-f", path, "-o", "json").output)["request"]
    assert request == {"cpu": "27100m", "memory": "128Gi"}


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (("job", "trian"), 1, "there is no job default/trian, did you mean 'default/train'?"),
        (("queue", "smal"), 1, "there is no queue smal, did you mean 'small'?"),
        (("pod", "train-0", "-n", "other"), 1, "there is no pod other/train-0, did you mean 'default/train-0'?"),
        (("job", "eval"), 1, "there is no job default/eval\n"),
        (("job", "a/b/c"), 1, "there is no job a/b/c: it is NAME or NAMESPACE/NAME"),
        (("queue", "default/small"), 1, "there is no queue default/small: queues are in no namespace, and named alone"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(files: Path, arguments: tuple[str, ...], status: int, line: str) -> None:
    told = stromboli("why", *arguments, "-f", files)
    assert told.exit_code == status
    assert line in told.output
    assert "Traceback" not in told.output


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--url", "http://127.0.0.1:1"), "http://127.0.0.1:1: [Errno 111] Connection refused"),
        (("--url", "127.0.0.1:1"), "--url: '127.0.0.1:1' is not an address such as http://127.0.0.1:8080"),
        (("-f", "none.yaml"), "none.yaml: No such file or directory"),
        (("--kubeconfig", "none"), "none: there is no such file; set --kubeconfig"),
    ],
)
def test_a_cluster_that_cannot_be_read_is_said_in_one_line(options: tuple[str, str], line: str) -> None:
    told = stromboli("why", "job", "train", *options)
    assert told.exit_code == 2
    assert line in told.output
    assert len(told.output.splitlines()) == 1


def test_a_change_is_shown_as_a_diff(files: Path) -> None:
    told = stromboli("whatif", "-f", "-", "--on", files, stdin=LARGER)
    assert told.exit_code == 0, told.output
    assert told.output.splitlines() == [
        "+ bind default/train-0 to n (queue small)",
        "+ bind default/train-1 to n (queue small)",
        "  job default/train: 2 bound, 0 of 2 wait",
        "  queue small held cpu: 1 -> 3",
        "  queue small deserved cpu: 2 -> 3",
        "  queue root held cpu: 1 -> 3",
        "2 pods bound, 0 evicted by the change; 0 wait after it",
    ]


def test_objects_are_added_removed_and_another_policy_is_tried(files: Path) -> None:
    without_nodes = f'{LARGER}\n---\n{{kind: Node, metadata: {{name: n}}, "$patch": delete}}'
    removed = stromboli("whatif", "-f", "-", "--on", files, stdin=without_nodes)
    assert (
        removed.output.splitlines()[-1]
        == "1 pod loses its node, 0 pods bound, 0 evicted by the change; 3 wait after it"
    )
    backfill = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}]}]'
    other = stromboli("whatif", "-f", "-", "--on", files, stdin=backfill)
    assert "+ bind default/train-0 to n (queue small)" in other.output
    missing = stromboli("whatif", "-f", "-", "--on", files, stdin='{kind: Node, metadata: {name: m}, "$patch": delete}')
    typo = "{kind: Queue, metadata: {name: default}, spec: {wieght: 3}}"
    wrong = stromboli("whatif", "-f", "-", "--on", files, stdin=typo)
    assert (wrong.exit_code, len(wrong.output.splitlines())) == (2, 1)
    assert "did you mean 'weight'?" in wrong.output
    assert (missing.exit_code, missing.output) == (2, "standard input: document 1: there is no Node m to remove\n")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("{kind: List, items: 3}", "document 1: items: should be a list, not 3"),
        ("{kind: [Queue], metadata: {name: a}}", "document 1: kind: should be text, not ['Queue']"),
        ("{kind: Queue, $patch: delete}", "document 1: Queue: metadata.name: is required"),
        ("actions: nope\ntiers: []", "actions: unknown action 'nope'"),
        ('{"kind": "Queue"\n "spec": {}}', "line 2, column 2: not valid JSON: Expecting ',' delimiter"),
        ("{kind: Queue\n spec: {}}", "line 2, column 6: not valid YAML: did not find expected ',' or '}'"),
        ('{"kind": "PodList", "items": [{"spec": {}}]}', "document 1: item 1: Pod: metadata.name: is required"),
    ],
)
def test_what_is_wrong_with_a_change_is_a_line_that_names_its_file(tmp_path: Path, change: str, says: str) -> None:
    cluster, path = tmp_path / "cluster.yaml", tmp_path / "change.yaml"
    cluster.write_text(CLUSTER)
    path.write_text(change)
    told = stromboli("whatif", "-f", path, "--on", cluster)
    assert (told.exit_code, told.stdout, told.stderr.count("\n")) == (2, "", 1)
    assert told.stderr.startswith(f"{path}: {says}")


@pytest.mark.parametrize("ending", ["json", "yaml"])
@pytest.mark.parametrize(
    ("text", "line"),
    [('{"kind": "Queue",\n "spec": {]}', 2), ('{"kind": "Queue"}\n{"kind": "Queue"}', 2), ('{"kind', 1)],
)
def test_broken_json_is_said_to_be_json_wherever_it_is(files: Path, ending: str, text: str, line: int) -> None:
    """Also before a service is asked, which would not know the file."""
    good, change = files.with_name("good.json"), files.with_name(f"change.{ending}")
    good.write_text('{"kind": "Queue", "metadata": {"name": "a"}}')
    change.write_text(text)
    for command in (["simulate"], ["whatif", "-f", good, "-f"], ["whatif", "--on", files, "-f", good, "-f"]):
        told = stromboli(*command, change)
        assert (told.exit_code, told.stdout.count("not valid")) == (2, 0)
        assert f"{change}: line {line}, column " in told.stderr
        assert ": not valid JSON: " in told.stderr


def test_a_second_policy_to_try_is_refused(files: Path) -> None:
    policy = "actions: allocate\ntiers: []\n"
    told = stromboli("whatif", "-f", "-", "--on", files, stdin=f"{policy}---\n{policy}")
    assert (told.exit_code, told.stderr) == (2, "standard input: document 2: a second policy: only one can be tried\n")


def test_pods_that_would_wait_fail_a_gate(files: Path) -> None:
    container = "{name: c, image: i, resources: {requests: {cpu: 9}}}"
    pod = f"{{kind: Pod, metadata: {{name: big}}, spec: {{schedulerName: stromboli, containers: [{container}]}}}}"
    gate = stromboli("whatif", "-f", "-", "--on", files, "--fail-on-pending", stdin=pod)
    assert gate.exit_code == 1
    assert "! default/big waits at" in gate.output
    assert stromboli("whatif", "-f", "-", "--on", files, "--fail-on-pending", stdin=LARGER).exit_code == 0


def test_a_cluster_is_read_with_ones_own_rights(cluster: Cluster) -> None:
    cluster.gang("large", 3, cpu="5")
    told = stromboli("why", "job", "large", "--kubeconfig", cluster.kubeconfig)
    assert told.exit_code == 0, told.output
    assert "Who can change it" in told.output
    assert "2 nodes" in told.output


TEN = """
{kind: PodGroup, metadata: {name: web}, spec: {minMember: 1, queue: small}, status: {phase: Running}}
"""


@pytest.mark.parametrize("free", [0, 4, 10])
def test_pods_that_lose_their_node_are_counted_by_job(tmp_path: Path, free: int) -> None:
    spec = "schedulerName: stromboli, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]"
    named, running = "annotations: {scheduling.k8s.io/group-name: web}", "status: {phase: Running}"
    pods = [
        f"{{kind: Pod, metadata: {{name: web-{i}, {named}}}, spec: {{nodeName: old, {spec}}}, {running}}}"
        for i in range(10)
    ]
    daemon = f"{{kind: Pod, metadata: {{name: agent}}, spec: {{nodeName: old, {spec.replace('stromboli', 'other')}}}}}"
    nodes = [
        f"{{kind: Node, metadata: {{name: {name}}}, status: {{allocatable: {{cpu: {cpu}, memory: 9Gi, pods: 99}}}}}}"
        for name, cpu in (("old", 10), ("new", free))
    ]
    queue = "{kind: Queue, metadata: {name: small}, spec: {weight: 1}, status: {state: Open}}"
    (tmp_path / "cluster.yaml").write_text("\n---\n".join([*nodes, queue, TEN, *pods, daemon]))
    change = '{kind: Node, metadata: {name: old}, "$patch": delete}'
    arguments = ("whatif", "-f", "-", "--on", tmp_path / "cluster.yaml", "--scheduler-name", "stromboli")
    told = stromboli(*arguments, stdin=change).output.splitlines()
    assert "- default/web-0 loses its node old (queue small)" in told
    bound = f"10 lost their nodes, {free} bound" if free else "10 lost their nodes"
    assert f"  job default/web: {bound}, {10 - free} of 10 wait" in told
    assert told[-1].startswith(
        f"10 pods lose their nodes, {free} pods bound, 0 evicted by the change; {10 - free} wait"
    )


KUBECONFIG = """
current-context: lab
contexts:
- {name: lab, context: {cluster: c, namespace: research}}
- {name: prod, context: {cluster: c}}
"""


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (("train",), "research/train"),
        (("train", "-n", "web"), "web/train"),
        (("web/train",), "web/train"),
        (("train", "--url", "http://127.0.0.1:1"), "research/train"),
    ],
)
def test_the_namespace_is_that_of_the_context_as_for_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], asked: str
) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none{os.pathsep}{tmp_path}/config")
    monkeypatch.setenv("STROMBOLI_URL", "http://127.0.0.1:1")
    paths: list[str] = []

    def ask(address: object, path: str, **_: object) -> object:
        paths.append(path)
        raise clusters.RemoteError("not there", 404)

    monkeypatch.setattr(clusters, "ask", ask)
    assert stromboli("why", "job", *options).exit_code == 1
    assert paths == [f"explain/job/{asked}"]
    assert clusters.namespace_of("", None, None, "prod") == "default"
    assert clusters.namespace_of("", ["dump.json"], None, None) == "default"


@pytest.mark.parametrize("text", ["", "[]", "contexts: 1", "contexts: [1, {name: x}]", "{", "current-context: [x]"])
def test_a_kubeconfig_that_says_no_namespace_means_default(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    assert clusters.namespace_of("", None, tmp_path / "config", None) == "default"
