"""kube-scheduler's recorded answers, where they are at hand."""

from __future__ import annotations

import pytest

from tests.compat.tables import cases, differences, excused, recorded


@pytest.mark.exhaustive
async def test_every_recorded_answer_agrees() -> None:
    folder = recorded()
    if not folder.is_dir():
        pytest.skip(f"no recorded answers in {folder}; STROMBOLI_KUBERNETES_TABLES names another place")
    differ = {case.path.name: lines for case in cases(folder) if (lines := await differences(case))}
    assert differ.keys() == excused().keys(), differ
