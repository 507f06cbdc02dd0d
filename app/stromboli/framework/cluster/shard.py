"""Node shards: which nodes are this scheduler's own when several share a cluster.

A shard's nodes are those that its NodeShard desires and that no other shard still uses. `hard` never leaves them: a
predicate, so that every action obeys and every reason says so. `soft` takes them first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stromboli.api.resources import Mask
from stromboli.framework.cluster.environment import Sharding
from stromboli.state.nodes import NodeFacts


@dataclass(frozen=True, slots=True)
class NodeShardStatus:
    """The nodes that a NodeShard lists, by name."""

    in_use: frozenset[str] = frozenset()
    to_add: frozenset[str] = frozenset()
    to_remove: frozenset[str] = frozenset()


class Shard:
    """The shard of a session."""

    def __init__(self, sharding: Sharding, node_shards: Mapping[str, Mapping[str, Any]], facts: NodeFacts) -> None:
        self.sharding = sharding
        own = node_shards.get(sharding.name)
        desired = frozenset(_names(own, "spec", "nodesDesired"))
        elsewhere = {
            node
            for name, other in node_shards.items()
            if name != sharding.name
            for node in _names(other, "status", "nodesInUse")
        }
        in_use = desired - elsewhere
        #: its nodes, shape (nodes,)
        self.own: Mask = np.fromiter((r.name in in_use for r in facts.records), np.bool_, len(facts))
        #: the status that its NodeShard should get; None if it is up to date or does not exist
        self.new_status: NodeShardStatus | None = None
        if own is not None:
            status = NodeShardStatus(in_use, to_add=desired - in_use)
            if status != _status(own):
                self.new_status = status


def by_preference(shard: Shard | None, within: Mask | None) -> list[Mask | None]:
    """Limits of the choice of a node, to be tried in turn: own nodes go before others in a soft shard."""
    if shard is None or shard.sharding.mode == "hard":
        return [within]
    if within is None:
        return [shard.own, ~shard.own]
    return [within & shard.own, within & ~shard.own]


def _status(node_shard: Mapping[str, Any]) -> NodeShardStatus:
    fields = ("nodesInUse", "nodesToAdd", "nodesToRemove")
    return NodeShardStatus(*(frozenset(_names(node_shard, "status", name)) for name in fields))


def _names(node_shard: Mapping[str, Any] | None, part: str, name: str) -> Iterable[str]:
    section = (node_shard or {}).get(part) or {}
    return section.get(name) or ()
