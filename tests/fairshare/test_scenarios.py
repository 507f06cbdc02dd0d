"""KAI-Scheduler's recorded rounds, through the whole core; see `scenarios.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from stromboli.engine import Engine
from tests.fairshare.scenarios import World, differences, scenarios
from tests.fairshare.shared import recorded

EXCUSED = Path(__file__).parent / "disagreements.txt"


@pytest.fixture(scope="module")
def recordings() -> list[Mapping[str, Any]]:
    folder = recorded() / "scenarios"
    if not folder.is_dir():
        pytest.skip(f"no recorded scenarios in {folder}; STROMBOLI_FAIRSHARE names another place")
    return list(scenarios(folder))


def excused() -> Iterator[str]:
    """The names of the scenarios that are known to end otherwise."""
    for line in EXCUSED.read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.partition(":")[0]


@pytest.mark.exhaustive
def test_the_rounds_end_as_recorded(recordings: list[Mapping[str, Any]]) -> None:
    differ = {scenario["id"]: found for scenario in recordings if (found := differences(scenario))}
    assert differ.keys() == set(excused()), differ


@pytest.mark.exhaustive
def test_every_session_opens_with_the_recorded_shares(recordings: list[Mapping[str, Any]]) -> None:
    """They were recorded in whole GPUs, rounded down, with the claims of jobs that could never run."""
    engine = Engine("actions: allocate\nrules: {never_fits: volcano}\ntiers: [{plugins: [{name: fairshare}]}]")
    compared = 0
    for scenario in recordings:
        session = World(scenario).result(engine).session
        for name, queue in scenario["session"]["queues"].items():
            share = queue["fairShareRoundedDown"]
            if share is None or not scenario["session"]["nodes"]:
                continue
            ours = dict(zip(session.view.dimensions, session.report.queue(name).amounts["fair_share"], strict=True))
            gpus = ours.get("nvidia.com/gpu", 0.0) // 1000
            assert [ours["cpu"], ours["memory"], gpus] == [share[key] for key in ("cpu", "memory", "gpu")]
            compared += 1
    assert compared > 400
