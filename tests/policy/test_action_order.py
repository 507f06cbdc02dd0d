"""Which orders of actions a policy is told about."""

from __future__ import annotations

import pytest

from stromboli.engine import Engine
from stromboli.policy.document import DEFAULT_POLICY

SANE = [
    "enqueue, allocate, backfill",
    "enqueue, allocate, preempt, reclaim, backfill",
    "enqueue, reclaim, allocate, backfill, preempt",
    "enqueue, backfill, consolidation, gangreclaim, gangpreempt, allocate",
    "allocate, preempt",
    "enqueue, allocate, enqueue, preempt",
]
NOT_SANE = {
    "enqueue, backfill": ["without allocate no pod"],
    "enqueue, preempt, reclaim": ["without allocate no pod", "preempt and reclaim would evict pods for others"],
    "allocate, enqueue, backfill": ["enqueue comes after allocate"],
    "preempt, enqueue, allocate": ["preempt comes before enqueue"],
    "consolidation, allocate, enqueue": ["enqueue comes after allocate", "consolidation comes before enqueue"],
}


def notes(actions: str) -> tuple[str, ...]:
    return Engine(DEFAULT_POLICY.replace("enqueue, allocate, backfill", actions)).policy.notes


@pytest.mark.parametrize("actions", SANE)
def test_a_sane_order_needs_no_word(actions: str) -> None:
    assert notes(actions) == ()


@pytest.mark.parametrize("actions", NOT_SANE)
def test_an_order_that_does_things_in_vain_is_named(actions: str) -> None:
    found = notes(actions)
    assert len(found) == len(NOT_SANE[actions])
    assert all(words in note for words, note in zip(NOT_SANE[actions], found, strict=True))
