"""The predicate of a hard shard: every action obeys it, and every reason says so."""

from __future__ import annotations

from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.plugin.causes import Filters
from stromboli.state.pods import PodRecord


class OwnNodesOnly(Plugin):
    """No policy names it: it precedes all tiers when the scheduler's shard is hard."""

    name = "node shard"

    def open(self, view: View) -> None:
        assert view.shard is not None
        self._own = view.shard.own

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) were not in the scheduler's node shard", self._own[nodes.rows]
