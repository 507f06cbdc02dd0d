"""Plugins of others: from a package that pip installed, and from a folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stromboli.api.errors import PolicyError
from stromboli.discovery import discover

MANIFESTS = """
apiVersion: v1
kind: Node
metadata: {name: plain}
status: {allocatable: {cpu: "8", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: spot, labels: {spot: "yes"}}
status: {allocatable: {cpu: "8", memory: 8Gi, pods: "10"}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: default}
spec: {weight: 1}
status: {state: Open}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: job, namespace: default}
spec: {minMember: 2, queue: default}
""" + "".join(
    f"""
---
apiVersion: v1
kind: Pod
metadata:
  name: job-{index}
  namespace: default
  annotations: {{scheduling.k8s.io/group-name: job, volcano.sh/preemptable: "{preemptable}"}}
spec:
  schedulerName: stromboli
  containers: [{{name: main, resources: {{requests: {{cpu: "1"}}}}}}]
"""
    for index, preemptable in enumerate(("true", "false"))
)
POLICY = """
actions: allocate
tiers:
- plugins:
  - name: gang
  - name: spot
    arguments: {spot.weight: 2}
"""


def simulate(folder: Path, *options: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with one more place to find packages."""
    (folder / "objects.yaml").write_text(MANIFESTS)
    (folder / "policy.conf").write_text(POLICY)
    command = [sys.executable, "-m", "stromboli", "simulate", str(folder / "objects.yaml"), "--format", "outcome"]
    return subprocess.run(
        [*command, "--policy", str(folder / "policy.conf"), *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


def bindings(result: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The bindings of a run that went well."""
    assert result.returncode == 0, result.stderr
    found: dict[str, str] = json.loads(result.stdout)["outcome"]["bindings"]
    return found


@pytest.mark.exhaustive
def test_an_installed_package(tmp_path: Path, repository: Path) -> None:
    source, installed = tmp_path / "source", tmp_path / "installed"
    shutil.copytree(repository / "examples" / "spot-plugin", source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(installed), str(source)], check=True)
    placed = bindings(simulate(tmp_path, path=str(installed)))
    assert placed == {"default/job-0": "spot", "default/job-1": "plain"}


@pytest.mark.exhaustive
def test_a_file_in_a_folder(tmp_path: Path, repository: Path) -> None:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    shutil.copy(repository / "examples" / "spot-plugin" / "stromboli_spot.py", plugins)
    placed = bindings(simulate(tmp_path, "--plugins-dir", str(plugins)))
    assert placed == {"default/job-0": "spot", "default/job-1": "plain"}


@pytest.mark.exhaustive
def test_without_it_the_policy_is_refused(tmp_path: Path) -> None:
    result = simulate(tmp_path)
    assert result.returncode == 2
    assert "tiers[0].plugins[1].name: unknown plugin 'spot'" in result.stderr


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nothing_of_this_name", "cannot be loaded: No module named 'nothing_of_this_name'"),
        (
            "from stromboli.framework import Plugin\nclass Mine(Plugin):\n    name = 'gang'\n",
            "the name 'gang' is taken by stromboli.plugins.gang.Gang",
        ),
        (
            "first = 1\nLIMIT = int('many')\n",
            "cannot be loaded: ValueError: invalid literal for int() with base 10: 'many' (line 2)",
        ),
        (
            "from stromboli.framework import Plugin\n"
            "class A(Plugin):\n    name = 'own'\nclass B(Plugin):\n    name = 'own'\n",
            "the name 'own' is taken by class A of mine.py",
        ),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(PolicyError, match=r"mine\.py: ") as error:
        discover(tmp_path)
    assert message in str(error.value)
