"""How many pods of a gang nodes have room for, where its pods may not share a node or a zone with each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stromboli.api.resources import Rows, Vector
from stromboli.framework.session import Session
from stromboli.kube.ports import host_ports
from stromboli.kube.terms import required_anti_affinity
from stromboli.state.pods import PodRecord

#: the plugin that asks for both
_PLUGIN = "predicates"


def apart(session: Session, pod: PodRecord) -> list[Rows]:
    """The domains that hold one pod like this at most: the number of each node's, shape (nodes,), negative for none."""
    if not any(plugin.name == _PLUGIN for plugin in session.points.plugins):
        return []
    return list(_apart(session, pod))


def _apart(session: Session, pod: PodRecord) -> Iterator[Rows]:
    facts = session.view.nodes.facts
    if host_ports(pod.pod_class):
        yield np.arange(len(facts))
    for term in required_anti_affinity(pod.pod_class) or ():
        if pod.namespace in term.namespaces and term.selector.matches(pod.labels):
            yield facts.labels(term.topology_key).numbers.astype(np.intp)


def at_most_one(copies: Vector, domains: Rows) -> Vector:
    """The copies that are left, shape (nodes,), when only the first node with room in each domain takes one."""
    held = np.flatnonzero((copies > 0) & (domains >= 0))
    _, first = np.unique(domains[held], return_index=True)
    left = np.where(domains >= 0, 0.0, copies)
    left[held[first]] = 1.0
    return left
