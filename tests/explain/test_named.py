"""What is like a name of a pod or job that is not there."""

from __future__ import annotations

import pytest

from stromboli.explain.named import near_key


@pytest.mark.parametrize(
    ("asked", "known", "near"),
    [
        ("a/trian", {"a/train", "b/evaluate"}, "a/train"),
        ("a/train", {"b/train"}, "b/train"),
        ("a/train", {"b/train", "c/train"}, ""),
        ("a/train", {"b/train", "c/train", "a/train2"}, "a/train2"),
        ("a/train-0", {"a/evaluate"}, ""),
    ],
)
def test_a_name_of_one_other_namespace_is_near_and_one_of_several_is_not(
    asked: str, known: set[str], near: str
) -> None:
    assert near_key(asked, known) == near
