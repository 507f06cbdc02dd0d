"""Files that bite: each is one line with the file and the field, exit code 2, and nothing else."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stromboli.cli import make_app
from stromboli.simulation.manifests import load
from tests.api.test_documents import BOMB

POD = "kind: Pod\nmetadata: {name: a}\n"
MISTAKES: dict[str, tuple[str | bytes, str]] = {
    "alias bomb": (f"kind: Pod\n{BOMB}", "aliases expand to more than 100,000 nodes"),
    "deep": ("kind: Pod\nmetadata: " + "[" * 20_000, "nested more than 100 deep"),
    "contains itself": ("kind: Pod\nmetadata: &m {name: a, labels: *m}", "metadata.labels: 'm' contains itself"),
    "binary": (bytes(range(256)), "not text: byte 128 is not UTF-8"),
    "null bytes": ("kind: \0", "not valid YAML: unacceptable character"),
    "UTF-16 without a mark": ("kind: Pod".encode("utf-16-le"), "not valid YAML"),
    "duplicate key": ("kind: Pod\nkind: Pod", "line 2, column 1: Pod: duplicate key 'kind'"),
    "tab": ("kind:\n\tPod", "line 2, column 1: not valid YAML"),
    "year 0": (
        "kind: Pod\nmetadata: {name: a, creationTimestamp: 0000-01-01T00:00:00Z}",
        "document 1: Pod a: metadata.creationTimestamp: should be an RFC 3339 time, not '0000-01-01T00:00:00Z'",
    ),
    "no time": (f"{POD}status: {{startTime: soon}}", "document 1: Pod a: status.startTime: should be an RFC 3339 time"),
    "odd name": (
        "kind: Pod\nmetadata: {name: a-b-²}",
        "metadata.name: should be lower-case letters, digits, ",
    ),
    "no name": ("kind: Pod\nmetadata: {}", "document 1: Pod: metadata.name: is required"),
    "kind of another type": ("kind: [Pod]", "document 1: kind: an object with a kind is needed, not {'kind': ['Pod']}"),
    "kind that is misspelt": ("kind: Podgroup", "kind: unknown kind 'Podgroup', did you mean 'PodGroup'?"),
    "metadata of another type": ("kind: Pod\nmetadata: []", "document 1: Pod: metadata: should be a mapping, not []"),
    "beyond 64 bits": (
        f"{POD}spec: {{priority: 99999999999999999999}}",
        "document 1: Pod a: spec.priority: should be a whole number of 64 bits, not 1e+20",
    ),
    "negative": (
        f"{POD}spec: {{containers: [{{resources: {{requests: {{cpu: -1}}}}}}]}}",
        "document 1: Pod a: spec.containers[0].resources.requests.cpu: -1 is negative",
    ),
    "null in a list": (f"{POD}spec: {{containers: [null]}}", "spec.containers[0]: should not be null"),
    "items of another type": ("kind: List\nitems: 5", "document 1: items: should be a list, not 5"),
    "an item of another type": ("kind: PodList\nitems: [5]", "document 1: item 1: kind: an object with a kind is"),
    "plain kind": (
        "kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: 5}",
        "ResourceQuota q: spec.hard: should be a mapping, not 5",
    ),
    "misspelt field of a pod": (
        f"{POD}spec: {{schedulrName: x}}",
        "spec.schedulrName: unknown field, with the value 'x', did you mean 'schedulerName'?",
    ),
    "misspelt field of a PodGroup": (
        "kind: PodGroup\nmetadata: {name: a}\nspec: {minMembers: 3}",
        "PodGroup a: spec.minMembers: unknown field, with the value 3, did you mean 'minMember'?",
    ),
    "misspelt field of a queue": (
        "kind: Queue\nmetadata: {name: q}\nspec: {wieght: 3}",
        "Queue q: spec.wieght: unknown field, with the value 3, did you mean 'weight'?",
    ),
    "queue of another project": (
        "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: q}\nspec: {parentQueue: p}",
        "Queue q: apiVersion: should be scheduling.volcano.sh/v1beta1, not 'scheduling.run.ai/v2'",
    ),
    "misspelt field of a job": (
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: j}\nspec: {minAvalable: 3}",
        "Job j: spec.minAvalable: unknown field, with the value 3, did you mean 'minAvailable'?",
    ),
    "too many pods": (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n"
        "spec: {replicas: 2000000000, template: {spec: {containers: [{name: c}]}}}",
        "Deployment d: spec: would be pod number 100,000 and more",
    ),
    "objects of another type": ("objects: 5\nconfig: x", "objects: input should be a valid list, not 5"),
    "config of another type": ("objects: []\nconfig: 5", "config: input should be a valid string, not 5"),
    "object without a kind": ("objects: [5]\nconfig: x", "object 1: kind: is needed, not 5"),
    "cycles": ("objects: []\nconfig: x\ncycles: 0", "cycles: input should be greater than or equal to 1, not 0"),
    "misspelt key of a scenario": ("objects: []\nconfig: x\nnodeUsages: {}", "unknown key, did you mean 'nodeUsage'?"),
    "time of a scenario": ("objects: []\nconfig: x\nnow: noon", "now: should be an RFC 3339 time, not 'noon'"),
    "policy of a scenario": (f"objects: []\nconfig: '{'[' * 20_000}'", "config: "),
    "expression of a scenario": (
        "objects: []\nconfig: x\nextender: {predicate: [{pods: '('}]}",
        "extender.predicate[0].pods: the pattern '(' is not valid: 'missing ): ('",
    ),
}


def invoke(*arguments: str, stdin: bytes | None = None) -> Result:
    """Run a command; whatever it raises beside its exit code fails the test."""
    result = CliRunner().invoke(make_app(), arguments, input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize(("content", "problem"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_file_that_bites(tmp_path: Path, content: str | bytes, problem: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = invoke("simulate", str(path))
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{path}: ")
    assert problem in line
    assert len(line) < 400 + len(str(path))


#: runs a command and prints its exit code and peak memory; a child of the tests' own process begins with theirs
WATCH = """
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.exhaustive
def test_files_that_bite_take_little_time_and_memory(tmp_path: Path) -> None:
    """Within 60 CPU seconds, of which the alias bomb alone would take more, and 300 MB."""
    for name, (content, _) in MISTAKES.items():
        (tmp_path / f"{name}.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "bomb.conf").write_text(BOMB)
    for command in (["simulate", str(tmp_path)], ["config", "check", str(tmp_path / "bomb.conf")]):
        told = subprocess.run(
            [sys.executable, "-c", WATCH, sys.executable, "-m", "stromboli", *command], stdout=subprocess.PIPE
        ).stdout
        code, kibibytes = map(int, told.split())
        assert code == 2
        assert kibibytes < 300 << 10


@pytest.mark.parametrize("command", [["simulate"], ["config", "check"], ["bench", "engine", "--policy"]])
def test_what_cannot_be_read_is_named(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff")
    for name in ("nowhere", "folder.yaml", "binary", "x" * 300):
        result = invoke(*command, str(tmp_path / name))
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert str(tmp_path) in result.stderr


def test_a_file_is_read_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text("#" * (1 << 20) + "\n")
    result = invoke("simulate", str(tmp_path), "--max-file-size", "1")
    assert (result.exit_code, result.stderr) == (2, f"{tmp_path}/large.yaml: larger than 1,048,576 bytes\n")
    result = invoke("config", "check", str(tmp_path / "large.yaml"))
    assert result.stderr == f"{tmp_path}/large.yaml: larger than 1,048,576 bytes\n"


def test_a_folder_is_read_with_those_below_it(tmp_path: Path) -> None:
    for number, place in enumerate(
        ["n.yaml", "a/n.yml", "a/b/n.json", "z/n.yaml", ".git/n.yaml", "a/.old/n.yaml", "README"]
    ):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"kind": "Node", "metadata": {"name": f"n{number}"}}))
    (tmp_path / "a" / ".link").symlink_to(tmp_path)
    found = load([str(tmp_path)], io.BytesIO())
    assert [obj.metadata.name for _, obj in found.objects] == ["n2", "n1", "n0", "n3"]
    assert found.problems == []


def test_what_of_a_folder_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a" / "empty").mkdir(parents=True)
    assert load([str(tmp_path)], io.BytesIO()).problems == [f"{tmp_path}: no .yaml, .yml or .json files in this folder"]
    (tmp_path / "a" / "around").symlink_to(tmp_path)
    (tmp_path / "a" / "gone.yaml").symlink_to("nowhere")
    assert load([str(tmp_path)], io.BytesIO()).problems == [
        f"{tmp_path}/a/around: Is a directory",
        f"{tmp_path}/a/gone.yaml: No such file or directory",
    ]


def test_nothing_to_simulate_is_said() -> None:
    result = invoke("simulate", "-", stdin=b"")
    assert (result.exit_code, result.stderr) == (2, "-: nothing to simulate\n")


NODE = "kind: Node\nmetadata: {name: n}\nstatus: {allocatable: {cpu: 4, memory: 1Gi, pods: 10}}\n"
GUEST = """\
from stromboli.framework.plugin.base import Plugin
class Guest(Plugin):
    name = "guest"
    def open(self, session):
        raise {}
"""


@pytest.mark.parametrize("raised", ["SystemExit(0)", "KeyboardInterrupt", "GeneratorExit", "ValueError('a\\nb')"])
def test_a_plugin_that_ends_the_process_while_it_is_imported_is_named(tmp_path: Path, raised: str) -> None:
    (tmp_path / "guest.py").write_text(f"raise {raised}")
    for command in (["simulate", "-"], ["plugins"], ["config", "check", "-"]):
        result = invoke(*command, "--plugins-dir", str(tmp_path), stdin=NODE.encode())
        assert result.exit_code == 2
        assert result.stderr.startswith(f"{tmp_path}/guest.py: cannot be loaded: ")
        assert len(result.stderr.splitlines()) == 1


def test_a_plugin_that_ends_the_process_in_a_session_is_named(tmp_path: Path) -> None:
    (tmp_path / "guest.py").write_text(GUEST.format("SystemExit(0)"))
    policy = tmp_path / "policy.conf"
    policy.write_text("actions: allocate\ntiers: [{plugins: [{name: guest}]}]")
    result = invoke("simulate", "-", "--plugins-dir", str(tmp_path), "--policy", str(policy), stdin=NODE.encode())
    assert (result.exit_code, result.stderr) == (2, "plugin guest failed in open: SystemExit: 0\n")


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_a_plugins_folder_that_is_none_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    result = invoke("simulate", "-", "--plugins-dir", str(tmp_path / name), stdin=NODE.encode())
    assert result.exit_code == 2
    assert f"{tmp_path}/{name}: cannot be read as a plugins folder: " in result.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("closed", ["gone", "full", "shut"])
@pytest.mark.one_in(5)
def test_an_output_that_nobody_takes_is_no_traceback(
    closed: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "stromboli", "simulate", "-"]
    if closed == "shut":
        command = ["sh", "-c", f"{' '.join(command)} >&-"]
    read, write = os.pipe()
    os.close(read)
    with open("/dev/full", "w") as full:
        out = {"gone": write, "full": full, "shut": None}[closed]
        ended = subprocess.run(command, input=NODE.encode(), stdout=out, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert ended.stderr.decode() == ("standard output: No space left on device\n" if closed == "full" else "")
    assert ended.returncode == {"gone": 1, "full": 2, "shut": 0}[closed]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_mistake(encoding: str) -> None:
    result = invoke("simulate", "-", "--format", "outcome", stdin=NODE.encode(encoding))
    assert (result.exit_code, json.loads(result.stdout)["outcome"]["bindings"]) == (0, {})
