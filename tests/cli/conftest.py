"""Commands as somebody types them, on the cluster of a test's module."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stromboli.cli import make_app


def stromboli(*arguments: object, stdin: str = "") -> Result:
    """What a command says, and its exit code."""
    return CliRunner().invoke(make_app(), [str(each) for each in arguments], input=stdin)


@pytest.fixture
def files(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A file with the objects that the module calls CLUSTER."""
    path = tmp_path / "cluster.yaml"
    path.write_text(request.module.CLUSTER)
    return path
