"""Which parts of the cluster and of policies a journal has: what scheduling reads, and nothing else.

Pods, nodes and the kinds that rules read are written with the fields that the core has, so there are no environments,
commands or arguments to leave out. Annotations may hold whole manifests, so only those are written that are listed here
or declared by plugins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import yaml

from stromboli import gate
from stromboli.api import objects
from stromboli.api.crds import KubeObject, Metadata
from stromboli.api.decisions import Bind, Decision
from stromboli.api.secrets import LEFT_OUT, names_secret, without_secrets
from stromboli.journal.wire import Condition
from stromboli.kube.attachments import DRIVER_PARAMETER
from stromboli.state.reads import Reads

T = TypeVar("T")

#: the conditions of pods on why one has no node, since when it has one, and why it is being removed
_PLACED, _LEAVES = "PodScheduled", "DisruptionTarget"
#: annotations that are read of objects other than pods, by the part before the slash
_DOMAINS = ("volcano.sh", "scheduling.volcano.sh", "scheduling.k8s.io", "stromboli.io")
_ANNOTATIONS = frozenset(
    (
        "sla-waiting-time",
        "volume.beta.kubernetes.io/storage-class",
        "volume.kubernetes.io/selected-node",
        "pv.kubernetes.io/bind-completed",
        "storage.alpha.kubernetes.io/migrated-plugins",
    )
)
_METADATA = ("name", "namespace", "uid", "generation", "creationTimestamp", "deletionTimestamp", "labels")
#: the fields of the models' metadata by what manifests call them
_FIELDS = {info.alias or name: name for name, info in Metadata.model_fields.items()}
_OWNER = ("apiVersion", "kind", "name", "uid", "controller")
_PARTS = ("spec", "status")
#: keys of a policy's `metrics` that are no secret
_METRICS = ("type", "interval")


class Redaction:
    """Leaves out fields that are not read."""

    def __init__(self, reads: Reads) -> None:
        """`reads` are the plugins' declarations."""
        declared = reads.annotations | reads.kept
        self._keys = _ANNOTATIONS | declared
        self._prefixes = (*(f"{domain}/" for domain in _DOMAINS), *(key for key in declared if key.endswith("/")))

    def annotations(self, given: Mapping[str, str] | None) -> dict[str, str]:
        """The annotations that are read."""
        return {
            key: value for key, value in (given or {}).items() if key in self._keys or key.startswith(self._prefixes)
        }

    def manifest(self, kind: str, obj: Any) -> dict[str, Any]:
        """A custom resource, or another object that is no pod and no node, as far as it is read."""
        if isinstance(obj, KubeObject):
            given = {name: getattr(obj, name) for name in obj.__pydantic_fields__}
            return {**given, "metadata": self._metadata_of(obj.metadata)}
        if isinstance(obj, msgspec.Struct):
            found = msgspec.to_builtins(obj)
        else:
            shape = gate.shape(kind)
            found = obj if shape is None else msgspec.to_builtins(msgspec.convert(obj, shape, strict=False))
            if shape is None:
                found = {part: obj[part] for part in _PARTS if part in obj} | {"metadata": obj.get("metadata")}
        if kind == "StorageClass":
            parameters = found.get("parameters") or {}
            found["parameters"] = {key: value for key, value in parameters.items() if key == DRIVER_PARAMETER}
        return {**without_parameters(found), "metadata": self._metadata(found.get("metadata") or {})}

    def _metadata_of(self, given: Metadata) -> dict[str, Any]:
        return self._metadata({key: getattr(given, name) for key, name in _FIELDS.items()})

    def _metadata(self, given: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: given[key] for key in _METADATA if given.get(key) is not None}
        kept["annotations"] = self.annotations(given.get("annotations"))
        owners = given.get("ownerReferences")
        if owners:
            kept["ownerReferences"] = _owners(owners)
        return kept


def _owners(given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: owner[key] for key in _OWNER if key in owner} for owner in given]


def conditions(of_pod: Sequence[objects.PodCondition]) -> Sequence[Condition]:
    """The conditions of a pod that are read."""
    if not of_pod:
        return ()
    # A set would have each text hashed, which was decoded a moment ago.
    return [
        (kind, each.status, each.reason, each.message, each.last_transition_time)
        for each in of_pod
        if (kind := each.type) == _PLACED or kind == _LEAVES
    ]


def spec(of_class: objects.PodSpec) -> objects.PodSpec:
    """Spec that decides where pods of a class are placed."""
    volumes = of_class.volumes
    if volumes and any(each.ephemeral for each in volumes):
        volumes = [msgspec.structs.replace(each, ephemeral={}) if each.ephemeral else each for each in volumes]
        of_class = msgspec.structs.replace(of_class, volumes=volumes)
    return of_class


def decision(decided: Decision) -> Decision:
    """A decision without the parameters for the drivers of its devices."""
    if not isinstance(decided, Bind) or not decided.claims:
        return decided
    claims = [
        msgspec.structs.replace(
            use, allocation=without_parameters(use.allocation), manifest=without_parameters(use.manifest)
        )
        for use in decided.claims
    ]
    return msgspec.structs.replace(decided, claims=claims)


def without_parameters(part: Any) -> Any:
    """Plain data without the opaque parameters of devices, which are their drivers' own and decide nothing."""
    if isinstance(part, Mapping):
        return {
            key: {**value, "parameters": {}}
            if key == "opaque" and isinstance(value, Mapping)
            else without_parameters(value)
            for key, value in part.items()
        }
    return [without_parameters(each) for each in part] if isinstance(part, list | tuple) else part


def policy(text: str) -> str:
    """A policy without the user names, passwords and tokens that it may hold; then its comments are gone, too."""
    document = yaml.safe_load(text)
    kept = _kept(document)
    metrics = kept.get("metrics") if isinstance(kept, dict) else None
    if isinstance(metrics, dict):
        kept["metrics"] = {key: metrics[key] for key in _METRICS if key in metrics}
    if kept == document and without_secrets(text) == text:
        return text
    return yaml.safe_dump(kept, sort_keys=False)


def _kept(part: Any) -> Any:
    """A part of a policy in which secrets are left out."""
    if isinstance(part, dict):
        return {key: LEFT_OUT if names_secret(str(key)) else _kept(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_kept(each) for each in part]
    return without_secrets(part) if isinstance(part, str) else part
