"""Virtual cards: seats, memory and compute of NVIDIA cards, as HAMi's device plugin registers them on nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from stromboli.api import readers
from stromboli.api.objects import Container
from stromboli.api.resources import Mask, Matrix, Rows
from stromboli.devices.cards import (
    LARGEST,
    MOST_CARDS,
    Card,
    Cards,
    Counts,
    Draft,
    Grant,
    Inventory,
    Picks,
    Plan,
    enough,
    first,
    in_order,
    units,
)
from stromboli.state.nodes import NodeRecord
from stromboli.state.pods import PodRecord

NUMBER = "volcano.sh/vgpu-number"
MEMORY = "volcano.sh/vgpu-memory"
PERCENTAGE = "volcano.sh/vgpu-memory-percentage"
CORES = "volcano.sh/vgpu-cores"
REGISTER = "volcano.sh/node-vgpu-register"
IDS = "volcano.sh/vgpu-ids-new"
_MODE = "volcano.sh/vgpu-mode"
USE_TYPE, _NO_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
_USE_ID, _NO_ID = "volcano.sh/vgpu-use-gpuuuid", "volcano.sh/vgpu-nouse-gpuuuid"
_GROUP_POLICY = "volcano.sh/vgpu-podgroup-policy"
#: annotations of a pod that select its cards
_CHOSEN_BY = (_MODE, _USE_ID, _NO_ID, USE_TYPE, _NO_TYPE)
CHOICES = (*_CHOSEN_BY, _GROUP_POLICY)
_TYPE = "NVIDIA"
_HAMI, _MIG = "hami-core", "mig"
_SCORE = 100.0


@dataclass(frozen=True, slots=True)
class Request:
    """The request of a container for each of its cards."""

    cards: int
    memory: int
    #: percent of the card's memory, instead of an amount; None when an amount is given
    percentage: int | None
    cores: int

    def memory_of(self, cards: Cards) -> int | Counts:
        """Memory that it gets of each card; shape (nodes, cards) where that depends on the card."""
        return self.memory if self.percentage is None else cards.memory * self.percentage // 100


@dataclass(frozen=True, slots=True)
class ByTypeAndId:
    """The cards that a pod's annotations allow."""

    mode: str | None
    #: parts of names of types, in capitals; where some are used, others are not avoided
    use_types: tuple[str, ...] | None
    no_types: tuple[str, ...]
    use_ids: frozenset[str]
    no_ids: frozenset[str]

    @classmethod
    def read(cls, annotations: Mapping[str, str]) -> ByTypeAndId | None:
        """The restrictions in annotations; None if they allow all cards."""
        if annotations.keys().isdisjoint(_CHOSEN_BY):
            return None
        use_types = annotations.get(USE_TYPE)
        return cls(
            annotations.get(_MODE),
            None if use_types is None else tuple(use_types.upper().split(",")),
            tuple(annotations[_NO_TYPE].upper().split(",")) if _NO_TYPE in annotations else (),
            _listed(annotations.get(_USE_ID)),
            _listed(annotations.get(_NO_ID)),
        )

    def allows_mode(self, mode: str) -> bool:
        return self.mode is None or self.mode == mode

    def allows_type(self, type: str) -> bool:
        type = type.upper()
        if self.use_types is not None:
            return any(part in type for part in self.use_types)
        return not any(part in type for part in self.no_types)


class Virtual:
    """Cards with seats. The policy says which cards of a node come first: the fullest, the emptiest, or the last."""

    def __init__(self, policy: str, *, repaired: bool) -> None:
        """Without `repaired` it behaves as Volcano alone.

        Then memory in percent is not read, spreading gives no score, and what a gang was given that is then taken back
        stays taken for the session.
        """
        self._policy = policy
        self._repaired = repaired
        self._scores = policy == "binpack" or (policy == "spread" and repaired)

    def wants(self, pod: PodRecord) -> bool:
        return bool(self.requests(pod))

    def inventory(self, node: NodeRecord) -> Inventory | None:
        written = node.annotations.get(REGISTER, "")
        if ":" not in written or not all(units(node.allocatable, name) for name in (NUMBER, MEMORY, CORES)):
            return None
        cards, mode = [], _HAMI
        for index, entry in enumerate(written.split(":", MOST_CARDS)[:MOST_CARDS]):
            if "," not in entry:
                continue
            parts = entry.split(",")
            if len(parts) < 6:
                return None
            identity, seats, memory, type_, _health, mode = parts[:6]
            cards.append(Card(index, _number(memory), identity, type_, _number(seats), usable=_TYPE in type_))
        return Inventory(tuple(cards), _MIG if mode == _MIG else _HAMI) if cards else None

    def grant(self, pod: PodRecord) -> Grant | None:
        written = pod.annotations.get(IDS)
        if not written:
            return None
        grant = []
        for container in written.split(";"):
            parts = [entry.split(",") for entry in container.split(":") if entry.count(",") >= 3]
            grant.append(tuple((part[0], _number(part[2]), _number(part[3])) for part in parts))
        return tuple(grant)

    def choice(self, pod: PodRecord) -> ByTypeAndId | None:
        cache = pod.pod_class.cache
        if ByTypeAndId not in cache:
            cache[ByTypeAndId] = ByTypeAndId.read(pod.annotations)
        return cast("ByTypeAndId | None", cache[ByTypeAndId])

    def fits(self, pod: PodRecord, cards: Cards) -> Mask:
        requests = self.requests(pod)
        if len(requests) > 1:
            # What one container takes the next one lacks.
            return self.draft(pod, cards).fits
        fitting = fitting_cards(cards, requests[0].memory_of(cards), requests[0].cores)
        return enough(fitting, requests[0].cards)

    def draft(self, pod: PodRecord, cards: Cards) -> Draft:
        draft, requests = Draft(np.ones(len(cards.there), np.bool_)), self.requests(pod)
        if len(requests) > 1:
            cards = cards.copy()
        score = np.zeros(len(cards.there))
        for request in requests:
            order, memory = self._order(cards), request.memory_of(cards)
            fitting = in_order(fitting_cards(cards, memory, request.cores), order)
            picked, fits = first(fitting, request.cards)
            picks = Picks(picked, memory, request.cores, order)
            draft.fits &= fits
            draft.containers.append(picks)
            for gain in self._gains(cards, picks).T if self._scores else ():
                score += gain
            if len(requests) > 1:
                cards.take_all(picks)
        draft.scores = np.floor(score + 0.5)
        return draft

    def _gains(self, cards: Cards, picks: Picks) -> Matrix:
        """Score of taking each card: its fill afterwards when packing; whether it is idle when spreading.

        Shape (nodes, cards), in the order in which they are taken.
        """
        assert picks.order is not None
        gains: Matrix = np.zeros(picks.picked.shape, order="F")
        nodes, turns = picks.picked.nonzero()
        at = nodes, picks.order[nodes, turns]
        if self._policy == "binpack":
            taken = np.broadcast_to(picks.memory, picks.picked.shape)[at]
            whole = cards.memory[at]
            gains[nodes, turns] = np.divide(
                _SCORE * (cards.used_memory[at] + taken), whole, out=np.zeros(len(nodes)), where=whole != 0
            )
        else:
            gains[nodes, turns] = np.where(cards.users[at] == 0, _SCORE, 0.0)
        return gains

    def frees(self, pod: PodRecord) -> bool:
        return self._repaired or IDS in pod.annotations

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

    def requests(self, pod: PodRecord) -> list[Request]:
        """The requests of all containers that request cards."""
        cache, key = pod.pod_class.cache, (Request, self._repaired)
        known = cache.get(key)
        if known is None:
            containers = pod.pod_class.spec.containers or ()
            requests = (_request(container, percentages=self._repaired) for container in containers)
            known = cache[key] = [request for request in requests if request is not None]
        return cast("list[Request]", known)

    def _order(self, cards: Cards) -> Rows:
        """The order in which a container takes the cards, see `Picks.order`."""
        if self._policy == "binpack":
            return np.argsort(-cards.used_memory, axis=1, kind="stable")
        if self._policy == "spread":
            return np.argsort(cards.users, axis=1, kind="stable")
        return np.arange(cards.there.shape[1])[::-1]


def fitting_cards(cards: Cards, memory: int | Counts, cores: int) -> Mask:
    """Whether a container fits on a card, shape (nodes, cards). All cores means a card for itself."""
    fitting: Mask = cards.there & (cards.users < cards.seats)
    fitting &= memory <= cards.memory - cards.used_memory
    fitting &= cards.used_cores <= 100 - cores
    if cores == 100:
        fitting &= cards.users <= 0
    if cores == 0:
        fitting &= cards.used_cores != 100
    return fitting


def _listed(written: str | None) -> frozenset[str]:
    return frozenset(part.strip() for part in (written or "").split(",") if part.strip())


def is_apart_from_its_group(pod: PodRecord) -> bool:
    """Whether a pod must not share a card with others of its PodGroup."""
    return bool(pod.job) and pod.annotations.get(_GROUP_POLICY) == "spread"


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
    sizes = cards or 0, memory, percentage or 0, amount(CORES) or 0
    number, memory, part, cores = (min(size, LARGEST) for size in sizes)
    return Request(number, memory, None if percentage is None else part, cores)


def _number(written: str) -> int:
    return readers.count(written) or 0
