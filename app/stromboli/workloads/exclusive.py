"""Exclusive topologies: each Job of a JobSet, or replica of a LeaderWorkerSet, has a domain for itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stromboli.workloads.paths import Object, mapping

#: the label of pods that belong together, by the annotation that names the label of nodes whose values tell domains
_KEYS = {
    "alpha.jobset.sigs.k8s.io/exclusive-topology": "jobset.sigs.k8s.io/job-key",
    "leaderworkerset.sigs.k8s.io/exclusive-topology": "leaderworkerset.sigs.k8s.io/group-key",
}
#: with which a JobSet needs none, since nodes are labelled for its Jobs
_LABELLED_NODES = "alpha.jobset.sigs.k8s.io/node-selector"


@dataclass(frozen=True, slots=True)
class ExclusiveTopology:
    """Topology in which pods that belong together have a domain to themselves."""

    #: the label of nodes whose values tell domains apart
    topology: str
    #: the label of pods whose values tell what belongs together
    label: str

    def labels(self, together: str) -> dict[str, str]:
        """The labels of a pod that belongs together with those of the same key."""
        return {self.label: together}

    def affinity(self, spec: Object, together: str) -> Object:
        """The affinity of such a pod, added to that of its template.

        It stands for what webhooks of the two write: the same for the first pods, a node selector for the others.
        """
        with_them: Object = {"key": self.label, "operator": "In", "values": [together]}
        with_others: list[Object] = [{"key": self.label, "operator": "Exists"}, {**with_them, "operator": "NotIn"}]
        found = mapping(spec, "affinity")
        found = self._required(found, "podAffinity", [with_them])
        return self._required(found, "podAntiAffinity", with_others)

    def _required(self, affinity: Object, of_pods: str, expressions: list[Object]) -> Object:
        term: Object = {"topologyKey": self.topology, "namespaceSelector": {}}
        term["labelSelector"] = {"matchExpressions": expressions}
        there: Object = mapping(affinity, of_pods)
        required: list[Any] = there.get("requiredDuringSchedulingIgnoredDuringExecution") or []
        return {**affinity, of_pods: {**there, "requiredDuringSchedulingIgnoredDuringExecution": [*required, term]}}


def exclusive_topology(*annotations: Mapping[str, str]) -> ExclusiveTopology | None:
    """Exclusive topology that annotations ask for, the first ones first; None for none, or where nodes are labelled."""
    for noted in annotations:
        for annotation, label in _KEYS.items():
            if annotation in noted and _LABELLED_NODES not in noted:
                return ExclusiveTopology(noted[annotation], label)
    return None
