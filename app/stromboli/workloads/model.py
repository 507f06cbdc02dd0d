"""Row of the table of kinds: where in an object its roles, numbers and names are."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from stromboli.api.errors import InvalidObjectError
from stromboli.api.validation import describe, did_you_mean, field_path, problem

API_VERSION = "stromboli.io/v1alpha1"
KIND = "WorkloadKind"
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def _path(text: str) -> str:
    if text and _PATH.fullmatch(text) is None:
        raise ValueError(f"should be names of fields with dots between them, such as spec.replicas, not {text!r}")
    return text


Path: TypeAlias = Annotated[str, AfterValidator(_path)]
"""Names of fields with dots between them; empty for none."""


class _Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )


class Starts(StrEnum):
    """The way in which the pods of a workload start."""

    together = "together"
    one_by_one = "oneByOne"
    in_parts = "inParts"


class RoleFields(_Model):
    """Where the roles of a workload are: one, or one for each entry of a list or mapping."""

    each: Path = ""
    """The list or mapping with an entry for each role; the other paths begin at an entry. Without it, at the object."""
    name: str = ""
    """The name of the role. With `each`, the path of its name in an entry; the key in a mapping when empty."""
    replicas: Path = "replicas"
    """The number of replicas, 1 where there is none."""
    min_replicas: Path = ""
    """The number of replicas that have to start together; all where there is none."""
    pods_per_replica: Path = ""
    """The number of pods of a replica, 1 where there is none."""
    template: Path = "template"
    """The template of the pods."""
    first: Path = ""
    """The number at the end of the first pod's name, 0 where there is none."""


class Part(_Model):
    """An object that a controller makes of a workload: one with an embedded spec, or one embedded whole."""

    api_version: str = ""
    """Its API group and version."""
    kind: str = ""
    """Its kind."""
    spec: Path = ""
    """Where in the workload its spec is."""
    metadata: Path = ""
    """Where in the workload its labels and annotations are."""
    each: Path = ""
    """The list with an entry for each object that is embedded whole."""
    whole: Path = ""
    """Where in an entry the object is."""
    unless: Path = ""
    """Of a workload with roles: where in an entry it is said which of these its pods are, so that it is not made."""


class WorkloadKind(_Model):
    """A kind of workload."""

    group: str
    """The API group, empty for Kubernetes' core."""
    kind: str
    """The kind."""
    plural: str
    """The name of the resource in API paths."""
    starts: Starts = Starts.together
    """together: all of its pods are a gang. oneByOne: they share a PodGroup that starts with one pod. inParts: what it
    makes is a workload of its own."""
    roles: tuple[RoleFields, ...] = ()
    """Where its roles are."""
    direct: bool = False
    """Whether it makes all of its pods itself: those of a Job that it makes, as to clean up after it, are a workload of
    their own."""
    reader: str = ""
    """The function that reads its roles, for kinds that need more than paths."""
    role_labels: tuple[str, ...] = ()
    """Labels of its pods that name their role; the first one that names a known role counts."""
    makes: tuple[Part, ...] = ()
    """Objects that `simulate` makes of it, for kinds that start in parts."""
    maker: str = ""
    """The function that makes it, for kinds that need more than paths."""
    scheduler_name: Path = ""
    """The scheduler of pods whose template names none."""
    suspend: Path = ""
    """Whether it is to have no pods for now."""
    min_member: Path = ""
    """The number of pods that start together, if users set it."""
    min_resources: Path = ""
    """Amounts that have to be free before it is admitted, if users set them."""
    queue: Path = ""
    """The name of its queue."""
    priority_class: Path = ""
    """The name of its PriorityClass."""
    run_time: Path = ""
    """After how many seconds it is ended."""
    network_topology: Path = ""
    """Required or preferred proximity of its pods, as in a PodGroup."""
    group_name: str = ""
    """The name of the PodGroup that its own controller makes, with {name} for the name of the workload."""
    made_by: str = ""
    """When its own controller makes the PodGroup, for documentation."""
    gang: str = ""
    """Pods that start together, for documentation."""


class _Metadata(BaseModel):
    name: str = ""


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    apiVersion: Literal["stromboli.io/v1alpha1"]  # noqa: N815
    kind: Literal["WorkloadKind"]
    metadata: _Metadata = Field(default_factory=_Metadata)
    spec: dict[str, Any]


def is_workload_kind(document: object) -> bool:
    """Whether a document is a manifest of kind WorkloadKind."""
    return isinstance(document, dict) and document.get("kind") == KIND


def parse(manifest: dict[str, Any], where: str = "") -> WorkloadKind:
    """The row of a manifest. Raises InvalidObjectError, which names the field and what it may be."""
    where = where or describe(KIND, manifest)
    try:
        return row(_Manifest.model_validate(manifest).spec, where, "spec")
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        raise InvalidObjectError(where, field_path(first["loc"]), problem(first)) from None


def row(fields: dict[str, Any], where: str, prefix: str = "") -> WorkloadKind:
    """A row of its fields. Raises InvalidObjectError."""
    try:
        return WorkloadKind.model_validate(fields)
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        told = problem(first)
        if first["type"] == "extra_forbidden":
            model = RoleFields if first["loc"][:1] == ("roles",) else WorkloadKind
            known = [field.alias or name for name, field in model.model_fields.items()]
            told = f"unknown field{did_you_mean(str(first['loc'][-1]), known)}"
        raise InvalidObjectError(where, field_path(first["loc"], prefix), told) from None
