"""What a session decides: instructions that a shell carries out, and nothing else leaves the core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from stromboli.api.crds import PodGroupStatus


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a pod to a node."""

    namespace: str
    name: str
    uid: str
    node: str
    #: annotations that go on the pod with its binding
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evict:
    """Delete a running pod to make room."""

    namespace: str
    name: str
    uid: str
    node: str
    #: the action that evicts: preempt, reclaim, ...
    action: str
    #: on whose behalf, `NAMESPACE/NAME` of a PodGroup
    beneficiary: str = ""


@dataclass(frozen=True, slots=True)
class Nominate:
    """Write `status.nominatedNodeName` of a pod for whom victims were evicted."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class SetPodGroupStatus:
    """Write the status of a PodGroup (only emitted when it differs from what the API server has)."""

    namespace: str
    name: str
    status: PodGroupStatus


@dataclass(frozen=True, slots=True)
class SetQueueStatus:
    """Write what the pods of a queue hold, as a Kubernetes resource list (only emitted when it differs)."""

    name: str
    allocated: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Tell the user through a Kubernetes Event on an object."""

    kind: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SetPodUnscheduled:
    """Say in the condition PodScheduled of a pod why it has no node."""

    namespace: str
    name: str
    uid: str
    #: `Unschedulable` when more nodes would help, which a cluster autoscaler looks for
    reason: str
    message: str


Decision: TypeAlias = Bind | Evict | Nominate | SetPodGroupStatus | SetQueueStatus | EmitEvent | SetPodUnscheduled
