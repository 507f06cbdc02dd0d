"""What all tests share: where recorded data lie, and property tests that try the same examples every time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.controlplane.fixtures"]

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def conformance_data() -> Path:
    """Recorded scenarios of other schedulers; the tests that compare with them are skipped without."""
    path = Path(os.environ.get("STROMBOLI_CONFORMANCE") or ROOT.parent / "shared" / "conformance")
    if not path.is_dir():
        pytest.skip(f"no recorded scenarios in {path}; STROMBOLI_CONFORMANCE names another place")
    return path
