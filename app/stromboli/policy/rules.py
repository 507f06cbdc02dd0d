"""Compatibility rules: where Volcano breaks an invariant that its documents promise, both behaviours exist by name.

`volcano` reproduces the recorded outcome; `strict` keeps the invariant. Each rule is one boolean that reads as the
behaviour it switches on, and says what it means on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from stromboli.api.errors import PolicyError

Compatibility = Literal["volcano", "strict"]


def _rule(volcano: str, strict: str) -> bool:
    """A rule that is strict by default, and what it means on both sides."""
    rule: bool = field(default=True, metadata={"sides": (volcano, strict)})
    return rule


@dataclass(frozen=True, slots=True)
class Rules:
    """True means the strict behaviour; what each rule means on both sides is in `SIDES`."""

    veto: bool = _rule(
        "an empty set of victims asks the next tier alone",
        "who protects pods (`protects`) is heard in every tier; of the others the first tier with an opinion "
        "decides. Shares (`drf`) have no say in preemption within a queue beside priorities, unless the "
        "policy sets `enablePreemptable: true` on the plugin",
    )
    begun_first: bool = _rule(
        "a gang that is bound in part comes after those that hold nothing, if drf says so",
        "it is completed first",
    )
    whole_gang_eviction: bool = _rule(
        "a gang may be left running below minMember",
        "a gang keeps minMember or is evicted whole",
    )
    evict_only_what_helps: bool = _rule(
        "victims may go though the preemptor does not fit, and a pod that fits without any is promised its place",
        "a full placement is proven first; pods that fit without victims are left to `allocate` and `backfill`",
    )
    served_next: bool = _rule(
        "places are taken back though somebody else is served next",
        "only up to what both queues deserve, for whom the next session serves first; the room is promised to "
        "them until they are bound, gone, or `keepRoom` is over",
    )
    nominations: bool = _rule(
        "in which HyperNode room was made for a gang is forgotten after the session",
        "the next session places the gang there",
    )
    readiness: bool = _rule(
        "pending best-effort pods count as ready",
        "only pods that hold or get a place count; `allocate` places those that a gang lacks with the others",
    )
    closed_queue: bool = _rule(
        "takes best-effort pods and PodGroups without minResources; a closed parent says nothing about its children",
        "takes nothing new, nor does any queue below it; what waits in it lays claim to nothing, and "
        "of its guarantee only what it holds is kept",
    )
    deserved: bool = _rule(
        "guarantees may lift the sum above the cluster",
        "guarantees are floors of one water level; the sum never exceeds it",
    )
    clipped_guarantees: bool = _rule(
        "a guarantee above the cluster leaves nothing to others",
        "it is clipped to what exists, held back only as far as its queue asks for it, and the queue has the "
        "condition `GuaranteeClipped`",
    )
    kept_guarantees: bool = _rule(
        "each queue alone leaves room for the guarantees of others; two of them together, or in a tree those below "
        "other parents, may take it",
        "what is guaranteed is kept from all others together; a parent is guaranteed what its children are",
    )
    all_weights_zero: bool = _rule(
        "nothing is scheduled",
        "equal weights",
    )
    indivisible_shares: bool = _rule(
        "what no queue's share reaches stands idle",
        "the queue furthest below its share gets one job beyond it, on nodes that nobody waits for within a "
        "share; nobody is evicted for it",
    )
    bounded_sessions: bool = _rule(
        "a session tries every job, however long that takes",
        "where the policy sets `session.steps`, each action of a session has that budget, which queues share, and the "
        "namespaces in each; jobs that it does not reach come first in the next session",
    )
    tolerance: bool = _rule(
        "a rounding error of 1e-13 refuses a pod",
        "shares are whole base units",
    )
    broken_queue: bool = _rule(
        "one misplaced queue stops the cluster",
        "it is set aside with a reason, all else goes on",
    )
    hard_topology: bool = _rule(
        "a hard topology binds only with a tier that some HyperNode has",
        "without one the pods lie in one HyperNode, which the whole cluster is not, and with a name that no "
        "tier has they wait",
    )
    fifo: bool = _rule(
        "nobody reads `dequeueStrategy`",
        "in a queue with `dequeueStrategy: fifo` the jobs behind one that cannot be admitted or placed wait, and "
        "nobody is evicted for them",
    )
    ignored_fields: bool = _rule(
        "fields that the policy does not heed are ignored in silence",
        "the PodGroup or Queue has the condition `FieldIgnored`",
    )
    never_fits: bool = _rule(
        "a job that could not run even on the empty cluster is admitted like others",
        "it is not admitted, its queue deserves nothing for it, its minResources count against nobody; it is "
        "judged anew in every session",
    )
    admission: bool = _rule(
        "PodGroups in phase Inqueue, Running or Unknown skip admission; the claim of one in phase Inqueue counts "
        "what it already holds once more",
        "those without running pods are admitted anew; in the service a phase Inqueue that no session gave is no "
        "admission; no claim counts what a job holds",
    )
    predicate_cache: bool = _rule(
        "pods with one template id share an answer",
        "answers are shared within an identity class",
    )
    budgets: bool = _rule(
        "disruption budgets count anew in every call",
        "one count for each session",
    )
    ancestor_shares: bool = _rule(
        "parents keep the share of the session's start",
        "shares follow every placement",
    )
    conditions: bool = _rule(
        "a PodGroup that runs keeps the condition `Unschedulable` from before",
        "the condition that is over becomes `False`",
    )
    requested_resources: bool = _rule(
        "a node that is overcommitted in cpu or memory takes no pod that requests anything",
        "it takes pods that request none of what it is overcommitted in, as kube-scheduler does",
    )
    quotas: bool = _rule(
        "names in ResourceQuotas and minResources are compared letter by letter, scopes are not considered, and pods "
        "that exist count twice",
        "`requests.cpu` is `cpu`, each pod is one of `pods`, a quota counts the pods of its scopes, and pods that are "
        "in what is used count once",
    )
    pods_of_queues: bool = _rule(
        "`pods` in a queue's capability, deserved and guarantee is no limit",
        "where any queue names `pods`, it counts like any resource, and each pod is one",
    )
    terminating: bool = _rule(
        "pods that terminate count to no queue",
        "they count to what their queue may have until they are gone; a pod that takes their place is promised it, and "
        "starts then",
    )
    queue_gates: bool = _rule(
        "the scheduling gate `scheduling.volcano.sh/queue-allocation-gate` stays, as with Volcano's feature gate "
        "SchedulingGatesQueueAdmission at its default",
        "it is lifted once the queue can allocate the pod",
    )
    ready_nodes: bool = _rule(
        "a node whose condition Ready is not True takes pods until it is tainted",
        "it takes none but those that tolerate the taint",
    )
    volume_limits: bool = _rule(
        "a node without the driver of a claim takes nobody, even for volumes that no driver attaches",
        "limits are what CSINodes say",
    )
    local_volumes: bool = _rule(
        "an unbound claim of a class without provisioner counts against a driver that no node has, so its pod waits "
        "for ever. `compatibility: volcano` means this in recorded scenarios alone; a cluster has to ask for it",
        "it counts against no driver",
    )
    volume_restrictions: bool = _rule(
        "pods share ReadWriteOncePod claims, and disks that they name themselves",
        "one pod at a time has such a claim, and a node has such a disk once unless all of its pods only read it",
    )
    devices: bool = _rule(
        "vGPU memory in percent is not read, spreading gives no score, and what a gang gives back stays taken",
        "cards are shared as the device plugin's documents say",
    )
    extender_errors: bool = _rule(
        "an HTTP error on jobReady means ready",
        "an error is never a yes",
    )
    missing_claims: bool = _rule(
        "a pod whose resource claim does not exist is in no job",
        "it waits as part of its job",
    )
    shared_claims: bool = _rule(
        "a resource claim that gets its devices takes no second pod in that session, so that a gang that shares one "
        "never starts",
        "pods that share it follow the first to where its devices are",
    )


RULES = tuple(rule.name for rule in fields(Rules))
#: what each rule means under `volcano` and under `strict`
SIDES: Mapping[str, tuple[str, str]] = {rule.name: rule.metadata["sides"] for rule in fields(Rules)}


def rules(
    compatibility: Compatibility = "strict", overrides: Mapping[str, str] | None = None, *, recorded: bool = False
) -> Rules:
    """The rules of a compatibility mode with single rules overridden; `recorded` are those of a recorded scenario.

    Raises PolicyError for a rule that does not exist.
    """
    base = Rules(**dict.fromkeys(RULES, compatibility == "strict"))
    if not recorded:
        base = replace(base, local_volumes=True)
    unknown = sorted(set(overrides or {}) - set(RULES))
    if unknown:
        raise PolicyError([f"rules.{name}: no such rule; there are {', '.join(RULES)}" for name in unknown])
    return replace(base, **{name: value == "strict" for name, value in (overrides or {}).items()})
