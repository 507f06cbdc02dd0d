"""From the version before to this one and back by helm, while pods run, gangs wait, and others come without a pause."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.audit import Audit
from tests.e2e.service import STROMBOLI, Service
from tests.e2e.test_chart import NAMESPACE, deployed
from tests.e2e.watch import PodWatch
from tests.e2e.world import CORE, World

pytestmark = pytest.mark.e2e

#: the commits of which the first that runs stands for the version before while no release is tagged
_EARLIER = tuple(f"HEAD~{number}" for number in range(100, 200, 20))
_RUNS = (sys.executable, "-c", "from stromboli.discovery import discover; discover()")
#: pods of each gang, seconds from one gang to the next, and pods that are bound in a second: fewer than come
_SIZE, _PAUSE, _BINDS = 10, 1.0, 8
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


class Site:
    """A cluster with a release of the chart, and its replica: there is no kubelet to run it."""

    def __init__(self, cluster: Cluster, helm: Path, folder: Path) -> None:
        self._cluster = cluster
        self._helm = helm
        self._folder = folder
        self._started = 0
        self.world = World(cluster, "default")

    def helm(self, tree: Path, *args: str) -> None:
        """helm with the chart of a tree; the definitions are applied as its Job would."""
        config = ("--kubeconfig", str(self._cluster.kubeconfig()))
        if args[0] in ("install", "upgrade"):
            _run(tree, {**os.environ, "PYTHONPATH": str(tree / "app")}, str(STROMBOLI), "crds", "apply", *config)
        home = {"HOME": str(self._folder), "PATH": ""}
        _run(tree, home, str(self._helm), *args, "--no-hooks", "--namespace", NAMESPACE, *config)

    def replica(self, tree: Path) -> Service:
        """What the Deployment runs now, by the package of a tree; returns when it is ready."""
        self._started += 1
        folder = self._folder / str(self._started)
        folder.mkdir()
        arguments = deployed(self.world, folder)
        account = self._cluster.service_account_kubeconfig(NAMESPACE, "stromboli")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(tree / "app"))
            return Service(account, folder / "log", *arguments).wait_ready()


def _run(folder: Path, environment: Mapping[str, str], *words: str) -> None:
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    return Audit(tmp_path)


@pytest.fixture
def site(new_cluster: Callable[..., Cluster], audit: Audit, helm_binary: Path, tmp_path: Path) -> Iterator[Site]:
    cluster = new_cluster(apiserver_args=audit.apiserver_args)
    cluster.start_kwok()
    site = Site(cluster, helm_binary, tmp_path)
    yield site
    site.world.api.close()


@contextmanager
def gangs_that_come(cluster: Cluster) -> Iterator[list[str]]:
    """Gangs come one after the other while the context lasts; the list has the names of those that are whole."""
    came: list[str] = []
    stopped = Event()

    def submit() -> None:
        world = World(cluster, "default")
        while not stopped.wait(_PAUSE):
            name = f"gang-{len(came)}"
            world.gang(name, _SIZE)
            came.append(name)
        world.api.close()

    submitter = Thread(target=submit)
    submitter.start()
    try:
        yield came
    finally:
        stopped.set()
        submitter.join()


def test_nothing_is_bound_twice_or_lost_and_bindings_stand_still_no_longer_than_a_fail_over(
    site: Site, audit: Audit, before: Path, repository: Path
) -> None:
    world = site.world
    world.nodes(40, cpu="100")
    site.helm(before, "install", "stromboli", "charts/stromboli", "--create-namespace",
              "--set", f"extraArgs={{--binds-per-second={_BINDS}}}")  # fmt: skip
    runs = site.replica(before)
    world.gang("runs", 40, cpu="60")
    world.gang("waits", 40, cpu="41")
    eventually(lambda: world.bound()["runs"] == 40 and world.condition("waits", "Unschedulable") != {})
    ran = world.placed()

    steps = (
        (repository, ("upgrade", "stromboli", "charts/stromboli", "--reset-then-reuse-values", "--set", "replicas=2")),
        (before, ("rollback", "stromboli")),
    )
    with PodWatch(world.cluster, "default") as watch:
        with gangs_that_come(world.cluster) as came:
            for tree, words in steps:
                watch.wait_bound(len(watch.bound) + 3 * _SIZE)
                site.helm(tree, *words)
                # As a Deployment rolls: the new replica is ready before the old one is told to end.
                follows = site.replica(tree)
                watch.wait(lambda: any(bound % _SIZE for bound in watch.gangs().values()))
                assert runs.end() == 0
                runs = follows
            watch.wait_bound(len(watch.bound) + 3 * _SIZE)
        expected = {"runs": 40} | dict.fromkeys(came, _SIZE)
        watch.wait_bound(sum(expected.values()))
        gaps = [later - earlier for earlier, later in pairwise(sorted(watch.bound.values()))]
        assert watch.moved == []
    print(f"\n{len(came)} gangs came, and bindings stood still for {max(gaps):.1f} s")
    assert max(gaps) < _FAIL_OVER
    assert world.bound() == expected
    assert world.placed().items() >= ran.items()
    assert Counter(audit.accepted("default").values()) == {1: sum(expected.values())}

    for member in range(40):
        world.api.delete(f"{CORE}/namespaces/default/pods/runs-{member}", params={"gracePeriodSeconds": "0"})
    eventually(lambda: world.bound()["waits"] == 40)
    assert runs.end() == 0
