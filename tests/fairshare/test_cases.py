"""KAI-Scheduler's recorded answers: a selection that lies beside this file, and all of them where they are at hand."""

from __future__ import annotations

import pytest

from tests.fairshare.replay import CASES, cases, difference
from tests.fairshare.shared import recorded


@pytest.mark.parametrize("kind", ["division", "order", "reclaim", "capacity"])
def test_the_selection(kind: str) -> None:
    selected = [case for path, case in cases([CASES]) if path.stem == kind]
    assert {case["id"]: differs for case in selected if (differs := difference(case))} == {}
    assert len(selected) > 20


def test_everything_that_was_recorded() -> None:
    folder = recorded() / "cases"
    if not folder.is_dir():
        pytest.skip(f"no recorded cases in {folder}; STROMBOLI_FAIRSHARE names another place")
    assert {case["id"]: differs for _, case in cases([folder]) if (differs := difference(case))} == {}
