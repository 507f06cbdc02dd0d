"""Selector spread: pods that belong together are spread over nodes and zones.

In kube-scheduler these are the pods selected by one Service or controller. Here they are the pods of one PodGroup,
which pods of one controller share as well.
"""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Rows, Vector
from stromboli.framework.cluster.view import View
from stromboli.kube.domains import domains
from stromboli.kube.placed import PlacedPods
from stromboli.state.pods import PodRecord

_ZONE = "topology.kubernetes.io/zone"
#: weight of zones in the score
_ZONE_PART = 2 / 3


def is_spread(pod: PodRecord) -> bool:
    """Whether the score applies to a pod; it does not if the pod has spread constraints of its own."""
    return bool(pod.job) and not pod.pod_class.spec.topology_spread_constraints


class SelectorSpread:
    """The score in one session."""

    def __init__(self, view: View, placed: PlacedPods) -> None:
        self._facts = view.nodes.facts
        self._placed = placed

    def scores(self, pod: PodRecord, rows: Rows) -> Vector | None:
        """A score from 0 to 100 for each candidate node, shape (len(rows),); None if all are equal."""
        if not is_spread(pod):
            return None
        counts, placed = np.zeros(len(self._facts)), self._placed.of_job(pod)
        if placed is not None:
            counts[rows] = placed[rows]
        scores = _fewest_first(counts[rows])
        zones = domains(self._facts, _ZONE)
        zoned = zones.labelled[rows]
        if zoned.any():
            of_zones = _fewest_first(zones.sums(counts)[rows])
            scores[zoned] = scores[zoned] * (1 - _ZONE_PART) + of_zones[zoned] * _ZONE_PART
        scores = np.floor(scores)
        return None if (scores == scores[0]).all() else scores


def _fewest_first(counts: Vector) -> Vector:
    most = counts.max(initial=0.0)
    return np.full(len(counts), 100.0) if most == 0 else 100.0 * (most - counts) / most
