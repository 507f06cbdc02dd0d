"""Extended resources that a device class stands behind, and devices that have to be made ready."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stromboli.api.decisions import Bind
from stromboli.explain.rehearsal import advance
from tests import builders
from tests.kube.test_dra import DRIVER, POLICY, QUOTA, claim, device, device_class, pod, resource_slice, run, why

GPU = "example.com/gpu"
PREFIX = "deviceclass.resource.kubernetes.io/"


def gpu_class(name: str = "gpu", resource: str = GPU, created: str = "") -> dict[str, Any]:
    found = device_class(name)
    found["spec"]["extendedResourceName"] = resource
    found["metadata"]["creationTimestamp"] = created or None
    return found


def gpus(node: str, count: int) -> dict[str, Any]:
    return resource_slice(node, *[device(f"gpu-{number}") for number in range(count)])


def asks(name: str, resource: str = GPU, count: int = 1, **more: Any) -> Any:
    return pod(name, resources={resource: str(count)}, **more)


def bound_by(session: Any) -> dict[str, Bind]:
    return {each.name: each for each in session.decisions if isinstance(each, Bind)}


@pytest.mark.parametrize("resource", [GPU, f"{PREFIX}gpu"])
def test_a_pod_gets_devices_for_an_extended_resource(resource: str) -> None:
    bound, session = run(gpu_class(), gpus("n1", 2), asks("p", resource, 2), asks("q", resource))
    assert bound == {"p": "n1"}
    (use,) = bound_by(session)["p"].claims
    assert use.manifest is not None
    metadata = use.manifest["metadata"]
    assert metadata["generateName"] == "p-extended-resources-"
    assert metadata["name"].startswith("p-extended-resources-")
    assert metadata["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert metadata["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    ]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    assert [each["exactly"] for each in use.manifest["spec"]["devices"]["requests"]] == [exactly]
    assert [each["device"] for each in use.allocation["devices"]["results"]] == ["gpu-0", "gpu-1"]
    assert [each["resourceName"] for each in use.mappings] == [resource]


def test_a_node_gives_what_its_device_plugin_has() -> None:
    plugin = builders.node("n1", cpu="16", resources={GPU: "1"})
    none = builders.node("n0", resources={GPU: "0"})
    bound, session = run(gpu_class(), gpus("n0", 1), gpus("n1", 5), none, plugin, *[asks(f"p{i}") for i in range(3)])
    assert sorted(bound.values()) == ["n0", "n1"]
    made = {bind.node: [use.manifest is not None for use in bind.claims] for bind in bound_by(session).values()}
    assert made == {"n0": [True], "n1": []}
    assert "too little room" in why(session, "p2") or GPU in why(session, "p2")


def test_devices_that_claims_hold_are_not_there_for_extended_resources() -> None:
    bound, _ = run(gpu_class(), gpus("n0", 2), claim("c"), pod("p", "c"), asks("q"), asks("r"))
    assert len(bound) == 2
    assert "p" in bound


def test_what_is_bound_holds_its_devices_in_the_next_session() -> None:
    cluster = builders.state(builders.node("n0"), builders.queue("default"), builders.pod_group("g"))
    for obj in (gpu_class(), gpus("n0", 2)):
        cluster.upsert(obj["kind"], obj)
    seen = []
    for name in ("p", "q", "r"):
        cluster.upsert("Pod", asks(name))
        decisions = builders.decide(cluster, POLICY).decisions
        seen += [use.allocation["devices"]["results"] for d in decisions if isinstance(d, Bind) for use in d.claims]
        advance(cluster, decisions, builders.NOON)
    assert [[each["device"] for each in results] for results in seen] == [["gpu-0"], ["gpu-1"]]


def test_an_earlier_attempts_claim_is_gone_first() -> None:
    owner = {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    notes = {"resource.kubernetes.io/extended-resource-claim": "true"}
    old = claim("p-extended-resources-x", metadata={"annotations": notes, "ownerReferences": [owner]})
    bound, session = run(gpu_class(), gpus("n0", 2), old, asks("p"), asks("q"))
    assert bound == {"q": "n0"}
    assert '"p-extended-resources-x" of an earlier attempt is not deleted yet' in why(session, "p")


def test_of_classes_with_the_same_resource_the_newest_counts() -> None:
    objs = [gpu_class("a", created="2024-01-01T00:00:00Z"), gpu_class("b", created="2024-01-02T00:00:00Z")]
    objs += [gpu_class("c", created="2024-01-02T00:00:00Z"), gpus("n0", 1), asks("p")]
    _, session = run(*objs)
    manifest = bound_by(session)["p"].claims[0].manifest
    assert manifest is not None
    assert manifest["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "b"


def test_a_queue_is_limited_in_it_as_in_any_resource() -> None:
    bound, session = run(gpu_class(), gpus("n0", 4), *[asks(f"p{i}") for i in range(3)], policy=QUOTA, **{GPU: "2"})
    assert len(bound) == 2
    assert GPU in why(session, next(name for name in ("p0", "p1", "p2") if name not in bound))


def test_a_gang_gets_all_of_it_or_none() -> None:
    gang = builders.pod_group("g", 3)
    assert run(gpu_class(), gpus("n0", 1), gpus("n1", 1), gang, *[asks(f"p{i}") for i in range(3)])[0] == {}
    assert len(run(gpu_class(), gpus("n0", 1), gpus("n1", 2), gang, *[asks(f"p{i}") for i in range(3)])[0]) == 3


_CONTAINERS = st.lists(
    st.tuples(st.sampled_from(("init", "sidecar", "main")), st.integers(0, 3)), min_size=1, max_size=6
)


@settings(max_examples=30, deadline=None)
@given(_CONTAINERS)
def test_containers_have_as_many_devices_as_they_ask_for(containers: list[tuple[str, int]]) -> None:
    """And a pod has no more in all than it would have of any other resource."""
    first = [(kind, count) for kind, count in containers if kind != "main"]
    last = [count for kind, count in containers if kind == "main"]
    made = [
        {"name": f"c{at}", "image": "i", "resources": {"requests": {"cpu": "1m", GPU: str(count)}}}
        | ({"restartPolicy": "Always"} if kind == "sidecar" else {})
        for at, (kind, count) in enumerate([*first, *(("main", count) for count in last)])
    ]
    wanted = pod("p", initContainers=made[: len(first)], containers=made[len(first) :])
    request = requested(wanted)
    _, session = run(gpu_class(), gpus("n0", 20), wanted)
    claims = bound_by(session)["p"].claims
    if not request:
        assert not claims
        return
    (use,) = claims
    assert use.manifest is not None
    counts = {each["name"]: each["exactly"]["count"] for each in use.manifest["spec"]["devices"]["requests"]}
    assert sum(counts.values()) == request
    assert len(use.allocation["devices"]["results"]) == request
    for container in made:
        names = [each["requestName"] for each in use.mappings if each["containerName"] == container["name"]]
        asked = int(container["resources"]["requests"][GPU])
        assert sum(counts[name] for name in names) >= asked
        assert bool(names) == bool(asked)
    lasting = [each["name"] for each in made if each not in made[: len(first)] or "restartPolicy" in each]
    used = [each["requestName"] for each in use.mappings if each["containerName"] in lasting]
    assert len(used) == len(set(used)), "no two that run at once have the same devices"


def requested(wanted: Any) -> int:
    """What a pod requests of the resource."""
    cluster = builders.state(wanted)
    (record,) = (record for record in cluster.pods.records if record is not None)
    return record.pod_class.request.get(GPU, 0) // 1000


# -- devices that are made ready ---------------------------------------------------------------------------------------


def awaited(since: str | None, **conditions: str) -> dict[str, Any]:
    """A claim on n0 whose device has to be attached, with what the driver says of it."""
    about = {"driver": DRIVER, "pool": "n0", "device": "gpu-0"}
    result = {**about, "request": "r", "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    said = [{"type": type, "status": status} for type, status in conditions.items()]
    allocation = {"devices": {"results": [result]}, "allocationTimestamp": since}
    return claim("c", status={"allocation": allocation, "devices": [{**about, "conditions": said or None}]})


LONG_AGO, JUST_NOW = "2023-11-14T22:03:19Z", "2023-11-14T22:03:21Z"


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (awaited(JUST_NOW), ""),
        (awaited(None), ""),
        (awaited(LONG_AGO, attached="True", broken="False"), ""),
        (awaited(LONG_AGO), "its devices did not become ready in time"),
        (awaited(JUST_NOW, broken="True"), "device n0/gpu-0 failed to become ready: broken"),
        (awaited(None, attached="True", broken="True"), "device n0/gpu-0 failed to become ready: broken"),
    ],
)
def test_a_claim_whose_devices_do_not_get_ready_is_of_no_use(wanted: dict[str, Any], problem: str) -> None:
    bound, session = run(device_class(), gpus("n0", 1), wanted, pod("p", "c"))
    assert bool(bound) != bool(problem)
    assert not problem or problem in why(session, "p")
