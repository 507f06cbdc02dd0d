"""Outcomes of Volcano's own scheduler, recorded, against ours under its rules.

A selection of the scenarios lies beside this file; where the whole collection is at hand, all of it is compared.
`disagreements.txt` names the scenarios that cannot agree, each with its reason.
"""

from __future__ import annotations

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


@pytest.mark.parametrize("path", sorted((HERE / "scenarios").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_selection(path: Path) -> None:
    assert compared(path) == []


def test_the_whole_collection(conformance_data: Path) -> None:
    """Every scenario whose actions and plugins are here agrees, but for the ones that are listed."""
    excused = known()
    paths = sorted(p for folder in ("generated", "volcano") for p in (conformance_data / folder).glob("*.yaml"))
    results = {path.stem: compared(path) for path in paths}
    differ = {name: diff for name, diff in results.items() if diff and name not in excused}
    assert differ == {}
    assert sum(result is not None for result in results.values()) > 900
