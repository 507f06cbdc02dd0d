"""kubectl, old and new, against a server in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.contract.objects import ferry_definition

pytestmark = pytest.mark.exhaustive

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


def test_a_list_of_objects_is_validated_and_created(kubectl: Kubectl) -> None:
    items = list(yaml.safe_load_all(MANIFESTS))
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    assert kubectl("apply", "-f", "-", stdin=listed).split()[:4] == ["node/n1", "created", "pod/web", "created"]


@pytest.mark.exhaustive
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


#: what typed clients write: the words of `kubectl create`
CREATED = {
    "namespace": ["ns", "research"],
    "job": ["job", "train", "--image=example.com/train:1", "--", "python", "-m", "train"],
    "cronjob": ["cronjob", "nightly", "--image=example.com/train:1", "--schedule=0 3 * * *"],
    "deployment": ["deployment", "web", "--image=example.com/web:1", "--replicas=0", "--port=80"],
    "configmap": ["configmap", "settings", "--from-literal=a=1", "--from-literal=b="],
    "secret": ["secret", "generic", "key", "--from-literal=token=\N{LATIN SMALL LETTER E WITH ACUTE}"],
    "serviceaccount": ["serviceaccount", "reader"],
    "service": ["service", "clusterip", "web", "--tcp=80:8080"],
    "quota": ["quota", "team", "--hard=cpu=4,memory=8Gi"],
    "priorityclass": ["priorityclass", "low", "--value=-5", "--preemption-policy=Never"],
    "pdb": ["pdb", "web", "--selector=app=web", "--min-available=50%"],
    "role": ["role", "reader", "--verb=get,list", "--resource=pods"],
    "rolebinding": ["rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader"],
    "clusterrole": ["clusterrole", "reader", "--verb=get", "--resource=nodes"],
    "clusterrolebinding": ["clusterrolebinding", "reader", "--clusterrole=reader", "--user=ann"],
}


def within(wanted: Any, found: Any) -> bool:
    """Whether all that is wanted was found; of what has no value no more is asked."""
    if isinstance(wanted, dict):
        return all(not value or within(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(wanted) == len(found) and all(map(within, wanted, found))
    return bool(wanted == found)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", CREATED)
def test_what_typed_clients_create_is_what_they_mean(shared_kubectl: Kubectl, kind: str) -> None:
    command, what, *words = CREATED[kind]
    meant = json.loads(shared_kubectl("create", command, what, "--dry-run=client", "-o", "json", *words))
    made = json.loads(shared_kubectl("create", command, what, "-o", "json", *words))
    assert made["metadata"]["uid"]
    assert within(meant, made), (meant, made)


def test_typed_clients_may_ask_what_they_may_do(shared_kubectl: Kubectl) -> None:
    assert shared_kubectl("auth", "can-i", "create", "pods").strip() == "yes"
