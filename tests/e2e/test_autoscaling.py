"""What cluster autoscalers make of gangs that wait for nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.autoscaler import REQUESTS, Autoscaler
from tests.e2e.conftest import Start
from tests.e2e.test_workloads import job, jobs
from tests.e2e.world import Object, World, define, pod
from tests.plugins.sessions import policy

pytestmark = pytest.mark.e2e

ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


@pytest.fixture
def autoscaler(world: World) -> Iterator[Autoscaler]:
    """It makes nodes of three cores."""
    with Autoscaler(world, 3) as running:
        yield running


def settled(autoscaler: Autoscaler) -> None:
    """Return after it has looked some more times."""
    then = autoscaler.loops + 10
    eventually(lambda: autoscaler.loops >= then, 60)


def test_a_gang_that_needs_ten_nodes_gets_ten(world: World, start: Start, autoscaler: Autoscaler) -> None:
    start()
    world.create(jobs(world), job("train", 30))
    eventually(lambda: len(world.placed()) == 30, 120)
    settled(autoscaler)
    assert (autoscaler.asked, autoscaler.made) == (10, 10)


def test_gangs_that_partly_fit_get_what_is_missing(world: World, start: Start, autoscaler: Autoscaler) -> None:
    """Their pods that fit are Unschedulable, too, and the autoscaler fits them on what is free."""
    world.nodes(2, cpu="3")
    start()
    for name in ("one", "two"):
        world.create(jobs(world), job(name, 9))
    eventually(lambda: len(world.placed()) == 18, 120)
    settled(autoscaler)
    assert autoscaler.asked == 4


def test_no_node_is_made_for_what_a_node_does_not_help(world: World, start: Start, autoscaler: Autoscaler) -> None:
    world.queue("small", capability={"cpu": "4"})
    start()
    world.create(jobs(world), job("large", 9, labels={"kueue.x-k8s.io/queue-name": "small"}))
    world.group("early", 9)
    world.pods([pod(f"early-{number}", "early") for number in range(4)])
    eventually(lambda: len(world.refused()) == 13, 60)
    settled(autoscaler)
    assert (autoscaler.asked, "Unschedulable" in world.refused().values()) == (0, False)


def request_schema() -> Object:
    """The bounds that a ProvisioningRequest has in the definition of the cluster autoscaler."""
    fixed = {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}]}
    template = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "maxLength": 253}}}
    counted = {"count": {"type": "integer", "format": "int32", "minimum": 1}, "podTemplateRef": template}
    pod_set = {"type": "object", "required": list(counted), "properties": counted}
    said = {"type": "object", "maxProperties": 100, "additionalProperties": {"type": "string", "maxLength": 255}}
    spec = {
        "podSets": {"type": "array", "minItems": 1, "maxItems": 32, "items": pod_set, **fixed},
        "provisioningClassName": {"type": "string", "maxLength": 253, **fixed},
        "parameters": {**said, **fixed},
    }
    whole = {"type": "object", "required": ["podSets", "provisioningClassName"], "properties": spec}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "required": ["spec"], "properties": {"spec": whole, "status": status}}


@pytest.mark.parametrize("answers", [["Failed"], ["BookingExpired", "CapacityRevoked"]], ids=",".join)
def test_the_answer_to_a_request_for_nodes_is_heeded(
    world: World, start: Start, autoscaler: Autoscaler, tmp_path: Path, answers: list[str]
) -> None:
    """The first requests come to nothing, the last brings all nodes at once. No pod is Unschedulable meanwhile."""
    names = {"plural": "provisioningrequests", "kind": "ProvisioningRequest", "singular": "provisioningrequest"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": request_schema()}}
    versions = [{**version, "subresources": {"status": {}}}]
    spec = {"group": "autoscaling.x-k8s.io", "scope": "Namespaced", "names": names, "versions": versions}
    metadata = {"name": "provisioningrequests.autoscaling.x-k8s.io"}
    approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    define(world.api, [{**definition, "metadata": {**metadata, "annotations": approved}}])
    file = tmp_path / "policy.yaml"
    file.write_text(f"{policy('drf')}provisioning: {{class: {ATOMIC}, retry: 1s}}\n")
    autoscaler.answers = [*answers]
    start("--policy", str(file))
    world.create(jobs(world), job("train", 30))
    eventually(lambda: len(world.placed()) == 30, 120)
    settled(autoscaler)
    assert (autoscaler.asked, autoscaler.made, autoscaler.answers) == (10, 10, [])
    told = {event["reason"] for event in world.events()}
    assert {"NodesRefused", "NodesProvisioned"} <= told
    eventually(lambda: world.items(REQUESTS.format(world.namespace)) == [], 60)
