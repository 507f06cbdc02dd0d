"""What is in the way is told with its number, and with what those can do who may."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import stromboli

ZONE = "topology.kubernetes.io/zone"


def node(name: str, labels: dict[str, str] | None = None, **resources: str) -> dict[str, Any]:
    allocatable = {"cpu": "8", "memory": "8Gi", "pods": "20", **resources}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels or {}}, "status": {"allocatable": allocatable}}


def pod(name: str = "a", asks: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1"} | (asks or {}), "limits": asks or {}}
    containers = [{"name": "main", "image": "x", "resources": resources}]
    given = {"schedulerName": "stromboli", "containers": containers, **spec}
    return {"kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": given}


def said(folder: Path, *of: dict[str, Any]) -> str:
    """What is said of pod a, in one line."""
    (folder / "all.json").write_text(json.dumps({"kind": "List", "items": list(of)}))
    return " ".join(stromboli("why", "pod", "a", "-f", folder / "all.json").output.split())


@pytest.mark.parametrize(
    ("operator", "values", "told"),
    [
        ("Gt", ["128"], "no node has memory-gb above 128 (nodes have 64)"),
        ("Lt", ["32"], "no node has memory-gb below 32 (nodes have 64)"),
        ("In", ["128", "256"], "no node has memory-gb: 128 or 256 (nodes have 64)"),
    ],
)
def test_labels_that_no_node_has_are_told_however_they_are_required(
    tmp_path: Path, operator: str, values: list[str], told: str
) -> None:
    terms = [{"matchExpressions": [{"key": "memory-gb", "operator": operator, "values": values}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert told in said(tmp_path, node("n", {"memory-gb": "64"}), pod(affinity=affinity))


def test_a_label_that_has_to_be_there_is_told(tmp_path: Path) -> None:
    terms = [{"matchExpressions": [{"key": "local-ssd", "operator": "Exists"}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert "no node has the label local-ssd " in said(tmp_path, node("n"), pod(affinity=affinity))


def test_a_spread_over_more_zones_than_there_are_is_told_how_many_there_are(tmp_path: Path) -> None:
    spread = {"maxSkew": 1, "minDomains": 3, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "web"}}
    others = [pod(f"o{number}", nodeName=f"n{number}") for number in range(2)]
    nodes = [node(f"n{number}", {ZONE: f"z{number}"}) for number in range(2)]
    text = said(tmp_path, *nodes, *others, pod(topologySpreadConstraints=[spread]))
    assert f"user: set minDomains: 2 in the spread by {ZONE}, as there are no more -> 1 pod bound" in text


def test_who_is_to_make_a_volume_is_told_of_a_claim_that_is_bound_at_once(tmp_path: Path) -> None:
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "home"}, "spec": {"storageClassName": "fast"}}
    claim["spec"] |= {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    fast = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}}
    fast |= {"provisioner": "disk.example.com", "volumeBindingMode": "Immediate"}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "home"}}]
    text = said(tmp_path, node("n"), fast, claim, pod(volumes=volumes))
    assert (
        "admin: have disk.example.com (StorageClass fast) make the volume of PersistentVolumeClaim default/home" in text
    )
    assert "kubectl describe pvc home -n default says what keeps it from that" in text


def test_a_part_of_a_card_is_no_misspelt_card(tmp_path: Path) -> None:
    cards = node("g", **{"nvidia.com/gpu": "8"})
    text = said(tmp_path, cards, pod(asks={"nvidia.com/mig-1g.5gb": "1"}))
    assert "instead of nvidia.com/mig-1g.5gb" not in text
    assert "admin: add 1 node like g with 1 nvidia.com/mig-1g.5gb -> 1 pod bound" in text
    parts = node("p", **{"nvidia.com/mig-2g.10gb": "8"})
    text = said(tmp_path, cards, parts, pod(asks={"nvidia.com/mig-1g.5gb": "1"}))
    assert "user: ask for nvidia.com/mig-2g.10gb instead of nvidia.com/mig-1g.5gb -> 1 pod bound" in text


def test_what_no_api_server_takes_is_told_of_what_none_has_seen(tmp_path: Path) -> None:
    half = pod(asks={"nvidia.com/gpu": "0.5"})
    cards = node("g", **{"nvidia.com/gpu": "8"})
    told = "should be a whole number, not '0.5', for which an API server refuses it"
    assert told in said(tmp_path, cards, half)
    half["metadata"]["uid"] = "1"
    assert told not in said(tmp_path, cards, half)


def test_cards_without_a_limit_are_told_as_no_api_server_takes_them(tmp_path: Path) -> None:
    wanting = pod()
    wanting["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    text = said(tmp_path, node("g", **{"nvidia.com/gpu": "8"}), wanting)
    assert "Pod default/a: container main requests nvidia.com/gpu and has no limit of it" in text


def test_a_selector_of_a_runtime_class_is_told_with_the_class(tmp_path: Path) -> None:
    kata = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata"}
    kata["scheduling"] = {"nodeSelector": {"kata": "true"}}
    text = said(tmp_path, node("n"), kata, pod(runtimeClassName="kata"))
    assert (
        "user: drop kata: true from nodeSelector, or runtimeClassName: kata where that adds it -> 1 pod bound" in text
    )
