"""Topology spread constraints: matching pods are spread evenly over the domains of a label.

Replicas without constraints are spread over nodes and zones by default, as a score. In kube-scheduler these are the
pods that a Service or a controller selects; here they are those of one PodGroup, which pods of a controller share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from stromboli.api import objects
from stromboli.api.reasons import Passage
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.causes import Detailed, Filters, Passing
from stromboli.framework.plugin.relations import Balanced
from stromboli.kube import node_affinity, taints
from stromboli.kube.domains import Domains, domains
from stromboli.kube.placed import PlacedPods
from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord
from stromboli.state.selectors import EVERYTHING, Requirement, Selector, label_selector

_HOSTNAME, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_CAUSE = "node(s) didn't match pod topology spread constraints"


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint of a pod."""

    max_skew: int
    topology_key: str
    selector: Selector
    min_domains: int
    #: whether nodes that the pod's node affinity excludes are ignored
    honors_affinity: bool
    #: whether nodes with taints that the pod does not tolerate are ignored
    honors_taints: bool
    #: whether the pods of the pod's job are counted, instead of those that the selector selects
    of_job: bool = False


#: the controllers whose pods are spread by default, and how
_REPLICATING = ("ReplicaSet", "ReplicationController", "StatefulSet")
_BY_DEFAULT = [
    Constraint(skew, key, EVERYTHING, 1, honors_affinity=True, honors_taints=False, of_job=True)
    for key, skew in ((_HOSTNAME, 3), (_ZONE, 5))
]


def has_constraints(pod_class: PodClass, when_unsatisfiable: str) -> bool:
    """Whether pods of a class have constraints with an action: DoNotSchedule or ScheduleAnyway."""
    constraints = pod_class.spec.topology_spread_constraints
    return bool(constraints) and any(c.when_unsatisfiable == when_unsatisfiable for c in constraints or ())


def constraints(pod: PodRecord, when_unsatisfiable: str) -> list[Constraint]:
    """The constraints with an action, with the pod's values of matchLabelKeys."""
    return [
        _constraint(raw, pod)
        for raw in pod.pod_class.spec.topology_spread_constraints or ()
        if raw.when_unsatisfiable == when_unsatisfiable
    ]


def _constraint(raw: objects.TopologySpreadConstraint, pod: PodRecord) -> Constraint:
    same = [
        Requirement(key, "In", frozenset((pod.labels[key],))) for key in raw.match_label_keys or () if key in pod.labels
    ]
    return Constraint(
        max_skew=raw.max_skew,
        topology_key=raw.topology_key,
        selector=label_selector(raw.label_selector).narrowed(same),
        min_domains=1 if raw.min_domains is None else raw.min_domains,
        honors_affinity=raw.node_affinity_policy != "Ignore",
        honors_taints=raw.node_taints_policy == "Honor",
    )


class Spread:
    """The filter and the score in one session. Masks and vectors have shape (nodes,)."""

    def __init__(self, view: View, placed: PlacedPods) -> None:
        self._facts = view.nodes.facts
        self._placed = placed
        self._jobs = view.jobs
        #: whether a job's pods are replicas, by key, of jobs that were asked about
        self._replicas: dict[str, bool] = {}

    def filters(self, pod: PodRecord) -> Filters:
        """Nodes that have every topology label, and where one more pod keeps each skew within its limit."""
        wanted = constraints(pod, "DoNotSchedule")
        if not wanted:
            return
        labelled = self._labelled(wanted)
        if not all(self._domains(constraint).everywhere for constraint in wanted):
            yield Detailed(f"{_CAUSE} (missing required label)", partial(self._unlabelled, wanted)), labelled
        masks = [self._within_skew(constraint, pod, labelled) for constraint in wanted]
        limiting = [mask for mask in masks if mask is not None]
        if limiting:
            yield Passing(_CAUSE), reduce(np.logical_and, limiting)

    def _unlabelled(self, wanted: list[Constraint]) -> Passage:
        """The topologies that no node has a label of."""
        keys = [each.topology_key for each in wanted if not self._domains(each).labelled.any()]
        return Passage((), "; ".join(f"no node has the label {key}" for key in dict.fromkeys(keys)), "")

    def relations(self, pods: Sequence[PodRecord]) -> Iterator[Balanced]:
        """The relations between some pods that follow from their constraints."""
        for at, pod in enumerate(pods):
            wanted = constraints(pod, "DoNotSchedule")
            labelled = self._labelled(wanted) if wanted else None
            for constraint in wanted:
                # What selects every pod counts none.
                if labelled is None or constraint.selector == EVERYTHING:
                    continue
                counts, eligible = self._counts(constraint, pod), labelled & self._included(constraint, pod)
                all_domains = self._domains(constraint)
                yield Balanced(
                    f"topology spread by {constraint.topology_key}",
                    _CAUSE,
                    at,
                    np.array([_counted(constraint, pod, other) for other in pods], np.bool_),
                    all_domains.numbers,
                    eligible,
                    np.zeros(len(self._facts)) if counts is None else counts,
                    constraint.max_skew,
                    all_domains.number_of(eligible) < constraint.min_domains,
                )

    def scores(self, pod: PodRecord, rows: Rows) -> Vector | None:
        """A score from 0 to 100 for each candidate node, shape (len(rows),); None if all are equal."""
        wanted = constraints(pod, "ScheduleAnyway")
        if wanted:
            labelled = self._labelled(wanted)
        elif self._by_default(pod):
            wanted, labelled = _BY_DEFAULT, np.ones(len(self._facts), np.bool_)
        else:
            return None
        known = labelled[rows]
        if not known.any():
            return None
        crowding = np.zeros(len(rows))
        for constraint in wanted:
            crowding += self._crowding(constraint, pod, labelled, rows[known])[rows]
        return _emptiest_first(np.floor(crowding + 0.5), known)

    def prefers(self, pod: PodRecord) -> bool:
        """Whether `scores` may prefer some nodes for a pod."""
        if pod.pod_class.spec.topology_spread_constraints:
            return has_constraints(pod.pod_class, "ScheduleAnyway")
        known = self._replicas.get(pod.job)
        if known is None:
            known = self._replicas[pod.job] = self._are_replicas(pod.job)
        return known

    def _by_default(self, pod: PodRecord) -> bool:
        """Whether a pod is spread although it has no constraints: it is one of several replicas."""
        return not pod.pod_class.spec.topology_spread_constraints and self.prefers(pod)

    def _are_replicas(self, key: str) -> bool:
        job = self._jobs.get(key)
        owners = job.pod_group.metadata.owner_references if job is not None else ()
        return any(owner.get("controller") and owner.get("kind") in _REPLICATING for owner in owners)

    def _domains(self, constraint: Constraint) -> Domains:
        return domains(self._facts, constraint.topology_key)

    def _labelled(self, wanted: list[Constraint]) -> Mask:
        return reduce(np.logical_and, [self._domains(constraint).labelled for constraint in wanted])

    def _within_skew(self, constraint: Constraint, pod: PodRecord, labelled: Mask) -> Mask | None:
        """The nodes where one more pod keeps the skew within its limit; None for all."""
        counts, itself = self._counts(constraint, pod), constraint.selector.matches(pod.labels)
        if counts is None:
            if itself <= constraint.max_skew:
                return None
            counts = np.zeros(len(self._facts))
        eligible = labelled & self._included(constraint, pod)
        all_domains = self._domains(constraint)
        matching, number = all_domains.sums(np.where(eligible, counts, 0.0)), all_domains.number_of(eligible)
        fewest = matching[eligible].min() if number and number >= constraint.min_domains else 0.0
        within: Mask = matching + itself - fewest <= constraint.max_skew
        return within

    def _crowding(self, constraint: Constraint, pod: PodRecord, labelled: Mask, candidates: Rows) -> Vector:
        """The number of matching pods in each node's domain, scaled by the number of candidate domains."""
        counts = self._counts(constraint, pod)
        if counts is None:
            counts = np.zeros(len(self._facts))
        all_domains = self._domains(constraint)
        if constraint.topology_key == _HOSTNAME:
            sums, number = counts, len(candidates)
        else:
            eligible = labelled & self._included(constraint, pod)
            sums, number = all_domains.sums(np.where(eligible, counts, 0.0)), all_domains.number_of(candidates)
        return np.where(all_domains.labelled, sums * math.log(number + 2) + (constraint.max_skew - 1), 0.0)

    def _included(self, constraint: Constraint, pod: PodRecord) -> Mask:
        """The nodes that are eligible for the constraint."""
        spec = pod.pod_class.spec
        out = np.ones(len(self._facts), np.bool_)
        if constraint.honors_affinity:
            required = node_affinity.required_nodes(spec, self._facts)
            if required is not None:
                out &= required
        if constraint.honors_taints:
            out &= ~taints.keeping_away(spec.tolerations or (), self._facts)
        return out

    def _counts(self, constraint: Constraint, pod: PodRecord) -> Vector | None:
        """The number of pods on each node that the constraint selects in the pod's namespace; None for none."""
        if constraint.of_job:
            return self._placed.of_job(pod)
        selector, namespace, pods = constraint.selector, pod.namespace, self._placed.pod_facts
        if selector == EVERYTHING:
            return None

        def selected() -> Rows:
            return pods.selected(selector, pods.named((namespace,)))

        return self._placed.count((namespace, selector), selected, terminating=False)


def _counted(constraint: Constraint, pod: PodRecord, other: PodRecord) -> bool:
    """Whether a constraint of a pod counts another one."""
    return other.namespace == pod.namespace and constraint.selector.matches(other.labels)


def _emptiest_first(crowding: Vector, known: Mask) -> Vector | None:
    """Scores that fall with the number of matching pods; nodes without the labels score 0."""
    highest, lowest = crowding[known].max(), crowding[known].min()
    if highest == 0:
        scores = np.full(len(crowding), 100.0)
    else:
        scores = np.floor(100.0 * (highest + lowest - crowding) / highest)
    scores[~known] = 0.0
    return None if (scores == scores[0]).all() else scores
