"""Cards by memory (`volcano.sh/gpu-memory`) or as a whole (`volcano.sh/gpu-number`)."""

from __future__ import annotations

from collections.abc import Mapping

from stromboli.api import readers
from stromboli.api.objects import PodSpec
from stromboli.api.resources import Mask
from stromboli.devices.cards import (
    LARGEST,
    MOST_CARDS,
    Card,
    Cards,
    Draft,
    Grant,
    Inventory,
    Picks,
    Plan,
    enough,
    first,
    units,
)
from stromboli.state.nodes import NodeRecord
from stromboli.state.pods import PodRecord

MEMORY = "volcano.sh/gpu-memory"
NUMBER = "volcano.sh/gpu-number"
INDEX = "volcano.sh/gpu-index"
_TIME = "volcano.sh/predicate-time"
_UNHEALTHY = "volcano.sh/gpu-unhealthy-ids"


class _Gpus:
    """Common part of both ways to share: equal cards, numbered from 0, which is their id."""

    def inventory(self, node: NodeRecord) -> Inventory | None:
        total, number = units(node.capacity, MEMORY), units(node.capacity, NUMBER)
        if total is None or not number:
            return None
        broken = _indices(node.annotations.get(_UNHEALTHY))
        memory = min(total // number, LARGEST)
        indices = (index for index in range(min(number, MOST_CARDS)) if index not in broken)
        return Inventory(tuple(Card(index, memory, str(index)) for index in indices))

    def grant(self, pod: PodRecord) -> Grant | None:
        if INDEX not in pod.annotations or not (_limit(pod, MEMORY) or _limit(pod, NUMBER)):
            return None
        memory = _limit(pod, MEMORY)
        return (tuple((str(index), memory, 0) for index in _indices(pod.annotations[INDEX])),)

    def choice(self, pod: PodRecord) -> None:
        return None

    def frees(self, pod: PodRecord) -> bool:
        return True

    def annotations(self, plan: Plan, inventory: Inventory, node: str, now: float) -> Mapping[str, str]:
        return {
            INDEX: ",".join(str(part.card) for container in plan for part in container),
            _TIME: str(int(now * 1e9)),
        }


class SharedMemory(_Gpus):
    """A pod gets a part of one card's memory: of the first that has enough left."""

    def wants(self, pod: PodRecord) -> bool:
        return _limit(pod, MEMORY) > 0

    def fits(self, pod: PodRecord, cards: Cards) -> Mask:
        return enough(self._fitting(pod, cards), 1)

    def draft(self, pod: PodRecord, cards: Cards) -> Draft:
        picked, fits = first(self._fitting(pod, cards), 1)
        return Draft(fits, [Picks(picked, _limit(pod, MEMORY))])

    def _fitting(self, pod: PodRecord, cards: Cards) -> Mask:
        fitting: Mask = cards.there & (cards.memory - cards.used_memory >= _limit(pod, MEMORY))
        return fitting


class WholeCards(_Gpus):
    """A pod gets cards of its own."""

    def wants(self, pod: PodRecord) -> bool:
        return _limit(pod, NUMBER) > 0

    def fits(self, pod: PodRecord, cards: Cards) -> Mask:
        return enough(cards.there & (cards.users == 0), _limit(pod, NUMBER))

    def draft(self, pod: PodRecord, cards: Cards) -> Draft:
        picked, fits = first(cards.there & (cards.users == 0), _limit(pod, NUMBER))
        return Draft(fits, [Picks(picked, 0)])


def _limit(pod: PodRecord, name: str) -> int:
    """A pod's limit: containers together, or the largest init container."""
    cache = pod.pod_class.cache
    known = cache.get(name)
    if known is None:
        known = cache[name] = min(_limit_of(pod.pod_class.spec, name), LARGEST)
    assert isinstance(known, int)
    return known


def _limit_of(spec: PodSpec, name: str) -> int:
    together, largest = 0, 0
    for container in spec.containers or ():
        together += (container.resources and units(container.resources.limits, name)) or 0
    for container in spec.init_containers or ():
        largest = max(largest, (container.resources and units(container.resources.limits, name)) or 0)
    return max(together, largest)


def _indices(written: str | None) -> tuple[int, ...]:
    """Numbers separated by commas; other texts are left out."""
    found = (readers.count(part.strip()) for part in (written or "").split(","))
    return tuple(index for index in found if index is not None)
