"""Extended resources in one session: on which nodes a pod gets them through a special claim, and that claim."""

from __future__ import annotations

from collections.abc import Container, Iterator

import numpy as np

from stromboli.api.resources import Mask
from stromboli.framework.cluster.view import View
from stromboli.kube.dra.extended import SpecialClaim, backing, has_plugin, special_claim
from stromboli.state.pods import PodRecord


class ExtendedResources:
    """Finds the nodes where a pod needs a special claim, and composes it."""

    def __init__(self, view: View) -> None:
        self._facts = view.nodes.facts
        self._claimed = view.snapshot.claimed
        self._classes = backing(view.snapshot) if self._claimed else {}
        self._has_plugin = {resource: has_plugin(self._facts, resource) for resource in sorted(self._claimed)}
        #: by resources that are asked for: nodes, and which of them these have no plugin for
        self._splits: dict[tuple[str, ...], list[tuple[Mask, tuple[str, ...]]]] = {}
        #: by pod and resources
        self._made: dict[tuple[str, tuple[str, ...]], SpecialClaim] = {}

    def asked(self, pod: PodRecord) -> tuple[str, ...]:
        """The extended resources that a pod asks for."""
        return tuple(sorted(self._claimed.intersection(pod.pod_class.request))) if self._claimed else ()

    def split(self, pod: PodRecord) -> list[tuple[Mask, tuple[str, ...]]]:
        """Nodes where a pod needs devices, and for which resources."""
        asked = self.asked(pod)
        if asked not in self._splits:
            self._splits[asked] = list(self._nodes(asked))
        return self._splits[asked]

    def on_node(self, pod: PodRecord, node: int) -> tuple[str, ...]:
        """The resources for which a pod needs devices on a node."""
        return tuple(resource for resource in self.asked(pod) if not self._has_plugin[resource][node])

    def claim(self, pod: PodRecord, resources: tuple[str, ...], claims: Container[str]) -> SpecialClaim:
        """The claim of a pod for some of them; `claims` are the keys that others have."""
        key = pod.uid, resources
        if key not in self._made:
            self._made[key] = special_claim(pod, resources, self._classes, claims)
        return self._made[key]

    def _nodes(self, asked: tuple[str, ...]) -> Iterator[tuple[Mask, tuple[str, ...]]]:
        lacks = [~self._has_plugin[resource] for resource in asked]
        numbers = sum((lack.astype(np.int64) << bit for bit, lack in enumerate(lacks)), np.zeros(len(self._facts), int))
        for number in np.unique(numbers[numbers > 0]).tolist():
            yield numbers == number, tuple(each for bit, each in enumerate(asked) if number >> bit & 1)
