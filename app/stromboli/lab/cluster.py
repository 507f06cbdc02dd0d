"""The cluster that a workload runs on: from manifests, or a number of equal nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from stromboli.api import crds, objects, quantity
from stromboli.api.errors import InvalidQuantityError, StromboliError
from stromboli.api.validation import shown
from stromboli.lab.timeline import NodeChange
from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import load
from stromboli.state.cluster import object_key

_PODS = "110"
#: a number of nodes, and what each has: `1000*cpu=32,memory=256Gi`
_EQUAL = re.compile(r"(?P<count>[1-9][0-9]{0,5})\*(?P<amounts>[^*]+)")
#: kinds of a cluster that are no jobs
_SURROUNDINGS = frozenset(("Pod", "PodGroup"))


class ClusterError(StromboliError):
    """A cluster that cannot be used."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster when a workload begins, and nodes that are added and removed later."""

    objects: Sequence[tuple[str, Any]]
    changes: Sequence[NodeChange] = field(default_factory=tuple)
    problems: Sequence[str] = ()


def equal_nodes(count: int, amounts: dict[str, str]) -> Cluster:
    """A number of nodes with the same amounts."""
    return Cluster([("Node", _node(f"node-{number:05}", amounts)) for number in range(count)])


def _node(name: str, amounts: dict[str, str]) -> objects.Node:
    offered: objects.ResourceList = {"pods": _PODS, **amounts}
    return objects.Node(
        metadata=objects.Metadata(name=name, labels={"kubernetes.io/hostname": name}),
        status=objects.NodeStatus(allocatable=offered, capacity=offered),
    )


def read_cluster(text: str, stdin: BinaryIO, queues: str = "") -> Cluster:
    """`1000*cpu=32,memory=256Gi`, or files of manifests separated by commas; pods and jobs in them are left out.

    `queues` is a file of manifests, too, with queues for equal nodes. Raises ClusterError.
    """
    equal = _EQUAL.fullmatch(text)
    if equal is None:
        files = [*text.split(","), *([queues] if queues else [])]
        found = _surroundings(files, stdin)
        if not any(kind == "Node" for kind, _ in found.objects):
            raise ClusterError(f"{text}: has no nodes, nor is it such as 1000*cpu=32,memory=256Gi")
        return found
    amounts = {}
    for part in equal["amounts"].split(","):
        name, equals, amount = part.strip().partition("=")
        if not (name and equals and _is_quantity(amount)):
            raise ClusterError(f"{text}: {shown(part)} is not an amount such as cpu=32")
        amounts[name] = amount
    nodes = equal_nodes(int(equal["count"]), amounts)
    if not queues:
        return nodes
    more = _surroundings([queues], stdin)
    return Cluster([*nodes.objects, *more.objects], problems=more.problems)


def _is_quantity(text: str) -> bool:
    """Whether a text is an amount that a node may have."""
    try:
        return quantity.parse(text) >= 0
    except InvalidQuantityError:
        return False


def _surroundings(files: Sequence[str], stdin: BinaryIO) -> Cluster:
    """The content of files except pods and jobs."""
    loaded = load(list(files), stdin, lenient=True)
    loaded.objects = [each for each in loaded.objects if each[0] not in _SURROUNDINGS]
    return Cluster(admit(loaded, ("stromboli",)), problems=loaded.problems)


def queue_names(cluster: Cluster) -> set[str]:
    """The queues that a cluster has."""
    return {object_key(obj) for kind, obj in cluster.objects if kind == "Queue"}


def open_queue(name: str) -> crds.Queue:
    """A queue for jobs that name a missing one."""
    return crds.Queue(
        metadata=crds.Metadata(name=name), spec=crds.QueueSpec(weight=1), status=crds.QueueStatus(state="Open")
    )
