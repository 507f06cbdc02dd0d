"""Selectors, affinities, tolerations and spread constraints."""

from __future__ import annotations

from msgspec import field

from stromboli.api import readers
from stromboli.api.objects.base import Record


class Requirement(Record, frozen=True):
    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(Record, frozen=True):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(Record, frozen=True):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(Record, frozen=True):
    weight: readers.Integer
    preference: NodeSelectorTerm


class NodeAffinity(Record, frozen=True):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredSchedulingTerm] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class LabelSelector(Record, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class PodAffinityTerm(Record, frozen=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(Record, frozen=True):
    weight: readers.Integer
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Record, frozen=True):
    required: list[PodAffinityTerm] | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[WeightedPodAffinityTerm] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Record, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Record, frozen=True):
    key: str | None = ""
    operator: str | None = ""
    value: str | None = ""
    effect: str | None = ""


class TopologySpreadConstraint(Record, frozen=True):
    max_skew: readers.Integer
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: readers.Integer | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None
