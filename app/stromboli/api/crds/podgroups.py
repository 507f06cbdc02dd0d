"""The PodGroup: pods that start together or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from math import inf
from typing import Annotated, ClassVar, Literal

from pydantic import (
    Field,
)

from stromboli.api import duration
from stromboli.api.crds.base import (
    SCHEDULING,
    Condition,
    Count,
    DNSName,
    Int32,
    KubeModel,
    KubeObject,
    LabelSelector,
    Name,
    ResourceList,
    crd,
)
from stromboli.api.keys import NATIVE_GROUP, outer_name

#: an annotation: maximum run time of its pods; a duration, or a number of seconds
RUN_TIME = "stromboli.io/run-time"
#: an annotation: why fewer of its pods start together than its workload asks for
FEWER = "stromboli.io/fewer-together"
#: an annotation: what says how close together parts of its pods are to be, which is not read
SLICES = "stromboli.io/topology-slices"
#: an annotation: the group of Kubernetes' groups that it is a part of
PART_OF = "stromboli.io/part-of"
#: an annotation of one of Kubernetes' own groups: claims that are made for all of its pods
GROUP_CLAIMS = "stromboli.io/group-claims"
#: an annotation of one of Kubernetes' own groups: the number that admission found for its priority class
PRIORITY = "stromboli.io/priority"
#: an annotation: the node pools that its pods may use, separated by commas, the best first
NODE_POOLS = "stromboli.io/pools"

#: an annotation: the workload's owners, `KIND/NAME` from the lowest to the highest
WORKLOAD = "stromboli.io/workload"
#: names of PodGroups that are made for an owner: its uid, and which of its gangs it is, if it has several
_MADE = re.compile(r"podgroup-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-(.*))?")


def group_uid(name: str) -> str:
    """The uid of the owner for which a PodGroup with this name was made; empty for others."""
    found = _MADE.fullmatch(name)
    return found[1] if found else ""


def run_time(text: str) -> float:
    """The seconds of a declared run time. Raises ValueError for an invalid one."""
    seconds = float(text) if text.isdecimal() else duration.parse(text)
    if not 0 < seconds < inf:
        raise ValueError(f"should be more than 0, not {text}")
    return seconds


def longest_run(declared: float | None, deadlines: Iterable[float]) -> float | None:
    """Maximum run time of a job in seconds; None where it is not set.

    It is over when it declares so, or when the last of its pods is over by its `activeDeadlineSeconds`, 0 without one.
    """
    bound = min(declared or inf, max((each if each > 0 else inf for each in deadlines), default=inf))
    return bound if bound < inf else None


class PodGroupPhase(StrEnum):
    """Phases of a PodGroup; a new PodGroup has none."""

    Pending = "Pending"
    Running = "Running"
    Unknown = "Unknown"
    Inqueue = "Inqueue"
    Completed = "Completed"


class NetworkTopology(KubeModel):
    """Required or preferred proximity of pods, in tiers of HyperNodes. Without a tier, nothing is required."""

    mode: Annotated[Literal["hard", "soft"], crd(default="hard")] = "hard"
    """hard: the pods stay within the tier or wait. soft: lower tiers are preferred."""
    highest_tier_allowed: Annotated[Int32, crd(minimum=0)] | None = None
    """Number of the highest tier that the pods may span."""
    highest_tier_name: Name = ""
    """Name of that tier, instead of its number."""


class SubGroupPolicy(KubeModel):
    """Divides a PodGroup into sub groups, each of which is a gang and placed together."""

    name: Name = ""
    """Name of the policy."""
    label_selector: LabelSelector | None = None
    """Selects the pods that the policy applies to."""
    match_label_keys: Annotated[list[str], crd(**{"x-kubernetes-list-type": "atomic"})] = Field(default_factory=list)
    """Pods with equal values of these labels form a sub group. Without keys there are no sub groups."""
    network_topology: NetworkTopology | None = None
    """Required or preferred proximity of the pods of a sub group."""
    sub_group_size: Annotated[Int32, crd(default=1, minimum=1)] = 1
    """Number of pods that a sub group needs to start."""
    min_sub_groups: Annotated[Int32, crd(default=0, minimum=0)] = 0
    """Number of sub groups that the PodGroup needs to start."""


class PodGroupSpec(KubeModel):
    """Requirements for a gang to start."""

    min_member: Count = 0
    """Number of pods that start together or not at all."""
    min_task_member: dict[str, Count] = Field(default_factory=dict)
    """Number of pods of each role (`volcano.sh/task-spec`) that start together or not at all."""
    queue: Annotated[DNSName, crd(default="default")] = "default"
    """Name of the queue that the PodGroup runs in."""
    priority_class_name: Name = ""
    """Name of the PriorityClass; absent means the global default."""
    min_resources: ResourceList | None = None
    """Resources that must be available before the PodGroup is admitted to its queue; absent, it is always admitted."""
    network_topology: NetworkTopology | None = None
    """Required or preferred proximity of the pods."""
    sub_group_policy: Annotated[list[SubGroupPolicy], crd(maxItems=10_000)] = Field(default_factory=list)
    """Policies that divide the PodGroup into sub groups; a pod belongs to the first policy that selects it."""


class PodGroupCondition(Condition):
    """One aspect of a PodGroup's state."""

    transition_id: str = Field(default="", alias="transitionID")
    """ID of the session in which the condition was last written."""


class PodGroupStatus(KubeModel):
    """Observed state of a gang."""

    phase: Annotated[str, crd(enum=list(PodGroupPhase))] = ""
    """Pending, Inqueue (admitted), Running, Completed, or Unknown: some pods run and others cannot."""
    conditions: list[PodGroupCondition] = Field(default_factory=list)
    """Among other things, why the PodGroup does not run."""
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

    @property
    def priority(self) -> int | None:
        """The priority of one of Kubernetes' own groups that says it; None where the PriorityClass does."""
        native = outer_name(self.metadata.name) is not None
        number = self.metadata.annotations.get(PRIORITY) if native else None
        return None if number is None else int(number)

    @property
    def owners(self) -> list[tuple[str, str]]:
        """Kind and name of its owner, and of that one's owner."""
        found = [(str(owner.get("kind", "")), str(owner.get("name", ""))) for owner in self.metadata.owner_references]
        listed = self.metadata.annotations.get(WORKLOAD, "").split(",")
        return found + [(kind, name) for kind, slash, name in (each.partition("/") for each in listed) if slash]

    @property
    def names(self) -> set[str]:
        """The names that users know: its own, those of its owners, and that of its part of an owner."""
        own, found = self.metadata.name, {name for _, name in self.owners}
        part = self._part if self.owners else None
        return {own, outer_name(own) or own} | found | ({f"{name}-{part}" for name in found} if part else set())

    @property
    def workload(self) -> str:
        """The name of its workload, or of its pod, if its own name follows from that, with its part; else empty."""
        part = self._part
        follows = group_uid(self.metadata.name) or part is not None
        return f"{self.owners[-1][1]}{f'-{part}' if part else ''}" if self.owners and follows else ""

    @property
    def least(self) -> str:
        """Number of pods that start together, in the words of the owner's kind."""
        number = self.spec.min_member
        if outer_name(self.metadata.name) is not None:
            return f"minCount is {number}"
        if self.title.startswith("PodGroup "):
            return f"minMember is {number}"
        return f"it starts with {number} together"

    @property
    def title(self) -> str:
        """Its name for users: that of its workload, `RayJob default/train`, if its own name follows from it."""
        return " ".join(self._called)

    @property
    def called(self) -> str:
        """Its title without the kind, `default/train`."""
        return self._called[1]

    @property
    def _called(self) -> tuple[str, str]:
        namespace, native = self.metadata.namespace, outer_name(self.metadata.name)
        if native is not None:
            return "PodGroup", f"{namespace}/{native} of {NATIVE_GROUP}"
        part = self._part if self.owners else None
        if part is None:
            return "PodGroup", self.key
        kind, name = self.owners[-1]
        return kind, f"{namespace}/{name}" + (f" (part {part})" if part else "")

    @property
    def _part(self) -> str | None:
        """Its owner's part that it is for, empty for the only one; None if its name does not follow from an owner."""
        name = self.metadata.name
        for owner in self.metadata.owner_references:
            made = f"podgroup-{owner.get('uid')}"
            if owner.get("uid") and f"{name}-".startswith(f"{made}-"):
                return name[len(made) + 1 :]
        found = _MADE.fullmatch(name)
        return found and (found[2] or "")

    @property
    def run_time(self) -> float | None:
        """Maximum run time of its pods in seconds; None where it is not set, or invalid."""
        try:
            return run_time(self.metadata.annotations[RUN_TIME])
        except (KeyError, ValueError):
            return None


def title_of(group: PodGroup | None, key: str) -> str:
    """The name for users of the PodGroup with a key; it may be deleted, or the key empty."""
    return group.title if group is not None else f"PodGroup {key or '(none)'}"
