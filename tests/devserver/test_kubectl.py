"""kubectl, old and new, against a server in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable

import yaml

from tests.contract.objects import ferry_definition

Kubectl = Callable[..., str]

MANIFESTS = yaml.safe_dump_all(
    [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/worker": ""}},
            "status": {"capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
        },
    ]
)
BINDING = json.dumps({"metadata": {"name": "web"}, "target": {"name": "n1"}})


def test_the_life_of_a_pod(kubectl: Kubectl) -> None:
    assert "pod/web created" in kubectl("apply", "-f", "-", stdin=MANIFESTS)
    assert "pod/web unchanged" in kubectl("apply", "-f", "-", stdin=MANIFESTS)
    assert kubectl("get", "pods").split()[5:9] == ["web", "0/1", "Pending", "0"]
    kubectl("create", "--raw", "/api/v1/namespaces/default/pods/web/binding", "-f", "-", stdin=BINDING)
    kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=20s")
    assert "1/1" in kubectl("get", "pods", "-o", "wide")
    assert "Node:         n1/" in kubectl("describe", "pod", "web")
    assert "worker" in kubectl("get", "nodes")
    kubectl("label", "pod", "web", "tier=front")
    assert kubectl("get", "pods", "-l", "tier=front", "-o", "name").strip() == "pod/web"
    assert "evicting pod default/web" in kubectl("drain", "n1", "--force")
    assert "SchedulingDisabled" in kubectl("get", "nodes")
    assert "No resources found" in kubectl("get", "pods")


def test_custom_resources(kubectl: Kubectl) -> None:
    definition = yaml.safe_dump(ferry_definition("sea.example.com"))
    kubectl("apply", "-f", "-", stdin=definition)
    kubectl("wait", "--for=condition=Established", "crd/ferries.sea.example.com", "--timeout=20s")
    ferry = {
        "apiVersion": "sea.example.com/v1",
        "kind": "Ferry",
        "metadata": {"name": "laurana"},
        "spec": {"route": "milazzo"},
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(ferry))
    assert kubectl("get", "fy").split() == ["NAME", "ROUTE", "CABINS", "laurana", "milazzo", "4"]
    kubectl("patch", "ferry", "laurana", "--type=merge", "-p", '{"spec":{"cabins":7}}')
    kubectl("wait", "--for=jsonpath={.spec.cabins}=7", "ferry/laurana", "--timeout=20s")
    assert "route" in kubectl("explain", "ferry.spec")
    assert "Route:" in kubectl("describe", "ferry", "laurana")
    kubectl("delete", "ferry", "laurana")
    assert "No resources found" in kubectl("get", "ferries")


def test_namespaces_and_events(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin='{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team"}}')
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "web.1", "namespace": "team"},
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": "team"},
        "reason": "Unschedulable",
        "message": "no node is large enough",
        "type": "Warning",
    }
    kubectl("create", "-f", "-", stdin=json.dumps(event))
    shown = kubectl("get", "events", "-n", "team")
    assert "Unschedulable" in shown
    assert "pod/web" in shown
    kubectl("delete", "namespace", "team", "--timeout=20s")
    assert "team" not in kubectl("get", "namespaces")


def test_dry_run_and_diff(kubectl: Kubectl) -> None:
    assert "(server dry run)" in kubectl("apply", "--dry-run=server", "-f", "-", stdin=MANIFESTS)
    assert "No resources found" in kubectl("get", "pods")
    kubectl("apply", "--server-side", "-f", "-", stdin=MANIFESTS)
    assert kubectl("diff", "-f", "-", stdin=MANIFESTS) == ""
