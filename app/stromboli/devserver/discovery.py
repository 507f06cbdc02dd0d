"""The documents by which clients learn what the server serves: group lists, aggregated discovery, OpenAPI."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .resources import Resource, ResourceTable

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.1+stromboli-devserver",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
#: OpenAPI's second version as a message of Protobuf with no kinds in it (`swagger: "2.0"`): kubectl checks the objects
#: of a List by it, and leaves alone kinds that it does not find
OPENAPI_V2, OPENAPI_V2_TYPE = b"\n\x032.0", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_STATUS_VERBS = ["get", "patch", "update"]
_SUBRESOURCE_VERBS = ["create"]


def wants_aggregated(accept: str) -> bool:
    """Whether the client takes the aggregated document, in its stable version."""
    return any("as=APIGroupDiscoveryList" in kind and "v=v2;" in f"{kind};" for kind in accept.split(","))


def core_versions(address: str) -> dict[str, Any]:
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def group_list(resources: ResourceTable) -> dict[str, Any]:
    groups = [_group(name, versions) for name, versions in resources.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(resources: ResourceTable, name: str) -> dict[str, Any] | None:
    versions = resources.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None


def resource_list(resources: ResourceTable, group: str, version: str) -> dict[str, Any] | None:
    found = resources.groups().get(group, {}).get(version)
    if found is None:
        return None
    entries = [entry for resource in found for entry in _entries(resource)]
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }


def aggregated(resources: ResourceTable, *, core: bool) -> dict[str, Any]:
    """Everything about the core group, or about all others, in one document."""
    items = [
        {
            "metadata": {"name": name},
            "versions": [
                {
                    "version": version,
                    "resources": [_aggregated_entry(r) for r in found],
                    "freshness": "Current",
                }
                for version, found in versions.items()
            ],
        }
        for name, versions in resources.groups().items()
        if (name == "") is core
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def openapi_index(resources: ResourceTable) -> dict[str, Any]:
    """The address of the OpenAPI document of each group version."""
    paths = {
        path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={len(found)}"}
        for path, found in _by_api_path(resources).items()
    }
    return {"paths": paths}


def openapi_document(resources: ResourceTable, path: str) -> dict[str, Any] | None:
    """OpenAPI document for kubectl: the kinds that the server validates, and the schemas of CRDs."""
    found = _by_api_path(resources).get(path)
    if found is None:
        return None
    operations = {_object_path(path, resource): {"patch": _patch_operation(resource)} for resource in found}
    schemas = {
        f"{resource.kind}.{resource.version}": {
            **resource.schema,
            "x-kubernetes-group-version-kind": [_kind(resource)],
        }
        for resource in found
        if resource.schema
    }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": operations,
        "components": {"schemas": schemas},
    }


def _group(name: str, versions: Iterable[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _kind(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _entries(resource: Resource) -> Iterable[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    yield entry
    common = {"singularName": "", "namespaced": resource.namespaced}
    if resource.status:
        yield {"name": f"{resource.plural}/status", **common, "kind": resource.kind, "verbs": _STATUS_VERBS}
    for name, (body_group, body_version, kind) in resource.subresources.items():
        of = {"group": body_group, "version": body_version, "kind": kind}
        yield {"name": f"{resource.plural}/{name}", **common, **of, "verbs": _SUBRESOURCE_VERBS}


def _aggregated_entry(resource: Resource) -> dict[str, Any]:
    subresources: list[dict[str, Any]] = []
    if resource.status:
        subresources.append({"subresource": "status", "responseKind": _kind(resource), "verbs": _STATUS_VERBS})
    for name, (body_group, body_version, kind) in resource.subresources.items():
        of = {"group": body_group, "version": body_version, "kind": kind}
        subresources.append({"subresource": name, "responseKind": of, "verbs": _SUBRESOURCE_VERBS})
    return {
        "resource": resource.plural,
        "responseKind": _kind(resource),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
        "shortNames": list(resource.short_names),
        "categories": list(resource.categories),
        "subresources": subresources,
    }


def _by_api_path(resources: ResourceTable) -> dict[str, list[Resource]]:
    return {
        f"apis/{name}/{version}" if name else f"api/{version}": found
        for name, versions in resources.groups().items()
        for version, found in versions.items()
    }


def _object_path(path: str, resource: Resource) -> str:
    namespace = "namespaces/{namespace}/" if resource.namespaced else ""
    return f"/{path}/{namespace}{resource.plural}/{{name}}"


def _patch_operation(resource: Resource) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    return {
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _kind(resource),
    }
