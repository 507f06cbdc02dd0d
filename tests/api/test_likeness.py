"""Names that are much like others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.validation import nearest
from tests.fuzz import tried

NAMES = st.text("abtrin-0", min_size=1, max_size=8)
#: like nothing that is asked for
MANY = [f"{'xyz'[number % 3]}{number:06}" for number in range(2_000)]


@given(NAMES, st.lists(NAMES, max_size=8))
@tried(30)
def test_the_nearest_of_many_names_is_that_of_few(asked: str, known: list[str]) -> None:
    assert nearest(asked, [*known, *MANY]) == nearest(asked, known)
