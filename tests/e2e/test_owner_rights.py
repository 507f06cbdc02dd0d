"""A service account that may read some owners of pods, in some namespaces, and from some time on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controlplane.cluster import eventually
from tests.controlplane.projects import released
from tests.e2e.conftest import Start
from tests.e2e.test_workloads import group_of, patch, reference
from tests.e2e.world import CORE, RBAC, Object, World, define, pod

pytestmark = pytest.mark.e2e

ACCOUNT = "scheduler"
RAY = "ray.io/v1"
GROUPS = ["", "apps", "autoscaling.x-k8s.io", "batch", "bus.volcano.sh", "coordination.k8s.io", "events.k8s.io"]
GROUPS += ["nodeinfo.volcano.sh", "policy", "resource.k8s.io", "scheduling.k8s.io", "scheduling.volcano.sh"]
GROUPS += ["shard.volcano.sh", "storage.k8s.io", "topology.volcano.sh"]
ALL: Object = {"apiGroups": GROUPS, "resources": ["*"], "verbs": ["*"]}


def rule(*verbs: str) -> Object:
    return {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": list(verbs)}


def grant(world: World, kind: str, name: str, *rules: Object) -> None:
    """Grant rights to the account: everywhere, or with a Role in the world's namespace."""
    inside = f"{RBAC}/" if kind == "ClusterRole" else f"{RBAC}/namespaces/{world.namespace}/"
    named = {"metadata": {"name": f"{world.namespace}-{name}"}}
    world.create(f"{inside}{kind.lower()}s", {**named, "rules": list(rules)})
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": world.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": named["metadata"]["name"]}
    world.create(f"{inside}{kind.lower()}bindings", {**named, "subjects": [subject], "roleRef": role})


def revoke(world: World, name: str) -> None:
    for what in ("clusterrolebindings", "clusterroles"):
        world.api.delete(f"{RBAC}/{what}/{world.namespace}-{name}").raise_for_status()


def clusters(world: World) -> str:
    return f"/apis/{RAY}/namespaces/{world.namespace}/rayclusters"


def cluster(world: World, name: str, workers: int) -> Object:
    """A RayCluster with its pods, as KubeRay makes them."""
    spec: dict[str, Any] = pod("")["spec"]
    groups = [{"groupName": "a", "replicas": workers, "minReplicas": 0, "maxReplicas": 9, "template": {"spec": spec}}]
    head = {"template": {"spec": spec}, "rayStartParams": {}}
    for group in groups:
        group["rayStartParams"] = {}
    named = {"apiVersion": RAY, "kind": "RayCluster", "metadata": {"name": name}}
    made = {
        **named,
        **world.create(clusters(world), {**named, "spec": {"headGroupSpec": head, "workerGroupSpecs": groups}}),
    }
    members(world, made, 1 + workers)
    return made


def members(world: World, made: Object, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        each = pod(f"{made['metadata']['name']}-{number}")
        each["metadata"] |= {"ownerReferences": [reference(made)], "labels": {"ray.io/group": "a"}}
        world.create(f"{CORE}/namespaces/{world.namespace}/pods", each)


def bound(world: World, name: str) -> int:
    return sum(each.startswith(f"{name}-") for each in world.placed())


def test_owners_count_where_and_as_long_as_they_may_be_read(world: World, start: Start) -> None:
    define(world.api, released([("ray.io", "RayCluster")]))
    world.create(f"{CORE}/namespaces/{world.namespace}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    grant(world, "ClusterRole", "all", ALL)
    world.nodes(1, cpu="2")
    account = world.cluster.service_account_kubeconfig(world.namespace, ACCOUNT)
    service = start(kubeconfig=account, settings={"groups.owners._FORBIDDEN": 6.0, "groups.operator._LOOK": 6.0})
    first = cluster(world, "first", 2)
    # Its pods start one by one, and the rule that is missing is told once.
    eventually(lambda: bound(world, "first") == 2, 60)
    assert group_of(world, first)["spec"]["minMember"] == 1
    told = [line for line in service.text.splitlines() if "owners may not be read" in line]
    assert len([line for line in told if "rayclusters" in line]) == 1
    # Once it may be read and watched the group follows it, and none of its pods is evicted.
    grant(world, "ClusterRole", "ray", rule("get", "list", "watch"))
    eventually(lambda: group_of(world, first)["spec"]["minMember"] == 3, 150)
    assert bound(world, "first") == 2
    patch(world, f"{clusters(world)}/first", {"spec": {"suspend": False}})
    second = cluster(world, "second", 2)
    eventually(lambda: group_of(world, second)["spec"].get("minMember") == 3, 60)
    world.nodes(1, cpu="2", prefix="more")
    eventually(lambda: bound(world, "first") == 3, 60)
    assert bound(world, "second") == 0
    # When it may be read no longer, pods that come join the group that is there.
    revoke(world, "ray")
    members(world, second, 1, first=3)
    world.nodes(1, cpu="3", prefix="last")
    eventually(lambda: bound(world, "second") == 4, 120)
    assert len(world.groups()) == 2
    assert group_of(world, second)["spec"]["minMember"] == 3


def test_the_right_to_get_owners_in_a_namespace_suffices_for_gangs_there(world: World, start: Start) -> None:
    define(world.api, released([("ray.io", "RayCluster")]))
    world.create(f"{CORE}/namespaces/{world.namespace}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    grant(world, "ClusterRole", "all", ALL)
    grant(world, "Role", "ray", rule("get"))
    world.nodes(1, cpu="2")
    start(kubeconfig=world.cluster.service_account_kubeconfig(world.namespace, ACCOUNT))
    made = cluster(world, "gang", 2)
    eventually(lambda: group_of(world, made)["spec"].get("minMember") == 3, 60)
    eventually(lambda: len(world.refused()) == 3, 60)
    assert bound(world, "gang") == 0
    world.nodes(1, cpu="1", prefix="more")
    eventually(lambda: bound(world, "gang") == 3, 60)
