"""Which volumes the claims of a pod get on each node."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stromboli.kube.storage import PersistentVolume
from stromboli.kube.volume_index import Choices, FreeVolumes, Reach
from tests import builders
from tests.fuzz import tried

_NODES, _VOLUMES = 4, 6
#: the nodes that can access each volume, None for all, and which volumes each claim may have
_WHERE = st.lists(st.none() | st.sets(st.integers(0, _NODES - 1)), min_size=_VOLUMES, max_size=_VOLUMES)
_WANTED = st.lists(st.lists(st.booleans(), min_size=_VOLUMES, max_size=_VOLUMES), min_size=1, max_size=8)


def volume(number: int, nodes: set[int] | None) -> PersistentVolume:
    values = [f"n{node}" for node in sorted(nodes or ())] or ["none"]
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": values}
    spec: dict[str, Any] = {"capacity": {"storage": f"{1 + number}Gi"}, "accessModes": ["ReadWriteOnce"]}
    if nodes is not None:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}}
    return msgspec.convert({"metadata": {"name": f"v{number}"}, "spec": spec}, PersistentVolume)


@tried(60)
@given(_WHERE, _WANTED)
def test_each_claim_gets_the_first_volume_that_is_left_on_the_node(
    where: list[set[int] | None], wanted: list[list[bool]]
) -> None:
    facts = builders.state([builders.node(f"n{node}") for node in range(_NODES)]).snapshot().nodes.facts
    choices = Choices(Reach(FreeVolumes([volume(*each) for each in enumerate(where)]), facts))
    taken: list[set[int]] = [set() for _ in range(_NODES)]
    for claim in wanted:
        expected = []
        for node in range(_NODES):
            reached = (at for at, nodes in enumerate(where) if nodes is None or node in nodes)
            first = next((at for at in reached if claim[at] and at not in taken[node]), -1)
            taken[node].add(first)
            expected.append(first)
        assert choices.take(np.array(claim)).tolist() == expected
