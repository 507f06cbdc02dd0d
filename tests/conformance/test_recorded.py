"""Outcomes of Volcano's own scheduler, recorded, against ours under its rules.

A selection of the scenarios lies beside this file; where the whole collection is at hand, all of it is compared.
`disagreements.txt` names the scenarios that cannot agree, each with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.api.errors import PolicyError
from stromboli.discovery import discover
from stromboli.simulation.outcome import outcome
from stromboli.simulation.scenario import Scenario
from tests.conformance.compare import differences

HERE = Path(__file__).parent
SELECTION = sorted((HERE / "scenarios").glob("*.yaml"))
#: so many tests share the scenarios, so that they can run side by side
PARTS = 6
REGISTRY = discover()
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def known() -> dict[str, str]:
    """Scenarios that cannot agree, with the reason."""
    lines = (HERE / "disagreements.txt").read_text().splitlines()
    pairs = ((name, why) for name, _, why in (line.partition(": ") for line in lines if line and line[0] != "#"))
    return dict(pairs)


def compared(path: Path) -> list[str] | None:
    """The differences of a scenario; None when its policy uses what is not here."""
    document: dict[str, Any] = yaml.load(path.read_text(), Loader=LOADER)
    try:
        run = Scenario.parse(document).run("volcano", registry=REGISTRY)
    except PolicyError:
        return None
    return differences(document["expect"], outcome(run))


def differing(paths: Sequence[Path]) -> dict[str, list[str]]:
    """What differs, by scenario, where it is not excused; nearly all of them can be compared."""
    excused, results = known(), {path.stem: compared(path) for path in paths}
    assert sum(result is None for result in results.values()) <= len(paths) // 10
    return {name: result for name, result in results.items() if result and name not in excused}


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.one_in(10)
def test_the_selection(part: int) -> None:
    assert differing(SELECTION[part::PARTS]) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(PARTS))
def test_the_whole_collection(conformance_data: Path, part: int) -> None:
    """Every scenario whose actions and plugins are here agrees, but for the ones that are listed."""
    paths = sorted(path for folder in ("generated", "volcano") for path in (conformance_data / folder).glob("*.yaml"))
    assert len(paths) > 900
    ours = {path.name: path.read_bytes() for path in SELECTION}
    others = [path for path in paths if ours.get(path.name) != path.read_bytes()]
    assert differing(others[part::PARTS]) == {}
