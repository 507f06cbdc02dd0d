"""What is found once for all that share a reason."""

from __future__ import annotations

from stromboli.api.reasons import Actionable, OncePerReason, Reason, Stage


def reason(number: int) -> Reason:
    return Reason(Stage.Gang, "GangNotReady", f"text {number}", Actionable.Wait)


def test_a_shared_reason_is_looked_at_once() -> None:
    asked: list[Reason] = []

    def text(each: Reason) -> str:
        asked.append(each)
        return each.message

    texts, shared = OncePerReason(text), reason(1)
    assert [texts[shared] for _ in range(3)] == ["text 1"] * 3
    assert asked == [shared]


def test_reasons_that_are_gone_lend_their_texts_to_no_other() -> None:
    texts = OncePerReason(lambda each: each.message)
    assert [texts[reason(number)] for number in range(1_000)] == [f"text {number}" for number in range(1_000)]
