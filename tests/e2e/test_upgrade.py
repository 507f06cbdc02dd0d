"""From the version before to this one and back, while pods run, gangs wait and others are amid their bindings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.service import STROMBOLI, Service
from tests.e2e.watch import PodWatch
from tests.e2e.world import CORE, World, define

pytestmark = pytest.mark.e2e

#: the commits of which the first that runs stands for the version before while no release is tagged
_EARLIER = tuple(f"HEAD~{number}" for number in range(100, 200, 20))
_RUNS = (sys.executable, "-c", "from stromboli.discovery import discover; discover()")
_GANGS, _SIZE = 10, 20
#: seconds after which a leader that was told to end is succeeded, with time for a busy machine
_FAIL_OVER = 8.0


@pytest.fixture(scope="module")
def before(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the version before."""
    git = ("git", "-C", str(repository))
    tagged = subprocess.run([*git, "describe", "--tags", "--match=v*", "--abbrev=0"], capture_output=True, check=False)
    released = tagged.stdout.decode().strip()
    for revision in (released,) if released else _EARLIER:
        archive = subprocess.run([*git, "archive", revision], capture_output=True, check=False)
        if archive.returncode:
            pytest.skip(f"the history of this checkout does not reach {revision}")
        folder = tmp_path_factory.mktemp("before")
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
        if released or not subprocess.run(_RUNS, env={"PYTHONPATH": str(folder / "app")}, check=False).returncode:
            return folder
    pytest.fail(f"none of {', '.join(_EARLIER)} runs")


class Replica(Service):
    """A service by the package of a tree."""

    def __init__(self, tree: Path, cluster: Cluster, log: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(tree / "app"))
            super().__init__(cluster.kubeconfig(), log, "--leader-elect", "--binds-per-second", "5")


@pytest.mark.parametrize("upgrade", [True, False], ids=["upgrade", "rollback"])
def test_nothing_is_bound_twice_or_lost_and_the_gap_is_no_longer_than_a_fail_over(
    new_cluster: Callable[..., Cluster], before: Path, repository: Path, tmp_path: Path, upgrade: bool
) -> None:
    trees = (before, repository) if upgrade else (repository, before)
    cluster = new_cluster()
    cluster.start_kwok()
    with cluster.client() as api:
        files = sorted((trees[0] / "charts/stromboli/files/crds").glob("*.yaml"))
        define(api, [yaml.safe_load(path.read_text()) for path in files])
    world = World(cluster, "default")
    world.nodes(_SIZE, cpu=str(_GANGS + 1))
    old = Replica(trees[0], cluster, tmp_path / "old.log").wait_ready()
    world.queue("research", weight=3)
    world.gang("runs", _SIZE, queue="research")
    eventually(lambda: world.bound()["runs"] == _SIZE)
    ran = world.placed()

    with PodWatch(cluster, "default") as watch:
        for number in range(_GANGS):
            world.gang(f"gang-{number}", _SIZE)
        watch.wait_bound(_SIZE + 10)
        world.gang("waits", 16, cpu="8")
        if upgrade:
            command = [str(STROMBOLI), "crds", "apply", "--kubeconfig", str(cluster.kubeconfig())]
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(repository / "app")})
        # As a Deployment rolls: the new replica is ready before the old one is told to end.
        new = Replica(trees[1], cluster, tmp_path / "new.log").wait_ready()
        assert len(watch.bound) < _SIZE * _GANGS, "all was bound before the old version ended"
        assert old.end() == 0
        watch.wait_bound(_SIZE * (_GANGS + 1))
        assert watch.moved == []
        gaps = [later - earlier for earlier, later in pairwise(sorted(watch.bound.values()))]
        print(f"\nbindings stood still for {max(gaps):.1f} s")
        assert max(gaps) < _FAIL_OVER
    assert world.placed().items() >= ran.items()
    assert world.bound() == {"runs": _SIZE} | {f"gang-{number}": _SIZE for number in range(_GANGS)}
    assert world.queues() >= {"root", "default", "research"}

    eventually(lambda: world.condition("waits", "Unschedulable") != {})
    pods = f"{CORE}/namespaces/default/pods"
    for number in range(_GANGS):
        for member in range(_SIZE):
            world.api.delete(f"{pods}/gang-{number}-{member}", params={"gracePeriodSeconds": "0"})
    eventually(lambda: world.bound()["waits"] == 16)
    assert new.end() == 0
