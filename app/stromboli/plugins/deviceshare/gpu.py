"""Cards by memory (`volcano.sh/gpu-memory`) or as a whole (`volcano.sh/gpu-number`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stromboli.plugins.deviceshare.cards import Card, Inventory, Plan, Slice, units
from stromboli.state.nodes import NodeRecord
from stromboli.state.pods import PodRecord

MEMORY = "volcano.sh/gpu-memory"
NUMBER = "volcano.sh/gpu-number"
INDEX = "volcano.sh/gpu-index"
_TIME = "volcano.sh/predicate-time"
_UNHEALTHY = "volcano.sh/gpu-unhealthy-ids"


class _Gpus:
    """What both ways to share have in common: equal cards, numbered from 0."""

    def inventory(self, node: NodeRecord) -> Inventory | None:
        total, number = units(node.capacity, MEMORY), units(node.capacity, NUMBER)
        if total is None or not number:
            return None
        broken = _indices(node.annotations.get(_UNHEALTHY))
        return Inventory(Card(index, memory=total // number) for index in range(number) if index not in broken)

    def held(self, pod: PodRecord, inventory: Inventory) -> Plan:
        if not (_limit(pod, MEMORY) or _limit(pod, NUMBER)):
            return ()
        indices = _indices(pod.annotations.get(INDEX))
        return (tuple(Slice(index, _limit(pod, MEMORY)) for index in indices),)

    def frees(self, pod: PodRecord) -> bool:
        return True

    def score(self, plan: Plan, inventory: Inventory) -> float:
        return 0.0

    def annotations(self, plan: Plan, inventory: Inventory, node: str, now: float) -> Mapping[str, str]:
        return {
            INDEX: ",".join(str(part.card) for container in plan for part in container),
            _TIME: str(int(now * 1e9)),
        }


class SharedMemory(_Gpus):
    """A pod gets a part of one card's memory: of the first that has enough left."""

    def wants(self, pod: PodRecord) -> bool:
        return _limit(pod, MEMORY) > 0

    def plan(self, pod: PodRecord, inventory: Inventory, without: Collection[int]) -> Plan | None:
        wanted = _limit(pod, MEMORY)
        for index, card in sorted(inventory.by_index.items()):
            if index not in without and card.memory - card.used_memory >= wanted:
                return ((Slice(index, wanted),),)
        return None


class WholeCards(_Gpus):
    """A pod gets cards of its own."""

    def wants(self, pod: PodRecord) -> bool:
        return _limit(pod, NUMBER) > 0

    def plan(self, pod: PodRecord, inventory: Inventory, without: Collection[int]) -> Plan | None:
        wanted = _limit(pod, NUMBER)
        cards = sorted(inventory.by_index.items())
        idle = [index for index, card in cards if index not in without and not card.holders]
        if len(idle) < wanted:
            return None
        return (tuple(Slice(index, 0) for index in idle[:wanted]),)


def _limit(pod: PodRecord, name: str) -> int:
    """A pod's limit: containers together, or the largest init container."""
    spec = pod.pod_class.spec
    together, largest = 0, 0
    for container in spec.containers or ():
        together += (container.resources and units(container.resources.limits, name)) or 0
    for container in spec.init_containers or ():
        largest = max(largest, (container.resources and units(container.resources.limits, name)) or 0)
    return max(together, largest)


def _indices(written: str | None) -> tuple[int, ...]:
    """Numbers separated by commas; what is no number is left out."""
    return tuple(int(part) for part in (written or "").split(",") if part.strip().isdigit())
