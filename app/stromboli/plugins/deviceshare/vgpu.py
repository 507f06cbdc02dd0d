"""Virtual cards: seats, memory and compute of NVIDIA cards, as HAMi's device plugin registers them on nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from stromboli.api.objects import Container
from stromboli.plugins.deviceshare.cards import Card, Inventory, Plan, Slice, units
from stromboli.state.nodes import NodeRecord
from stromboli.state.pods import PodRecord

NUMBER = "volcano.sh/vgpu-number"
MEMORY = "volcano.sh/vgpu-memory"
PERCENTAGE = "volcano.sh/vgpu-memory-percentage"
CORES = "volcano.sh/vgpu-cores"
REGISTER = "volcano.sh/node-vgpu-register"
IDS = "volcano.sh/vgpu-ids-new"
_MODE = "volcano.sh/vgpu-mode"
_USE_TYPE, _NO_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
_USE_ID, _NO_ID = "volcano.sh/vgpu-use-gpuuuid", "volcano.sh/vgpu-nouse-gpuuuid"
_GROUP_POLICY = "volcano.sh/vgpu-podgroup-policy"
_TYPE = "NVIDIA"
_HAMI, _MIG = "hami-core", "mig"
_SCORE = 100.0


@dataclass(frozen=True, slots=True)
class Request:
    """What a container asks for, of each of its cards."""

    cards: int
    memory: int
    #: percent of the card's memory, instead of an amount; None when an amount is given
    percentage: int | None
    cores: int

    def of(self, card: Card) -> Slice:
        """The slice that it gets of a card."""
        memory = self.memory if self.percentage is None else card.memory * self.percentage // 100
        return Slice(card.index, memory, self.cores)


class Virtual:
    """Cards with seats. The policy says which cards of a node come first: the fullest, the emptiest, or the last."""

    def __init__(self, policy: str, *, repaired: bool) -> None:
        """Without `repaired` it is as in Volcano by itself.

        Then memory in percent is not read, spreading gives no score, and what a gang was given that is then taken back
        stays taken for the session.
        """
        self._policy = policy
        self._repaired = repaired

    def wants(self, pod: PodRecord) -> bool:
        return bool(self._requests(pod))

    def inventory(self, node: NodeRecord) -> Inventory | None:
        written = node.annotations.get(REGISTER, "")
        if ":" not in written or not all(units(node.allocatable, name) for name in (NUMBER, MEMORY, CORES)):
            return None
        cards, mode = [], _HAMI
        for index, entry in enumerate(written.split(":")):
            if "," not in entry:
                continue
            parts = entry.split(",")
            if len(parts) < 6:
                return None
            identity, seats, memory, type_, _health, mode = parts[:6]
            cards.append(Card(index, _number(memory), identity, type_, _number(seats)))
        return Inventory(cards, _MIG if mode == _MIG else _HAMI) if cards else None

    def held(self, pod: PodRecord, inventory: Inventory) -> Plan:
        index_of = {card.id: card.index for card in inventory.by_index.values()}
        plan = []
        for container in pod.annotations.get(IDS, "").split(";"):
            parts = [entry.split(",") for entry in container.split(":") if entry.count(",") >= 3]
            plan.append(
                tuple(
                    Slice(index_of[part[0]], _number(part[2]), _number(part[3]))
                    for part in parts
                    if part[0] in index_of
                )
            )
        return tuple(plan)

    def plan(self, pod: PodRecord, inventory: Inventory, without: Collection[int]) -> Plan | None:
        mode = pod.pod_class.annotations.get(_MODE)
        if mode is not None and mode != inventory.mode:
            return None
        draft = inventory.draft()
        allowed = {
            index
            for index, card in draft.by_index.items()
            if index not in without and _may_use(pod, card) and not _shared_with_own_group(pod, card)
        }
        plan = []
        for request in self._requests(pod):
            slices: list[Slice] = []
            for card in self._in_order(draft):
                if len(slices) == request.cards:
                    break
                if card.index in allowed and _has_room(card, request):
                    slices.append(request.of(card))
                    card.take(slices[-1])
            if len(slices) < request.cards:
                return None
            plan.append(tuple(slices))
        return tuple(plan)

    def frees(self, pod: PodRecord) -> bool:
        return self._repaired or IDS in pod.annotations

    def score(self, plan: Plan, inventory: Inventory) -> float:
        """The fuller the cards, the better, when they are to be packed; when they are to be spread, the idler."""
        draft, score = inventory.draft(), 0.0
        for part in (part for container in plan for part in container):
            card = draft.by_index[part.card]
            if self._policy == "spread" and self._repaired and card.users == 0:
                score += _SCORE
            card.take(part)
            if self._policy == "binpack" and card.memory:
                score += _SCORE * card.used_memory / card.memory
        return float(int(score + 0.5))

    def annotations(self, plan: Plan, inventory: Inventory, node: str, now: float) -> Mapping[str, str]:
        cards = inventory.by_index
        ids = ";".join(
            "".join(f"{cards[part.card].id},{_TYPE},{part.memory},{part.cores}:" for part in container)
            for container in plan
        )
        seconds = str(int(now))
        return {
            IDS: ids,
            "volcano.sh/devices-to-allocate": ids,
            "volcano.sh/vgpu-node": node,
            "volcano.sh/vgpu-time": seconds,
            "volcano.sh/bind-time": seconds,
            "volcano.sh/bind-phase": "allocating",
        }

    def _requests(self, pod: PodRecord) -> list[Request]:
        containers = pod.pod_class.spec.containers or ()
        requests = (_request(container, percentages=self._repaired) for container in containers)
        return [request for request in requests if request is not None]

    def _in_order(self, inventory: Inventory) -> list[Card]:
        cards = list(inventory.by_index.values())
        if self._policy == "binpack":
            return sorted(cards, key=lambda card: (-card.used_memory, card.index))
        if self._policy == "spread":
            return sorted(cards, key=lambda card: (card.users, card.index))
        return sorted(cards, key=lambda card: -card.index)


def _has_room(card: Card, request: Request) -> bool:
    """Whether a container fits on a card. All cores means a card for itself."""
    part = request.of(card)
    return (
        card.users < card.seats
        and part.memory <= card.memory - card.used_memory
        and card.used_cores + part.cores <= 100
        and not (part.cores == 100 and card.users > 0)
        and not (part.cores == 0 and card.used_cores == 100)
    )


def _may_use(pod: PodRecord, card: Card) -> bool:
    """Whether the pod's annotations allow a card, by its type and its id."""
    annotations = pod.pod_class.annotations
    if _TYPE not in card.type:
        return False
    if _USE_TYPE in annotations:
        if not _names_type(annotations[_USE_TYPE], card):
            return False
    elif _NO_TYPE in annotations and _names_type(annotations[_NO_TYPE], card):
        return False
    wanted, unwanted = _listed(annotations.get(_USE_ID)), _listed(annotations.get(_NO_ID))
    return (not wanted or card.id in wanted) and card.id not in unwanted


def _names_type(listed: str, card: Card) -> bool:
    return any(part.upper() in card.type.upper() for part in listed.split(","))


def _listed(written: str | None) -> set[str]:
    return {part.strip() for part in (written or "").split(",") if part.strip()}


def _shared_with_own_group(pod: PodRecord, card: Card) -> bool:
    """Whether a pod that wants to be apart from its PodGroup would meet it on a card."""
    if pod.pod_class.annotations.get(_GROUP_POLICY) != "spread" or not pod.job:
        return False
    return any(other.job == pod.job for other in card.holders.values())


def _request(container: Container, *, percentages: bool) -> Request | None:
    resources = container.resources
    limits = (resources and resources.limits) or {}
    if resources is None or not (NUMBER in limits or MEMORY in limits):
        return None

    def amount(name: str) -> int | None:
        return units(limits if name in limits else resources.requests, name)

    memory, percentage = amount(MEMORY) or 0, amount(PERCENTAGE) if percentages else None
    if percentage is None and not memory:
        percentage = 100
    cards = units(limits, NUMBER) if NUMBER in limits else 1
    return Request(cards or 0, memory, percentage, amount(CORES) or 0)


def _number(written: str) -> int:
    return int(written) if written.isdigit() else 0
