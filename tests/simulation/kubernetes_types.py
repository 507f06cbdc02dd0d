"""Writes the fields and types of Kubernetes' kinds, as its Python client has them and as the version before it had.

The client's version is in constraints.txt: 37 is that of Kubernetes 1.37. `tests/e2e/test_kubernetes_types.py` compares
with what the API server of the end-to-end tests says of its kinds; fields that only it has go into EARLIER.

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
            *("CSIDriver", "CSINode", "CSIStorageCapacity", "DaemonSet", "Deployment", "DeviceClass"),
            *("DeviceTaintRule", "Job", "LimitRange", "Namespace", "Node", "PersistentVolume"),
            "PersistentVolumeClaim",
            "Pod",
            *("PodDisruptionBudget", "PriorityClass", "ReplicaSet", "ReplicationController", "ResourceQuota"),
            *("ResourceSlice", "RuntimeClass", "StatefulSet", "StorageClass", "VolumeAttachment"),
        )
    },
}
#: models of older versions that say the same in other fields, which are read as well
OLDER = {"V1Device": "V1beta1Device", "V1DeviceRequest": "V1beta1DeviceRequest"}
#: models that docs/kubernetes.md describes beside those of the kinds that are read
DESCRIBED = ("V1ResourceClaimTemplate", "V1beta1PodGroup", "V1beta1Workload")
#: fields of Kubernetes 1.36 that 1.37 has no longer
EARLIER = {
    "V1Device": {"nodeAllocatableResourceMappings": "{}any"},
    "V1beta1BasicDevice": {"nodeAllocatableResourceMappings": "{}any"},
    "V1NodeAllocatableResourceClaimStatus": {"resources": "{}quantity"},
}
#: fields that the client takes for text and that hold quantities
QUANTITIES = frozenset(
    (
        *("allocatable", "allocatedResources", "capacity", "capacityMultiplier", "consumedCapacity", "default"),
        *("defaultRequest", "maxLimitRequestRatio"),
        *("deviceMultiplier", "divisor", "hard", "limits", "max", "maximumVolumeSize", "min", "overhead"),
        *("perContainer", "perPod", "podFixed", "quantity", "requests", "sizeLimit", "step", "used", "validValues[]"),
        *("V1Counter.value", "V1DeviceCapacity.value", "V1beta1DeviceCapacity.value", "V1beta1Counter.value"),
    )
)
SCALARS = {"str": "text", "int": "integer", "bool": "boolean", "datetime": "time", "object": "any", "float": "any"}


def table() -> dict[str, Any]:
    """`kinds`: the type of each kind that is read; `types`: type -> field -> type; `others`: all other kinds."""
    types: dict[str, dict[str, str]] = {}
    pending = [*MODELS.values(), *DESCRIBED]
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
    older = _fields(OLDER[model]) if model in OLDER else {}
    return dict(sorted({**older, **EARLIER.get(model, {}), **own}.items()))


def _type(model: str, field: str, written: str) -> str:
    """`text`, `integer`, ... or the name of a type, after `[]` for lists and `{}` for mappings."""
    if inner := re.fullmatch(r"List\[(.*)\]", written):
        return f"[]{_type(model, f'{field}[]', inner[1])}"
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
