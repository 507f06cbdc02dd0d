"""The command that runs many histories: it says which chunks failed, and how to repeat them."""

from __future__ import annotations

import pytest

from tests.expectations import histories
from tests.expectations.test_histories import Histories


class _Breaks(Histories):
    def teardown(self) -> None:
        raise ValueError("not at rest")


def test_half_of_the_chunks_are_plain() -> None:
    assert list(histories.chunks([], 450))[:3] == [("plain", 100), ("changing", 100), ("plain", 100)]
    assert sum(size for _, size in histories.chunks([], 450)) == 450
    assert list(histories.chunks(["pool"], 120)) == [("pool", 100), ("pool", 20)]


def test_what_fails_is_told_with_a_way_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert histories.told("plain", 1, 1) == ""
    monkeypatch.setitem(histories.KINDS, "plain", _Breaks)
    told = histories.told("plain", 1, 1)
    assert "ValueError: not at rest" in told
    assert "@reproduce_failure(" in told
