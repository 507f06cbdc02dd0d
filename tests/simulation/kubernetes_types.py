"""Writes the fields and types of Kubernetes' kinds, as its Python client has them.

python -m tests.simulation.kubernetes_types > app/stromboli/simulation/kubernetes_types.json
"""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import kubernetes.client

#: kinds that are read, by the client's name of their model
MODELS = {
    "ResourceClaim": "ResourceV1ResourceClaim",
    **{
        kind: f"V1{kind}"
        for kind in (
            *("CSIDriver", "CSINode", "CSIStorageCapacity", "DaemonSet", "Deployment", "DeviceClass", "Job"),
            *("Namespace", "Node", "PersistentVolume"),
            *("PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "PriorityClass", "ReplicaSet"),
            *("ReplicationController", "ResourceQuota", "ResourceSlice", "StatefulSet", "StorageClass"),
            "VolumeAttachment",
        )
    },
}
#: models of older versions that say the same in other fields, which are read as well
OLDER = {"V1Device": "V1beta1Device", "V1DeviceRequest": "V1beta1DeviceRequest"}
#: fields that the client takes for text and that hold quantities
QUANTITIES = frozenset(
    (
        *("allocatable", "allocatedResources", "capacity", "consumedCapacity", "default", "divisor", "hard", "limits"),
        *("max", "maximumVolumeSize", "min", "overhead", "quantity", "requests", "sizeLimit", "step", "used"),
        *("V1Counter.value", "V1DeviceCapacity.value", "V1beta1DeviceCapacity.value", "V1beta1Counter.value"),
    )
)
SCALARS = {"str": "text", "int": "integer", "bool": "boolean", "datetime": "time", "object": "any", "float": "any"}


def table() -> dict[str, Any]:
    """`kinds`: the type of each kind that is read; `types`: type -> field -> type; `others`: all other kinds."""
    types: dict[str, dict[str, str]] = {}
    pending = list(MODELS.values())
    while pending:
        model = pending.pop()
        if model not in types:
            types[model] = _fields(model)
            bases = {field.lstrip("[]{}") for field in types[model].values()}
            pending += bases - {*SCALARS.values(), "quantity"}
    return {"kinds": MODELS, "types": dict(sorted(types.items())), "others": sorted(_kinds() - MODELS.keys())}


def _fields(model: str) -> dict[str, str]:
    found = getattr(kubernetes.client, model)
    own = {name: _type(model, name, found.openapi_types[key]) for key, name in found.attribute_map.items()}
    return dict(sorted(({**_fields(OLDER[model]), **own} if model in OLDER else own).items()))


def _type(model: str, field: str, written: str) -> str:
    """`text`, `integer`, ... or the name of a type, after `[]` for lists and `{}` for mappings."""
    if inner := re.fullmatch(r"List\[(.*)\]", written):
        return f"[]{_type(model, '', inner[1])}"
    if inner := re.fullmatch(r"Dict\[str, (.*)\]", written):
        return f"{{}}{_type(model, field, inner[1])}"
    if written == "str" and not QUANTITIES.isdisjoint((field, f"{model}.{field}")):
        return "quantity"
    return SCALARS.get(written, written)


def _kinds() -> set[str]:
    """The kinds of everything that has metadata."""
    names = {name for name in dir(kubernetes.client) if re.search(r"V[0-9]", name) and not name.endswith("List")}
    models = (getattr(kubernetes.client, name) for name in names)
    return {
        re.sub(r"^.*?V[0-9]+((alpha|beta)[0-9]+)?", "", model.__name__)
        for model in models
        if inspect.isclass(model) and {"kind", "api_version", "metadata"} <= getattr(model, "openapi_types", {}).keys()
    }


if __name__ == "__main__":
    print(json.dumps(table(), separators=(",", ":"), indent=0))
