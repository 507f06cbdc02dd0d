"""The predicate of a hard shard: every action obeys it, and every reason says so."""

from __future__ import annotations

from stromboli.framework.nodes import NodeView
from stromboli.framework.plugin import Filters, Plugin
from stromboli.framework.view import View
from stromboli.state.pods import PodRecord


class OwnNodesOnly(Plugin):
    """No policy names it: it stands before all tiers when the scheduler's shard is hard."""

    name = "node shard"

    def open(self, view: View) -> None:
        assert view.shard is not None
        self._own = view.shard.own

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) were not in the scheduler's node shard", self._own[nodes.rows]
