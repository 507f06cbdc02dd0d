"""A short plan of faults; `make soak` runs a long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane.build import Binaries
from tests.faults.soak import soak

pytestmark = pytest.mark.e2e


def test_whatever_goes_wrong_no_pod_gang_or_node_is_harmed(binaries: Binaries, tmp_path: Path) -> None:
    report = soak(binaries, tmp_path, seed=1, seconds=90)
    print(report.table())
    assert report.problems == []
