"""The cards of a node and who holds what of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import ResourceList
from stromboli.state.nodes import NodeRecord
from stromboli.state.pods import PodRecord


@dataclass(frozen=True, slots=True)
class Slice:
    """What a container gets of a card."""

    card: int
    memory: int
    #: percent of the card's compute
    cores: int = 0


#: the slices of each container that gets some
Plan: TypeAlias = tuple[tuple[Slice, ...], ...]


@dataclass(slots=True)
class Card:
    """One device of a node."""

    index: int
    memory: int
    id: str = ""
    type: str = ""
    #: how many containers may share it
    seats: int = 0
    #: what is taken: seats, memory, percent of compute
    users: int = 0
    used_memory: int = 0
    used_cores: int = 0
    #: the pods on it, by row
    holders: dict[int, PodRecord] = field(default_factory=dict)

    def take(self, part: Slice, sign: int = 1) -> None:
        """Count a slice; a negative sign takes it off."""
        self.users += sign
        self.used_memory += sign * part.memory
        self.used_cores += sign * part.cores


class Inventory:
    """The cards of one node, by index."""

    __slots__ = ("by_index", "mode")

    def __init__(self, cards: Iterable[Card], mode: str = "") -> None:
        self.by_index = {card.index: card for card in cards}
        #: how the node's cards are shared
        self.mode = mode

    def draft(self) -> Inventory:
        """A copy to try things on; it shares the sets of holders."""
        return Inventory((replace(card) for card in self.by_index.values()), self.mode)

    def hold(self, pod: PodRecord, plan: Plan) -> None:
        """Give a pod its slices."""
        for part in _parts(plan, self.by_index):
            self.by_index[part.card].take(part)
            self.by_index[part.card].holders[pod.row] = pod

    def free(self, pod: PodRecord, plan: Plan) -> None:
        """Take a pod's slices back."""
        for part in _parts(plan, self.by_index):
            self.by_index[part.card].take(part, -1)
            self.by_index[part.card].holders.pop(pod.row, None)


class Sharing(Protocol):
    """A way to share cards."""

    def wants(self, pod: PodRecord) -> bool:
        """Whether a pod asks for cards."""

    def inventory(self, node: NodeRecord) -> Inventory | None:
        """The cards of a node, None when it has none that are shared in this way."""

    def held(self, pod: PodRecord, inventory: Inventory) -> Plan:
        """What a pod on a node holds by its annotations."""

    def plan(self, pod: PodRecord, inventory: Inventory, without: Collection[int]) -> Plan | None:
        """Slices for a pod on cards other than `without`, None when they do not suffice."""

    def frees(self, pod: PodRecord) -> bool:
        """Whether a pod that loses its place gives its slices back."""

    def score(self, plan: Plan, inventory: Inventory) -> float:
        """How good a plan is, before it is carried out."""

    def annotations(self, plan: Plan, inventory: Inventory, node: str, now: float) -> Mapping[str, str]:
        """What tells the node's device plugin about a plan."""


def units(amounts: ResourceList | None, name: str) -> int | None:
    """The amount of a resource in whole units, None when it is not named or no quantity."""
    value = (amounts or {}).get(name)
    try:
        return None if value is None else quantity.units(value)
    except InvalidQuantityError:
        return None


def _parts(plan: Plan, known: Collection[int]) -> Iterable[Slice]:
    return (part for container in plan for part in container if part.card in known)
