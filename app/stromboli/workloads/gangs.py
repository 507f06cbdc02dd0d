"""The gangs of a workload: their roles, and how many pods of each start together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stromboli.api import readers
from stromboli.workloads.exclusive import ExclusiveTopology
from stromboli.workloads.model import RoleFields, WorkloadKind
from stromboli.workloads.paths import Object, at, count, items, labels, mapping, seconds, text
from stromboli.workloads.said import KUEUE_QUEUE

#: the part of a gang that there is once for each value of the label that tells parts apart
EACH = "*"
#: where the template of a pod, or the spec of a Job, says after how many seconds it is ended
DEADLINE = "spec.activeDeadlineSeconds"
#: where it is said what controller takes care of a workload, and the one that has others run it
_MANAGED_BY = ("spec.managedBy", "spec.runPolicy.managedBy")
_ELSEWHERE = "kueue.x-k8s.io/multikueue"


#: the conditions of workloads that have ended
_ENDS = ("Complete", "Completed", "Failed", "Succeeded")
#: where workloads without such conditions say that they have ended, by kind; a Job is Volcano's here
_END_STATES = {
    "AppWrapper": "status.phase",
    "Job": "status.state.phase",
    "Pod": "status.phase",
    "RayJob": "status.jobDeploymentStatus",
    "SparkApplication": "status.applicationState.state",
}
#: fields of a Job's status that are set once it has, or had, pods
_OF_PODS = ("active", "succeeded", "failed", "terminating", "completionTime", "conditions")


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of one template."""

    name: str
    template: Object
    #: number of pods
    count: int
    #: number of pods that the gang cannot do without
    needed: int
    #: names of the pods without the number at their end
    prefix: str
    #: the seconds after which its pods are ended for good; None where they are not
    deadline: int | None = None
    #: whether they are made only once pods of other roles run
    later: bool = False
    #: the names of those roles, where they are said
    after: str = ""
    #: the number at the end of the first one's name
    first: int = 0
    #: the label that tells sub groups of them apart, and how many are in each; None where there are none
    divided: tuple[str, int] | None = None
    #: the topology of which parts of them have a domain each, and how many such parts a gang has; None where none have
    exclusive: tuple[ExclusiveTopology, int] | None = None


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together."""

    roles: tuple[Role, ...]
    #: the value of the label that tells the gangs of a workload apart; empty when there is one only
    part: str = ""
    #: number of such gangs, for a part that is EACH
    copies: int = 1
    #: number of pods that start together where it is not the sum over the roles
    least: int | None = None
    #: number of pods that can exist before one of them is ready, where that does not follow from the roles
    at_first: int | None = None
    #: whether an annotation of an owner may say how many start together
    adjustable: bool = True
    #: whether each role's minimum counts in addition to the number that starts together
    by_role: bool = False
    #: the part that has to run before this one has pods; empty for none
    after: str = ""
    #: whether that has to complete
    ends_first: bool = False
    #: the policies of its sub groups, as in a PodGroup
    sub_groups: tuple[Object, ...] = ()
    #: the name of the PodGroup that its own controller makes for all its pods; empty for none
    group_name: str = ""

    @property
    def pods(self) -> int:
        """Number of pods."""
        return sum(role.count for role in self.roles)

    @property
    def run_time(self) -> str | None:
        """Maximum run time of its pods by its templates; None where some are not ended."""
        found = [role.deadline for role in self.roles if role.count]
        ends = [each for each in found if each is not None]
        return f"{max(ends)}s" if ends and len(ends) == len(found) else None

    @property
    def min_member(self) -> int:
        """Number of pods that the workload has start together: one at least, for pods of none would be no gang."""
        return max(1, sum(role.needed for role in self.roles) if self.least is None else self.least)

    def of_size(self, pods: int) -> Gang:
        """A gang of a number of pods, whose last role has the pods that the other roles leave."""
        *others, last = self.roles
        rest = max(0, pods - sum(role.count for role in others))
        return replace(self, roles=(*others, replace(last, count=rest, needed=rest)))

    def started(self, wanted: int) -> int:
        """Number of pods that start together if `wanted` should: a gang larger than its pods never starts.

        One does at least: a group that starts with none has completed at once.
        """
        wanted = max(1, wanted)
        most = self.pods if self.at_first is None else self.at_first
        known = not self.by_role and (self.at_first is not None or self.roles)
        return min(wanted, max(1, most)) if known else wanted


@dataclass(frozen=True, slots=True)
class Workload:
    """Gangs that an object stands for; without gangs, its parts are workloads of their own."""

    gangs: tuple[Gang, ...] = ()
    #: the label of pods that says which gang they are in
    part_label: str = ""
    suspended: bool = False
    role_labels: tuple[str, ...] = field(default=())
    #: the annotation of pods with the size of their gang: while a rollout goes on it is not that of all gangs
    size_note: str = ""
    #: whether it has fewer pods in the end, when others have succeeded
    dwindles: bool = False
    #: number of its pods that need not come again, as what made them has succeeded, until all of it starts anew
    done: int = 0

    def size(self, noted: Mapping[str, str] | None) -> dict[str, str]:
        """The annotation of a pod, or of its group, with the size of its gang; empty for none."""
        said = (noted or {}).get(self.size_note, "")
        return {self.size_note: said} if said else {}

    @property
    def in_order(self) -> bool:
        """Whether some of its pods come only once others have their places."""
        return len(self.gangs) > 1 or any(gang.started(gang.pods) < gang.pods for gang in self.gangs)

    def gang(self, part: str, noted: Mapping[str, str] | None = None) -> Gang | None:
        """The gang with a part, as large as annotations of a pod or of its group say."""
        exact = next((gang for gang in self.gangs if gang.part == part), None)
        found = exact or next((gang for gang in self.gangs if gang.part == EACH), None)
        size = readers.count(self.size(noted).get(self.size_note))
        return found if found is None or not size or size == found.pods else found.of_size(size)

    def is_over(self, part: str) -> bool:
        """Whether there is no such part any longer: it has a higher number than replicas have."""
        gang = self.gang(part)
        beyond = gang is not None and gang.part == EACH and part.isdecimal() and int(part) >= gang.copies
        return beyond or (gang is None and bool(self.gangs))


def by_paths(owner: Object, kind: WorkloadKind) -> Workload:
    """A workload by the paths of its kind."""
    roles = tuple(each for fields in kind.roles for each in _roles(owner, fields))
    return workload(owner, kind, Gang(roles, least=count(owner, owner, kind.min_member)))


def workload(owner: Object, kind: WorkloadKind, *gangs: Gang, part_label: str = "") -> Workload:
    """A workload with these gangs."""
    return Workload(gangs, part_label, is_suspended(owner, kind), kind.role_labels)


def is_suspended(owner: Object, kind: WorkloadKind) -> bool:
    """Whether a workload is to have no pods here for now: it is suspended, or runs in another cluster."""
    return at(owner, kind.suspend) is True or _ELSEWHERE in (text(owner, path) for path in _MANAGED_BY)


def has_ended(owner: Object) -> bool:
    """Whether a workload has completed or failed for good, so that none of its pods come any longer."""
    conditions = (each for _, each in items(owner, "status.conditions"))
    if any(each.get("type") in _ENDS and each.get("status") == "True" for each in conditions):
        return True
    path = _END_STATES.get(text(owner, "kind"))
    return path is not None and text(owner, path).capitalize() in _ENDS


def makes_in_order(owner: Object) -> bool:
    """Whether an owner is a StatefulSet of several pods, each made when the one before it is ready."""
    if owner.get("kind") != "StatefulSet" or at(owner, "spec.replicas") in (None, 0, 1):
        return False
    return text(owner, "spec.podManagementPolicy") != "Parallel"


def why_fewer(gang: Gang, wanted: int, owners: Sequence[Object]) -> str:
    """Why fewer pods of a gang start together than are wanted, by what manages them; empty where it is as many."""
    started = gang.started(wanted)
    if started >= wanted:
        return ""
    ordered = next(filter(makes_in_order, owners), None)
    by = ordered or next(iter(owners), {})
    why = "has no more pods at a time" if gang.at_first is None else "makes the others when these are ready"
    why += ", unless its podManagementPolicy is Parallel" if ordered else ""
    return f"is {started} instead of {wanted}, since {by.get('kind')} {text(by, 'metadata.name')} {why}"


def suspended(owner: Object, kind: WorkloadKind) -> str:
    """A message that a workload is suspended, and how to resume it, or that it runs elsewhere; empty for others."""
    name, namespace = text(owner, "metadata.name"), text(owner, "metadata.namespace") or "default"
    named = f"{kind.kind} {namespace}/{name}"
    if at(owner, kind.suspend) is True:
        resume = f"stromboli job resume {name} -n {namespace}"
        if labels(owner).get(KUEUE_QUEUE):
            resume = f"Kueue resumes what has the label {KUEUE_QUEUE} once it admits it, else {resume}"
        return f"{named} is suspended, so it has no pods: {resume}"
    path = next((path for path in _MANAGED_BY if text(owner, path) == _ELSEWHERE), "")
    return f"{named} runs in another cluster, so it has no pods here: {path} is {_ELSEWHERE}" if path else ""


def unmade(owner: Object) -> str:
    """A message that the controller of a Job has created no pods, and where to find the reason; empty for others."""
    if owner.get("kind") != "Job" or any(at(owner, f"status.{field}") for field in _OF_PODS):
        return ""
    name, namespace = text(owner, "metadata.name"), text(owner, "metadata.namespace") or "default"
    if at(owner, "spec.parallelism") == 0:
        return f"Job {namespace}/{name} has no pods: its parallelism is 0"
    return f"Job {namespace}/{name} has no pods; its Events say why: kubectl describe job {name} -n {namespace}"


def _roles(owner: Object, fields: RoleFields) -> Iterator[Role]:
    workload_name = text(owner, "metadata.name")
    for key, entry in items(owner, fields.each) if fields.each else (("", owner),):
        name = (text(entry, fields.name) or key) if fields.each else fields.name
        replicas, pods = (number(owner, entry, path) for path in (fields.replicas, fields.pods_per_replica))
        least = count(owner, entry, fields.min_replicas, replicas) or 0
        prefix = f"{workload_name}-{name.lower()}" if name else workload_name
        template = mapping(entry, fields.template)
        needed = min(least, replicas) * pods
        first = count(owner, entry, fields.first, 0) or 0
        deadline = seconds(template, DEADLINE)
        yield Role(name.lower(), template, replicas * pods, needed, prefix, deadline, first=first)


def number(owner: Object, obj: object, path: str) -> int:
    """A number of replicas; 1 if unset."""
    found = count(owner, obj, path, 1)
    assert found is not None
    return found
