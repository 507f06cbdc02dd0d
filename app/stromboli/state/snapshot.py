"""A snapshot is the cluster as one session sees it. Arrays are copied; records are immutable and shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stromboli.api.crds import HyperNode, PodGroup, Queue
from stromboli.api.objects import PriorityClass
from stromboli.api.resources import Matrix
from stromboli.state.classes import PodClass
from stromboli.state.columns import Facts
from stromboli.state.nodes import NodeFacts, NodeTable
from stromboli.state.plain import PlainObjects
from stromboli.state.pod_facts import PodFacts
from stromboli.state.pods import IntColumn, PodRecord, PodTable, StateColumn
from stromboli.state.reads import Reads
from stromboli.state.refusals import Refusal


@dataclass(slots=True)
class NodeColumns:
    """The nodes in order of arrival; amounts have shape (dimensions, nodes), those of one resource lie together."""

    facts: NodeFacts
    allocatable: Matrix
    used: Matrix
    releasing: Matrix
    #: cpu and memory as kube-scheduler's scoring counts requests, shape (2, nodes)
    scoring: Matrix

    @classmethod
    def of(cls, nodes: NodeTable) -> NodeColumns:
        """Copies of a table's columns."""
        order = nodes.in_order()
        return cls(
            facts=nodes.facts(),
            allocatable=nodes.allocatable.take(order, axis=1),
            used=nodes.used.take(order, axis=1),
            releasing=nodes.releasing.take(order, axis=1),
            scoring=nodes.scoring.take(order, axis=1),
        )


@dataclass(slots=True)
class PodColumns:
    """The pods by row; free rows have job -2. `node` is an index into the snapshot's nodes, -1 for none."""

    records: list[PodRecord | None]
    state: StateColumn
    node: IntColumn
    job: IntColumn
    pod_class: IntColumn

    @classmethod
    def of(cls, pods: PodTable, nodes: NodeTable) -> PodColumns:
        """Copies of a table's columns."""
        size, order = pods.size, nodes.in_order()
        node = pods.node[:size].copy()
        if len(order) != len(nodes.records) or not np.array_equal(order, np.arange(len(order))):
            # One more, for the -1 of pods without a node.
            position = np.full(len(nodes.records) + 1, -1, np.int32)
            position[order] = np.arange(len(order), dtype=np.int32)
            node = position[node]
        return cls(
            records=pods.records.copy(),
            state=pods.state[:size].copy(),
            node=node,
            job=pods.job[:size].copy(),
            pod_class=pods.pod_class[:size].copy(),
        )


@dataclass(slots=True)
class Snapshot:
    """The cluster at one moment."""

    #: resource names in column order
    dimensions: tuple[str, ...]
    nodes: NodeColumns
    pods: PodColumns
    pod_facts: PodFacts
    #: pod fields that classes and records keep for plugins
    reads: Reads
    classes: Sequence[PodClass]
    #: requests by class, shape (classes, dimensions)
    requests: Matrix
    #: PodGroup by job row; None when pods name a group that does not exist
    pod_groups: list[PodGroup | None]
    group_facts: Facts[PodGroup]
    queues: Mapping[str, Queue]
    priority_classes: Mapping[str, PriorityClass]
    hyper_nodes: Mapping[str, HyperNode]
    #: all other kinds, kind -> key -> object as plain data
    objects: Mapping[str, PlainObjects]
    #: pods whose eviction was refused a moment ago, by uid
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    #: resources that pods get by a claim which is made for them, on nodes that have none of their own
    claimed: frozenset[str] = frozenset()
    #: levels of the topology that the policy names, whether or not nodes are labelled for them
    levels: int = 0
    #: schedulerName of the pods that kube-scheduler binds, which learns through its extender to which node
    bound_elsewhere: frozenset[str] = frozenset()
    #: the queue of each PodGroup that was deleted while there are pods that name it, by job row
    left_queues: Mapping[int, str] = field(default_factory=dict)
    #: For readers of `objects`: what they made of them, by a key of their own, for the next snapshot's readers, which
    #: replace it. A session that was published is asked while the next one runs, so its contents are never changed.
    derived: dict[object, object] = field(default_factory=dict)
