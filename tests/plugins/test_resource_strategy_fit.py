"""resource-strategy-fit: full nodes or empty ones, resource by resource."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.errors import PolicyError
from tests.builders import gang, node, pod, pod_group
from tests.plugins.sessions import bound, decide, policy

GPU = "example.com/gpu"


def place(*objs: Any, arguments: dict[str, Any] | None = None, annotations: dict[str, str] | None = None, **request):
    """The node of one pod."""
    new = pod("job-0", "job", annotations=annotations, **request)
    return bound(*objs, pod_group("job"), new, by=policy("resource-strategy-fit", arguments)).get("job-0")


def half_full() -> list[Any]:
    """An empty node, and one that is half full."""
    return [node("empty"), node("half"), pod("run-0", node="half", cpu="4", memory="16Gi")]


def strategy(type_: str, weight: int = 1) -> dict[str, Any]:
    return {"type": type_, "weight": weight}


def test_pods_are_spread_by_default_and_packed_when_asked() -> None:
    assert place(*half_full()) == "empty"
    packed = {"resources": {"cpu": strategy("MostAllocated"), "memory": strategy("MostAllocated")}}
    assert place(*half_full(), arguments=packed) == "half"


def test_keys_may_be_in_upper_case_and_weights_whole_floats_as_volcano_reads_them() -> None:
    packed = {name: {"Type": "MostAllocated", "WEIGHT": weight} for name, weight in (("cpu", 2.0), ("memory", "1"))}
    assert place(*half_full(), arguments={"resources": packed}) == "half"
    assert place(*half_full(), arguments={"sra": {"Enable": "true", "Resources": GPU, "resourceweight": {}}}) == "empty"


def test_a_key_that_is_written_twice_is_an_error() -> None:
    with pytest.raises(PolicyError, match="ENABLE: unknown key"):
        place(*half_full(), arguments={"sra": {"enable": True, "ENABLE": False}})


def test_weights_decide_between_resources() -> None:
    nodes = [
        node("a"),
        node("b"),
        pod("run-a", node="a", cpu="4", memory=""),
        pod("run-b", node="b", cpu="", memory="16Gi"),
    ]
    for cpu, memory, expected in ((3, 1, "b"), (1, 3, "a")):
        resources = {"cpu": strategy("LeastAllocated", cpu), "memory": strategy("LeastAllocated", memory)}
        assert place(*nodes, arguments={"resources": resources}) == expected


def test_the_longest_beginning_of_a_name_counts() -> None:
    nodes = [node(name, resources={GPU: "4"}) for name in ("empty", "half")]
    running = pod("run-0", node="half", cpu="", memory="", resources={GPU: "2"})
    least, most = strategy("LeastAllocated"), strategy("MostAllocated")
    for resources, expected in (
        ({"example.com/*": most, "example*": least}, "half"),
        ({GPU: least, "example.com/*": most}, "empty"),
    ):
        assert place(*nodes, running, arguments={"resources": resources}, resources={GPU: "1"}) == expected


@pytest.mark.parametrize(("weights", "expected"), [('{"cpu": 1}', "half"), ("", "empty"), ("{", "empty")])
def test_a_pod_names_its_own_strategy(weights: str, expected: str) -> None:
    """Without weights that can be read all nodes are equal for it, and the first is taken."""
    annotations = {
        "volcano.sh/resource-strategy-scoring-type": "MostAllocated",
        "volcano.sh/resource-strategy-weight": weights,
    }
    assert place(*half_full(), annotations=annotations) == expected


def test_sra_keeps_pods_off_scarce_resources() -> None:
    nodes = [node("scarce", resources={GPU: "4"}), node("plain")]
    sra = {"enable": True, "resources": GPU, "weight": 10, "resourceWeight": {GPU: 1}}
    assert place(*nodes) == "scarce"
    assert place(*nodes, arguments={"sra": sra}) == "plain"
    assert place(*nodes, arguments={"sra": sra}, resources={GPU: "1"}) == "scarce"


def test_proportional_keeps_cpu_for_idle_devices() -> None:
    kept = {"enable": True, "resources": GPU, "resourceProportion": {f"{GPU}.cpu": 3, f"{GPU}.memory": 0}}
    objects = [node("n1", cpu="8", resources={GPU: "2"}), pod_group("job"), *gang("job", 4)]
    placed = bound(*objects, by=policy("resource-strategy-fit", {"proportional": kept}))
    assert len(placed) == 2  # 2 idle devices keep 6 of 8 cores


def test_a_strategy_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(PolicyError, match=r"resources\.cpu\.type"):
        decide(by=policy("resource-strategy-fit", {"resources": {"cpu": strategy("Random")}}))
