"""What a decision says of the claims that a pod needs: their allocation to the field, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.decisions import Bind, ClaimUse, Evict
from stromboli.explain.rehearsal import advance
from stromboli.kube.dra.reservation import StaleClaimError, check, finalizers, released, reserved
from tests import builders
from tests.kube.test_dra import (
    DRIVER,
    POLICY,
    allocation,
    claim,
    device,
    device_class,
    pod,
    request,
    resource_slice,
)


def uses(*objs: Any) -> dict[str, ClaimUse]:
    """What a session decides about the claims of pods on the node n0, by name."""
    cluster = builders.state(builders.node("n0"), builders.queue("default"), builders.pod_group("g"))
    for obj in objs:
        cluster.upsert(obj["kind"] if isinstance(obj, dict) else "Pod", obj)
    decisions = builders.decide(cluster, POLICY).decisions
    return {use.name: use for bind in decisions if isinstance(bind, Bind) for use in bind.claims}


def result(name: str, device: str, pool: str = "n0", **more: Any) -> dict[str, Any]:
    return {"request": name, "driver": DRIVER, "pool": pool, "device": device, **more}


ON_N0 = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]}
GPUS = resource_slice("n0", device("gpu-0", model="a"), device("gpu-1", model="b"), device("gpu-2", model="b"))
A = f'device.attributes["{DRIVER}"]'


def opaque(**parameters: Any) -> dict[str, Any]:
    return {"opaque": {"driver": DRIVER, "parameters": parameters}}


def test_each_request_is_given_its_devices_on_the_node() -> None:
    wanted = claim("c", request("two", f'{A}.model == "b"', count=2), request("one"))
    use = uses(device_class(), GPUS, wanted, pod("p", "c"))["c"]
    assert (use.key, use.uid, use.new) == ("default/c", "uid-c", True)
    assert use.allocation == {
        "devices": {"results": [result("two", "gpu-1"), result("two", "gpu-2"), result("one", "gpu-0")]},
        "nodeSelector": ON_N0,
    }


def test_pools_are_tried_in_order_of_driver_and_name() -> None:
    """Whatever their slices are called, and whether one node reaches them or several."""
    first, second = resource_slice("a", device("x"), allNodes=True), resource_slice("b", device("y"), nodeName="n0")
    first["metadata"]["name"], second["metadata"]["name"] = "z", "a"
    use = uses(device_class(), first, second, claim("c"), pod("p", "c"))["c"]
    assert [each["device"] for each in use.allocation["devices"]["results"]] == ["x"]


def test_an_alternative_is_named_with_its_request() -> None:
    subs = [{"name": "many", **request(count=4)["exactly"]}, {"name": "one", **request()["exactly"]}]
    use = uses(device_class(), GPUS, claim("c", {"name": "r", "firstAvailable": subs}), pod("p", "c"))["c"]
    assert use.allocation["devices"]["results"] == [result("r/one", "gpu-0")]


def test_admin_access_and_tolerations_are_those_of_the_request() -> None:
    tolerations = [{"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
    wanted = claim("c", request("r", count=1, adminAccess=True, tolerations=tolerations))
    use = uses(device_class(), GPUS, wanted, pod("p", "c"))["c"]
    assert use.allocation["devices"]["results"] == [result("r", "gpu-0", adminAccess=True, tolerations=tolerations)]


def test_parameters_of_the_class_come_before_those_of_the_claim() -> None:
    shared = device_class()
    shared["spec"]["config"] = [opaque(mode="shared", none=None)]
    config = [
        {"requests": ["s"], **opaque(level=1)},
        opaque(level=2),
        {"requests": ["r/second"], **opaque(level=3)},
        {"requests": ["r/first"], **opaque(level=4)},
    ]
    subs = [{"name": "first", **request(count=4)["exactly"]}, {"name": "second", **request()["exactly"]}]
    requests = [{"name": "r", "firstAvailable": subs}, request("s")]
    use = uses(shared, GPUS, claim("c", *requests, devices={"config": config}), pod("p", "c"))["c"]
    assert use.allocation["devices"]["config"] == [
        {"source": "FromClass", "requests": ["r/second", "s"], **opaque(mode="shared", none=None)},
        {"source": "FromClaim", "requests": ["s"], **opaque(level=1)},
        {"source": "FromClaim", **opaque(level=2)},
        {"source": "FromClaim", "requests": ["r/second"], **opaque(level=3)},
    ]


def test_devices_that_several_nodes_reach_leave_the_claim_on_those_nodes() -> None:
    zone = [{"key": "zone", "operator": "In", "values": ["z"]}]
    first = {"nodeSelectorTerms": [{"matchExpressions": [*zone, {"key": "fast", "operator": "Exists"}]}]}
    one = resource_slice("net", device("d"), nodeSelector=first)
    other = resource_slice("disks", device("e"), nodeSelector={"nodeSelectorTerms": [{"matchExpressions": zone}]})
    anywhere = resource_slice("far", device("f"), allNodes=True)
    wanted = claim("c", request(count=3))
    node = builders.node("n0", labels={"zone": "z", "fast": ""})
    cluster = builders.state(node, builders.queue("default"), builders.pod_group("g"), pod("p", "c"))
    for obj in (device_class(), one, other, anywhere, wanted, claim("everywhere")):
        cluster.upsert(obj["kind"], obj)
    (bind,) = (each for each in builders.decide(cluster, POLICY).decisions if isinstance(each, Bind))
    assert bind.claims[0].allocation["nodeSelector"] == first
    cluster = builders.state(node, builders.queue("default"), builders.pod_group("g"), pod("p", "c"))
    for obj in (device_class(), anywhere, claim("c")):
        cluster.upsert(obj["kind"], obj)
    (bind,) = (each for each in builders.decide(cluster, POLICY).decisions if isinstance(each, Bind))
    assert "nodeSelector" not in bind.claims[0].allocation


def test_conditions_to_wait_for_are_those_of_the_device() -> None:
    slow = device("gpu-0", more={"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]})
    fabric = resource_slice("net", device("f", more={"bindsToNode": True}), allNodes=True)
    use = uses(device_class(), resource_slice("n0", slow), claim("c"), pod("p", "c"))["c"]
    conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    assert use.allocation["devices"]["results"] == [result("r", "gpu-0", **conditions)]
    use = uses(device_class(), fabric, claim("c"), pod("p", "c"))["c"]
    assert use.allocation["nodeSelector"] == ON_N0, "the device is attached to one node"


def test_a_claim_that_has_devices_keeps_them() -> None:
    known = claim("c", status=allocation("n0", "gpu-2"))
    use = uses(device_class(), GPUS, known, pod("p", "c"))["c"]
    assert (use.new, use.allocation) == (False, known["status"]["allocation"])


def test_pods_that_share_a_claim_agree_in_what_it_is_given() -> None:
    cluster = builders.state(builders.node("n0"), builders.queue("default"), builders.pod_group("g", 2))
    for obj in (device_class(), GPUS, claim("c"), pod("p0", "c"), pod("p1", "c")):
        cluster.upsert(obj["kind"] if isinstance(obj, dict) else "Pod", obj)
    first, second = (bind.claims for bind in builders.decide(cluster, POLICY).decisions if isinstance(bind, Bind))
    assert first == second
    assert len(first) == 1


# -- what becomes of it ----------------------------------------------------------------------------------------------

USE = ClaimUse("default", "c", "uid-c", allocation("n0", "gpu-0")["allocation"], new=True)


def test_the_last_pod_that_goes_takes_the_devices_with_it() -> None:
    once = reserved(claim("c"), USE, "p", "uid-p")
    assert once["status"] == {**allocation("n0", "gpu-0"), "reservedFor": [consumer("p")]}
    twice = reserved(reserved(once, USE, "q", "uid-q"), USE, "q", "uid-q")
    assert twice["status"]["reservedFor"] == [consumer("p"), consumer("q")]
    assert released(twice, "uid-p")["status"] == {**allocation("n0", "gpu-0"), "reservedFor": [consumer("q")]}
    assert released(released(twice, "uid-p"), "uid-q")["status"] == {}
    unused = claim("c", status=allocation("n0", "gpu-0"))
    assert released(unused, "uid-p") == unused, "somebody allocated it for later"


def consumer(name: str) -> dict[str, str]:
    return {"resource": "pods", "name": name, "uid": f"uid-{name}"}


@pytest.mark.parametrize(
    ("now", "ours", "problem"),
    [
        (claim("c", status=allocation("n0", "gpu-1")), True, "default/c was allocated other devices in the meantime"),
        (claim("c"), False, "default/c was deallocated in the meantime"),
        (claim("c", metadata={"deletionTimestamp": "2024-01-01T00:00:00Z"}), True, "default/c is being deleted"),
        (claim("c", metadata={"uid": "another"}), True, "default/c is being deleted"),
        (
            claim("c", status={**allocation("n0", "gpu-0"), "reservedFor": [consumer(f"x{i}") for i in range(256)]}),
            True,
            "default/c has the maximum number of consumers",
        ),
    ],
)
def test_a_claim_that_changed_since_is_not_written(now: dict[str, Any], ours: bool, problem: str) -> None:
    with pytest.raises(StaleClaimError, match=problem):
        check(now, USE, "uid-p", ours=ours)


@pytest.mark.parametrize("now", [claim("c"), claim("c", status=allocation("n0", "gpu-0"))])
def test_a_claim_that_is_as_it_was_can_be_written(now: dict[str, Any]) -> None:
    check(now, USE, "uid-p", ours=True)


def test_the_finalizer_of_allocated_claims_leaves_others_alone() -> None:
    ours = "resource.kubernetes.io/delete-protection"
    other = claim("c", metadata={"finalizers": ["example.com/other"]})
    assert finalizers(other, protected=True) == ["example.com/other", ours]
    both = claim("c", metadata={"finalizers": ["example.com/other", ours]})
    assert finalizers(both, protected=True) is None
    assert finalizers(both, protected=False) == ["example.com/other"]
    assert finalizers(claim("c"), protected=False) is None


def test_what_would_be_reserves_claims_as_the_cluster_does() -> None:
    """So a pod of the next session finds the device that is left."""
    cluster = builders.state(builders.node("n0"), builders.queue("default"), builders.pod_group("g"))
    two = resource_slice("n0", device("gpu-0"), device("gpu-1"))
    for obj in (device_class(), two, claim("c"), claim("d"), pod("p", "c")):
        cluster.upsert(obj["kind"] if isinstance(obj, dict) else "Pod", obj)
    advance(cluster, builders.decide(cluster, POLICY).decisions, builders.NOON)
    assert cluster.objects["ResourceClaim"]["default/c"]["status"]["reservedFor"] == [consumer("p")]
    cluster.upsert("Pod", pod("q", "d"))
    decisions = builders.decide(cluster, POLICY).decisions
    (bind,) = (each for each in decisions if isinstance(each, Bind))
    assert bind.claims[0].allocation["devices"]["results"] == [result("r", "gpu-1")]


def test_what_would_be_takes_devices_back_from_pods_that_are_evicted() -> None:
    cluster = builders.state(builders.node("n0"), builders.queue("default"), builders.pod_group("g"))
    running = {**allocation("n0", "gpu-0"), "reservedFor": [consumer("run")]}
    for obj in (device_class(), resource_slice("n0", device("gpu-0")), claim("c", status=running), claim("d")):
        cluster.upsert(obj["kind"], obj)
    for each in (pod("run", "c", node="n0"), pod("p", "d")):
        cluster.upsert("Pod", each)
    assert builders.decide(cluster, POLICY).session.bound == {}
    advance(cluster, [Evict("default", "run", "uid-run", "n0", "preempt")], builders.NOON)
    assert builders.decide(cluster, POLICY).session.bound == {"default/p": "n0"}
