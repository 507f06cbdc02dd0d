"""Types and models that all custom resources share: quantities, metadata, selectors and conditions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictInt,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from stromboli.api import duration, keys, quantity
from stromboli.api.errors import InvalidObjectError
from stromboli.api.validation import field_path, problem, shown

SCHEDULING: Final = "scheduling.volcano.sh/v1beta1"
TOPOLOGY: Final = "topology.volcano.sh/v1alpha1"


def crd(**schema: Any) -> Any:
    """Schema keys that only the generated CRD has; the models do not check them."""
    return Field(json_schema_extra=schema)


def _resource_quantity(value: object) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"should be a quantity, not {shown(value)}")
    if quantity.parse(value) < 0:
        raise ValueError(f"should not be negative, but is {shown(value)}")
    return value


Quantity: TypeAlias = Annotated[
    str | int | float,
    PlainValidator(_resource_quantity),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 0,
            "maxLength": 64,
            "pattern": r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?$",
        }
    ),
]
#: resource name -> amount as written
ResourceList: TypeAlias = Annotated[dict[str, Quantity], crd(maxProperties=128)]


def _run_time(text: str) -> str:
    if text and duration.parse(text) < 0:
        raise ValueError(f"should not be negative, but is {shown(text)}")
    return text


#: a duration as written, empty for none
RunTime: TypeAlias = Annotated[
    str,
    AfterValidator(_run_time),
    crd(maxLength=64, pattern=r"^(0|([0-9]+(\.[0-9]*)?(ns|us|ms|s|m|h))+)?$"),
]
Name: TypeAlias = Annotated[str, crd(maxLength=253)]
DNSName: TypeAlias = Annotated[
    str, crd(maxLength=253, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$")
]
Int32: TypeAlias = Annotated[StrictInt, Field(ge=-(2**31), le=2**31 - 1), crd(format="int32")]
Int64: TypeAlias = Annotated[StrictInt, Field(ge=-(2**63), le=2**63 - 1), crd(format="int64")]
Count: TypeAlias = Annotated[Int32, crd(minimum=0)]


class KubeModel(BaseModel):
    """Base of the models: camelCase in manifests, snake_case in Python; unknown fields are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, dict) and None in data.values():
            return {key: value for key, value in data.items() if value is not None}
        return data


class Metadata(KubeModel):
    """The fields of `metadata` that the scheduler reads."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: AwareDatetime | None = None
    deletion_timestamp: AwareDatetime | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: list[dict[str, Any]] = Field(default_factory=list)

    @cached_property
    def created(self) -> float:
        """Time of creation in seconds since the epoch; 0 for a manifest that no API server has seen."""
        return self.creation_timestamp.timestamp() if self.creation_timestamp else 0.0


class KubeObject(KubeModel):
    """An object of one of the custom resources."""

    #: plural name of the resource, as in API paths
    plural: ClassVar[str]

    api_version: str
    kind: str
    metadata: Metadata

    @property
    def key(self) -> str:
        """`NAMESPACE/NAME`, or the name alone for a cluster-scoped object."""
        meta = self.metadata
        return keys.key(meta.namespace, meta.name)

    @classmethod
    def parse(cls, manifest: Mapping[str, Any], where: str = "") -> Self:
        """Read a manifest. `where` names it in errors, by default its kind and key.

        Raises InvalidObjectError with the path of the first field that cannot be read.
        """
        try:
            return cls.model_validate(manifest)
        except ValidationError as err:
            first = err.errors(include_url=False)[0]
            raise InvalidObjectError(
                where or _described(cls.__name__, manifest), field_path(first["loc"]), problem(first)
            ) from None

    def manifest(self) -> dict[str, Any]:
        """The object as a manifest, with only the fields that were set."""
        return {"apiVersion": self.api_version, "kind": self.kind} | dumped(self)


def dumped(model: KubeModel) -> dict[str, Any]:
    """The fields that were set, by their Kubernetes names, ready for JSON."""
    # What model_dump does, without the cost of its keyword defaults: sessions dump thousands of statuses.
    found: dict[str, Any] = model.__pydantic_serializer__.to_python(
        model, mode="json", by_alias=True, exclude_unset=True
    )
    return found


def _described(kind: str, manifest: object) -> str:
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    names = [metadata.get("namespace"), metadata.get("name")] if isinstance(metadata, Mapping) else []
    return f"{kind} {'/'.join(str(name) for name in names if name)}".rstrip()


class LabelRequirement(KubeModel):
    """One requirement on a label."""

    key: str
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """Operator that compares the label's value."""
    values: list[str] = Field(default_factory=list)
    """The values that In and NotIn compare with."""


class LabelSelector(KubeModel):
    """Requirements on labels, all of which must hold."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    """Labels and the values that they must have."""
    match_expressions: list[LabelRequirement] = Field(default_factory=list)
    """Further requirements on labels."""


class Condition(KubeModel):
    """One aspect of an object's state."""

    type: str
    """The aspect; an object has at most one condition of each type."""
    status: str = "Unknown"
    """True, False or Unknown."""
    reason: str = ""
    """The reason in one CamelCase word."""
    message: str = ""
    """The reason as a sentence."""
    last_transition_time: AwareDatetime | None = None
    """When the status last changed."""
    observed_generation: Annotated[Int64, crd(minimum=0)] = 0
    """The generation of the object that the condition is about."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The condition without times and transition IDs."""
        return self.type, self.status, self.reason, self.message
