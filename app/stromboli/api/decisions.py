"""What a session decides: instructions that a shell carries out, and nothing else leaves the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from stromboli.api import keys
from stromboli.api.crds import Condition, PodGroupStatus


class About(Struct, frozen=True):
    """What is decided about one object in a namespace."""

    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`NAMESPACE/NAME`."""
        return keys.key(self.namespace, self.name)


class ClaimUse(About, frozen=True):
    """A resource claim that a pod needs, and what it has to hold before the pod is bound."""

    uid: str
    #: its `status.allocation` as plain data
    allocation: Mapping[str, Any]
    #: whether it is still to be written; else it was there when this was decided
    new: bool


class Bind(About, frozen=True):
    """Bind a pod to a node."""

    uid: str
    node: str
    #: annotations that go on the pod with its binding
    annotations: Mapping[str, str] = {}
    #: the resource claims that are reserved for the pod first
    claims: Sequence[ClaimUse] = ()


class Evict(About, frozen=True):
    """Evict a running pod to make room."""

    uid: str
    node: str
    #: the action that evicts: preempt, reclaim, ...
    action: str
    #: on whose behalf, `NAMESPACE/NAME` of a PodGroup
    beneficiary: str = ""
    #: the rule by which the pod goes, with the numbers that were compared
    why: str = ""


class Nominate(About, frozen=True):
    """Write `status.nominatedNodeName` of a pod for whom victims were evicted."""

    uid: str
    node: str


class LiftGate(About, frozen=True):
    """Take the last scheduling gate of a pod: its queue has room for it."""

    uid: str


class SetPodGroupStatus(About, frozen=True):
    """Write the status of a PodGroup (only emitted when it differs from what the API server has)."""

    status: PodGroupStatus
    #: whether no more than the numbers in the messages of conditions differ
    minor: bool = False


class SetQueueStatus(Struct, frozen=True):
    """Write what the pods of a queue hold, as a Kubernetes resource list (only emitted when something differs)."""

    name: str
    allocated: Mapping[str, str]
    #: all conditions; None leaves them as they are
    conditions: Sequence[Condition] | None = None


class EmitEvent(About, frozen=True):
    """Tell the user through a Kubernetes Event on an object."""

    kind: str
    uid: str
    type: str
    reason: str
    message: str


class SetPodUnscheduled(About, frozen=True):
    """Say in the condition PodScheduled of a pod why it has no node."""

    uid: str
    #: `Unschedulable` when more nodes would help, which a cluster autoscaler looks for
    reason: str
    message: str
    #: whether the pod says the same already, with other numbers
    minor: bool = False


Decision: TypeAlias = (
    Bind | Evict | Nominate | LiftGate | SetPodGroupStatus | SetQueueStatus | EmitEvent | SetPodUnscheduled
)
