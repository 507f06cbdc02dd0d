"""The generated CRDs on a real API server: it takes them, lets through what is right and refuses the rest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from stromboli.api import crd_schema

pytestmark = pytest.mark.e2e

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATHS = {
    "Queue": "/apis/scheduling.volcano.sh/v1beta1/queues",
    "PodGroup": "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups",
    "HyperNode": "/apis/topology.volcano.sh/v1alpha1/hypernodes",
}
GPU = "nvidia.com/gpu"
NODE = {"type": "Node", "selector": {"exactMatch": {"name": "node-1"}}}


@pytest.fixture(scope="module")
def definitions(api: httpx.Client) -> Iterator[None]:
    """The CRDs are established; those that were not there before go again."""
    manifests = [crd_schema.custom_resource_definition(definition) for definition in crd_schema.DEFINITIONS]
    created = [crd["metadata"]["name"] for crd in manifests if _created(api.post(CRDS, json=crd))]
    deadline = time.monotonic() + 30
    while not all(api.get(path).is_success for path in PATHS.values()):
        assert time.monotonic() < deadline, "the CRDs are not served"
        time.sleep(0.1)
    yield
    for name in created:
        api.delete(f"{CRDS}/{name}").raise_for_status()


def _created(answer: httpx.Response) -> bool:
    assert answer.status_code in (201, 409), answer.text
    return answer.status_code == 201


def _create(api: httpx.Client, kind: str, spec: Any, name: str) -> httpx.Response:
    manifest: dict[str, Any] = {"apiVersion": _group_version(kind), "kind": kind, "metadata": {"name": name}}
    if spec is not None:
        manifest["spec"] = spec
    return api.post(PATHS[kind], params={"dryRun": "All", "fieldValidation": "Strict"}, json=manifest)


def _group_version(kind: str) -> str:
    return "/".join(PATHS[kind].split("/")[2:4])


def _members(**selector: Any) -> dict[str, Any]:
    return {"tier": 1, "members": [{"type": "Node", "selector": selector}]}


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize(
    ("kind", "spec", "stored"),
    [
        ("Queue", None, {"weight": 1, "dequeueStrategy": "traverse"}),
        ("Queue", {"weight": None, "capability": None}, {"weight": 1}),
        ("Queue", {"capability": {"cpu": 4, GPU: "8"}, "deserved": {"cpu": "4000m", GPU: 8}}, {}),
        (
            "Queue",
            {"deserved": {"cpu": "1e3"}, "guarantee": {"resource": {"cpu": "1k", "memory": "1.5Gi"}}},
            {},
        ),
        ("Queue", {"parent": "root", "reclaimable": False, "weight": 65535}, {"reclaimable": False}),
        ("PodGroup", None, {"queue": "default"}),
        ("PodGroup", {"networkTopology": {"highestTierAllowed": 2}}, {"queue": "default"}),
        ("PodGroup", {"networkTopology": {"highestTierAllowed": 0, "highestTierName": ""}}, {}),
        ("PodGroup", {"minMember": 3, "minTaskMember": {"worker": 2}, "minResources": {"cpu": 3}}, {}),
        ("HyperNode", {"tier": 0, "members": [NODE]}, {"tier": 0}),
        ("HyperNode", _members(regexMatch={"pattern": "^node-[0-9]+$"}), {}),
        ("HyperNode", _members(labelMatch={"matchLabels": {"rack": "1"}}), {}),
    ],
)
def test_accepts(api: httpx.Client, kind: str, spec: dict[str, Any] | None, stored: dict[str, Any]) -> None:
    answer = _create(api, kind, spec, "name")
    assert answer.status_code == 201, answer.text
    assert answer.json()["spec"].items() >= stored.items()


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize(
    ("kind", "spec", "complaint"),
    [
        (
            "Queue",
            {"capability": {"cpu": "4"}, "deserved": {"cpu": "4001m"}},
            "deserved must not be above capability",
        ),
        ("Queue", {"capability": {GPU: 4}, "deserved": {GPU: "5"}}, "deserved must not be above capability"),
        ("Queue", {"deserved": {GPU: 4}, "lendingLimit": {GPU: "5"}}, "lendingLimit must not be above deserved"),
        (
            "Queue",
            {"deserved": {"memory": "1Gi"}, "guarantee": {"resource": {"memory": "1025Mi"}}},
            "guarantee must not be above deserved",
        ),
        (
            "Queue",
            {"capability": {"cpu": 4}, "guarantee": {"resource": {"cpu": 5}}},
            "guarantee must not be above capability",
        ),
        ("Queue", {"weight": 0}, "greater than or equal to 1"),
        ("Queue", {"weight": 65536}, "less than or equal to 65535"),
        ("Queue", {"capability": {"cpu": "4x"}}, "spec.capability.cpu in body should match"),
        ("Queue", {"capability": {"cpu": -1}}, "greater than or equal to 0"),
        ("Queue", {"capability": {"cpu": "-1"}}, "spec.capability.cpu in body should match"),
        ("Queue", {"parent": "name"}, "a queue cannot be its own parent"),
        ("Queue", {"parent": "Team_A"}, "spec.parent in body should match"),
        ("Queue", {"dequeueStrategy": "lifo"}, "spec.dequeueStrategy: Unsupported value"),
        ("Queue", {"wieght": 1}, 'unknown field \\"spec.wieght\\"'),
        (
            "PodGroup",
            {"networkTopology": {"highestTierAllowed": 2, "highestTierName": "rack"}},
            "only one of highestTierAllowed and highestTierName",
        ),
        (
            "PodGroup",
            {"subGroupPolicy": [{"networkTopology": {"highestTierAllowed": 2, "highestTierName": "rack"}}]},
            "only one of highestTierAllowed and highestTierName",
        ),
        ("PodGroup", {"networkTopology": {"mode": "Hard"}}, "spec.networkTopology.mode: Unsupported value"),
        ("PodGroup", {"subGroupPolicy": [{"subGroupSize": 0}]}, "greater than or equal to 1"),
        ("PodGroup", {"minMember": -1}, "greater than or equal to 0"),
        ("PodGroup", {"minMember": 2**31}, "spec.minMember"),
        ("HyperNode", {"members": [NODE]}, "spec.tier: Required value"),
        ("HyperNode", {"tier": 1, "members": []}, "at least 1 items"),
        ("HyperNode", _members(), "at least 1 properties"),
        ("HyperNode", _members(exactMatch={"name": "a"}, regexMatch={"pattern": "a"}), "Too many: 2"),
        ("HyperNode", _members(regexMatch={"pattern": "a("}), "pattern must be a regular expression"),
        (
            "HyperNode",
            {"tier": 1, "members": [{**NODE, "type": "node"}]},
            "members[0].type: Unsupported value",
        ),
    ],
)
def test_refuses(api: httpx.Client, kind: str, spec: dict[str, Any], complaint: str) -> None:
    answer = _create(api, kind, spec, "name")
    assert answer.status_code in (400, 422), answer.text
    assert complaint in answer.text


@pytest.mark.usefixtures("definitions")
def test_the_root_queue_has_no_parent(api: httpx.Client) -> None:
    assert _create(api, "Queue", {}, "root").status_code == 201
    assert "the root queue has no parent" in _create(api, "Queue", {"parent": "team"}, "root").text


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("kind", PATHS)
def test_status_is_a_subresource(api: httpx.Client, kind: str) -> None:
    resources = api.get(f"/apis/{_group_version(kind)}").json()["resources"]
    plural = PATHS[kind].rsplit("/", 1)[1]
    assert {plural, f"{plural}/status"} <= {resource["name"] for resource in resources}
