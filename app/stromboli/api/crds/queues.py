"""The Queue: what part of the cluster a group of jobs gets."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal

from pydantic import (
    Field,
    StrictBool,
)

from stromboli.api.crds.base import (
    SCHEDULING,
    Condition,
    Count,
    DNSName,
    Int32,
    KubeModel,
    KubeObject,
    Name,
    ResourceList,
    RunTime,
    crd,
)

#: annotation of a queue that was closed together with its parent, and reopens with it
CLOSED_BY_PARENT: Final = "volcano.sh/closed-by-parent"


class QueueState(StrEnum):
    """States of a Queue. Only an Open queue accepts new work."""

    Open = "Open"
    Closed = "Closed"
    Closing = "Closing"
    Unknown = "Unknown"


class NodeGroupTerms(KubeModel):
    """Names of node groups: the value of the node label `volcano.sh/nodegroup-name`."""

    required: list[str] = Field(default_factory=list, alias="requiredDuringSchedulingIgnoredDuringExecution")
    """Groups that are required; in an anti-affinity, groups that are ruled out."""
    preferred: list[str] = Field(default_factory=list, alias="preferredDuringSchedulingIgnoredDuringExecution")
    """Groups that are preferred; in an anti-affinity, groups that are used last."""


class QueueAffinity(KubeModel):
    """The node groups that the pods of a queue run on."""

    node_group_affinity: NodeGroupTerms | None = None
    """Groups that the pods run on."""
    node_group_anti_affinity: NodeGroupTerms | None = None
    """Groups that the pods avoid."""


class Guarantee(KubeModel):
    """Resources that are reserved for a queue even while it does not use them."""

    resource: ResourceList = Field(default_factory=dict)
    """Amounts that no other queue can use."""


class PoolShare(KubeModel):
    """Share of a queue in one of the node pools of the policy."""

    name: Name
    """Name of the pool."""
    capability: ResourceList | None = None
    """Hard upper limit. A resource that is not listed is unlimited."""
    deserved: ResourceList | None = None
    """Amounts that the queue is entitled to; other queues can reclaim its usage beyond them."""
    guarantee: Guarantee = Field(default_factory=Guarantee)
    """Resources of the pool that are reserved for the queue even while it does not use them."""

    @property
    def amounts(self) -> dict[str, ResourceList | None]:
        """All amounts, by the path of the field."""
        guarantee = self.guarantee.resource
        return {"capability": self.capability, "deserved": self.deserved, "guarantee.resource": guarantee}


class ClusterShare(KubeModel):
    """A cluster to which jobs of the queue may be forwarded. The scheduler does not read it."""

    name: str = ""
    """Name of the cluster."""
    weight: Int32 = 0
    """Share of the forwarded jobs, relative to the other clusters."""
    capacity: ResourceList = Field(default_factory=dict)
    """Amounts that the queue may use in that cluster."""


class QueueSpec(KubeModel):
    """Share of a queue, and how it is served."""

    weight: Annotated[Int32, crd(default=1, minimum=1, maximum=65535)] = 0
    """Share of the cluster beyond all guarantees, relative to the other queues."""
    capability: ResourceList | None = None
    """Hard upper limit. A resource that is not listed is unlimited."""
    deserved: ResourceList | None = None
    """Amounts that the queue is entitled to; other queues can reclaim its usage beyond them."""
    guarantee: Guarantee = Field(default_factory=Guarantee)
    """Resources that are reserved for the queue even while it does not use them."""
    borrowing_limit: ResourceList | None = None
    """Amounts that the queue may use beyond its deserved ones. A resource that is not listed is unlimited."""
    lending_limit: ResourceList | None = None
    """Amounts of what the queue deserves that others may use while it does not. A resource that is not listed is lent
    whole."""
    pools: Annotated[list[PoolShare], crd(maxItems=64)] = Field(default_factory=list)
    """Shares of the queue in node pools. Where `deserved` is absent, it is the sum of what pools say."""
    reclaimable: StrictBool | None = None
    """Whether other queues may reclaim this queue's usage beyond its share. Absent means yes."""
    preempt_min_runtime: RunTime = ""
    """Time that jobs run before they may be preempted, a duration such as `30m`. Queues below inherit it."""
    reclaim_min_runtime: RunTime = ""
    """Time that jobs run before other queues may reclaim what they hold, a duration such as `30m`. Queues below inherit
    it."""
    parent: DNSName = ""
    """Name of the parent queue; absent means root."""
    priority: Count = 0
    """A queue of higher priority is served earlier and reclaimed from later."""
    affinity: QueueAffinity = Field(default_factory=QueueAffinity)
    """The node groups that the pods of the queue run on."""
    type: Name = ""
    """Free text. The scheduler does not read it."""
    dequeue_strategy: Annotated[Literal["fifo", "traverse"], crd(default="traverse")] = "traverse"
    """Whether a job that does not fit blocks the jobs behind it (fifo) or is passed over (traverse)."""
    extend_clusters: list[ClusterShare] = Field(default_factory=list)
    """Clusters to which jobs of the queue may be forwarded. The scheduler does not read it."""


class Reservation(KubeModel):
    """Nodes and amounts set aside for a queue. The scheduler does not write it."""

    nodes: list[str] = Field(default_factory=list)
    """Names of nodes."""
    resource: ResourceList = Field(default_factory=dict)
    """Amounts."""


class QueueStatus(KubeModel):
    """Resources that the pods of a queue use, and the number of its PodGroups."""

    state: Annotated[str, crd(enum=list(QueueState))] = ""
    """Open accepts work, Closed and Closing do not."""
    allocated: ResourceList = Field(default_factory=dict)
    """Sum of the requests of pods that are placed, of the queue and of its descendants."""
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
    """Ready: whether the queue accepts new work. Overused: whether it gets nothing more. Others say why the queue does
    not behave as its spec says."""


class Queue(KubeObject):
    """A queue: its share of the cluster, and the usage of its pods."""

    plural: ClassVar[str] = "queues"

    api_version: Literal["scheduling.volcano.sh/v1beta1"] = SCHEDULING
    kind: Literal["Queue"] = "Queue"
    spec: Annotated[QueueSpec, crd(default={})] = Field(default_factory=QueueSpec)
    status: QueueStatus = Field(default_factory=QueueStatus)

    @property
    def closed_by_parent(self) -> bool:
        """Whether the queue was closed together with its parent, and reopens with it."""
        return self.metadata.annotations.get(CLOSED_BY_PARENT) == "true"
