"""Which fields of queues and PodGroups are read, by what, and which of those set have no effect under the session's
policy.

`QUEUE_FIELDS` is the one table: the condition `FieldIgnored`, answers, `doctor` and the page about custom resources are
written from it. What a policy reads is what its plugins declare in `queue_fields`, with its actions and rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from pydantic.alias_generators import to_snake

from stromboli.api.crds import FEWER, GROUP_CLAIMS, PART_OF, RUN_TIME, SLICES, Condition, PodGroup, PodGroupCondition
from stromboli.api.resources import Mask
from stromboli.api.validation import did_you_mean, field_path, shown
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.topology import has_topology, says_topology
from stromboli.framework.session.session import Session
from stromboli.policy.rules import Rules

CONDITION = "FieldIgnored"
_OVER = PodGroupCondition(type=CONDITION, status="False", reason="PolicyReadsIt")


@dataclass(frozen=True, slots=True)
class QueueField:
    """A field of a queue's spec that only some policies read."""

    #: as it is written in the spec
    name: str
    #: whether it says something
    is_set: Callable[[Queue], bool]
    #: the plugins that read it
    plugins: tuple[str, ...] = ()
    #: the actions that read it
    actions: tuple[str, ...] = ()
    #: the rule that has to be strict for it to be read
    rule: str = ""
    #: the plugins of those that read it with `enableHierarchy` only
    hierarchical: tuple[str, ...] = ()

    @property
    def readers(self) -> str:
        """Readers of the field, in words: `the plugins capacity and fairshare`."""
        names = [f"{name} (with enableHierarchy)" if name in self.hierarchical else name for name in self.plugins]
        parts = [
            _named("plugin", names),
            _named("action", self.actions),
            f"the rule {self.rule} (strict)" if self.rule else "",
        ]
        return " and ".join(filter(None, parts))


QUEUE_FIELDS = (
    QueueField("weight", lambda queue: queue.spec.weight not in (0, 1), ("proportion", "fairshare")),
    QueueField("capability", lambda queue: bool(queue.spec.capability), ("proportion", "capacity", "fairshare")),
    QueueField("deserved", lambda queue: bool(queue.spec.deserved), ("capacity", "fairshare")),
    QueueField("guarantee", lambda queue: bool(queue.spec.guarantee.resource), ("proportion", "capacity")),
    QueueField(
        "parent",
        lambda queue: queue.parent not in ("", "root"),
        ("capacity", "fairshare"),
        hierarchical=("capacity",),
    ),
    QueueField("borrowingLimit", lambda queue: bool(queue.spec.borrowing_limit), ("capacity",)),
    QueueField("lendingLimit", lambda queue: bool(queue.spec.lending_limit), ("capacity",)),
    QueueField("preemptMinRuntime", lambda queue: bool(queue.spec.preempt_min_runtime), ("minruntime",)),
    QueueField("reclaimMinRuntime", lambda queue: bool(queue.spec.reclaim_min_runtime), ("minruntime",)),
    QueueField("priority", lambda queue: bool(queue.spec.priority), ("proportion", "capacity", "fairshare")),
    QueueField("pools", lambda queue: bool(queue.spec.pools), ("nodepools",)),
    QueueField(
        "reclaimable",
        lambda queue: queue.spec.reclaimable is False and queue.name != "root",
        actions=("reclaim", "gangreclaim"),
    ),
    QueueField(
        "affinity",
        lambda queue: bool(queue.spec.affinity.node_group_affinity or queue.spec.affinity.node_group_anti_affinity),
        ("nodegroup",),
    ),
    QueueField("dequeueStrategy", lambda queue: queue.spec.dequeue_strategy != "traverse", rule="fifo"),
)
#: names of the fields in Python, by those in the spec
_ATTRIBUTES = {field.name: to_snake(field.name) for field in QUEUE_FIELDS}
#: why `spec.networkTopology` of a PodGroup has no effect
_NO_TOPOLOGY = {"networkTopology": "has no effect under this policy: it is read by the plugin network-topology-aware"}

#: the field of a PodGroup that an annotation says to have no effect, and why, with the annotation's value
_NOTED = {
    FEWER: ("minMember", "{}"),
    SLICES: ("subGroupPolicy", "has no slices: {} has no effect, and pods of a slice may be far apart"),
    PART_OF: (
        "parentCompositePodGroupName",
        "has no effect: it starts by itself, and not together with the other parts of CompositePodGroup {}",
    ),
    GROUP_CLAIMS: (
        "resourceClaims",
        "has no effect: pods that name {} wait for a claim of their own, while one claim is made for the group",
    ),
}
#: where the policies of sub groups name a tier
_SUB_GROUP_TIER = "subGroupPolicy[*].networkTopology.highestTierName"
#: the object with the annotation for a job's run time
_RUN_TIME = field_path(("metadata", "annotations", RUN_TIME))
#: the reason of the condition by the field of a PodGroup that has no effect, the first one counts
_REASONS = {
    "networkTopology": "NotInPolicy",
    "networkTopology.highestTierName": "NoSuchTier",
    _SUB_GROUP_TIER: "NoSuchTier",
    "priorityClassName": "NoPriorityClass",
    _RUN_TIME: "RunTimeUnreadable",
    "minMember": "FewerPodsAtFirst",
    "subGroupPolicy": "NoTopologyOfSlices",
    "parentCompositePodGroupName": "GroupStartsAlone",
    "resourceClaims": "ClaimsOfPodsOnly",
}


def tell(session: Session) -> None:
    """Report a condition for each PodGroup and Queue with fields that the session's policy ignores."""
    if not session.rules.ignored_fields:
        return
    known = session.view.jobs
    told_already = known.of(known.holds(CONDITION, lambda group: _is_told(group.status.conditions)))
    ignoring = jobs_with_ignored(session)
    for job in told_already:
        session.report.condition(job, _OVER)
    for job in ignoring:
        ignored = ignored_of_job(session, job)
        reason = next(reason for field, reason in _REASONS.items() if field in ignored)
        said = PodGroupCondition(type=CONDITION, status="True", reason=reason, message=told(ignored))
        session.report.condition(job, said)
    unread = _unread_fields(session)
    for queue in session.view.queues.values():
        if ignored := _set_of(queue, unread):
            message = told(ignored)
            queue_said = Condition(type=CONDITION, status="True", reason="NotInPolicy", message=message)
            session.report.queue_condition(queue.name, queue_said)


def jobs_with_ignored(session: Session) -> Iterable[Job]:
    """The jobs with fields that have no effect."""
    known = session.view.jobs
    noted = known.holds("ignored", _says_what_has_no_effect)
    return known.of(_without_class(session) | _topology_unread(session) | _without_tier(session) | noted)


def ignored_of_queue(session: Session, queue: Queue) -> dict[str, str]:
    """The fields set in a queue's spec that nothing in the policy reads, each with its possible readers."""
    return _set_of(queue, _unread_fields(session))


def ignored_of_job(session: Session, job: Job) -> dict[str, str]:
    """The fields of a PodGroup's spec that have no effect, each with why.

    Also a tier or a priority class that does not exist, and a number of pods that cannot be there at first.
    """
    if has_topology(job) and not _reads_topology(session):
        ignored = dict(_NO_TOPOLOGY)
    else:
        ignored = _unknown_tiers(session, job.pod_group)
    name = job.pod_group.spec.priority_class_name
    if job.pod_group.priority is None and _is_missing(session, name):
        ignored["priorityClassName"] = f"has no effect: there is no PriorityClass {name}{_or(session, name)}"
    if _has_unreadable_run_time(job.pod_group):
        written = shown(job.pod_group.metadata.annotations[RUN_TIME])
        ignored[_RUN_TIME] = f"has no effect: it should be a duration above 0 such as 90m, not {written}"
    for key, (field, why) in _NOTED.items():
        if said := job.pod_group.metadata.annotations.get(key):
            ignored[field] = why.format(said)
    return ignored


def told(ignored: dict[str, str]) -> str:
    """Ignored fields in a sentence: `spec.deserved has no effect under this policy: ...`."""
    return "; ".join(f"{place_of(field)} {why}" for field, why in ignored.items())


def place_of(field: str) -> str:
    """The path of an ignored field in its object: in the spec, unless the name is already a path."""
    return field if field.startswith("metadata.") else f"spec.{field}"


def _says_what_has_no_effect(group: PodGroup) -> bool:
    """Whether annotations of a PodGroup say that something has no effect, or one of them has none itself."""
    return not group.metadata.annotations.keys().isdisjoint(_NOTED) or _has_unreadable_run_time(group)


def _has_unreadable_run_time(group: PodGroup) -> bool:
    return RUN_TIME in group.metadata.annotations and group.run_time is None


def fields_read(session: Session) -> Collection[str]:
    """The names of the fields of queues that the policy's plugins, actions and rules read."""
    plugins = session.points.plugins
    read = frozenset[str]().union(*(plugin.queue_fields for plugin in plugins))
    trees = frozenset([plugin.name for plugin in plugins if plugin.hierarchy])
    return read | _read_besides(tuple(session.policy.actions), session.rules, trees)


@cache
def _read_besides(actions: tuple[str, ...], rules: Rules, trees: frozenset[str]) -> frozenset[str]:
    """Names of the fields that actions, rules and plugins with a hierarchy read."""
    return frozenset(
        field.name
        for field in QUEUE_FIELDS
        if not (set(actions).isdisjoint(field.actions) and trees.isdisjoint(field.hierarchical))
        or (field.rule and getattr(rules, field.rule))
    )


def _unread_fields(session: Session) -> list[tuple[str, QueueField]]:
    """The fields that nothing in the policy reads, with their names in Python."""
    read = fields_read(session)
    return [(_ATTRIBUTES[field.name], field) for field in QUEUE_FIELDS if field.name not in read]


def _set_of(queue: Queue, fields: Iterable[tuple[str, QueueField]]) -> dict[str, str]:
    """Those of some fields, with their names in Python, that are set, each with its possible readers."""
    # What a manifest leaves out is not set, and most of a thousand queues say little.
    given = queue.spec.model_fields_set
    return {
        field.name: f"has no effect under this policy: it is read by {field.readers}"
        for name, field in fields
        if name in given and field.is_set(queue)
    }


def _reads_topology(session: Session) -> bool:
    return bool(session.points.all["hyper_node_gradient"])


def _topology_unread(session: Session) -> Mask:
    """Mask of jobs that ask for a topology which nothing in the policy reads, shape (jobs,)."""
    known = session.view.jobs
    return known.holds("topology", says_topology) & (not _reads_topology(session))


def _without_tier(session: Session) -> Mask:
    """Mask of jobs that prefer a tier without HyperNodes, shape (jobs,)."""
    known, tiers = session.view.jobs, session.view.topology.tier_by_name
    values, numbers = known.said("soft tiers", lambda group: tuple(_soft_tiers(group)))
    unknown = np.array([any(name not in tiers for _, name in named) for named in values[:]], np.bool_)
    mask: Mask = unknown[numbers]
    return mask


def _unknown_tiers(session: Session, group: PodGroup) -> dict[str, str]:
    """A PodGroup that prefers a tier without HyperNodes. One that requires such a tier waits, and shows why."""
    tiers = session.view.topology.tier_by_name
    return {
        field: f"has no effect: there is no HyperNode of tier {name}{did_you_mean(name, tiers)}"
        for field, name in _soft_tiers(group)
        if name not in tiers
    }


def _soft_tiers(group: PodGroup) -> Iterator[tuple[str, str]]:
    """The names of the tiers that a PodGroup prefers, each after its field."""
    own, policies = group.spec.network_topology, group.spec.sub_group_policy
    fields = [
        ("networkTopology.highestTierName", own),
        *((_SUB_GROUP_TIER, each.network_topology) for each in policies),
    ]
    for field, said in fields:
        if said is not None and said.mode == "soft" and said.highest_tier_name:
            yield field, said.highest_tier_name


def _without_class(session: Session) -> Mask:
    """Mask of jobs that name a missing priority class, shape (jobs,)."""
    values, numbers = session.view.jobs.said("priority", lambda group: (group.priority, group.spec.priority_class_name))
    missing: Mask = np.array([number is None and _is_missing(session, name) for number, name in values], np.bool_)[
        numbers
    ]
    return missing


def _or(session: Session, name: str) -> str:
    return did_you_mean(name, session.view.snapshot.priority_classes)


def _is_missing(session: Session, name: str) -> bool:
    """Whether there is no priority class of a name; Kubernetes' own need no object."""
    classes = session.view.snapshot.priority_classes
    return bool(name) and name not in classes and not name.startswith("system-")


def _is_told(conditions: Iterable[PodGroupCondition]) -> bool:
    return any(said.type == CONDITION and said.status == "True" for said in conditions)


def _named(noun: str, names: Collection[str]) -> str:
    """`the plugin a`, `the plugins a, b and c`; empty without any."""
    *others, last = names or [""]
    return f"the {noun}{'s' if others else ''} {', '.join(others)}{' and ' if others else ''}{last}" if last else ""
