"""CustomResourceDefinitions: the resource that a definition serves, and its status.

Of several versions only the storage version is served: there is no conversion between versions.
"""

from __future__ import annotations

from typing import Any

from .clock import timestamp
from .errors import invalid
from .resources import Column, Object, Resource


def custom_resource(definition: Object) -> Resource:
    """The resource type that a stored CustomResourceDefinition describes."""
    spec = definition["spec"]
    names = spec["names"]
    version = _storage_version(spec)
    subresources = version.get("subresources") or {}
    return Resource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        singular=names["singular"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in subresources,
        generation=True,
        unconditional_update=False,
        selectable=frozenset(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ()),
        custom=True,
        columns=tuple(_column(column) for column in version.get("additionalPrinterColumns") or ()),
        schema=(version.get("schema") or {}).get("openAPIV3Schema"),
    )


def checked_definition(resource: Resource, definition: Object) -> Object:
    """The definition with default names; Invalid (422) if it contradicts itself."""
    spec = definition.get("spec") or {}
    _check(resource, definition, spec)
    kind = spec["names"]["kind"]
    names = {"singular": kind.lower(), "listKind": f"{kind}List", **spec["names"]}
    return {**definition, "spec": {"conversion": {"strategy": "None"}, **spec, "names": names}}


def established(definition: Object) -> Object:
    """The status of a definition whose resource is served."""
    conditions = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    now = timestamp()
    return {
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
            for kind, reason, message in conditions
        ],
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": [_storage_version(definition["spec"])["name"]],
    }


def _check(resource: Resource, definition: Object, spec: dict[str, Any]) -> None:
    name = definition["metadata"]["name"]
    names = spec.get("names") or {}
    wanted = {
        "group": spec.get("group"),
        "names.plural": names.get("plural"),
        "names.kind": names.get("kind"),
    }
    found = [(f"spec.{path}", "Required value") for path, value in wanted.items() if not value]
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        found.append(("spec.scope", f'Unsupported value: "{spec.get("scope", "")}"'))
    if sum(bool(version.get("storage")) for version in spec.get("versions") or ()) != 1:
        found.append(("spec.versions", "Invalid value: must have exactly one version marked as storage version"))
    if not found and name != f"{names['plural']}.{spec['group']}":
        found.append(("metadata.name", f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'))
    if found:
        raise invalid(resource, name, found)


def _storage_version(spec: dict[str, Any]) -> dict[str, Any]:
    return next(version for version in spec["versions"] if version.get("storage"))


def _column(column: dict[str, Any]) -> Column:
    return Column(
        name=column["name"],
        path=column["jsonPath"],
        type=column["type"],
        format=column.get("format", ""),
        description=column.get("description", ""),
        priority=column.get("priority", 0),
    )
