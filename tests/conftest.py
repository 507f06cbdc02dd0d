"""What all tests share: where recorded data lie, and how many examples property tests try."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

from stromboli import discovery, engine
from stromboli.policy.document import load_policy
from stromboli.policy.model import Policy

pytest_plugins = ["tests.controlplane.fixtures", "tests.marks"]

# What is made while tests are collected stays until the end: hardly any of it is garbage.
gc.set_threshold(200_000, 20, 20)

settings.register_profile("repeatable", max_examples=15, derandomize=True, deadline=None, database=None)
# Others every time, and many of them; a failure prints how to repeat it.
settings.register_profile(
    "thorough", max_examples=300, derandomize=False, deadline=None, database=None, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# What is installed stays as it is while tests run. To look through it takes longer than most sessions of a test.
discovery.entry_points = cache(discovery.entry_points)
engine.discover = cache(engine.discover)


def _read_once(text: str, **known: Any) -> Policy:
    """A policy, which is immutable, and whose text many tests share."""
    key = (text, *(tuple(part.items()) if isinstance(part, Mapping) else part for part in known.values()))
    if key not in _POLICIES:
        _POLICIES[key] = load_policy(text, **known)
    return _POLICIES[key]


_POLICIES: dict[tuple[Any, ...], Policy] = {}
engine.load_policy = _read_once

# Tests write and read hundreds of policies, manifests and kubeconfigs, ten times as fast by libyaml.
yaml.SafeDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

ROOT = Path(__file__).parents[1]


#: for how many seconds processes wait for the one that does it
_PATIENCE = 120


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """In a fresh clone, wait until the first of several processes has rewritten the assertions of tests.

    To do so takes longer than all else before the first test, and each process would do it.
    """
    first, started = _worker(session.config) in ("", "gw0"), time.monotonic()
    while not (first or _rewritten(session.config).exists()) and time.monotonic() - started < _PATIENCE:
        time.sleep(0.1)


def _rewritten(config: pytest.Config) -> Path:
    """A file that says that the assertions of the tests that are asked for are kept beside the bytecode."""
    return ROOT / ".pytest_cache" / "-".join(("rewritten", *config.option.markexpr.split()))


def _worker(config: pytest.Config) -> str:
    """The name of a process that shares the tests with others; empty for one that runs all."""
    name: str = getattr(config, "workerinput", {}).get("workerid", "")
    return name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test marked `one_in(n)`, all but every n-th are exhaustive."""
    seen: Counter[str] = Counter()
    for item in items:
        family = item.get_closest_marker("one_in")
        if family is not None:
            test = item.nodeid.partition("[")[0]
            if seen[test] % family.args[0]:
                item.add_marker(pytest.mark.exhaustive)
            seen[test] += 1


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the garbage collector from walking all modules and tests again and again."""
    if _worker(session.config) == "gw0":
        _rewritten(session.config).parent.mkdir(exist_ok=True)
        _rewritten(session.config).touch()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


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
