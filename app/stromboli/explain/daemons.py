"""The capacity held by DaemonSet pods: they stay on their nodes whatever ends, and each new node gets its own."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Mask, Matrix
from stromboli.framework.cluster.view import View
from stromboli.state.pods import PodRecord
from stromboli.workloads.daemons import node_of_daemon


def daemons_on(view: View, node: int) -> list[PodRecord]:
    """The pods of DaemonSets on a node, by its row."""
    return _daemons(view, view.pods.node == node)


def room_beside_daemons(view: View) -> Matrix:
    """The capacity of nodes for pods other than those of DaemonSets, shape (dimensions, nodes)."""
    room: Matrix = view.nodes.allocatable.copy()
    for pod in _daemons(view, view.pods.node >= 0):
        room[:, view.pods.node[pod.row]] -= view.request(pod)
    return room


def _daemons(view: View, pods: Mask) -> list[PodRecord]:
    """Pods that belong to DaemonSets; `pods` has shape (pods,)."""
    return [pod for pod in view.records(np.flatnonzero(pods)) if node_of_daemon(pod.pod_class.spec)]
