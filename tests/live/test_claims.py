"""Resource claims are written before their pods are bound, and given back when a pod is not bound after all."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from stromboli.api import keys
from stromboli.engine import Engine
from stromboli.kube.dra import readiness
from stromboli.live.binding import claims, reserving
from tests.kube.test_dra import DRIVER, allocation, claim, device, device_class, request, resource_slice
from tests.live.cluster import Cluster, Fault
from tests.live.conftest import StartService, until

_GROUP = "/apis/resource.k8s.io/v1"
_CLAIMS = f"{_GROUP}/namespaces/default/resourceclaims"
FINALIZER = "resource.kubernetes.io/delete-protection"


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """Two nodes, of which n0 has two devices."""
    cluster.create(f"{_GROUP}/deviceclasses", device_class())
    cluster.create(f"{_GROUP}/resourceslices", resource_slice("n0", device("gpu-0"), device("gpu-1")))
    return cluster


def claimed(cluster: Cluster, name: str, *, group: str = "", claim_name: str = "", **spec: Any) -> None:
    """A pod and its claim, or one of the claims that are there."""
    if not claim_name:
        cluster.create(_CLAIMS, claim(name, metadata={"uid": None}))
    named = [{"name": "gpu", "resourceClaimName": claim_name or name}]
    cluster.pod(name, group, resourceClaims=named, **spec)


def status(cluster: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.get(f"{_CLAIMS}/{name}").get("status") or {}
    return found


def devices(cluster: Cluster) -> dict[str, list[str]]:
    """The devices of each claim."""
    return {
        each["metadata"]["name"]: [
            result["device"]
            for result in ((each.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results", ())
        ]
        for each in cluster.items(_CLAIMS)
    }


def users(cluster: Cluster, name: str) -> list[str]:
    return [each["name"] for each in status(cluster, name).get("reservedFor") or ()]


def is_untouched(cluster: Cluster, name: str) -> bool:
    found = cluster.get(f"{_CLAIMS}/{name}")
    return not found["metadata"].get("finalizers") and not any((found.get("status") or {}).values())


def engine(text: str | None) -> Engine:
    return Engine()


async def test_a_pod_is_bound_once_its_claim_is_reserved_for_it(cluster: Cluster, start: StartService) -> None:
    await start(engine)
    claimed(cluster, "p")
    await until(lambda: cluster.pods() == {"p": "n0"})
    assert devices(cluster) == {"p": ["gpu-0"]}
    assert users(cluster, "p") == ["p"]
    assert cluster.get(f"{_CLAIMS}/p")["metadata"]["finalizers"] == [FINALIZER]
    writes = [path for method, path, _ in cluster.proxy.answers if method in ("PUT", "POST") and "/p" in path]
    assert [path for path in writes if "events" not in path and "podgroups" not in path] == [
        f"{_CLAIMS}/p",
        f"{_CLAIMS}/p/status",
        "/api/v1/namespaces/default/pods/p/binding",
    ]


async def test_pods_that_share_a_claim_are_all_entered(cluster: Cluster, start: StartService) -> None:
    await start(engine)
    cluster.group("train", 3)
    claimed(cluster, "t0", group="train")
    claimed(cluster, "t1", group="train", claim_name="t0")
    claimed(cluster, "t2", group="train", claim_name="t0")
    await until(lambda: cluster.all_bound(3))
    assert set(cluster.pods().values()) == {"n0"}
    assert sorted(users(cluster, "t0")) == ["t0", "t1", "t2"]
    claimed(cluster, "late", claim_name="t0")
    await until(lambda: cluster.all_bound(4))
    assert sorted(users(cluster, "t0")) == ["late", "t0", "t1", "t2"]
    assert devices(cluster) == {"t0": ["gpu-0"]}


async def test_a_claim_that_others_change_meanwhile_is_read_anew(cluster: Cluster, start: StartService) -> None:
    """Before the finalizer was added, and then before the allocation was."""
    await start(engine)
    cluster.fail("PUT", "/resourceclaims/p", 409)
    cluster.fail("PUT", "/resourceclaims/p/status", 409)
    claimed(cluster, "p")
    await until(lambda: cluster.all_bound(1))
    assert cluster.count("GET", "/resourceclaims/p", 200) == 2
    assert users(cluster, "p") == ["p"]


async def test_a_claim_that_somebody_else_allocated_sends_the_pod_there(cluster: Cluster, start: StartService) -> None:
    cluster.create(f"{_GROUP}/resourceslices", resource_slice("n1", device("gpu-0")))
    await start(engine)
    with cluster.held("PUT", "/resourceclaims/p"):
        claimed(cluster, "p")
        await until(lambda: any("/resourceclaims/p" in path for path, _ in cluster.proxy.requests))
        cluster.patch(f"{_CLAIMS}/p/status", {"status": allocation("n1", "gpu-0")})
    await until(lambda: cluster.pods() == {"p": "n1"})
    assert users(cluster, "p") == ["p"]
    assert status(cluster, "p")["allocation"]["devices"]["results"][0]["pool"] == "n1"


async def test_a_write_without_an_answer_is_looked_up(cluster: Cluster, start: StartService) -> None:
    await start(engine)
    cluster.lose("PUT", "/resourceclaims/lost/status")
    cluster.fail("PUT", "/resourceclaims/refused/status", 503)
    claimed(cluster, "lost")
    claimed(cluster, "refused")
    await until(lambda: cluster.all_bound(2))
    assert (users(cluster, "lost"), users(cluster, "refused")) == (["lost"], ["refused"])


@pytest.mark.parametrize("content", [b"{}", b'{"metadata": null}', b'{"metadata": {}, "status": 7}', b"[]", b"<html>"])
@pytest.mark.one_in(3)
async def test_an_answer_that_is_no_claim_is_no_end(cluster: Cluster, start: StartService, content: bytes) -> None:
    service = await start(engine)
    cluster.proxy.faults.append(Fault("PUT", "/resourceclaims/p", 200, content=content, times=2))
    claimed(cluster, "p")
    await until(lambda: not cluster.proxy.faults)
    claimed(cluster, "q")
    await until(lambda: cluster.pods()["q"] == "n0")
    assert not service.stuck()


async def test_a_gang_of_which_one_claim_is_refused_holds_nothing(cluster: Cluster, start: StartService) -> None:
    """And it gets all of it, once that claim can be written."""
    await start(engine)
    cluster.fail("PUT", "/resourceclaims/t1/status", 403, times=1_000)
    cluster.group("train", 2)
    for name in ("t0", "t1"):
        claimed(cluster, name, group="train")
    await until(lambda: "FailedBinding" in cluster.reasons())
    await until(lambda: cluster.count("PUT", "/t0/status", 200) >= 2)
    assert cluster.count("POST", "/binding") == 0
    cluster.proxy.faults.clear()
    await until(lambda: cluster.all_bound(2))
    assert users(cluster, "t0") == ["t0"]
    assert users(cluster, "t1") == ["t1"]


async def test_a_claim_is_given_back_when_the_binding_is_refused(cluster: Cluster, start: StartService) -> None:
    service = await start(engine)
    with cluster.held("POST", "/pods/p/binding", status=422):
        claimed(cluster, "p")
        await until(lambda: users(cluster, "p") == ["p"])
        await until(lambda: not cluster.proxy.faults, "the binding is held")
        cluster.patch("/api/v1/nodes/n0", {"spec": {"unschedulable": True}})
        await until(lambda: service.state.nodes.record("n0").unschedulable)  # type: ignore[union-attr]
    await until(lambda: is_untouched(cluster, "p"))
    assert cluster.pods() == {"p": ""}


async def test_a_device_that_is_being_given_is_given_to_nobody_else(cluster: Cluster, start: StartService) -> None:
    """Neither before the API server has it, nor while the watch does not tell."""
    service = await start(engine)
    claimed(cluster, "first")
    await until(lambda: cluster.all_bound(1))
    with cluster.held("PUT", "/resourceclaims/second"):
        claimed(cluster, "second")
        await until(lambda: keys.key("default", "second") in service.state.assumed)
        claimed(cluster, "third")
        await until(lambda: service.state.record("default/third") is not None)
        claimed(cluster, "fourth", claim_name="second")
        await until(lambda: "default/fourth" in service.state.assumed)
        assert "default/third" not in service.state.assumed
    await until(lambda: set(users(cluster, "second")) == {"second", "fourth"})
    await until(lambda: cluster.pods() == {"first": "n0", "second": "n0", "third": "", "fourth": "n0"})
    assert devices(cluster) == {"first": ["gpu-0"], "second": ["gpu-1"], "third": []}


async def test_what_a_former_leader_reserved_for_a_pod_that_waits_is_given_back(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not what is used by pods that have a node, or of which another scheduler thinks."""
    monkeypatch.setattr(claims, "LATE", 0.1)
    for name, changes in (("p", {"cpu": "100"}), ("run", {"nodeName": "n0"}), ("other", {"schedulerName": "else"})):
        claimed(cluster, name, **changes)
        uid = cluster.get(f"/api/v1/namespaces/default/pods/{name}")["metadata"]["uid"]
        reserved = {"reservedFor": [{"resource": "pods", "name": name, "uid": uid}]}
        cluster.patch(f"{_CLAIMS}/{name}", {"metadata": {"finalizers": [FINALIZER]}})
        cluster.patch(f"{_CLAIMS}/{name}/status", {"status": {**allocation("n0", f"{name}-gpu"), **reserved}})
    cluster.create(_CLAIMS, claim("begun", metadata={"uid": None, "finalizers": [FINALIZER]}))
    await start(engine)
    await until(lambda: is_untouched(cluster, "p") and is_untouched(cluster, "begun"))
    assert users(cluster, "run") == ["run"]
    assert users(cluster, "other") == ["other"]


async def test_a_release_that_fails_is_tried_again(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserving, "_AGAIN", 0.05)
    await start(engine)
    cluster.fail("POST", "/pods/p/binding", 422, times=1_000)
    claimed(cluster, "p", cpu="1")
    cluster.fail("PUT", "/resourceclaims/p/status", 403)
    await until(lambda: cluster.count("POST", "/binding", 422) > 0)
    cluster.patch("/api/v1/nodes/n0", {"spec": {"unschedulable": True}})
    await until(lambda: is_untouched(cluster, "p"))


# -- claims for extended resources -------------------------------------------------------------------------------------

GPU = "example.com/gpu"


@pytest.fixture
def extended(cluster: Cluster) -> Cluster:
    cluster.patch(f"{_GROUP}/deviceclasses/gpu", {"spec": {"extendedResourceName": GPU}})
    return cluster


def wants_gpus(cluster: Cluster, name: str, count: int) -> None:
    resources = {"requests": {"cpu": "1", GPU: str(count)}, "limits": {GPU: str(count)}}
    cluster.pod(name, containers=[{"name": "main", "image": "busybox", "resources": resources}])


async def test_a_claim_for_extended_resources_is_made_before_the_binding(
    extended: Cluster, start: StartService
) -> None:
    """And is the pod's, whose status names it and says which container has which devices."""
    await start(engine)
    wants_gpus(extended, "p", 1)
    await until(lambda: extended.pods() == {"p": "n0"})
    (made,) = extended.items(_CLAIMS)
    bound = extended.get("/api/v1/namespaces/default/pods/p")
    assert made["metadata"]["ownerReferences"][0]["uid"] == bound["metadata"]["uid"]
    assert made["metadata"]["finalizers"] == [FINALIZER]
    assert [each["name"] for each in made["status"]["reservedFor"]] == ["p"]
    told = bound["status"]["extendedResourceClaimStatus"]
    assert told["resourceClaimName"] == made["metadata"]["name"]
    (request,) = made["spec"]["devices"]["requests"]
    assert [(each["resourceName"], each["requestName"]) for each in told["requestMappings"]] == [(GPU, request["name"])]


async def test_devices_for_a_claim_that_is_being_made_are_given_to_nobody_else(
    extended: Cluster, start: StartService
) -> None:
    service = await start(engine)
    with extended.held("POST", "/resourceclaims"):
        wants_gpus(extended, "p", 2)
        await until(lambda: "default/p" in service.state.assumed)
        claimed(extended, "q")
        await until(lambda: service.state.record("default/q") is not None)
        assert "default/q" not in service.state.assumed
    await until(lambda: extended.pods() == {"p": "n0", "q": ""})


@pytest.mark.one_in(3)
@pytest.mark.parametrize("where", ["/resourceclaims", "/pods/p/status", "/pods/p/binding"])
async def test_a_claim_for_extended_resources_is_deleted_when_its_pod_is_not_bound(
    extended: Cluster, start: StartService, where: str
) -> None:
    """And the pod gets another one in the next attempt."""
    service = await start(engine)
    method = "PATCH" if where.endswith("status") else "POST"
    extended.fail(method, where, 422, times=2)
    wants_gpus(extended, "p", 2)
    await until(lambda: extended.pods() == {"p": "n0"})
    assert extended.count(method, where, 422) == 2
    assert len(extended.items(_CLAIMS)) == 1
    assert len(service.state.objects["ResourceClaim"]) == 1


async def test_a_claim_for_extended_resources_that_a_former_leader_made_is_deleted(
    extended: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LATE", 0.1)
    wants_gpus(extended, "p", 1)
    uid = extended.get("/api/v1/namespaces/default/pods/p")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    notes = {"resource.kubernetes.io/extended-resource-claim": "true"}
    about = {"uid": None, "ownerReferences": [owner], "annotations": notes, "finalizers": [FINALIZER]}
    extended.create(_CLAIMS, claim("p-extended-resources-old", metadata=about))
    await start(engine)
    await until(lambda: extended.pods() == {"p": "n0"})
    (made,) = extended.items(_CLAIMS)
    assert made["metadata"]["name"] != "p-extended-resources-old"


# -- devices that are made ready ---------------------------------------------------------------------------------------


def awaited(cluster: Cluster) -> None:
    """A device on n1 that has to be attached."""
    conditions = {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    cluster.create(f"{_GROUP}/resourceslices", resource_slice("n1", device("slow", model="slow", more=conditions)))


def wants_slow(cluster: Cluster, name: str, **spec: Any) -> None:
    selector = f'"model" in device.attributes["{DRIVER}"]'
    cluster.create(_CLAIMS, claim(name, request("r", selector), metadata={"uid": None}))
    claimed(cluster, name, claim_name=name, **spec)


def say(cluster: Cluster, name: str, **conditions: str) -> None:
    said = [{"type": type, "status": value} for type, value in conditions.items()]
    about = {"driver": DRIVER, "pool": "n1", "device": "slow", "conditions": said}
    cluster.patch(f"{_CLAIMS}/{name}/status", {"status": {"devices": [about]}})


async def test_a_gang_waits_until_the_last_of_its_devices_is_ready(cluster: Cluster, start: StartService) -> None:
    await start(engine)
    awaited(cluster)
    cluster.group("train", 2)
    claimed(cluster, "t0", group="train")
    wants_slow(cluster, "t1", group="train")
    await until(lambda: users(cluster, "t0") == ["t0"] and users(cluster, "t1") == ["t1"])
    say(cluster, "t1", attached="False")
    claimed(cluster, "other")
    await until(lambda: cluster.pods()["other"] == "n0")
    assert cluster.count("POST", "/binding") == 1, "nobody waits for others' devices"
    say(cluster, "t1", attached="True")
    await until(lambda: cluster.all_bound(3))


@pytest.mark.parametrize(
    ("said", "problem"), [("True", "failed to become ready"), ("", "did not become ready in time")]
)
async def test_devices_that_fail_or_take_too_long_are_given_back(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch, said: str, problem: str
) -> None:
    if not said:
        monkeypatch.setattr(readiness, "TIMEOUT", 0.5)
    await start(engine)
    awaited(cluster)
    wants_slow(cluster, "p")
    await until(lambda: users(cluster, "p") == ["p"])
    if said:
        say(cluster, "p", broken=said)
    notes = partial(cluster.items, "/apis/events.k8s.io/v1/events")
    await until(lambda: any(problem in event["note"] for event in notes()))
    assert cluster.count("POST", "/binding") == 0
    await until(lambda: cluster.count("PUT", "/resourceclaims/p/status", 200) >= 3)
    if said:
        await until(lambda: users(cluster, "p") == ["p"])
        say(cluster, "p", attached="True")
        await until(lambda: cluster.pods() == {"p": "n1"})


async def test_a_pod_that_goes_while_its_devices_are_made_ready_leaves_nothing(
    cluster: Cluster, start: StartService
) -> None:
    await start(engine)
    awaited(cluster)
    wants_slow(cluster, "p")
    await until(lambda: users(cluster, "p") == ["p"])
    cluster.delete("/api/v1/namespaces/default/pods/p")
    await until(lambda: is_untouched(cluster, "p"))


async def test_a_claim_that_another_scheduler_left_with_a_failed_device_gets_another(
    cluster: Cluster, start: StartService
) -> None:
    conditions = {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    cluster.create(_CLAIMS, claim("p", metadata={"uid": None}))
    cluster.patch(f"{_CLAIMS}/p/status", {"status": allocation("n1", "slow", **conditions)})
    say(cluster, "p", broken="True")
    await start(engine)
    claimed(cluster, "p", claim_name="p")
    await until(lambda: cluster.pods() == {"p": "n0"})
    assert devices(cluster) == {"p": ["gpu-0"]}


async def test_a_claim_that_was_allocated_for_nobody_elsewhere_is_allocated_anew(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kube-scheduler does it, for pods that it could not place; but for none that are not tried."""
    monkeypatch.setattr(claims, "LATE", 0.1)
    cluster.patch("/api/v1/nodes/n0", {"metadata": {"labels": {"rack": "a"}}})
    here = {"nodeSelector": {"rack": "a"}}
    gated = {**here, "schedulingGates": [{"name": "example.com/wait"}]}
    for name, changes in (("gated", gated), ("other", {**here, "schedulerName": "else"}), ("p", here)):
        cluster.create(_CLAIMS, claim(name, metadata={"uid": None}))
        cluster.patch(f"{_CLAIMS}/{name}/status", {"status": allocation("n1", f"gpu-{name}")})
        claimed(cluster, name, claim_name=name, **changes)
    await start(engine)
    await until(lambda: cluster.pods().get("p") == "n0")
    assert devices(cluster) == {"gated": ["gpu-gated"], "other": ["gpu-other"], "p": ["gpu-0"]}
