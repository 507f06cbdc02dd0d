"""Pods."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import field

from stromboli.api import readers
from stromboli.api.objects.affinity import (
    Affinity,
    Toleration,
    TopologySpreadConstraint,
)
from stromboli.api.objects.base import Metadata, Record, ResourceList
from stromboli.api.objects.volumes import (
    Volume,
)


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


class RestartRule(Record, frozen=True):
    action: str = ""


class Container(Record, frozen=True):
    name: str = ""
    image: str | None = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None


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
    host_users: bool | None = None
    runtime_class_name: str | None = None

    @property
    def isolates_users_on_host_network(self) -> bool:
        """Whether the pod combines the host network with a user namespace of its own."""
        return self.host_users is False and bool(self.host_network)

    @property
    def image_volumes(self) -> list[str]:
        """The images that the pod's volumes mount."""
        return [each.image.reference for each in self.volumes or () if each.image and each.image.reference]

    active_deadline_seconds: readers.Integer | None = None


class PodCondition(Record, frozen=True):
    type: str
    status: str
    reason: str | None = ""
    message: str | None = ""
    last_transition_time: str | None = None


def refusal(conditions: Iterable[PodCondition]) -> PodCondition | None:
    """The PodScheduled condition of a pod that was not scheduled; None for other pods."""
    return next((c for c in conditions if c.type == "PodScheduled" and c.status == "False"), None)


class ContainerStateWaiting(Record, frozen=True):
    reason: str | None = ""
    message: str | None = ""


class ContainerStateRunning(Record, frozen=True):
    started_at: str | None = None


class ContainerStateTerminated(Record, frozen=True):
    exit_code: readers.Integer = 0
    reason: str | None = ""
    #: the container's last words
    message: str | None = ""
    finished_at: str | None = None


class ContainerState(Record, frozen=True):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Record, frozen=True):
    name: str = ""
    state: ContainerState | None = None
    #: its end before it was started again
    last_state: ContainerState | None = None
    #: requests and limits that are in force
    resources: ResourceRequirements | None = None
    #: requests that the node has granted
    allocated_resources: ResourceList | None = None


class PodResourceClaimStatus(Record, frozen=True):
    name: str
    resource_claim_name: str | None = None


class PodStatus(Record, frozen=True):
    phase: str | None = ""
    #: why it failed as a whole, such as Evicted
    reason: str | None = ""
    message: str | None = ""
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
