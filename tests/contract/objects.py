"""Manifests that the contract tests create."""

from __future__ import annotations

from typing import Any

from tests.contract.client import Json


def ferry_definition(group: str) -> Json:
    """Ferries: a cluster-scoped custom resource with defaults, limits, printer columns and a status."""
    spec = {
        "type": "object",
        "required": ["route"],
        "properties": {
            "route": {"type": "string", "minLength": 1, "pattern": "^[a-z-]+$"},
            "cabins": {"type": "integer", "default": 4, "minimum": 1, "maximum": 100},
            "flag": {"type": "string", "enum": ["IT", "GR"], "default": "IT"},
            "fuel": {"x-kubernetes-int-or-string": True},
            "crew": {"type": "array", "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "shift": {"type": "string", "default": "day"}}}},
            "cargo": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }  # fmt: skip
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version: dict[str, Any] = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "Route", "type": "string", "jsonPath": ".spec.route"},
            {"name": "Cabins", "type": "integer", "jsonPath": ".spec.cabins"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1},
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"ferries.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "ferries", "kind": "Ferry", "shortNames": ["fy"]},
            "versions": [version],
        },
    }


def pod(name: str, **spec: Any) -> Json:
    """A pod of one container that asks for a core."""
    container = {"name": "main", "image": "example.com/main:1", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def config_map(name: str, **labels: str) -> Json:
    """A ConfigMap with some data, the simplest object that can be written."""
    return {"metadata": {"name": name, "labels": labels}, "data": {"port": "8080", "host": "lipari"}}
