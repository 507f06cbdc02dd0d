"""The custom resources: Queue, PodGroup and HyperNode, with the fields that Volcano's have.

The models read what the API server or a file holds. Unknown fields pass and null means absent, as in
Kubernetes; of what is known, types and quantities are checked. Bounds that only admission enforces stand
beside the fields as `crd(...)`, rules across fields in `crd_schema`: they go into the generated
CustomResourceDefinitions and cost nothing here. A Python default is what the scheduler assumes when a field
is absent; the CRD's default differs where a manifest that no API server has seen means something else: a
weight of 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    StrictInt,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from stromboli.api import keys, quantity
from stromboli.api.errors import InvalidObjectError
from stromboli.api.validation import field_path, problem, shown

SCHEDULING: Final = "scheduling.volcano.sh/v1beta1"
#: the annotation of a queue that was closed with its parent, and opens with it again
CLOSED_BY_PARENT: Final = "volcano.sh/closed-by-parent"
TOPOLOGY: Final = "topology.volcano.sh/v1alpha1"


def crd(**schema: Any) -> Any:
    """Keys that a field has in the generated CRD only; the models do not check them."""
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
#: amounts by resource name, as written
ResourceList: TypeAlias = Annotated[dict[str, Quantity], crd(maxProperties=128)]

Name: TypeAlias = Annotated[str, crd(maxLength=253)]
DNSName: TypeAlias = Annotated[
    str, crd(maxLength=253, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$")
]
Int32: TypeAlias = Annotated[StrictInt, Field(ge=-(2**31), le=2**31 - 1), crd(format="int32")]
Int64: TypeAlias = Annotated[StrictInt, Field(ge=-(2**63), le=2**63 - 1), crd(format="int64")]
Count: TypeAlias = Annotated[Int32, crd(minimum=0)]


class PodGroupPhase(StrEnum):
    """Phases of a PodGroup; a new one has none."""

    Pending = "Pending"
    Running = "Running"
    Unknown = "Unknown"
    Inqueue = "Inqueue"
    Completed = "Completed"


class QueueState(StrEnum):
    """States of a Queue. One that is not Open takes no new work."""

    Open = "Open"
    Closed = "Closed"
    Closing = "Closing"
    Unknown = "Unknown"


class KubeModel(BaseModel):
    """camelCase outside, snake_case inside; unknown fields pass."""

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
    """What the scheduler reads of `metadata`."""

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
        """When it was created, in seconds since the epoch; 0 for what has not been."""
        return self.creation_timestamp.timestamp() if self.creation_timestamp else 0.0


class KubeObject(KubeModel):
    """An object with a name."""

    #: how the group's API names the collection
    plural: ClassVar[str]

    api_version: str
    kind: str
    metadata: Metadata

    @property
    def key(self) -> str:
        """`NAMESPACE/NAME`, or the name alone of what has no namespace."""
        meta = self.metadata
        return keys.key(meta.namespace, meta.name)

    @classmethod
    def parse(cls, manifest: Mapping[str, Any], where: str = "") -> Self:
        """Read a manifest. `where` names it in errors, by default with its kind and key.

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
        """The object as a manifest, with the fields that were set and no others."""
        return {"apiVersion": self.api_version, "kind": self.kind} | dumped(self)


def dumped(model: KubeModel) -> dict[str, Any]:
    """The fields that were set, under their Kubernetes names and ready for JSON."""
    # As model_dump does, without its thirteen defaults: statuses are dumped by the thousand.
    found: dict[str, Any] = model.__pydantic_serializer__.to_python(
        model, mode="json", by_alias=True, exclude_unset=True
    )
    return found


def _described(kind: str, manifest: object) -> str:
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    names = [metadata.get("namespace"), metadata.get("name")] if isinstance(metadata, Mapping) else []
    return f"{kind} {'/'.join(str(name) for name in names if name)}".rstrip()


class LabelRequirement(KubeModel):
    """One condition on a label."""

    key: str
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """What is asked of it."""
    values: list[str] = Field(default_factory=list)
    """The values for In and NotIn."""


class LabelSelector(KubeModel):
    """Conditions on labels, all of which must hold."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    """Labels with their values."""
    match_expressions: list[LabelRequirement] = Field(default_factory=list)
    """Other conditions on labels."""


class NodeGroupTerms(KubeModel):
    """Names of node groups: the value of the node label `volcano.sh/nodegroup-name`."""

    required: list[str] = Field(default_factory=list, alias="requiredDuringSchedulingIgnoredDuringExecution")
    """Groups that must be used, or must not in an anti-affinity."""
    preferred: list[str] = Field(default_factory=list, alias="preferredDuringSchedulingIgnoredDuringExecution")
    """Groups that are used first, or last in an anti-affinity."""


class QueueAffinity(KubeModel):
    """On which node groups the pods of a queue run."""

    node_group_affinity: NodeGroupTerms | None = None
    """Groups that its pods run on."""
    node_group_anti_affinity: NodeGroupTerms | None = None
    """Groups that they keep away from."""


class Guarantee(KubeModel):
    """What is kept for a queue even while it does not use it."""

    resource: ResourceList = Field(default_factory=dict)
    """Amounts that no other queue may take."""


class ClusterShare(KubeModel):
    """A cluster to which jobs of the queue may be forwarded. The scheduler does not read it."""

    name: str = ""
    """Name of the cluster."""
    weight: Int32 = 0
    """Its part of the jobs that are forwarded, relative to the other clusters."""
    capacity: ResourceList = Field(default_factory=dict)
    """What the queue may use there."""


class QueueSpec(KubeModel):
    """What a queue may use."""

    weight: Annotated[Int32, crd(default=1, minimum=1, maximum=65535)] = 0
    """Share of what the guarantees leave of the cluster, relative to the other queues (proportion)."""
    capability: ResourceList | None = None
    """Hard upper limit. A resource that is not named is not limited."""
    deserved: ResourceList | None = None
    """What the queue may use whatever others ask for; above it, others can reclaim (capacity)."""
    guarantee: Guarantee = Field(default_factory=Guarantee)
    """What is kept for the queue even while it does not use it."""
    reclaimable: StrictBool | None = None
    """Whether other queues may take back what this one uses above its share. Absent means yes."""
    parent: DNSName = ""
    """Name of the parent queue; absent means root."""
    priority: Count = 0
    """A queue of a larger priority is served earlier and reclaimed from later."""
    affinity: QueueAffinity = Field(default_factory=QueueAffinity)
    """On which node groups the pods of the queue run (nodegroup)."""
    type: Name = ""
    """Free text. The scheduler does not read it."""
    dequeue_strategy: Annotated[Literal["fifo", "traverse"], crd(default="traverse")] = "traverse"
    """Whether a job that does not fit holds up those behind it (fifo) or is passed over (traverse)."""
    extend_clusters: list[ClusterShare] = Field(default_factory=list)
    """Clusters to which jobs of the queue may be forwarded. The scheduler does not read it."""


class Reservation(KubeModel):
    """Nodes and amounts set aside for a queue. The scheduler does not write it."""

    nodes: list[str] = Field(default_factory=list)
    """Names of nodes."""
    resource: ResourceList = Field(default_factory=dict)
    """Amounts."""


class Condition(KubeModel):
    """One aspect of an object's state."""

    type: str
    """What the condition is about; an object has one of each type."""
    status: str = "Unknown"
    """True, False or Unknown."""
    reason: str = ""
    """Why, in one word."""
    message: str = ""
    """Why, for people."""
    last_transition_time: AwareDatetime | None = None
    """When the status last changed."""
    observed_generation: Annotated[Int64, crd(minimum=0)] = 0
    """The generation of the object that the condition is about."""

    @property
    def shown(self) -> tuple[str, ...]:
        """What it says: times and transition ids aside."""
        return self.type, self.status, self.reason, self.message


class QueueStatus(KubeModel):
    """What the pods of a queue hold."""

    state: Annotated[str, crd(enum=list(QueueState))] = ""
    """Open takes work, Closed and Closing take none."""
    allocated: ResourceList = Field(default_factory=dict)
    """The sum of what the pods of the queue and of its descendants hold."""
    pending: Count = 0
    """Number of PodGroups that are Pending."""
    inqueue: Count = 0
    """Number of PodGroups that are Inqueue."""
    running: Count = 0
    """Number of PodGroups that are Running."""
    completed: Count = 0
    """Number of PodGroups that are Completed."""
    unknown: Count = 0
    """Number of PodGroups that are Unknown."""
    reservation: Reservation | None = None
    """Nodes and amounts set aside. The scheduler does not write it."""
    conditions: list[Condition] = Field(default_factory=list)
    """Ready: whether it takes new work. Overused: whether it gets nothing more. Others: why it does not work as its
    spec says."""


class Queue(KubeObject):
    """A queue: its share of the cluster, and what its pods hold."""

    plural: ClassVar[str] = "queues"

    api_version: Literal["scheduling.volcano.sh/v1beta1"] = SCHEDULING
    kind: Literal["Queue"] = "Queue"
    spec: Annotated[QueueSpec, crd(default={})] = Field(default_factory=QueueSpec)
    status: QueueStatus = Field(default_factory=QueueStatus)

    @property
    def closed_by_parent(self) -> bool:
        """Whether it was closed with its parent, and opens with it again."""
        return self.metadata.annotations.get(CLOSED_BY_PARENT) == "true"


class NetworkTopology(KubeModel):
    """How close together pods are placed, in tiers of HyperNodes. Without a tier it asks for nothing hard."""

    mode: Annotated[Literal["hard", "soft"], crd(default="hard")] = "hard"
    """hard: stay within the tier or wait. soft: prefer a low tier."""
    highest_tier_allowed: Annotated[Int32, crd(minimum=0)] | None = None
    """Number of the highest tier that the pods may span."""
    highest_tier_name: Name = ""
    """Name of that tier, instead of its number."""


class SubGroupPolicy(KubeModel):
    """Divides a PodGroup into sub groups that are gangs and placed together."""

    name: Name = ""
    """Name of the policy."""
    label_selector: LabelSelector | None = None
    """Pods that the policy is about."""
    match_label_keys: Annotated[list[str], crd(**{"x-kubernetes-list-type": "atomic"})] = Field(default_factory=list)
    """Pods with the same values of these labels are a sub group. Without keys there is none."""
    network_topology: NetworkTopology | None = None
    """How close together the pods of a sub group are placed."""
    sub_group_size: Annotated[Int32, crd(default=1, minimum=1)] = 1
    """Number of pods that a sub group needs to start."""
    min_sub_groups: Annotated[Int32, crd(default=0, minimum=0)] = 0
    """Number of sub groups that the PodGroup needs to start."""


class PodGroupSpec(KubeModel):
    """What a gang needs to start."""

    min_member: Count = 0
    """Number of pods that start together or not at all."""
    min_task_member: dict[str, Count] = Field(default_factory=dict)
    """Number of pods of each role (`volcano.sh/task-spec`) that start together or not at all."""
    queue: Annotated[DNSName, crd(default="default")] = "default"
    """Name of the queue that the PodGroup runs in."""
    priority_class_name: Name = ""
    """Name of the PriorityClass; absent means the global default."""
    min_resources: ResourceList | None = None
    """What must be there before the PodGroup is admitted to its queue; absent, it is always admitted."""
    network_topology: NetworkTopology | None = None
    """How close together the pods are placed."""
    sub_group_policy: Annotated[list[SubGroupPolicy], crd(maxItems=10_000)] = Field(default_factory=list)
    """Divides the PodGroup into sub groups; the first policy that selects a pod counts."""


class PodGroupCondition(Condition):
    """One aspect of a PodGroup's state."""

    transition_id: str = Field(default="", alias="transitionID")
    """Identifies the session in which the condition was last written."""


class PodGroupStatus(KubeModel):
    """How far a gang has come."""

    phase: Annotated[str, crd(enum=list(PodGroupPhase))] = ""
    """Pending, Inqueue (admitted), Running, Completed, or Unknown: some pods run and others cannot."""
    conditions: list[PodGroupCondition] = Field(default_factory=list)
    """Why the PodGroup does not run, among others."""
    running: Count = 0
    """Number of pods that are running."""
    succeeded: Count = 0
    """Number of pods that have succeeded."""
    failed: Count = 0
    """Number of pods that have failed."""


class PodGroup(KubeObject):
    """A gang: pods that start together or not at all."""

    plural: ClassVar[str] = "podgroups"

    api_version: Literal["scheduling.volcano.sh/v1beta1"] = SCHEDULING
    kind: Literal["PodGroup"] = "PodGroup"
    spec: Annotated[PodGroupSpec, crd(default={})] = Field(default_factory=PodGroupSpec)
    status: PodGroupStatus = Field(default_factory=PodGroupStatus)

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self.spec.queue or "default"


class ExactMatch(KubeModel):
    """Selects one member by its name."""

    name: Annotated[DNSName, crd(minLength=1)]
    """The member's name."""


class RegexMatch(KubeModel):
    """Selects members in whose names the expression is found."""

    pattern: Annotated[str, crd(minLength=1, maxLength=253)]
    """The expression (RE2)."""


class MemberSelector(KubeModel):
    """Selects members in exactly one of three ways."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    exact_match: ExactMatch | None = None
    """By name."""
    regex_match: RegexMatch | None = None
    """By an expression that is found in the name (RE2 syntax, not anchored)."""
    label_match: LabelSelector | None = None
    """By labels; an empty selector selects nothing."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        ways = (self.exact_match, self.regex_match, self.label_match)
        if len(ways) - ways.count(None) != 1:
            raise ValueError("exactly one of exactMatch, regexMatch and labelMatch is needed")
        return self


class Member(KubeModel):
    """Nodes or HyperNodes that belong to a HyperNode."""

    type: Literal["Node", "HyperNode"]
    """What is selected."""
    selector: MemberSelector
    """Which of them."""


class HyperNodeSpec(KubeModel):
    """Which nodes are close together."""

    tier: Annotated[Int32, crd(minimum=0)]
    """The higher the tier, the farther apart the nodes are."""
    tier_name: Name = ""
    """Name of the tier."""
    members: Annotated[list[Member], crd(minItems=1, maxItems=20_000)] = Field(default_factory=list)
    """What belongs to the HyperNode."""


class HyperNodeStatus(KubeModel):
    """What is known of a HyperNode."""

    conditions: list[Condition] = Field(default_factory=list)
    """What keeps the HyperNode from being used."""
    node_count: Annotated[Int64, crd(minimum=0)] = 0
    """Number of distinct members."""


class HyperNode(KubeObject):
    """A domain of the network: nodes, or smaller domains, that are close together."""

    plural: ClassVar[str] = "hypernodes"

    api_version: Literal["topology.volcano.sh/v1alpha1"] = TOPOLOGY
    kind: Literal["HyperNode"] = "HyperNode"
    spec: HyperNodeSpec
    status: HyperNodeStatus = Field(default_factory=HyperNodeStatus)


Resource: TypeAlias = Queue | PodGroup | HyperNode
KINDS: Mapping[str, type[Queue] | type[PodGroup] | type[HyperNode]] = {
    "Queue": Queue,
    "PodGroup": PodGroup,
    "HyperNode": HyperNode,
}
