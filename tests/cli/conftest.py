"""Commands as a user types them, on the cluster of a test's module."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stromboli.cli import make_app

#: a node, a queue, and half of a gang of two
CLUSTER = """
{kind: Node, metadata: {name: n}, status: {allocatable: {cpu: "4", memory: 16Gi, pods: "10"}}}
---
{kind: Queue, metadata: {name: team}, spec: {weight: 3}}
---
{kind: PodGroup, metadata: {name: train}, spec: {minMember: 2, queue: team}}
---
kind: Pod
metadata: {name: train-0, annotations: {scheduling.k8s.io/group-name: train}}
spec: {schedulerName: stromboli, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
"""


def stromboli(*arguments: object, stdin: str = "") -> Result:
    """What a command says, and its exit code."""
    return CliRunner().invoke(make_app(), [str(each) for each in arguments], input=stdin)


@pytest.fixture
def files(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A file with the objects that the module calls CLUSTER, or those above."""
    path = tmp_path / "cluster.yaml"
    path.write_text(getattr(request.module, "CLUSTER", CLUSTER))
    return path
