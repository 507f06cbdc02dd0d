"""Devices are looked for by what is distinct among them, and find what a plain search on each node finds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.kube.dra import allocator
from stromboli.kube.dra.cel import Program
from stromboli.kube.dra.inventory import Devices, Groups, joined
from tests import builders
from tests.fuzz import tried
from tests.kube.test_dra import POLICY, A, C, claim, device, device_class, pod, request, resource_slice, run, why

_MODELS = ("a100", "h100")
_DEVICES = st.lists(
    st.tuples(st.sampled_from(_MODELS), st.integers(0, 2), st.sampled_from(("40Gi", "80Gi"))), max_size=5
)
_SELECTORS = ("true", f"{A}.model == 'h100'", f"{A}.root != 1", f"{C}.memory.compareTo(quantity('60Gi')) > 0")
_REQUESTS = st.lists(st.tuples(st.sampled_from(_SELECTORS), st.integers(1, 3)), min_size=1, max_size=2)
_CONSTRAINTS = st.sampled_from(({}, {"matchAttribute": "root"}, {"distinctAttribute": "root"}))

Device = tuple[str, int, str]


def selects(selector: str, device: Device) -> bool:
    model, root, memory = device
    return {
        _SELECTORS[0]: True,
        _SELECTORS[1]: model == "h100",
        _SELECTORS[2]: root != 1,
        _SELECTORS[3]: memory == "80Gi",
    }[selector]


def suffices(devices: list[Device], requests: list[tuple[str, int]], constraint: dict[str, str]) -> bool:
    """The oracle: whether any choice of different devices satisfies all requests."""

    def choices(left: list[int], wanted: list[tuple[str, int]]) -> Iterator[list[int]]:
        if not wanted:
            yield []
            return
        selector, count = wanted[0]
        for picked in combinations([i for i in left if selects(selector, devices[i])], count):
            for others in choices([i for i in left if i not in picked], wanted[1:]):
                yield [*picked, *others]

    def holds(picked: list[int]) -> bool:
        roots = {devices[i][1] for i in picked}
        if "matchAttribute" in constraint:
            return len(roots) == 1
        return not constraint or len(roots) == len(picked)

    return any(holds(picked) for picked in choices(list(range(len(devices))), requests))


@tried(20)
@given(_DEVICES, _DEVICES, _DEVICES, _REQUESTS, _CONSTRAINTS)
def test_columns_find_what_a_search_on_each_node_finds(
    first: list[Device],
    second: list[Device],
    shared: list[Device],
    requests: list[tuple[str, int]],
    constraint: dict[str, str],
) -> None:
    def made(name: str, found: list[Device], **where: Any) -> dict[str, Any]:
        listed = [device(f"d{i}", model=m, root=r, memory=size) for i, (m, r, size) in enumerate(found)]
        return resource_slice(name, *listed, **where)

    wanted = claim(
        "c",
        *[request(f"r{i}", selector, count=count) for i, (selector, count) in enumerate(requests)],
        devices={"constraints": [constraint]} if constraint else {},
    )
    bound, session = run(
        device_class(), made("n0", first), made("n1", second), made("all", shared, allNodes=True), wanted, pod("p", "c")
    )
    possible = [node for node, own in (("n0", first), ("n1", second)) if suffices(own + shared, requests, constraint)]
    assert list(bound.values()) == possible[:1], bound or why(session, "p")


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often expressions were evaluated, and how many searches and tries there were."""
    counts = {"evaluated": 0, "searches": 0, "tries": 0}

    def counted(of: Any, name: str, what: str) -> None:
        original = getattr(of, name)

        def count(*args: Any, **more: Any) -> Any:
            counts[what] += 1
            return original(*args, **more)

        monkeypatch.setattr(of, name, count)

    counted(Program, "evaluate", "evaluated")
    counted(allocator._Attempt, "__init__", "searches")
    counted(allocator._Attempt, "_kind", "tries")
    return counts


@given(
    st.integers(1, 12).flatmap(lambda width: st.lists(st.tuples(*[st.integers(0, 4)] * width), min_size=1, max_size=8)),
    st.integers(5, 4_000),
)
def test_rows_are_joined_as_their_values_compare(rows: list[tuple[int, ...]], count: int) -> None:
    columns = [Groups(np.array(values), count) for values in zip(*rows, strict=True)]
    groups = joined(columns, len(rows)).of.tolist()
    assert [[a < b for a in groups] for b in groups] == [[a < b for a in rows] for b in rows]


def numbered(node: str, count: int) -> dict[str, Any]:
    return resource_slice(node, *[device(f"d{i}", model="h100", index=i, serial=f"{node}-{i}") for i in range(count)])


def large(*objs: Any, nodes: int = 200, each: int = 8) -> tuple[dict[str, str], Any]:
    """A session on nodes with devices that differ in their serial numbers alone."""
    names = [f"n{number}" for number in range(nodes)]
    cluster = builders.state(
        [builders.node(name) for name in names], builders.queue("default"), builders.pod_group("g")
    )
    for obj in (device_class(), *[numbered(name, each) for name in names], *objs):
        cluster.upsert(obj["kind"] if isinstance(obj, dict) else "Pod", obj)
    result = builders.decide(cluster, POLICY)
    return {decision.name: decision.node for decision in result.decisions if hasattr(decision, "node")}, result.session


def test_an_expression_is_evaluated_once_for_all_devices_that_agree_in_what_it_reads(work: dict[str, int]) -> None:
    bound, _ = large(claim("c", request("r", f"{A}.model == 'h100' && {A}.index != 9")), pod("p", "c"))
    assert bound == {"p": "n0"}
    # Once for the class, and for each number that a device has on its node.
    assert work["evaluated"] == 1 + 8
    # Once for all nodes, and once where the pod goes.
    assert work["searches"] == 2


def test_nodes_with_devices_of_their_own_are_searched_once_when_they_are_alike(work: dict[str, int]) -> None:
    wanted = claim("c", request(count=2), devices={"constraints": [{"matchAttribute": "serial"}]})
    bound, _ = large(wanted, pod("p", "c"))
    assert bound == {}
    assert work["searches"] == 1


@pytest.mark.exhaustive
def test_a_search_that_is_made_to_last_ends_for_all_nodes_together(work: dict[str, int]) -> None:
    devices = {"constraints": [{"distinctAttribute": "serial"}, {"requests": ["s"], "matchAttribute": "index"}]}
    endless = claim("c", request("r", count=8), request("s", count=8), devices=devices)
    bound, session = large(endless, claim("d"), pod("p", "c"), pod("q", "d"), each=24)
    assert bound == {"q": "n0"}
    assert "exceeds its limit" in why(session, "p")
    assert work["tries"] <= 2 * 10_000


def test_the_claims_of_a_namespace_have_one_purse(work: dict[str, int]) -> None:
    costly = f"{list(range(900))}.all(x, [x, x, x, x, x] != []) && {A}.serial != ''"
    claims = [claim(f"c{i}", request("r", f"{costly} && {i} == {i}")) for i in range(20)]
    bound, session = large(*claims, *[pod(f"p{i}", f"c{i}") for i in range(20)])
    assert 0 < len(bound) < 10
    assert "exceed their cost limit" in why(session, "p9")
    assert work["evaluated"] < 200


def test_attributes_that_no_device_has_make_no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    original = Devices.column

    def column(self: Any, key: Any, read: Any) -> Any:
        made.append(key)
        return original(self, key, read)

    monkeypatch.setattr(Devices, "column", column)
    names = [f"name{i}" for i in range(300)]
    large(claim("c", request("r", f"{names}.all(x, !(x in {A})) && {A}.model == 'h100'")), pod("p", "c"), nodes=2)
    assert len(made) < 20


def test_what_was_read_of_devices_and_claims_is_kept_until_they_change(work: dict[str, int]) -> None:
    cluster = builders.state(builders.node("n0"), builders.queue("default"), builders.pod_group("g"))
    for obj in (device_class(), numbered("n0", 2), claim("c"), claim("d"), pod("p", "c"), pod("q", "d")):
        cluster.upsert(obj["kind"] if isinstance(obj, dict) else "Pod", obj)

    def bound() -> list[str]:
        work["evaluated"] = 0
        return sorted(each.name for each in builders.decide(cluster, POLICY).decisions if hasattr(each, "node"))

    assert bound() == ["p", "q"]
    assert work["evaluated"] == 1
    assert bound() == ["p", "q"]
    assert work["evaluated"] == 0
    # One of them is there, and what it got is not yet in its claim.
    cluster.upsert("Pod", pod("p", "c", node="n0"))
    cluster.upsert("ResourceSlice", numbered("n0", 1))
    assert bound() == []
    cluster.delete("ResourceClaim", "default/c")
    assert bound() == ["q"]
