"""How many examples property tests try, and examples that are hostile: values with a few places changed."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any, TypeAlias

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

#: how many times as many examples
_TIMES = 20 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 1


def tried(examples: int) -> settings:
    """So many examples of each test, the same every time.

    `HYPOTHESIS_PROFILE=thorough` tries twenty times as many, `STROMBOLI_FUZZ` as many as it says.
    """
    return settings(
        max_examples=int(os.environ.get("STROMBOLI_FUZZ") or examples * _TIMES),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


HOSTILE: list[Any] = [
    *(None, True, 0, -1, 2**31, 2**63 - 1, -(2**63), 1e20, -0.0, 1e300, 5e-324),
    *("", " ", "-", "0", "-1", "1e99", "9" * 60, "9" * 5000, "²", "a-b-²", "٣", "1Ei", "100%", "-5%", "true", "null"),
    *("0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "x" * 300, "(", "*", "default/p", "root", "a\nb", "/", ".."),
    *([], {}, [[]], [{}], [None], {"": ""}, {"a": None}, ["a", "a"], [1, "a", None], {"cpu": "lots"}, {"cpu": -1}),
    *("[]", "{}", '{"a": 1}', '{"a": {"cpu": 1}}', {"x/y": "9" * 50}, {f"r{number}/x": 1 for number in range(200)}),
]
Change: TypeAlias = tuple[int, str | None, Any]
#: number of a place, and what stands there: the same under another name, or another value
CHANGES = st.lists(
    st.tuples(st.integers(0, 10_000), st.none() | st.text(max_size=5), st.sampled_from(HOSTILE)), min_size=1, max_size=3
)


def places(value: Any, path: tuple[int | str, ...] = ()) -> Iterator[tuple[int | str, ...]]:
    """The paths to everything in a value."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(original: Any, changes: list[Change]) -> Any:
    """A copy with a few places changed."""
    value = copy.deepcopy(original)
    for number, name, hostile in changes:
        found = list(places(value))
        if not found:
            break
        *parents, key = found[number * 7919 % len(found)]
        parent: Any = value
        for each in parents:
            parent = parent[each]
        if name is not None and isinstance(parent, dict):
            parent[name] = parent.pop(key)
        else:
            parent[key] = copy.deepcopy(hostile)
    return value
