"""In clusters of which nobody thought, pods pass on the nodes on which they pass kube-scheduler's filters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.live import SCENES, Comparison, comparison
from tests.controlplane.build import Binaries

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def both(binaries: Binaries) -> Iterator[Comparison]:
    with comparison() as found:
        yield found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("about", SCENES)
def test_pods_pass_on_the_nodes_that_pass_kube_schedulers_filters(both: Comparison, about: str, seed: int) -> None:
    assert both.differences(seed, about) == []
