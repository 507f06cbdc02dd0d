"""The plugin: its arguments, and its formula against plain arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stromboli.api.errors import PolicyError
from stromboli.engine import Engine
from stromboli.framework.session.session import Session
from stromboli.plugins.binpack import Binpack, BinpackArguments
from tests import builders
from tests.fuzz import tried

GPU = "nvidia.com/gpu"


def scores(
    arguments: dict[str, Any], nodes: list[dict[str, int]], used: list[dict[str, int]], pod: dict[str, int]
) -> Any:
    """The scores of a pod with amounts of cpu, memory (bytes) and GPUs on nodes where one pod uses some."""

    def request(amounts: dict[str, int]) -> dict[str, Any]:
        named = {name: str(value) for name, value in amounts.items() if value}
        return {"cpu": named.pop("cpu", ""), "memory": named.pop("memory", ""), "resources": named}

    cluster = builders.state(
        builders.queue("default"),
        [
            builders.node(f"n{i}", cpu=str(n["cpu"]), memory=str(n["memory"]), resources={GPU: str(n[GPU])})
            for i, n in enumerate(nodes)
        ],
        [builders.pod(f"r{i}", node=f"n{i}", **request(amounts)) for i, amounts in enumerate(used)],
        builders.pod_group("g"),
        builders.pod("p", "g", **request(pod)),
    )
    session: Session = builders.decide(cluster, builders.policy("gang", actions="enqueue")).session
    plugin = Binpack(Binpack.Arguments.model_validate(arguments))
    plugin.open(session.view)
    record = next(r for r in session.view.pods.records if r is not None and r.name == "p")
    found = plugin.node_order(record, session.view.nodes.view(session.view.nodes.rows))
    return None if found is None else found.tolist()


def expected(
    weights: dict[str, int], factor: int, node: dict[str, int], used: dict[str, int], pod: dict[str, int]
) -> float:
    score, total = 0.0, 0
    for name, weight in weights.items():
        if not pod[name]:
            continue
        total += weight
        if not node[name] or not weight:
            continue
        if pod[name] + used[name] > node[name]:
            return 0.0
        score += (pod[name] + used[name]) * weight / node[name]
    return score / total * 100 * factor if total else 0.0


amounts = st.fixed_dictionaries({"cpu": st.integers(0, 9), "memory": st.integers(0, 9), GPU: st.integers(0, 3)})


@tried(15)
@given(
    st.lists(st.tuples(amounts, amounts), min_size=1, max_size=4),
    amounts,
    st.fixed_dictionaries({"cpu": st.integers(0, 3), "memory": st.integers(0, 3), GPU: st.integers(0, 3)}),
    st.integers(1, 5),
)
def test_formula(
    nodes: list[tuple[dict[str, int], dict[str, int]]], pod: dict[str, int], weights: dict[str, int], factor: int
) -> None:
    arguments = {
        "binpack.weight": factor, "binpack.cpu": weights["cpu"], "binpack.memory": weights["memory"],
        "binpack.resources": GPU, f"binpack.resources.{GPU}": weights[GPU],
    }  # fmt: skip
    found = scores(arguments, [n for n, _ in nodes], [u for _, u in nodes], pod)
    want = [expected(weights, factor, node, used, pod) for node, used in nodes]
    assert (found or [0.0] * len(nodes)) == pytest.approx(want, rel=1e-12)


def test_defaults_and_negative_weights() -> None:
    assert BinpackArguments().weights() == {"cpu": 1, "memory": 1}
    arguments = {
        "binpack.weight": -2, "binpack.cpu": -1, "binpack.memory": 0,
        "binpack.resources": f"{GPU}, example.com/foo ,", f"binpack.resources.{GPU}": -3,
    }  # fmt: skip
    parsed = BinpackArguments.model_validate(arguments)
    assert parsed.weights() == {"cpu": 1, "memory": 0, GPU: 1, "example.com/foo": 1}
    assert parsed.weight == -2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"binpack.wieght": 1}, "binpack.wieght"),
        ({"binpack.resources.example.com/foo": 2}, "not in binpack.resources"),
        ({"binpack.resources": "example.com/foo", "binpack.resources.example.com/foo": "two"}, "valid integer"),
    ],
)
def test_wrong_arguments_are_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Binpack.Arguments.model_validate(arguments)


def test_a_misspelt_argument_is_reported_with_what_is_allowed() -> None:
    misspelt = builders.policy("binpack") + "\n    arguments: {binpack.wieght: 3}"
    with pytest.raises(PolicyError, match=r"'binpack.wieght', did you mean 'binpack.weight'. .allowed: binpack.cpu, "):
        Engine(misspelt)


def test_weight_zero_turns_it_off() -> None:
    node = {"cpu": 4, "memory": 4, GPU: 0}
    pod = {"cpu": 1, "memory": 1, GPU: 0}
    assert scores({"binpack.weight": 0}, [node], [], pod) is None
    assert scores({}, [node], [], pod) == [25.0]
