"""NodeDeclaredFeatures: a pod that needs a feature of the kubelet is placed on nodes that declare it.

As in kube-scheduler, the required features follow from the pod's spec; nodes list theirs in `status.declaredFeatures`.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from stromboli.api import objects
from stromboli.api.resources import Mask
from stromboli.state.classes import PodClass
from stromboli.state.columns import Column
from stromboli.state.nodes import NodeFacts

Features = frozenset[str]

_RESTART_ALL = "RestartAllContainers"
_RESTART_ALL_FEATURE = "RestartAllContainersOnContainerExits"
_HOST_NETWORK_FEATURE = "UserNamespacesHostNetworkSupport"


def required_features(pod_class: PodClass) -> Features:
    """The features that a node must declare for pods of a class."""
    known = pod_class.cache.get(required_features)
    if known is None:
        known = pod_class.cache[required_features] = _required(pod_class.spec)
    return cast(Features, known)


def _required(spec: objects.PodSpec) -> Features:
    found = set()
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    if any(rule.action == _RESTART_ALL for each in containers for rule in each.restart_policy_rules or ()):
        found.add(_RESTART_ALL_FEATURE)
    if spec.isolates_users_on_host_network:
        found.add(_HOST_NETWORK_FEATURE)
    return frozenset(found)


def declaring(features: Features, facts: NodeFacts) -> Mask:
    """The nodes that declare all of some features, shape (nodes,)."""
    column: Column[Features] = facts.column("declared features", lambda record: frozenset(record.declared_features))
    having = [number for number, declared in enumerate(column.values) if features <= declared]
    mask: Mask = np.isin(column.numbers, having)
    return mask
