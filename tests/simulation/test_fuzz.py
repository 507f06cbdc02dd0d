"""Whatever a file holds, a command answers with its result or with one line for each problem.

`STROMBOLI_FUZZ=10000` tries as many examples of each; otherwise the same few are tried every time.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stromboli.api.documents import read_yaml
from stromboli.policy.document import DEFAULT_POLICY
from tests.simulation.test_files import invoke

TRIED = settings(
    max_examples=int(os.environ.get("STROMBOLI_FUZZ", "25")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
EVERYTHING = Path(__file__).with_name("everything.yaml").read_text()
(MANIFESTS,) = read_yaml(EVERYTHING)
(_DEFAULT,) = read_yaml(DEFAULT_POLICY)
POLICY: Any = _DEFAULT | {
    "actions": "enqueue, allocate, backfill, preempt, reclaim, gangpreempt, gangreclaim, shuffle",
    "configurations": [{"name": "preempt", "arguments": {"enableTopologyAwarePreemption": True}}],
    "metrics": {"type": "prometheus", "interval": "30s"},
    "compatibility": "volcano",
    "rules": {"veto": "strict"},
}
_MORE = (
    "cdp",
    "deviceshare",
    "network-topology-aware",
    "nodegroup",
    "numa-aware",
    "pdb",
    "resourcequota",
    "sla",
    "tdm",
)
POLICY["tiers"][1]["plugins"] += [{"name": name, "arguments": {}, "enabledOverused": True} for name in _MORE]
SCENARIO: Any = {
    "name": "s",
    "config": json.dumps(POLICY),
    "cycles": 2,
    "now": "2024-01-01T00:00:00Z",
    "nodeUsage": {"n1": {"cpu": 50, "memory": 50.5, "ageSeconds": 3, "period": "10m"}},
    "sharding": {"mode": "hard", "name": "volcano"},
    "extender": {"predicate": [{"pods": "default/.*", "nodes": ["n1"], "message": "no", "code": 2}]},
    "lastRescheduleAgeSeconds": 5,
    "writeBackNominated": True,
    "objects": [each for each in MANIFESTS["items"] if "template" not in json.dumps(each)],
}
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
    value = json.loads(json.dumps(original))
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


def answered(*command: str, text: str | bytes) -> None:
    """A command ends well or with lines that name what is wrong, all of them short."""
    result = invoke(*command, stdin=text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    assert result.exit_code in (0, 2), (result.exit_code, result.stderr)
    assert "failed" not in result.stderr
    assert (result.exit_code == 2) == bool(result.stderr), result.stderr
    assert all(len(line) < 1500 for line in result.stderr.splitlines()), result.stderr


def test_what_the_examples_are_made_from_is_good() -> None:
    for options in ([], ["--lenient"]):
        result = invoke("simulate", "-", "--cycles", "2", *options, stdin=EVERYTHING.encode())
        assert (result.exit_code, result.stderr) == (0, "")
    assert invoke("simulate", "-", stdin=json.dumps(SCENARIO).encode()).stderr == ""


@TRIED
@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_text(text: bytes | str) -> None:
    answered("simulate", "-", text=text)


@TRIED
@given(
    st.integers(0, len(EVERYTHING)),
    st.integers(0, 50),
    st.text(max_size=5)
    | st.sampled_from(["&a ", "*template", "<<: *spec", "!!int ", "? ", "{", "[", "|", "\n---\n", "\t"]),
)
def test_texts_that_are_nearly_manifests(start: int, left_out: int, put: str) -> None:
    answered("simulate", "-", text=EVERYTHING[:start] + put + EVERYTHING[start + left_out :])


@TRIED
@given(CHANGES, st.booleans())
def test_manifests(changes: list[Change], lenient: bool) -> None:
    options = ["--explain", *(["--lenient"] if lenient else [])]
    answered("simulate", "-", *options, text=json.dumps(changed(MANIFESTS, changes)))


@TRIED
@given(CHANGES)
def test_scenarios(changes: list[Change]) -> None:
    answered("simulate", "-", "--explain", text=json.dumps(changed(SCENARIO, changes)))


@TRIED
@given(CHANGES)
def test_policies(tmp_path: Path, changes: list[Change]) -> None:
    (tmp_path / "policy").write_text(json.dumps(changed(POLICY, changes)))
    answered("config", "check", str(tmp_path / "policy"), text="")
