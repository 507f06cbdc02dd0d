"""The decisions of a session: instructions for the service to carry out, and the only output of the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from stromboli.api import keys
from stromboli.api.crds import Condition, PodGroupStatus
from stromboli.api.keys import namespace_of

#: a PodGroup that may not be named
FOREIGN_POD_GROUP = "a PodGroup in another namespace"


class About(Struct, frozen=True):
    """A decision about one namespaced object."""

    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`NAMESPACE/NAME`."""
        return keys.key(self.namespace, self.name)


class ClaimUse(About, frozen=True):
    """A resource claim of a pod, and its allocation before the pod is bound."""

    uid: str
    #: the claim's `status.allocation` as plain data
    allocation: Mapping[str, Any]
    #: whether the allocation is still to be written; otherwise the session found it
    new: bool
    #: the claim to create, for a pod's extended resources; None for an existing claim
    manifest: Mapping[str, Any] | None = None
    #: which containers use which requests of the claim, for the pod's `status.extendedResourceClaimStatus`
    mappings: Sequence[Mapping[str, str]] = ()


class VolumeUse(About, frozen=True):
    """A PersistentVolumeClaim that is bound before its pod."""

    uid: str
    #: the PersistentVolume for it; empty if one is provisioned for the pod's node
    volume: str = ""
    #: timeout in seconds, from the decision on
    within: float = 600.0


class Bind(About, frozen=True):
    """Bind a pod to a node."""

    uid: str
    node: str
    #: annotations to set on the pod with the binding
    annotations: Mapping[str, str] = {}
    #: resource claims to reserve before the binding
    claims: Sequence[ClaimUse] = ()
    #: claims of volumes to bind before the binding
    volumes: Sequence[VolumeUse] = ()


class Evict(About, frozen=True):
    """Evict a running pod."""

    uid: str
    node: str
    #: the action that evicts: preempt, reclaim, ...
    action: str
    #: the preemptor, `NAMESPACE/NAME` of a PodGroup
    beneficiary: str = ""
    #: the rule that permits the eviction, with the numbers that were compared
    why: str = ""

    def told(self, reader: str, whom: str) -> str:
        """`Pod is evicted, because of preempt for PodGroup default/train: ...`, which begins as Volcano's does.

        `whom` is the beneficiary's name for users. The text is for readers in namespace `reader`, without the names of
        other namespaces' objects.
        """
        told = f"Pod is evicted, because of {self.action}"
        if self.beneficiary:
            known = namespace_of(self.beneficiary) == reader
            told += f" for {whom if known else FOREIGN_POD_GROUP}"
        return f"{told}: {self.why}" if self.why else told


class Nominate(About, frozen=True):
    """Write `status.nominatedNodeName` of a pod for which victims were evicted."""

    uid: str
    node: str


class LiftGate(About, frozen=True):
    """Remove the last scheduling gate of a pod, because its queue can allocate it."""

    uid: str


class SetPodGroupStatus(About, frozen=True):
    """Write the status of a PodGroup (only emitted if it differs from the API server's)."""

    status: PodGroupStatus
    #: whether only numbers in the messages of conditions differ
    minor: bool = False


class SetQueueStatus(Struct, frozen=True):
    """Write the amounts of a queue as a Kubernetes resource list (only emitted if something differs)."""

    name: str
    allocated: Mapping[str, str]
    #: all conditions; None leaves them unchanged
    conditions: Sequence[Condition] | None = None


class EmitEvent(About, frozen=True):
    """Emit a Kubernetes Event on an object."""

    kind: str
    uid: str
    type: str
    reason: str
    message: str


class SetPodUnscheduled(About, frozen=True):
    """Write into the PodScheduled condition of a pod why it is not scheduled."""

    uid: str
    #: `Unschedulable` if more nodes would help, which cluster autoscalers look for; `NodesRequested` if they are asked
    reason: str
    message: str
    #: whether the pod has the same condition with other numbers
    minor: bool = False


class RequestNodes(About, frozen=True):
    """Ask a cluster autoscaler for the nodes of a PodGroup, by a ProvisioningRequest."""

    uid: str
    class_name: str
    parameters: Mapping[str, str]
    #: for each kind of pod the name of one, and how many of them start together
    pods: Sequence[tuple[str, int]]
    #: seconds after which a request that was refused is made again
    retry: float


Decision: TypeAlias = (
    Bind
    | Evict
    | Nominate
    | LiftGate
    | SetPodGroupStatus
    | SetQueueStatus
    | EmitEvent
    | SetPodUnscheduled
    | RequestNodes
)
