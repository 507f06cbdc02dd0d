"""pytest's way to the control plane.  Everything that asks for one of these is a test to mark `e2e`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.controlplane.build import Binaries, BuildError, control_plane, helm
from tests.controlplane.cluster import Cluster

#: what takes longest: a test that takes minutes, and files whose tests share a cluster that is dear to fill
_LONGEST = ("test_soak.py", "test_pages.py", "test_troubleshooting.py", "test_troubleshooting_trees.py")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several processes, each begins with one of the files that take longest.

    With `--dist worksteal` each gets as many tests in a row as the others, and one that has none left takes over the
    last ones of another: files at an end would be taken apart, and their clusters filled by each process.
    """
    processes: int = getattr(config, "workerinput", {}).get("workercount", 1)
    firsts: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for number, file in enumerate(_LONGEST):
        firsts[number % processes] += [item for item in items if _is_long(item) and item.path.name == file]
    rest, ordered = [item for item in items if not _is_long(item)], list[pytest.Item]()
    for number, first in enumerate(firsts):
        share = (len(items) - len(ordered)) // (processes - number)
        ordered += first + [rest.pop(0) for _ in range(min(len(rest), max(0, share - len(first))))]
    items[:] = ordered + rest


def _is_long(item: pytest.Item) -> bool:
    return item.path.name in _LONGEST and item.get_closest_marker("e2e") is not None


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The compiled programs; compiling takes minutes when `make e2e` or an earlier run has not done it."""
    return control_plane()


@pytest.fixture(scope="session")
def cluster(binaries: Binaries) -> Iterator[Cluster]:
    """The cluster that the whole run shares: API server, controller-manager, and kwok for every node.

    Leave it as it was: use `namespace` for what is namespaced and delete the rest.
    """
    with Cluster(binaries) as shared:
        shared.start_controller_manager()
        shared.start_kwok()
        yield shared


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Iterator[httpx.Client]:
    """An administrator's HTTP client of the shared cluster."""
    with cluster.client() as client:
        yield client


@pytest.fixture
def namespace(api: httpx.Client, _numbers: Iterator[int]) -> Iterator[str]:
    """A new namespace of the shared cluster, deleted with all that is in it."""
    name = f"test-{next(_numbers)}"
    api.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
    yield name
    api.delete(f"/api/v1/namespaces/{name}").raise_for_status()


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def new_cluster(binaries: Binaries) -> Iterator[Callable[..., Cluster]]:
    """Start a cluster for this test alone, to break or to configure: `new_cluster(apiserver_args=[…])`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Cluster(binaries, **options))


@pytest.fixture(scope="session")
def helm_binary() -> Path:
    """helm; without one for this machine the test is skipped."""
    try:
        return helm()
    except BuildError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
