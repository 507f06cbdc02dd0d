"""Devices that share what they draw on: partitions of a card, and devices that are given in parts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind
from stromboli.kube.dra.capacity import Capacities, amount
from stromboli.kube.dra.objects import Capacity, CapacityRange, RequestPolicy
from tests import builders
from tests.fuzz import tried
from tests.kube.test_dra import (
    DRIVER,
    POLICY,
    SLICES,
    claim,
    device,
    device_class,
    pod,
    request,
    resource_slice,
    run,
    why,
)


def card(*parts: dict[str, int], node: str = "n0", **limits: int) -> list[dict[str, Any]]:
    """A card of a node with counters, and its partitions with what they consume."""
    counters = [{"name": "card", "counters": {name: {"value": str(limit)} for name, limit in limits.items()}}]
    devices = [
        device(f"part-{number}", more={"consumesCounters": [{"counterSet": "card", "counters": consumed(**part)}]})
        for number, part in enumerate(parts)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    shared = resource_slice(f"{node}-counters", pool=pool, nodeName=node, sharedCounters=counters)
    return [device_class(), shared, resource_slice(node, *devices, pool=pool)]


def consumed(**amounts: int) -> dict[str, Any]:
    return {name: {"value": str(value)} for name, value in amounts.items()}


def held(name: str, node: str, *devices: str, **more: Any) -> dict[str, Any]:
    results = [{"request": "r", "driver": DRIVER, "pool": node, "device": each, **more} for each in devices]
    return claim(name, status={"allocation": {"devices": {"results": results}}})


# -- partitions --------------------------------------------------------------------------------------------------------


def test_partitions_are_given_while_their_card_has_what_they_consume() -> None:
    objs = card({"memory": 40}, {"memory": 40}, {"memory": 40}, {"memory": 80}, memory=80)
    claims = [claim(f"c{i}") for i in range(3)]
    bound, session = run(*objs, *claims, *[pod(f"p{i}", f"c{i}") for i in range(3)])
    assert bound == {"p0": "n0", "p1": "n0"}
    assert "cannot allocate all claims" in why(session, "p2")


def test_what_allocated_partitions_consume_counts_for_those_on_other_nodes() -> None:
    """Two nodes reach a card each by its partitions, which draw on the same counters."""
    on = {name: {"nodeName": name} for name in ("n0", "n1")}
    part = {"consumesCounters": [{"counterSet": "card", "counters": consumed(memory=60)}]}
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 2}
    parts = [device(f"on-{name}", more={**part, **where}) for name, where in on.items()]
    counters = [{"name": "card", "counters": consumed(memory=80)}]
    objs = [
        device_class(),
        resource_slice("parts", *parts, pool=pool, nodeName=None, perDeviceNodeSelection=True),
        resource_slice("counters", pool=pool, nodeName=None, allNodes=True, sharedCounters=counters),
    ]
    assert run(*objs, claim("c"), pod("p", "c"))[0] == {"p": "n0"}
    assert run(*objs, held("old", "fabric", "on-n1"), claim("c"), pod("p", "c"))[0] == {}
    both = [claim("c0"), claim("c1"), pod("p0", "c0"), pod("p1", "c1")]
    assert len(run(*objs, *both)[0]) == 1, "what one takes in a session is gone for the other node, too"


@pytest.mark.parametrize(
    ("sets", "names"),
    [
        ([{"name": "other", "counters": consumed(memory=80)}], ("a", "b")),
        ([{"name": "card", "counters": consumed(slices=80)}], ("a", "b")),
        ([{"name": "card", "counters": consumed(memory=80)}] * 2, ("a", "b")),
        ([{"name": "card", "counters": consumed(memory=80)}], ("a", "a")),
    ],
    ids=["no such set", "no such counter", "set twice", "device twice"],
)
def test_a_pool_that_contradicts_itself_offers_nothing(sets: list[Any], names: tuple[str, str]) -> None:
    part = {"consumesCounters": [{"counterSet": "card", "counters": consumed(memory=1)}]}
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 2}
    counters = resource_slice("counters", pool=pool, nodeName="n0", sharedCounters=sets)
    parts = resource_slice("n0", *[device(name, more=part) for name in names], pool=pool)
    assert run(device_class(), counters, parts, claim("c"), pod("p", "c"))[0] == {}


_PARTS = st.lists(st.fixed_dictionaries({}, optional={"a": st.integers(1, 4), "b": st.integers(1, 4)}), max_size=5)


@tried(20)
@given(_PARTS, st.integers(0, 6), st.integers(0, 6), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_counters_are_never_exceeded(
    parts: list[dict[str, int]], a: int, b: int, counts: list[int], data: st.DataObject
) -> None:
    """And a pod waits only if no free partitions are together within what is left."""
    taken = data.draw(st.sets(st.integers(0, len(parts) - 1), max_size=2)) if parts else set()
    cluster = builders.state(builders.node("n0"), builders.queue("default"), builders.pod_group("g"))
    objs = [*card(*parts, a=a, b=b), held("old", "n0", *(f"part-{each}" for each in taken))]
    objs += [claim(f"c{i}", request(count=count)) for i, count in enumerate(counts)]
    for obj in objs:
        cluster.upsert(obj["kind"], obj)
    for i in range(len(counts)):
        cluster.upsert("Pod", pod(f"p{i}", f"c{i}", cpu="1m"))
    used = set(taken)
    given_to = {}
    for bind in builders.decide(cluster, POLICY).decisions:
        if isinstance(bind, Bind):
            results = bind.claims[0].allocation["devices"]["results"]
            given_to[bind.name] = {int(each["device"].removeprefix("part-")) for each in results}
            assert not used & given_to[bind.name]
            used |= given_to[bind.name]

    def fits(given: set[int]) -> bool:
        """Of a counter that was exceeded before, devices that need nothing of it may still be given."""
        for name, limit in (("a", a), ("b", b)):
            needed, held_before = (sum(parts[d].get(name, 0) for d in devices) for devices in (given, taken))
            if needed and needed + held_before > limit:
                return False
        return True

    assert fits(used - taken)
    for i, count in enumerate(counts):
        if f"p{i}" not in given_to:
            free = [each for each in range(len(parts)) if each not in used]
            assert not any(fits(used - taken | more) for more in subsets(free, count))


def subsets(values: list[int], size: int) -> list[set[int]]:
    if size == 0:
        return [set()]
    return [{first, *rest} for at, first in enumerate(values) for rest in subsets(values[at + 1 :], size - 1)]


# -- parts of devices --------------------------------------------------------------------------------------------------

MEMORY = {"value": "80Gi", "requestPolicy": {"default": "10Gi", "validRange": {"min": "10Gi", "step": "10Gi"}}}
NIC = {"allowMultipleAllocations": True, "capacity": {"memory": MEMORY}}


def asks(name: str, memory: str) -> dict[str, Any]:
    return claim(name, request(capacity={"requests": {"memory": memory}}))


def test_a_device_is_given_in_parts_until_its_capacity_is_used_up() -> None:
    objs = [device_class(), resource_slice("n0", device("nic", more=NIC))]
    wanted = {"c0": "35Gi", "c1": "25Gi", "c2": "20Gi", "c3": "5Gi"}
    claims = [asks(name, memory) for name, memory in wanted.items()]
    bound, session = run(*objs, *claims, *[pod(f"p{i}", f"c{i}") for i in range(4)])
    assert set(bound) == {"p0", "p1", "p3"}, "40, 30 and 10 GiB"
    uses = {bind.name: bind.claims[0] for bind in session.decisions if isinstance(bind, Bind)}
    results = {name: use.allocation["devices"]["results"][0] for name, use in uses.items()}
    assert [results[name]["consumedCapacity"] for name in sorted(results)] == [
        {"memory": "40Gi"},
        {"memory": "30Gi"},
        {"memory": "10Gi"},
    ]
    assert len({result["shareID"] for result in results.values()}) == 3


def test_parts_of_allocated_claims_are_taken() -> None:
    objs = [device_class(), resource_slice("n0", device("nic", more=NIC))]
    part = {"shareID": "e6a4c6a4-4d60-4e84-8b0d-7d4f5f3b1d11", "consumedCapacity": {"memory": "50Gi"}}
    old = held("old", "n0", "nic", **part)
    assert run(*objs, old, asks("c", "30Gi"), pod("p", "c"))[0] == {"p": "n0"}
    assert run(*objs, old, asks("c", "31Gi"), pod("p", "c"))[0] == {}
    whole = held("old", "n0", "nic")
    assert run(*objs, whole, asks("c", "10Gi"), pod("p", "c"))[0] == {}, "somebody has all of it"


def test_requests_of_a_claim_share_a_device_and_none_has_it_twice() -> None:
    objs = [device_class(), resource_slice("n0", device("nic", more=NIC))]
    two = claim("c", request("r"), request("s"))
    assert run(*objs, two, pod("p", "c"))[0] == {"p": "n0"}
    assert run(*objs, claim("c", request(count=2)), pod("p", "c"))[0] == {}


def test_a_device_in_parts_draws_on_counters_once() -> None:
    objs = card({"memory": 60}, {"memory": 60}, memory=100)
    objs[2]["spec"]["devices"][0] |= NIC
    claims = [claim("c0"), claim("c1"), claim("c2", request(count=1, allocationMode="ExactCount"))]
    bound, _ = run(*objs, *claims, *[pod(f"p{i}", f"c{i}") for i in range(3)])
    assert len(bound) == 3, "all of the first, since the second draws on the same"


def capacities(**policy: Any) -> Capacities:
    bounds = {key: policy.pop(key) for key in ("min", "max", "step") if key in policy}
    policy |= {"valid_range": CapacityRange(**bounds)} if bounds else {}
    return Capacities({"memory": Capacity("100", RequestPolicy(**policy) if policy else None)})


@pytest.mark.parametrize(
    ("policy", "asked", "expected"),
    [
        ({}, None, "100"),
        ({}, "30", "30"),
        ({}, "101", None),
        ({"default": "5", "valid_values": ["10", "50"]}, None, "5"),
        ({"default": "5", "valid_values": ["10", "50"]}, "11", "50"),
        ({"default": "5", "valid_values": ["10", "50"]}, "51", None),
        ({"default": "5", "min": "10", "max": "40"}, "1", "10"),
        ({"default": "5", "min": "10", "max": "40"}, "12", "12"),
        ({"default": "5", "min": "10", "max": "40"}, "41", None),
        ({"default": "10", "min": "10", "step": "16"}, "27", "42"),
        ({"default": "10", "min": "0", "step": "32"}, "33", "64"),
        ({"default": "10", "min": "10", "max": "90", "step": "20"}, "71", "90"),
        ({"default": "1", "min": "500m", "step": "500m"}, "1200m", "1500m"),
        ({"default": "10", "min": "10", "max": "80", "step": "20"}, "71", None),
    ],
)
def test_a_request_is_raised_to_what_the_policy_allows(policy: Any, asked: str | None, expected: str | None) -> None:
    requested = {} if asked is None else {"memory": amount(asked)}
    found = capacities(**policy).consumed(requested)
    assert (found and found["memory"].text) == expected


def test_large_amounts_are_compared_exactly() -> None:
    assert amount("8Ei").consumed == 8 * 2**60 * 1000
    assert (amount("1n").consumed, amount("1n").limit) == (1, 0)
    assert amount("0.5").value == Fraction(1, 2)


PLENTY = {"capacity": {"memory": {"value": "40"}}}


# -- admin access, tainted devices -------------------------------------------------------------------------------------


def test_looking_at_a_device_twice_in_a_claim_is_one_device_too_many() -> None:
    watching = claim("c", request("r", adminAccess=True), request("s", adminAccess=True))
    assert run(device_class(), resource_slice("n0", device("gpu-0")), watching, pod("p", "c"))[0] == {}
    assert run(*SLICES, watching, pod("p", "c"))[0] == {"p": "n1"}


def test_all_devices_are_not_all_while_one_is_tainted() -> None:
    taint = {"taints": [{"key": "worn", "effect": "NoSchedule"}]}
    objs = [device_class(), resource_slice("n0", device("gpu-0"), device("gpu-1", more=taint))]
    assert run(*objs, claim("c", request(allocationMode="All")), pod("p", "c"))[0] == {}
    tolerant = request(allocationMode="All", tolerations=[{"operator": "Exists"}])
    assert run(*objs, claim("c", tolerant), pod("p", "c"))[0] == {"p": "n0"}


def test_all_devices_are_those_that_have_the_capacity_left() -> None:
    parts = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "20"}}}
    objs = [device_class(), resource_slice("n0", device("part", more=parts), device("whole", more=PLENTY))]
    everything = claim("c", request(allocationMode="All", capacity={"requests": {"memory": "15"}}))

    def given(used: str) -> set[str]:
        old = held("old", "n0", "part", shareID="s-1", consumedCapacity={"memory": used})
        _, session = run(*objs, old, everything, pod("p", "c"))
        (bind,) = (each for each in session.decisions if isinstance(each, Bind))
        return {each["device"] for each in bind.claims[0].allocation["devices"]["results"]}

    assert given("5") == {"part", "whole"}
    assert given("10") == {"whole"}


def test_devices_that_have_to_be_made_ready_are_asked_last() -> None:
    slow = resource_slice("a", device("slow", more={"bindingConditions": ["attached"]}), nodeName="n0")
    objs = [device_class(), slow, resource_slice("n0", device("quick"))]
    _, session = run(*objs, claim("c"), pod("p", "c"))
    (bind,) = (each for each in session.decisions if isinstance(each, Bind))
    assert bind.claims[0].allocation["devices"]["results"][0]["device"] == "quick"
