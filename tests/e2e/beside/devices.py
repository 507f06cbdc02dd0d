"""Devices: of extended resources, in parts, shared, and to be made ready."""

from __future__ import annotations

from typing import Any

from tests.e2e.beside.scene import DRIVER, Scene, asked
from tests.e2e.world import Object

RESOURCE = "example.com/gpu"
SLOW = {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"], "bindsToNode": True}


def part(name: str, memory: str, **more: Any) -> Object:
    return {
        "name": name,
        "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": memory}}}],
        **more,
    }


def shared(name: str, memory: str, **policy: Any) -> Object:
    amount = {"value": memory, **({"requestPolicy": policy} if policy else {})}
    return {"name": name, "allowMultipleAllocations": True, "capacity": {"memory": amount}}


def some(memory: str, name: str = "r", **exactly: Any) -> Object:
    return asked(name, capacity={"requests": {"memory": memory}}, **exactly)


def a_resource_of_a_class(at: Scene) -> None:
    at.nodes("a", "b")
    at.device_class(extendedResourceName=RESOURCE)
    at.slice("b", {"name": "g0"}, {"name": "g1"})
    for name in ("p", "q"):
        at.pod(name, containers=[_gpus(2)])


def _gpus(count: int, name: str = "main", resource: str = RESOURCE) -> Object:
    amounts = {"cpu": "1m", resource: str(count)}
    return {"name": name, "image": "example.com/x:1", "resources": {"requests": amounts, "limits": amounts}}


def a_resource_of_a_plugin_and_of_a_class(at: Scene) -> None:
    at.node("a", {RESOURCE: "1"})
    at.node("b")
    at.device_class(extendedResourceName=RESOURCE)
    at.slice("b", {"name": "g0"}, {"name": "g1"})
    at.pod("two", containers=[_gpus(2)])
    at.pod("one", containers=[_gpus(1)])
    at.pod("more", containers=[_gpus(1)])


def a_plugin_with_too_little_beside_devices(at: Scene) -> None:
    at.node("a", {RESOURCE: "1"})
    at.device_class(extendedResourceName=RESOURCE)
    at.slice("a", {"name": "g0"}, {"name": "g1"})
    at.pod("p", containers=[_gpus(2)])


def the_resource_of_a_class_by_its_name(at: Scene) -> None:
    at.nodes("a")
    at.device_class()
    at.slice("a", {"name": "g0"}, {"name": "g1"})
    at.pod("p", containers=[_gpus(1, resource="deviceclass.resource.kubernetes.io/gpu")])
    at.pod("q", containers=[_gpus(2, resource="deviceclass.resource.kubernetes.io/gpu")])


def containers_that_ask_before_and_beside(at: Scene) -> None:
    at.nodes("a")
    at.device_class(extendedResourceName=RESOURCE)
    at.slice("a", *({"name": f"g{i}"} for i in range(3)))
    at.pod("p", initContainers=[_gpus(2, "before")], containers=[_gpus(1), _gpus(1, "beside")])
    at.pod("q", containers=[_gpus(1)])
    at.pod("r", containers=[_gpus(1)])


def parts_of_a_card(at: Scene) -> None:
    at.nodes("a")
    at.device_class()
    parts = (part("half-0", "40Gi"), part("half-1", "40Gi"), part("whole", "80Gi"))
    at.slice("a", *parts, counters={"memory": "80Gi"})
    for name in ("p", "q", "r"):
        at.devices(name)
        at.using(name)


def a_whole_card_when_a_part_is_taken(at: Scene) -> None:
    at.nodes("a", "b")
    at.device_class()
    for node in ("a", "b"):
        sizes = ({"size": {"string": "part"}}, {"size": {"string": "whole"}})
        parts = (part("half", "40Gi", attributes=sizes[0]), part("whole", "80Gi", attributes=sizes[1]))
        at.slice(node, *parts, counters={"memory": "80Gi"})
    for name, size, node in (("part", "part", "a"), ("whole", "whole", ""), ("late", "whole", "")):
        selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].size == "{size}"'}}
        at.devices(name, asked(selectors=[selector]))
        at.using(name, on=node)


def two_parts_in_one_claim(at: Scene) -> None:
    at.nodes("a")
    at.device_class()
    at.slice("a", part("large", "60Gi"), part("small", "30Gi"), part("tiny", "20Gi"), counters={"memory": "80Gi"})
    at.devices("p", asked(count=2))
    at.using("p")


def a_device_for_several_claims(at: Scene) -> None:
    at.nodes("a")
    at.device_class()
    at.slice("a", shared("card", "80Gi"))
    for name, memory in (("p", "30Gi"), ("q", "30Gi"), ("r", "30Gi"), ("s", "20Gi")):
        at.devices(name, some(memory))
        at.using(name)


def a_device_for_several_claims_in_steps(at: Scene) -> None:
    at.nodes("a")
    at.device_class()
    policy = {"default": "10Gi", "validRange": {"min": "10Gi", "max": "50Gi", "step": "20Gi"}}
    at.slice("a", shared("card", "80Gi", **policy))
    for name, memory in (("large", "60Gi"), ("p", "31Gi"), ("q", "15Gi"), ("r", "1Gi")):
        at.devices(name, some(memory))
        at.using(name)


def a_device_for_several_claims_that_say_nothing(at: Scene) -> None:
    at.nodes("a")
    at.device_class()
    at.slice("a", shared("card", "80Gi", default="50Gi", validValues=["20Gi", "50Gi"]))
    for name in ("p", "q"):
        at.devices(name)
        at.using(name)
    at.devices("r", some("20Gi"))
    at.using("r")


def two_requests_of_one_claim_on_one_device(at: Scene) -> None:
    at.nodes("a", "b")
    at.device_class()
    at.slice("a", shared("card", "80Gi"))
    at.slice("b", shared("card", "80Gi"), shared("other", "80Gi"))
    distinct = [{"requests": ["r", "s"], "distinctAttribute": f"{DRIVER}/id"}]
    at.devices("p", some("10Gi"), some("10Gi", "s"))
    at.using("p", on="a")
    at.devices("q", some("10Gi"), some("10Gi", "s"), constraints=distinct)
    at.using("q")


def devices_that_differ(at: Scene) -> None:
    at.nodes("a", "b")
    at.device_class()
    for node, boards in (("a", ("x", "x")), ("b", ("x", "y"))):
        at.slice(node, *({"name": f"g{i}", "attributes": {"board": {"string": each}}} for i, each in enumerate(boards)))
    at.devices("p", asked(count=2), constraints=[{"distinctAttribute": f"{DRIVER}/board"}])
    at.using("p")
    at.devices("q", asked(count=2), constraints=[{"matchAttribute": f"{DRIVER}/board"}])
    at.using("q")


def more_capacity_than_a_whole_device(at: Scene) -> None:
    at.nodes("a", "b")
    at.device_class()
    for node, memory in (("a", "40Gi"), ("b", "80Gi")):
        at.slice(node, {"name": "card", "capacity": {"memory": {"value": memory}}})
    at.devices("p", some("60Gi"))
    at.using("p")


def pools_to_be_made_ready_come_last(at: Scene) -> None:
    at.nodes("a")
    at.device_class()
    at.slice("first", {"name": "slow", **SLOW}, nodeName="a")
    at.slice("second", {"name": "ready"}, nodeName="a")
    at.devices("p")
    at.using("p")


def worn_devices(at: Scene) -> None:
    at.nodes("a", "b")
    at.device_class()
    for node, effect in (("a", "NoExecute"), ("b", "NoSchedule")):
        at.slice(node, {"name": "g", "taints": [{"key": "worn", "value": "yes", "effect": effect}]})
    at.devices("p")
    at.using("p")
    at.devices("q", asked(tolerations=[{"key": "worn", "operator": "Exists", "effect": "NoSchedule"}]))
    at.using("q")


def a_pool_that_is_not_whole(at: Scene) -> None:
    at.nodes("a", "b")
    at.device_class()
    at.slice("a", {"name": "g"}, slices=2)
    at.devices("p")
    at.using("p")
    at.devices("q", asked(allocationMode="All"))
    at.using("q")


def the_first_alternative_that_there_is(at: Scene) -> None:
    at.nodes("a", "b")
    at.device_class()
    at.device_class("rare")
    at.slice("a", {"name": "g"})
    at.slice("b", *({"name": f"g{i}"} for i in range(2)))
    choices = [{"name": "two", "deviceClassName": "gpu", "count": 2}, {"name": "one", "deviceClassName": "gpu"}]
    for name, node in (("p", "a"), ("q", "b"), ("r", "b")):
        at.devices(name, {"name": "r", "firstAvailable": choices})
        at.using(name, on=node)


def a_claim_that_a_pod_on_another_node_has(at: Scene) -> None:
    at.nodes("a", "b")
    at.device_class()
    for node in ("a", "b"):
        at.slice(node, {"name": "g"})
    at.devices("shared")
    at.using("first", "shared", on="b")
    at.using("second", "shared")
    at.using("third", "shared", on="a")


def a_selector_that_fails(at: Scene) -> None:
    at.nodes("a")
    at.device_class()
    at.slice("a", {"name": "g"}, {"name": "h", "attributes": {"size": {"int": 3}}})
    at.devices("p", asked(selectors=[{"cel": {"expression": f'device.attributes["{DRIVER}"].size > 2'}}]))
    at.using("p")


def devices_for_the_admin(at: Scene) -> None:
    at.nodes("a")
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    at.world.api.patch(f"/api/v1/namespaces/{at.world.namespace}", json=label, headers=headers).raise_for_status()
    at.device_class()
    at.slice("a", {"name": "g"})
    for name, admin in (("p", False), ("q", True), ("r", False)):
        at.devices(name, asked(adminAccess=admin))
        at.using(name)
