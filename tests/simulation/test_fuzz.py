"""Whatever a file holds, a command answers with its result or with one line for each problem.

`STROMBOLI_FUZZ=10000` tries as many examples of each; otherwise the same few are tried every time.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.documents import read_yaml
from stromboli.api.errors import StromboliError
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.simulation.changes import read_changes
from tests.builders import node, pod, pod_group, queue, state
from tests.fuzz import CHANGES, Change, changed, tried
from tests.simulation.test_files import invoke

TRIED = tried(25)
EVERYTHING = Path(__file__).with_name("everything.yaml").read_text()
(MANIFESTS,) = read_yaml(EVERYTHING)
(_DEFAULT,) = read_yaml(DEFAULT_POLICY)
POLICY: Any = _DEFAULT | {
    "actions": (
        "enqueue, allocate, backfill, consolidation, preempt, reclaim, gangpreempt, gangreclaim, shuffle,"
        " stalegangeviction"
    ),
    "configurations": [{"name": "preempt", "arguments": {"enableTopologyAwarePreemption": True}}],
    "metrics": {"type": "prometheus", "interval": "30s"},
    "compatibility": "volcano",
    "rules": {"veto": "strict"},
}
_MORE = (
    "cdp",
    "deviceshare",
    "nodegroup",
    "numa-aware",
    "pdb",
    "resourcequota",
    "sla",
    "tdm",
)
POLICY["tiers"][1]["plugins"] += [{"name": name, "arguments": {}, "enabledOverused": True} for name in _MORE]
REMOVAL = {"kind": "Pod", "metadata": {"name": "g-0", "namespace": "default"}, "$patch": "delete"}
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


def answered(*command: str, text: str | bytes) -> None:
    """A command ends well or with lines that name what is wrong, all of them short."""
    result = invoke(*command, stdin=text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    assert result.exit_code in (0, 2), (result.exit_code, result.stderr)
    assert "failed" not in result.stderr
    assert (result.exit_code == 2) == bool(result.stderr), result.stderr
    assert all(len(line) < 1500 for line in result.stderr.splitlines()), result.stderr


@TRIED
@given(CHANGES)
def test_changes_to_a_cluster(changes: list[Change]) -> None:
    known = state(node("n"), queue("default"), pod_group("g"), pod("g-0", "g"))
    hostile = {"kind": "List", "items": [changed(MANIFESTS, changes), {**REMOVAL, **changed(REMOVAL, changes)}]}
    for document in (changed(MANIFESTS, changes), changed(REMOVAL, changes), hostile):
        with suppress(StromboliError):
            found = read_changes({"change": json.dumps(document)}, known)
            assert all(len(problem) < 1500 and "\n" not in problem for problem in found.problems)
            found.apply(known.fork())


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


@pytest.mark.exhaustive
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
