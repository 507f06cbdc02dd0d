"""The command of the docs that dumps a cluster: it asks for all that scheduling reads, of the kinds that are there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from io import BytesIO
from pathlib import Path

import pytest

from stromboli.live.groups.native_groups import SOURCE as NATIVE_GROUPS
from stromboli.live.watch.sources import SOURCES
from stromboli.simulation.manifests import load
from stromboli.workloads import known_kinds

_ALL = re.DOTALL | re.MULTILINE
CLASS = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: of-the-dump}
value: 7
"""
PAGES = ("README.md", "docs/start.md", "docs/operations.md")


def command(repository: Path, page: str) -> str:
    """The command as the page has it."""
    found = re.search(
        r"^    (kubectl get -A -o json > cluster\.json .*?paste -sd, -\)\")$", _text(repository, page), _ALL
    )
    assert found is not None
    return re.sub(r"^    ", "", found[1], flags=re.MULTILINE)


def _text(repository: Path, page: str) -> str:
    return (repository / page).read_text()


def test_all_pages_have_the_same_command(repository: Path) -> None:
    assert len({command(repository, page) for page in PAGES}) == 1


def test_it_asks_for_every_kind_that_sessions_read(repository: Path) -> None:
    patterns = re.findall(r"-e '([^']*)'", command(repository, PAGES[0]))
    for path in (each.path for each in (*SOURCES, NATIVE_GROUPS)):
        *_, group, _, plural = ("", *path.removeprefix("/apis").split("/"))
        name = plural if path.startswith("/api/") else f"{plural}.{group}"
        assert any(re.fullmatch(pattern, name) for pattern in patterns), name


def test_it_asks_for_the_workloads_whose_groups_pods_do_not_name(repository: Path) -> None:
    """Pods of the others are in a group of the name that follows from what manages them, or are annotated."""
    patterns = re.findall(r"-e '([^']*)'", command(repository, PAGES[0]))
    annotating = ("", "apps", "argoproj.io", "batch.volcano.sh", "flow.volcano.sh")
    rows = [kind.row for kind in known_kinds() if kind.row.group not in annotating]
    for name in ("statefulsets.apps", *(f"{row.plural}.{row.group}" for row in rows)):
        assert any(re.fullmatch(pattern, name) for pattern in patterns), name


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl is installed")
def test_it_works_on_a_cluster_that_lacks_some_of_them(repository: Path, kubeconfig: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)}

    def run(*command: str, said: str = "") -> None:
        done = subprocess.run(
            command, input=said, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    run("kubectl", "create", "-f", "-", said=CLASS)
    run("sh", "-ec", command(repository, PAGES[0]))
    loaded = load([str(tmp_path / "cluster.json")], BytesIO(), lenient=True)
    assert loaded.problems == []
    assert "of-the-dump" in {each.metadata.name for kind, each in loaded.objects if kind == "PriorityClass"}
