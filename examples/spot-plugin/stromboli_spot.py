"""spot: pods that may be interrupted prefer spot nodes, all others stay off them."""

from pydantic import Field

from stromboli.framework import Arguments, Plugin, Reads


class SpotArguments(Arguments):
    """Arguments of spot."""

    weight: int = Field(default=1, alias="spot.weight")
    """Multiplies the score of a spot node."""


class Spot(Plugin):
    name = "spot"
    reads = Reads(annotations=("volcano.sh/preemptable",))
    Arguments = SpotArguments

    def predicate(self, pod, nodes):
        if pod.annotations.get("volcano.sh/preemptable") != "true":
            yield "node(s) can be interrupted", ~self._spot(nodes)

    def node_order(self, pod, nodes):
        return self._spot(nodes) * 100.0 * self.arguments.weight

    def _spot(self, nodes):
        return nodes.facts.label("spot")[nodes.rows] >= 0
