"""The parts of Kubernetes' own objects that scheduling reads, as msgspec structs.

Everything else in the JSON is skipped while it is decoded, which is what makes a list of 100,000 pods affordable.
Field names are Kubernetes' own in snake case.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from stromboli.api import keys, readers

Quantity = str | readers.Integer | float
ResourceList = dict[str, Quantity]


class Record(Struct, rename="camel", frozen=True, gc=False):
    """Base of the structs: camelCase in JSON, immutable, unknown fields skipped."""


class OwnerReference(Record, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    api_version: str = ""


class Metadata(Record, frozen=True):
    name: str = ""
    namespace: str | None = ""
    uid: str | None = ""
    resource_version: str | None = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def key(self) -> str:
        """`NAMESPACE/NAME`, or the name alone."""
        return keys.key(self.namespace, self.name)


# -- selectors and affinity ------------------------------------------------------------------------------------------


class Requirement(Record, frozen=True):
    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(Record, frozen=True):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(Record, frozen=True):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(Record, frozen=True):
    weight: readers.Integer
    preference: NodeSelectorTerm


class NodeAffinity(Record, frozen=True):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredSchedulingTerm] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class LabelSelector(Record, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class PodAffinityTerm(Record, frozen=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(Record, frozen=True):
    weight: readers.Integer
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Record, frozen=True):
    required: list[PodAffinityTerm] | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[WeightedPodAffinityTerm] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Record, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Record, frozen=True):
    key: str | None = ""
    operator: str | None = ""
    value: str | None = ""
    effect: str | None = ""


class TopologySpreadConstraint(Record, frozen=True):
    max_skew: readers.Integer
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: readers.Integer | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


# -- pods ------------------------------------------------------------------------------------------------------------


class ContainerPort(Record, frozen=True):
    container_port: readers.Integer = 0
    host_port: readers.Integer | None = 0
    host_ip: str | None = field(default="", name="hostIP")
    protocol: str | None = "TCP"


class Claim(Record, frozen=True):
    name: str
    request: str | None = None


class ResourceRequirements(Record, frozen=True):
    requests: ResourceList | None = None
    limits: ResourceList | None = None
    claims: list[Claim] | None = None


class Container(Record, frozen=True):
    name: str = ""
    image: str | None = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None


class ClaimVolume(Record, frozen=True):
    claim_name: str


class GCEDisk(Record, frozen=True):
    pd_name: str = ""
    read_only: bool | None = False


class AWSDisk(Record, frozen=True):
    volume_id: str = field(default="", name="volumeID")


class ISCSIDisk(Record, frozen=True):
    iqn: str = ""
    read_only: bool | None = False


class RBDImage(Record, frozen=True):
    monitors: list[str] | None = None
    image: str = ""
    pool: str | None = "rbd"
    read_only: bool | None = False


class AzureDisk(Record, frozen=True):
    disk_uri: str = field(default="", name="diskURI")


class CinderDisk(Record, frozen=True):
    volume_id: str = field(default="", name="volumeID")


class PortworxDisk(Record, frozen=True):
    volume_id: str = field(default="", name="volumeID")


class Disks(Record, frozen=True, kw_only=True):
    """The disks that a volume may name itself, of which it names one at most."""

    gce_persistent_disk: GCEDisk | None = None
    aws_elastic_block_store: AWSDisk | None = None
    iscsi: ISCSIDisk | None = None
    rbd: RBDImage | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderDisk | None = None
    portworx_volume: PortworxDisk | None = None

    @property
    def names_disk(self) -> bool:
        """Whether it names any."""
        return bool(
            self.gce_persistent_disk
            or self.aws_elastic_block_store
            or self.iscsi
            or self.rbd
            or self.azure_disk
            or self.cinder
            or self.portworx_volume
        )


class Volume(Disks, frozen=True):
    name: str
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: dict[str, Any] | None = None


class PodResourceClaim(Record, frozen=True):
    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGate(Record, frozen=True):
    name: str


class SchedulingGroup(Record, frozen=True):
    pod_group_name: str | None = None


class PodSpec(Record, frozen=True):
    scheduler_name: str | None = "default-scheduler"
    node_name: str | None = ""
    priority: readers.Integer | None = None
    priority_class_name: str | None = ""
    preemption_policy: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: ResourceList | None = None
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None
    host_network: bool | None = False
    active_deadline_seconds: readers.Integer | None = None


class PodCondition(Record, frozen=True):
    type: str
    status: str
    reason: str | None = ""
    message: str | None = ""
    last_transition_time: str | None = None


def refusal(conditions: Iterable[PodCondition]) -> PodCondition | None:
    """The condition that says why a pod has no node; None when there is none, or it has one."""
    return next((c for c in conditions if c.type == "PodScheduled" and c.status == "False"), None)


class ContainerStatus(Record, frozen=True):
    name: str = ""
    #: what is in force
    resources: ResourceRequirements | None = None
    #: what the node granted
    allocated_resources: ResourceList | None = None


class PodResourceClaimStatus(Record, frozen=True):
    name: str
    resource_claim_name: str | None = None


class PodStatus(Record, frozen=True):
    phase: str | None = ""
    nominated_node_name: str | None = ""
    start_time: str | None = None
    conditions: list[PodCondition] | None = None
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None


class Pod(Record, frozen=True):
    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# -- nodes and classes -----------------------------------------------------------------------------------------------


class Taint(Record, frozen=True):
    key: str
    value: str | None = ""
    effect: str = ""


class NodeSpec(Record, frozen=True):
    unschedulable: bool | None = False
    taints: list[Taint] | None = None


class ContainerImage(Record, frozen=True):
    names: list[str] | None = None
    size_bytes: readers.Integer | None = 0


class NodeCondition(Record, frozen=True):
    type: str | None = ""
    status: str | None = ""


class NodeStatus(Record, frozen=True):
    allocatable: ResourceList | None = None
    capacity: ResourceList | None = None
    images: list[ContainerImage] | None = None
    conditions: list[NodeCondition] | None = None


class Node(Record, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PriorityClass(Record, frozen=True):
    metadata: Metadata
    value: readers.Integer = 0
    global_default: bool | None = False
    preemption_policy: str | None = None


class BudgetSpec(Record, frozen=True):
    selector: LabelSelector | None = None


class BudgetStatus(Record, frozen=True):
    disruptions_allowed: readers.Integer | None = 0
    disrupted_pods: dict[str, Any] | None = None


class QuotaStatus(Record, frozen=True):
    hard: ResourceList | None = None
    used: ResourceList | None = None


class ResourceQuota(Record, frozen=True):
    metadata: Metadata
    status: QuotaStatus = QuotaStatus()


class DisruptionBudget(Record, frozen=True):
    metadata: Metadata
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
