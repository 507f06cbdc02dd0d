"""The custom resources Queue, PodGroup and HyperNode, with the fields of Volcano's.

The models read manifests from the API server and from files. Unknown fields are ignored and null means absent, as in
Kubernetes; known fields are checked for type and quantity. Bounds that only admission enforces are declared next to the
fields with `crd(...)`, and rules across fields in `crd_schema`: they go into the generated CustomResourceDefinitions
and cost nothing here. A Python default is what the scheduler assumes for an absent field. The CRD's default differs
where a manifest that no API server has seen means something else: its weight is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from stromboli.api.crds.base import (
    SCHEDULING,
    TOPOLOGY,
    Condition,
    Count,
    DNSName,
    Int32,
    Int64,
    KubeModel,
    KubeObject,
    LabelRequirement,
    LabelSelector,
    Metadata,
    Name,
    Quantity,
    ResourceList,
    crd,
    dumped,
)
from stromboli.api.crds.hypernodes import (
    ExactMatch,
    HyperNode,
    HyperNodeSpec,
    HyperNodeStatus,
    Member,
    MemberSelector,
    RegexMatch,
)
from stromboli.api.crds.podgroups import (
    FEWER,
    GROUP_CLAIMS,
    NODE_POOLS,
    PART_OF,
    PRIORITY,
    RUN_TIME,
    SLICES,
    WORKLOAD,
    NetworkTopology,
    PodGroup,
    PodGroupCondition,
    PodGroupPhase,
    PodGroupSpec,
    PodGroupStatus,
    SubGroupPolicy,
    group_uid,
    longest_run,
    run_time,
    title_of,
)
from stromboli.api.crds.queues import (
    CLOSED_BY_PARENT,
    ClusterShare,
    Guarantee,
    NodeGroupTerms,
    Queue,
    QueueAffinity,
    QueueSpec,
    QueueState,
    QueueStatus,
    Reservation,
)

__all__ = [
    "CLOSED_BY_PARENT",
    "FEWER",
    "GROUP_CLAIMS",
    "KINDS",
    "NODE_POOLS",
    "PART_OF",
    "PRIORITY",
    "RUN_TIME",
    "SCHEDULING",
    "SLICES",
    "TOPOLOGY",
    "WORKLOAD",
    "ClusterShare",
    "Condition",
    "Count",
    "DNSName",
    "ExactMatch",
    "Guarantee",
    "HyperNode",
    "HyperNodeSpec",
    "HyperNodeStatus",
    "Int32",
    "Int64",
    "KubeModel",
    "KubeObject",
    "LabelRequirement",
    "LabelSelector",
    "Member",
    "MemberSelector",
    "Metadata",
    "Name",
    "NetworkTopology",
    "NodeGroupTerms",
    "PodGroup",
    "PodGroupCondition",
    "PodGroupPhase",
    "PodGroupSpec",
    "PodGroupStatus",
    "Quantity",
    "Queue",
    "QueueAffinity",
    "QueueSpec",
    "QueueState",
    "QueueStatus",
    "RegexMatch",
    "Reservation",
    "Resource",
    "ResourceList",
    "SubGroupPolicy",
    "crd",
    "dumped",
    "group_uid",
    "longest_run",
    "run_time",
    "title_of",
]

Resource: TypeAlias = Queue | PodGroup | HyperNode

KINDS: Mapping[str, type[Queue] | type[PodGroup] | type[HyperNode]] = {
    "Queue": Queue,
    "PodGroup": PodGroup,
    "HyperNode": HyperNode,
}
