"""Devices by ResourceClaims: allocated as kube-scheduler does it, before a pod is bound, and for nobody who is not."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.audit import Audit
from tests.e2e.conftest import Start
from tests.e2e.service import Service
from tests.e2e.world import CORE, Object, World, define, pod

pytestmark = pytest.mark.e2e

_API = "/apis/resource.k8s.io/v1"
_PATCH = {"headers": {"Content-Type": "application/merge-patch+json"}}
DRIVER = "gpu.example.com"


class Devices:
    """Device classes, slices and claims of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.claims = f"{_API}/namespaces/{world.namespace}/resourceclaims"

    def clear(self) -> None:
        self.world.api.delete(f"{_API}/resourceslices").raise_for_status()
        self.world.api.delete(f"{_API}/deviceclasses").raise_for_status()

    def device_class(self, name: str, driver: str = DRIVER, **spec: Any) -> None:
        selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
        manifest = {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}
        self.world.create(f"{_API}/deviceclasses", manifest)

    def slice(self, pool: str, devices: Sequence[Object], driver: str = DRIVER, **where: Any) -> None:
        """Devices of a pool; with `sharedCounters` these are in a slice of their own."""
        counters = where.pop("sharedCounters", None)
        pool_of = {"name": pool, "generation": 1, "resourceSliceCount": 2 if counters else 1}
        common = {"driver": driver, "pool": pool_of, **(where or {"nodeName": pool})}
        for number, content in enumerate(
            ({"devices": list(devices)}, *([{"sharedCounters": counters}] if counters else []))
        ):
            metadata = {"name": f"{driver}-{pool}" + ("-counters" if number else "")}
            self.world.create(f"{_API}/resourceslices", {"metadata": metadata, "spec": {**common, **content}})

    def say(self, name: str, **conditions: str) -> None:
        """Have the driver say something of all devices of a claim: the status of conditions by type."""
        results = self.get(name)["status"]["allocation"]["devices"]["results"]
        said = [
            {
                "type": type,
                "status": status,
                "reason": "Said",
                "message": "",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
            }
            for type, status in conditions.items()
        ]
        devices = [{**{key: each[key] for key in ("driver", "pool", "device")}, "conditions": said} for each in results]
        patch = {"status": {"devices": devices}}
        self.world.api.patch(f"{self.claims}/{name}/status", json=patch, **_PATCH).raise_for_status()  # type: ignore[arg-type]

    def claim(self, name: str, *requests: Object, **devices: Any) -> None:
        spec = {"devices": {"requests": list(requests or (request(),)), **devices}}
        self.world.create(self.claims, {"metadata": {"name": name}, "spec": spec})

    def get(self, name: str) -> Object:
        return self.world.get(f"{self.claims}/{name}")

    def allocated(self) -> dict[str, list[str]]:
        """The devices of each claim that has some, as POOL/DEVICE."""
        found = {
            claim["metadata"]["name"]: claim.get("status", {}).get("allocation")
            for claim in self.world.items(self.claims)
        }
        return {
            name: [f"{result['pool']}/{result['device']}" for result in allocation["devices"]["results"]]
            for name, allocation in found.items()
            if allocation
        }

    def users(self, name: str) -> list[str]:
        return sorted(each["name"] for each in self.get(name).get("status", {}).get("reservedFor", ()))

    def untouched(self) -> bool:
        """Whether no claim has devices, or anything else by us."""
        found = self.world.items(self.claims)
        return not any(claim.get("status") or claim["metadata"].get("finalizers") for claim in found)

    def gang(self, name: str, pods: int, cpu: str = "1") -> None:
        """A gang of pods with a claim each."""
        self.world.group(name, pods)
        for number in range(pods):
            self.claim(f"{name}-{number}")
        self.world.pods([using(f"{name}-{number}", group=name, cpu=cpu) for number in range(pods)])


@pytest.fixture
def devices(world: World) -> Iterator[Devices]:
    found = Devices(world)
    yield found
    found.clear()


@pytest.fixture
def gpus(devices: Devices) -> Devices:
    """Two nodes, and a device on the first."""
    devices.world.nodes(2, cpu="32")
    devices.device_class("gpu")
    devices.slice("node-0", [{"name": "gpu-0"}])
    return devices


@pytest.fixture
def many(gpus: Devices) -> Devices:
    """Twenty devices, nineteen of which both nodes have."""
    gpus.slice("many", [{"name": f"gpu-{number}"} for number in range(19)], allNodes=True)
    return gpus


def request(name: str = "r", **exactly: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **exactly}}


def using(name: str, claim: str = "", *, group: str = "", template: str = "", **spec: Any) -> Object:
    """A pod that uses a claim, by default the one of its name."""
    source = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim or name}
    return pod(name, group, resourceClaims=[{"name": "devices", **source}], **spec)


def given(devices: Devices) -> list[str]:
    """All devices that claims have."""
    return [device for found in devices.allocated().values() for device in found]


@contextmanager
def disturbed(world: World, paths: Sequence[str]) -> Iterator[None]:
    """Objects that another client changes all the time, while the context lasts."""
    done = threading.Event()

    def disturb() -> None:
        with world.cluster.client() as api:
            for number in itertools.count():
                labels = {"metadata": {"labels": {"change": str(number)}}}
                api.patch(paths[number % len(paths)], json=labels, **_PATCH)  # type: ignore[arg-type]
                if done.wait(0.02):
                    return

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    try:
        yield
    finally:
        done.set()
        disturbing.join()


def cordon(world: World, on: bool) -> None:
    for node in world.items(f"{CORE}/nodes"):
        path = f"{CORE}/nodes/{node['metadata']['name']}"
        world.api.patch(path, json={"spec": {"unschedulable": on}}, **_PATCH).raise_for_status()  # type: ignore[arg-type]


def why(world: World, name: str) -> str:
    found = world.get(f"{CORE}/namespaces/{world.namespace}/pods/{name}")["status"].get("conditions", ())
    return next((c.get("message", "") for c in found if c["type"] == "PodScheduled" and c["status"] == "False"), "")


# -- what is written ---------------------------------------------------------------------------------------------------


def cases() -> Iterator[tuple[str, Mapping[str, Any], Sequence[Object], Mapping[str, Any]]]:
    """By name, with a driver for each: where its devices are, what is asked for, and what else the claim says."""
    opaque = {"driver": DRIVER, "parameters": {"level": 1, "none": None, "deep": {"list": [1, "a"]}}}
    for_s = {"requests": ["s"], "opaque": opaque}
    alternatives = [
        {"name": "many", "deviceClassName": "", "count": 9},
        {"name": "two", "deviceClassName": "", "count": 2},
    ]
    on_nodes = {
        "nodeSelector": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-0", "node-1"]}
                    ]
                }
            ]
        }
    }
    tolerations = [{"key": "worn", "operator": "Exists", "effect": "NoSchedule"}]
    local = {"nodeName": "node-0"}
    yield "one", local, [request()], {}
    yield "several", local, [request("r", count=2), request("s")], {}
    yield "all", local, [request("r", allocationMode="All")], {}
    yield (
        "alternatives",
        local,
        [{"name": "r", "firstAvailable": alternatives}],
        {"config": [{"requests": ["r/two"], "opaque": opaque}]},
    )
    yield "configured", local, [request("r"), request("s")], {"config": [{"opaque": opaque}, for_s]}
    yield "tolerant", local, [request("r", tolerations=tolerations)], {}
    yield "admin", local, [request("r", adminAccess=True)], {}
    yield "some-nodes", on_nodes, [request()], {}
    yield "all-nodes", {"allNodes": True}, [request()], {}
    counters = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    yield "partitioned", {"nodeName": "node-0", "sharedCounters": counters}, [request("r", count=2)], {}
    yield "shared", local, [request("r", capacity={"requests": {"memory": "3Gi"}}), request("s")], {}
    constraint = {"requests": ["r"], "matchAttribute": "example.com/board"}
    yield "constrained", local, [request("r", count=2)], {"constraints": [constraint]}


def test_allocations_are_those_of_kube_scheduler(world: World, devices: Devices, start: Start) -> None:
    """Claims of many kinds: kube-scheduler allocates them, then we do; every field is the same but the time."""
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    world.api.patch(f"{CORE}/namespaces/{world.namespace}", json=label, **_PATCH).raise_for_status()  # type: ignore[arg-type]
    world.nodes(1, cpu="32")
    plain_parts = [
        {"name": f"gpu-{number}", "attributes": {"example.com/board": {"string": f"b{min(1, number)}"}}}
        for number in range(3)
    ]
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "2Gi"}}
    capacity = {
        "memory": {"value": "80Gi", "requestPolicy": policy},
        "slots": {"value": "2", "requestPolicy": {"default": "1", "validValues": ["1", "2"]}},
    }
    half = [{"counterSet": "card", "counters": {"memory": {"value": "40Gi"}}}]
    more_of = {
        "partitioned": {"consumesCounters": half},
        "shared": {"allowMultipleAllocations": True, "capacity": capacity},
    }
    names = []
    for name, where, requests, more in cases():
        names.append(name)
        driver = f"{name}.example.com"
        config = {"config": [{"opaque": {"driver": driver, "parameters": {"of": "class"}}}]}
        parts = [{**plain, **more_of.get(name, {})} for plain in plain_parts]
        devices.device_class(name, driver, **(config if name == "configured" else {}))
        devices.slice("pool", parts, driver, **where)
        devices.claim(name, *(of_class(each, name) for each in requests), **more)

    world.cluster.start_scheduler()
    try:
        theirs = allocations(devices, names, "default-scheduler")
    finally:
        world.cluster.stop_scheduler()
    start()
    ours = allocations(devices, names, "stromboli")
    assert set(theirs) == set(names)
    for name in names:
        assert ours[name] == theirs[name], name


def of_class(asked: Object, name: str) -> Object:
    """A request for devices of another class."""
    if "exactly" in asked:
        return {**asked, "exactly": {**asked["exactly"], "deviceClassName": name}}
    return {**asked, "firstAvailable": [{**each, "deviceClassName": name} for each in asked["firstAvailable"]]}


def allocations(devices: Devices, names: Sequence[str], scheduler: str) -> dict[str, Object]:
    """What claims look like when a scheduler has bound their pods, which then go."""
    world = devices.world
    world.pods([using(f"{scheduler}-{name}", name, scheduler=scheduler, cpu="1m") for name in names])
    eventually(lambda: len(world.placed()) == len(names))
    found = {}
    for name in names:
        claim = devices.get(name)
        status = claim["status"]
        assert status["allocation"].pop("allocationTimestamp")
        for result in status["allocation"]["devices"]["results"]:
            assert bool(result.pop("shareID", "")) == ("consumedCapacity" in result)
        (consumer,) = status["reservedFor"]
        assert consumer.pop("uid")
        assert consumer.pop("name") == f"{scheduler}-{name}"
        found[name] = {"status": status, "finalizers": claim["metadata"]["finalizers"]}
    for name in names:
        path = f"{CORE}/namespaces/{world.namespace}/pods/{scheduler}-{name}"
        world.api.delete(path, params={"gracePeriodSeconds": "0"}).raise_for_status()
    eventually(devices.untouched)
    return found


def test_claims_for_extended_resources_are_those_of_kube_scheduler(
    world: World, devices: Devices, start: Start
) -> None:
    """Claim and status of a pod, whose node has some of one resource from a device plugin, to the field."""
    world.nodes(1, cpu="32")
    plugin = {"status": {name: {"example.com/plugged": "2"} for name in ("capacity", "allocatable")}}
    world.api.patch(f"{CORE}/nodes/node-0/status", json=plugin, **_PATCH).raise_for_status()  # type: ignore[arg-type]
    devices.device_class("gpu", extendedResourceName="example.com/gpu")
    devices.device_class("plugged", extendedResourceName="example.com/plugged")
    devices.slice("node-0", [{"name": f"gpu-{number}"} for number in range(8)])
    world.cluster.start_scheduler()
    try:
        theirs = extended(devices, "default-scheduler")
    finally:
        world.cluster.stop_scheduler()
    start()
    assert extended(devices, "stromboli") == theirs
    names = [each["name"] for each in theirs["claim"]["spec"]["devices"]["requests"]]
    assert names == ["container-0-request-2", "container-1-request-1", "container-2-request-0"]


def extended(devices: Devices, scheduler: str) -> Object:
    """What becomes of a pod that asks for extended resources, but for names and times; then it goes."""
    world = devices.world
    gpu, implicit, plugged = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu", "example.com/plugged"

    def container(name: str, **requests: str) -> Object:
        names = {"gpu": gpu, "implicit": implicit, "plugged": plugged}
        listed = {names.get(key, key): value for key, value in requests.items()}
        return {"name": name, "image": "example.com/x:1", "resources": {"requests": listed, "limits": listed}}

    first = [container("prepare", cpu="1m", gpu="4", implicit="1")]
    others = [container("main", cpu="1m", gpu="1", plugged="1"), container("side", implicit="2")]
    world.pods([pod("p", scheduler=scheduler, initContainers=first, containers=others)])
    eventually(lambda: world.placed() == {"p": "node-0"})
    (claim,) = world.items(devices.claims)
    bound = world.get(f"{CORE}/namespaces/{world.namespace}/pods/p")
    told = bound["status"]["extendedResourceClaimStatus"]
    assert told.pop("resourceClaimName") == claim["metadata"].pop("name")
    for varying in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        claim["metadata"].pop(varying, None)
    (owner,) = claim["metadata"]["ownerReferences"]
    assert owner.pop("uid") == bound["metadata"]["uid"]
    assert claim["status"]["allocation"].pop("allocationTimestamp")
    assert claim["status"]["reservedFor"][0].pop("uid") == bound["metadata"]["uid"]
    path = f"{CORE}/namespaces/{world.namespace}/pods/p"
    world.api.delete(path, params={"gracePeriodSeconds": "0"}).raise_for_status()
    eventually(lambda: world.items(devices.claims) == [])
    return {"claim": claim, "told": told}


# -- who gets what -----------------------------------------------------------------------------------------------------


def test_two_pods_want_one_device(world: World, gpus: Devices, start: Start) -> None:
    """The second says why it waits, and has its turn when the first is gone."""
    start()
    gpus.claim("first")
    gpus.claim("second")
    world.pods([using("first")])
    eventually(lambda: world.placed() == {"first": "node-0"})
    world.pods([using("second")])
    eventually(lambda: "cannot allocate all claims" in why(world, "second"))
    assert gpus.allocated() == {"first": ["node-0/gpu-0"]}
    path = f"{CORE}/namespaces/{world.namespace}/pods/first"
    world.api.delete(path, params={"gracePeriodSeconds": "0"}).raise_for_status()
    eventually(lambda: world.placed() == {"second": "node-0"})
    assert gpus.allocated() == {"second": ["node-0/gpu-0"]}


def test_a_gang_shares_a_claim(world: World, gpus: Devices, start: Start) -> None:
    start()
    gpus.claim("shared")
    world.group("train", 3)
    world.pods([using(f"train-{number}", "shared", group="train") for number in range(3)])
    eventually(lambda: len(world.placed()) == 3)
    assert gpus.users("shared") == ["train-0", "train-1", "train-2"]
    assert set(world.placed().values()) == {"node-0"}


def test_claims_are_made_from_templates(world: World, gpus: Devices, start: Start) -> None:
    start()
    templates = f"{_API}/namespaces/{world.namespace}/resourceclaimtemplates"
    spec = {"spec": {"devices": {"requests": [request()]}}}
    world.create(templates, {"metadata": {"name": "a-gpu"}, "spec": spec})
    world.pods([using("lone", template="a-gpu")])
    eventually(lambda: world.placed() == {"lone": "node-0"})
    (claim,) = world.items(gpus.claims)
    assert gpus.users(claim["metadata"]["name"]) == ["lone"]


def test_a_gang_that_lacks_a_device_gets_none(world: World, gpus: Devices, start: Start, audit: Audit) -> None:
    gpus.slice("node-1", [{"name": "gpu-0"}])
    start()
    gpus.gang("train", 3)
    eventually(lambda: bool(world.condition("train", "Unschedulable")))
    assert gpus.untouched()
    assert [write for write in audit.writes("admin", "stromboli") if write.path.startswith(gpus.claims)] == []
    gpus.slice("late", [{"name": "gpu-0"}], allNodes=True)
    eventually(lambda: len(world.placed()) == 3)
    assert sorted(given(gpus)) == ["late/gpu-0", "node-0/gpu-0", "node-1/gpu-0"]


def test_two_pods_have_a_part_of_a_card_each(world: World, devices: Devices, start: Start) -> None:
    """A third waits, and so does one that wants the whole card, until there is room."""
    world.nodes(1, cpu="32")
    devices.device_class("gpu")
    part = {"consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "40Gi"}}}]}
    whole = {"consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "80Gi"}}}]}
    counters = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    parts = [{"name": f"part-{number}", **part} for number in range(3)]
    devices.slice("node-0", [*parts, {"name": "whole", **whole}], nodeName="node-0", sharedCounters=counters)
    start()
    for name in ("a", "b", "c"):
        devices.claim(name)
    for count, name in enumerate(("a", "b"), 1):
        world.pods([using(name)])
        eventually(lambda count=count: len(world.placed()) == count)  # type: ignore[misc]
    world.pods([using("c")])
    eventually(lambda: "cannot allocate all claims" in why(world, "c"))
    assert devices.allocated() == {"a": ["node-0/part-0"], "b": ["node-0/part-1"]}
    world.api.delete(
        f"{CORE}/namespaces/{world.namespace}/pods/a", params={"gracePeriodSeconds": "0"}
    ).raise_for_status()
    eventually(lambda: set(world.placed()) == {"b", "c"})
    assert set(devices.allocated()["c"]) < {"node-0/part-0", "node-0/part-2"}


@pytest.fixture
def slow(devices: Devices) -> Devices:
    """A node with two devices that have to be made ready."""
    devices.world.nodes(1, cpu="32")
    devices.device_class("gpu")
    ready = {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"], "bindsToNode": True}
    devices.slice("node-0", [{"name": f"gpu-{number}", **ready} for number in range(2)])
    return devices


def test_a_gang_is_bound_when_all_its_devices_are_ready(world: World, slow: Devices, start: Start) -> None:
    start()
    slow.gang("train", 2)
    eventually(lambda: all(slow.users(f"train-{number}") for number in range(2)))
    slow.say("train-0", attached="True")
    eventually(lambda: slow.get("train-0")["status"]["devices"][0]["conditions"][0]["status"] == "True")
    assert world.placed() == {}
    slow.say("train-1", attached="True", broken="False")
    eventually(lambda: len(world.placed()) == 2)


def test_devices_that_fail_are_given_back_and_the_gang_is_decided_anew(
    world: World, slow: Devices, start: Start
) -> None:
    start()
    slow.gang("train", 2)
    eventually(lambda: all(slow.users(f"train-{number}") for number in range(2)))
    slow.say("train-0", attached="True")
    slow.say("train-1", broken="True")

    def is_anew() -> bool:
        found = slow.get("train-1").get("status", {})
        return bool(found.get("reservedFor")) and not found.get("devices")

    eventually(is_anew, 60)
    assert world.placed() == {}
    assert any("failed to become ready: broken" in event["note"] for event in world.events())
    for number in range(2):
        eventually(lambda number=number: bool(slow.users(f"train-{number}")))  # type: ignore[misc]
        slow.say(f"train-{number}", attached="True")
    eventually(lambda: len(world.placed()) == 2, 60)


def test_the_service_dies_while_devices_are_made_ready(world: World, slow: Devices, start: Start) -> None:
    """The next one waits for the same devices, and gives those back that fail while there is none."""
    first = start()
    slow.gang("train", 2)
    eventually(lambda: all(slow.users(f"train-{number}") for number in range(2)))
    given_before = slow.allocated()
    slow.say("train-0", attached="True")
    first.end(signal.SIGKILL)

    second = start()
    eventually(lambda: bool(slow.users("train-0")))
    assert (world.placed(), slow.allocated()) == ({}, given_before)
    second.end(signal.SIGKILL)
    slow.say("train-1", broken="True")

    start()
    eventually(lambda: bool(slow.users("train-1")) and not slow.get("train-1")["status"].get("devices"), 60)
    assert world.placed() == {}
    for number in range(2):
        eventually(lambda number=number: bool(slow.users(f"train-{number}")))  # type: ignore[misc]
        slow.say(f"train-{number}", attached="True")
    eventually(lambda: len(world.placed()) == 2, 60)


def test_devices_that_failed_for_another_scheduler_are_given_back(world: World, slow: Devices, start: Start) -> None:
    """kube-scheduler leaves a claim allocated of which a device failed, and so nobody could use it."""
    slow.claim("p")
    result = {"request": "r", "driver": DRIVER, "pool": "node-0", "device": "gpu-1"}
    conditions = {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    field = {"key": "metadata.name", "operator": "In", "values": ["node-0"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    allocation = {"devices": {"results": [{**result, **conditions}]}, "nodeSelector": selector}
    patch = {"status": {"allocation": allocation}}
    world.api.patch(f"{slow.claims}/p/status", json=patch, **_PATCH).raise_for_status()  # type: ignore[arg-type]
    slow.say("p", broken="True")
    start()
    world.pods([using("p")])
    eventually(lambda: slow.allocated() == {"p": ["node-0/gpu-0"]})
    eventually(lambda: slow.users("p") == ["p"])
    slow.say("p", attached="True")
    eventually(lambda: world.placed() == {"p": "node-0"})


# -- in between --------------------------------------------------------------------------------------------------------


def test_somebody_else_changes_the_claims_all_the_time(world: World, many: Devices, start: Start) -> None:
    start("--binds-per-second", "50")
    with disturbed(world, [f"{many.claims}/train-{number}" for number in range(20)]):
        many.gang("train", 20)
        eventually(lambda: len(world.placed()) == 20, 60)
    assert len(many.allocated()) == len(set(given(many))) == 20
    assert all(many.users(name) == [name] for name in many.allocated())


def begin_allocations(devices: Devices) -> None:
    """Have a gang come that needs all devices, of which some are allocated then."""
    devices.gang("train", 20)
    eventually(lambda: len(devices.allocated()) >= 8)


def killed_amid_allocations(devices: Devices, start: Start) -> None:
    first = start("--binds-per-second", "20")
    begin_allocations(devices)
    first.end(signal.SIGKILL)


def test_the_service_is_killed_between_allocation_and_binding(world: World, many: Devices, start: Start) -> None:
    """What it had allocated is given back, since the gang finds no place afterwards; and then it finds one."""
    killed_amid_allocations(many, start)
    assert world.placed() == {}, "it was killed too late"
    assert len(many.allocated()) >= 8

    cordon(world, True)
    start()
    eventually(many.untouched)
    assert world.placed() == {}
    cordon(world, False)
    eventually(lambda: len(world.placed()) == 20)
    assert len(set(given(many))) == 20


def test_the_next_one_goes_on_with_what_was_allocated(world: World, many: Devices, start: Start) -> None:
    killed_amid_allocations(many, start)
    before = many.allocated()
    start()
    eventually(lambda: len(world.placed()) == 20)
    after = many.allocated()
    assert {name: after[name] for name in before} == before
    assert all(many.users(name) == [name] for name in after)


def test_a_leader_that_stood_still_gives_no_devices_away_once_another_leads(
    world: World, many: Devices, start: Start, audit: Audit
) -> None:
    """It is stopped amid its allocations; the successor, who is told apart by its user, completes or redoes them."""
    arguments = ("--leader-elect", "--binds-per-second", "20")
    leader = start(*arguments)
    start(*arguments, kubeconfig=world.cluster.kubeconfig("kwok"))
    begin_allocations(many)
    os.kill(leader.pid, signal.SIGSTOP)
    assert world.placed() == {}, "it was stopped too late"
    eventually(lambda: len(world.placed()) == 20, 60)
    resumed = datetime.now(UTC)
    os.kill(leader.pid, signal.SIGCONT)
    eventually(lambda: not leader.running)
    assert [write for write in audit.writes("admin", "stromboli") if write.received > resumed] == []
    assert len(many.allocated()) == len(set(given(many))) == 20
    assert all(many.users(name) == [name] for name in many.allocated())


def test_an_older_cluster_has_another_version(
    new_cluster: Callable[..., Cluster], definitions: list[Object], tmp_path: Path
) -> None:
    """There is no controller-manager, whose claim controller would look for v1."""
    older = new_cluster(apiserver_args=["--runtime-config=resource.k8s.io/v1=false,resource.k8s.io/v1beta1=true"])
    world = World(older, "older")
    with older.client() as api:
        define(api, definitions)
    world.begin()
    world.nodes(1, cpu="8")
    beta = "/apis/resource.k8s.io/v1beta1"
    world.create(f"{beta}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    pool = {"name": "node-0", "generation": 1, "resourceSliceCount": 1}
    body = {"attributes": {"model": {"string": "a"}}}
    spec = {"driver": DRIVER, "nodeName": "node-0", "pool": pool, "devices": [{"name": "gpu-0", "basic": body}]}
    world.create(f"{beta}/resourceslices", {"metadata": {"name": "gpus"}, "spec": spec})
    claims = f"{beta}/namespaces/older/resourceclaims"
    wanted = {
        "name": "r",
        "deviceClassName": "gpu",
        "selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "a"'}}],
    }
    world.create(claims, {"metadata": {"name": "p"}, "spec": {"devices": {"requests": [wanted]}}})
    world.pods([using("p")])
    service = Service(older.kubeconfig(), tmp_path / "log").wait_ready()
    try:
        eventually(lambda: world.placed() == {"p": "node-0"})
    finally:
        service.end()
    (result,) = world.get(f"{claims}/p")["status"]["allocation"]["devices"]["results"]
    assert (result["pool"], result["device"]) == ("node-0", "gpu-0")
