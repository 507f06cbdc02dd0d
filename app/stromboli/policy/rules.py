"""Compatibility rules: where Volcano breaks an invariant that its documents promise, both behaviours exist by name.

`volcano` reproduces the recorded outcome; `strict` keeps the invariant. Each rule is one boolean that reads as the
behaviour it switches on; `docs/architecture.md` says what each one means for users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

from stromboli.api.errors import PolicyError

Compatibility = Literal["volcano", "strict"]


@dataclass(frozen=True, slots=True)
class Rules:
    """True means the strict behaviour."""

    #: whoever protects pods is heard in every tier; of the others the first tier with an opinion on victims decides
    veto: bool = True
    #: a gang that holds places but lacks some comes before the gangs that hold none
    begun_first: bool = True
    #: a gang keeps minMember or is evicted whole
    whole_gang_eviction: bool = True
    #: nobody is evicted unless the preemptor then fits
    evict_only_what_helps: bool = True
    #: places are taken back only for whom the next session serves first, within the shares of both, and kept for them
    served_next: bool = True
    #: the HyperNode in which room was made for a gang is kept for it over sessions
    nominations: bool = True
    #: only pods that hold or get a place count as ready, pending best-effort pods do not
    readiness: bool = True
    #: a queue that is not open takes nothing new
    closed_queue: bool = True
    #: guarantees are served first, so that deserved amounts never add up to more than the cluster
    deserved: bool = True
    #: a guarantee that cannot be kept is clipped to what exists, and held back only as far as its queue asks for it
    clipped_guarantees: bool = True
    #: what is guaranteed to a queue is kept from all others together, and in a tree from those outside its parent, too
    kept_guarantees: bool = True
    #: queues whose weights are all zero share equally
    all_weights_zero: bool = True
    #: room that no share reaches, because shares do not divide, is lent to the queue furthest below its own
    indivisible_shares: bool = True
    #: fair shares are rounded to base units, so that no pod is refused over a rounding error
    tolerance: bool = True
    #: a broken queue is set aside, everything else goes on
    broken_queue: bool = True
    #: a hard topology without a tier, or with one that no HyperNode has, binds as well
    hard_topology: bool = True
    #: an object that sets a field that the policy does not heed says so
    ignored_fields: bool = True
    #: a job that could not run even on the empty cluster is not admitted and lays claim to nothing
    never_fits: bool = True
    #: PodGroups without running pods are admitted anew, and in the service those in line that no session admitted; no
    #: claim counts what a job holds
    admission: bool = True
    #: predicate answers are shared within an identity class only
    predicate_cache: bool = True
    #: one count of a disruption budget per session
    budgets: bool = True
    #: the shares of parent queues follow the placements of a session, not only those of leaves
    ancestor_shares: bool = True
    #: a PodGroup that is scheduled is no longer shown as unschedulable, nor the other way round
    conditions: bool = True
    #: volumes are limited by what CSINodes say, not by a dimension of resources as well
    volume_limits: bool = True
    #: cards are shared as the documents of the device plugins say
    devices: bool = True
    #: an error of an HTTP extender is never a yes
    extender_errors: bool = True
    #: a pod whose resource claim does not exist waits for it as part of its job
    missing_claims: bool = True


RULES = tuple(field.name for field in fields(Rules))


def rules(compatibility: Compatibility = "strict", overrides: Mapping[str, str] | None = None) -> Rules:
    """The rules of a compatibility mode with single rules overridden.

    Raises PolicyError for a rule that does not exist.
    """
    base = Rules(**dict.fromkeys(RULES, compatibility == "strict"))
    unknown = sorted(set(overrides or {}) - set(RULES))
    if unknown:
        raise PolicyError([f"rules.{name}: no such rule; there are {', '.join(RULES)}" for name in unknown])
    return replace(base, **{name: value == "strict" for name, value in (overrides or {}).items()})
