"""Compatibility rules: where Volcano violates its own documentation, both behaviours are available by name.

`volcano` reproduces the recorded behaviour, `strict` the documented one. Each rule is a boolean named after the strict
behaviour, with a description of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from stromboli.api.errors import PolicyError

Compatibility = Literal["volcano", "strict"]


def _rule(volcano: str, strict: str) -> bool:
    """A rule that is strict by default, with descriptions of both behaviours."""
    rule: bool = field(default=True, metadata={"sides": (volcano, strict)})
    return rule


@dataclass(frozen=True, slots=True)
class Rules:
    """True means strict; `SIDES` describes both behaviours of each rule."""

    veto: bool = _rule(
        "an empty set of victims delegates the decision to the next tier",
        "plugins that protect pods (`protects`) are asked in every tier; among the others the first tier with an "
        "opinion decides. Shares (`drf`) do not restrict preemption by priority within a queue, unless the policy "
        "sets `enablePreemptable: true` on the plugin",
    )
    begun_first: bool = _rule(
        "a partially bound gang comes after gangs without any pod, if drf orders them so",
        "a partially bound gang is completed first",
    )
    whole_gang_eviction: bool = _rule(
        "evictions may leave a gang running below minMember",
        "a gang keeps minMember or is evicted as a whole",
    )
    evict_only_what_helps: bool = _rule(
        "victims may be evicted although the preemptor does not fit afterwards, unless `whole_gang_eviction` is "
        "strict, and a pod that fits without evictions is nominated; a pod that requests nothing evicts only its like",
        "a full placement is found first; pods that fit without evictions are left to `allocate` and `backfill`; a pod "
        "that requests nothing preempts the pods in its way, as in kube-scheduler",
    )
    served_next: bool = _rule(
        "resources are reclaimed even if another queue is served next",
        "resources are reclaimed within the deserved amounts of both queues, for the queue that the next session "
        "serves first; they are reserved for it until its pods are bound or deleted, or `keepRoom` has passed",
    )
    nominations: bool = _rule(
        "the HyperNode in which pods were evicted for a gang is forgotten after the session",
        "the next session places the gang there",
    )
    readiness: bool = _rule(
        "pending best-effort pods count as ready",
        "only placed pods count; `allocate` places the best-effort pods that a gang lacks together with the others",
    )
    closed_queue: bool = _rule(
        "a closed queue accepts best-effort pods and PodGroups without minResources; a closed parent does not "
        "affect its children",
        "a closed queue and its descendants accept nothing new; waiting jobs in it claim nothing, and only the "
        "used part of its guarantee is kept",
    )
    deserved: bool = _rule(
        "guarantees may raise the sum of deserved amounts above the cluster",
        "guarantees are lower bounds in one max-min division; the sum never exceeds the cluster",
    )
    clipped_guarantees: bool = _rule(
        "a guarantee above the cluster leaves nothing to other queues",
        "it is clipped to what exists, reserved only as far as the queue requests it, and the queue has the "
        "condition `GuaranteeClipped`",
    )
    kept_guarantees: bool = _rule(
        "each queue alone respects the guarantees of others; two of them together, or in a tree queues below "
        "other parents, may use them up",
        "guarantees are kept from all other queues together; a parent's guarantee includes those of its children",
    )
    all_weights_zero: bool = _rule(
        "nothing is scheduled",
        "all queues have equal weights",
    )
    indivisible_shares: bool = _rule(
        "resources that are too small for a further job within any queue's share stay idle",
        "the queue furthest below its share gets one job beyond it, on nodes that no job within a share is "
        "waiting for; no pod is evicted for it",
    )
    bounded_sessions: bool = _rule(
        "a session tries every job, however long that takes",
        "each action has the budget `session.steps` per session, divided among queues and, in each queue, "
        "namespaces; jobs that it does not reach come first in the next session",
    )
    tolerance: bool = _rule(
        "a rounding error of 1e-13 rejects a pod",
        "shares are rounded to whole base units",
    )
    broken_queue: bool = _rule(
        "one misplaced queue stops scheduling in the whole cluster",
        "the queue is set aside with a reason, and all others are served",
    )
    hard_topology: bool = _rule(
        "a hard topology is enforced only with a tier that some HyperNode has, and not beside pods that are promised "
        "places",
        "without a tier the pods stay within one HyperNode other than the whole cluster; with a tier name that "
        "does not exist they wait",
    )
    overdue: bool = _rule(
        "a job that waited longer than `sla` allows keeps the free places that its pods find, and is admitted, only if "
        "`sla` is in a tier above the plugins that reject it, such as `gang`",
        "the same if `sla` is in their tier, as Volcano's documents show it",
    )
    what_fits: bool = _rule(
        "a gang is tried in one order of its pods, each on its best node, and in a HyperNode only if that fits "
        "all of its pods; a gang that would fit in another way waits",
        "where that fails other ways are searched within a budget (`session.search`), in HyperNodes that fit what "
        "the gang starts with; a gang that cannot be placed, whatever finishes, says why",
    )
    fifo: bool = _rule(
        "`dequeueStrategy` is ignored",
        "in a queue with `dequeueStrategy: fifo`, the jobs behind one that cannot be admitted or placed wait, and "
        "no pod is evicted for them",
    )
    ignored_fields: bool = _rule(
        "fields that the policy does not use are ignored silently",
        "the PodGroup or Queue has the condition `FieldIgnored`",
    )
    never_fits: bool = _rule(
        "a job that would not fit even into the empty cluster is admitted like others",
        "it is not admitted, does not add to what its queue deserves, and its minResources do not count; every "
        "session reconsiders it",
    )
    admission: bool = _rule(
        "PodGroups in the phases Inqueue, Running and Unknown skip admission; the claim of an Inqueue job counts "
        "what it already holds twice",
        "jobs without running pods are admitted again; in the service, a phase Inqueue that no session set is no "
        "admission; claims exclude what a job already holds",
    )
    predicate_cache: bool = _rule(
        "pods with the same template ID share an answer",
        "pods of one identity class share an answer",
    )
    budgets: bool = _rule(
        "disruption budgets are counted separately in every call",
        "disruption budgets are counted once per session, whether or not the policy names the plugin pdb",
    )
    ancestor_shares: bool = _rule(
        "shares of parent queues stay as at the start of the session",
        "shares follow every placement",
    )
    conditions: bool = _rule(
        "a running PodGroup keeps an old condition `Unschedulable`",
        "a condition that no longer holds becomes `False`",
    )
    requested_resources: bool = _rule(
        "a node that is overcommitted in cpu or memory accepts no pod that requests anything",
        "it accepts pods that request none of the overcommitted resources, as in kube-scheduler",
    )
    quotas: bool = _rule(
        "names in ResourceQuotas and minResources must match literally, scopes are ignored, and existing pods "
        "count twice",
        "`requests.cpu` is `cpu`, each pod counts as one of `pods`, scopes are respected, and pods in the quota's "
        "usage count once",
    )
    pods_of_queues: bool = _rule(
        "`pods` in a queue's capability, deserved and guarantee is ignored",
        "if any queue sets `pods`, it counts like any other resource, and each pod counts as one",
    )
    terminating: bool = _rule(
        "terminating pods do not count for their queue",
        "they count until they are gone; a pod that replaces them is nominated and starts afterwards",
    )
    queue_gates: bool = _rule(
        "the scheduling gate `scheduling.volcano.sh/queue-allocation-gate` is not removed, as with Volcano's "
        "feature gate SchedulingGatesQueueAdmission at its default",
        "it is removed once the queue can allocate the pod, which keeps that amount for it",
    )
    ready_nodes: bool = _rule(
        "a node whose condition Ready is not True accepts pods until it is tainted",
        "it accepts only pods that tolerate the taint",
    )
    volume_limits: bool = _rule(
        "a node without the driver of a claim accepts no pod with it, even for volumes that no driver attaches",
        "the limits of CSINodes apply",
    )
    local_volumes: bool = _rule(
        "an unbound claim of a class without provisioner counts against a driver that no node has, so its pod "
        "waits forever. `compatibility: volcano` includes this in recorded scenarios only; in a cluster it has to "
        "be set",
        "it counts against no driver",
    )
    volume_restrictions: bool = _rule(
        "pods share ReadWriteOncePod claims and inline disks",
        "a ReadWriteOncePod claim has one pod at a time, and an inline disk is mounted once per node unless all "
        "mounts are read-only",
    )
    devices: bool = _rule(
        "vGPU memory in percent is ignored, spreading has no score, and released cards of a gang stay in use",
        "cards are shared as the device plugin documents",
    )
    extender_errors: bool = _rule(
        "an HTTP error of jobReady means ready",
        "an error never means yes",
    )
    missing_claims: bool = _rule(
        "a pod whose resource claim does not exist belongs to no job",
        "it waits as part of its job",
    )
    shared_claims: bool = _rule(
        "a resource claim that is being allocated accepts no second pod in that session, so that a gang that "
        "shares it never starts",
        "pods that share it follow the first to the nodes that can access its devices",
    )

    @property
    def first_fit(self) -> bool:
        """Whether pods are evicted on the first node or HyperNode that works, as Volcano does."""
        return not (self.evict_only_what_helps or self.whole_gang_eviction)


RULES = tuple(rule.name for rule in fields(Rules))
#: rule -> its behaviour under `volcano` and under `strict`
SIDES: Mapping[str, tuple[str, str]] = {rule.name: rule.metadata["sides"] for rule in fields(Rules)}


def rules(
    compatibility: Compatibility = "strict", overrides: Mapping[str, str] | None = None, *, recorded: bool = False
) -> Rules:
    """The rules of a compatibility mode, with single rules overridden; `recorded` is for recorded scenarios.

    Raises PolicyError for an unknown rule.
    """
    base = Rules(**dict.fromkeys(RULES, compatibility == "strict"))
    if not recorded:
        base = replace(base, local_volumes=True)
    unknown = sorted(set(overrides or {}) - set(RULES))
    if unknown:
        raise PolicyError([f"rules.{name}: no such rule; there are {', '.join(RULES)}" for name in unknown])
    return replace(base, **{name: value == "strict" for name, value in (overrides or {}).items()})
