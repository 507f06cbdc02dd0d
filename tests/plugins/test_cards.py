"""Matrices of cards choose what a loop over the cards of each node would choose."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stromboli.devices import cards
from stromboli.devices.card_parts import CardParts
from stromboli.devices.cards import Cards, Fleet, Inventory, InventoryIndex, Sharing
from stromboli.devices.vgpu import Virtual
from stromboli.plugins.deviceshare.gpu import SharedMemory, WholeCards
from stromboli.state.columns import Column
from tests import builders
from tests.plugins.card_oracle import Card, Request, shared, virtual, whole

_CARDS = st.lists(
    st.builds(
        Card,
        memory=st.sampled_from([0, 1000, 3000]),
        seats=st.integers(0, 3),
        users=st.integers(0, 2),
        used_memory=st.sampled_from([0, 300, 1000]),
        used_cores=st.sampled_from([0, 40, 100]),
    ),
    min_size=3,
    max_size=3,
)
#: pod, node and card
_PARTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 1)), max_size=6)
NODES = st.lists(_CARDS, min_size=1, max_size=5)
REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([100, 700, 2000]),
        st.sampled_from([None, 30, 100]),
        st.sampled_from([0, 30, 100]),
    ),
    min_size=1,
    max_size=3,
)


def matrices(nodes: list[list[Card]]) -> Cards:
    def column(name: str) -> Any:
        return np.array([[getattr(card, name) for card in cards] for cards in nodes], np.int64)

    names = ("memory", "seats", "users", "used_memory", "used_cores")
    return Cards(np.ones((len(nodes), 3), np.bool_), *map(column, names))


def asking(*limits: dict[str, int]) -> Any:
    """The record of a pod whose containers have these limits."""
    containers = [
        {"name": f"c{i}", "resources": {"limits": {f"volcano.sh/{k}": str(v) for k, v in each.items()}}}
        for i, each in enumerate(limits)
    ]
    return builders.state(builders.pod("p", containers=containers)).record("default/p")


def drafted(sharing: Sharing, pod: Any, nodes: list[list[Card]]) -> list[tuple[list[list[int]], float] | None]:
    cards = matrices(nodes)
    draft = sharing.draft(pod, cards)
    assert sharing.fits(pod, cards).tolist() == draft.fits.tolist()
    plans = [draft.plan(node) for node in range(len(nodes))]
    return [
        None if plan is None else ([[part.card for part in slices] for slices in plan], score)
        for plan, score in zip(plans, draft.values.tolist(), strict=True)
    ]


@given(NODES, st.sampled_from([1, 500, 1000, 3000]))
def test_memory_of_one_card(nodes: list[list[Card]], wanted: int) -> None:
    found = drafted(SharedMemory(), asking({"gpu-memory": wanted}), nodes)
    assert found == [None if (cards := shared(each, wanted)) is None else ([cards], 0.0) for each in nodes]


@given(NODES, st.integers(1, 4))
def test_whole_cards(nodes: list[list[Card]], wanted: int) -> None:
    found = drafted(WholeCards(), asking({"gpu-number": wanted}), nodes)
    assert found == [None if (cards := whole(each, wanted)) is None else ([cards], 0.0) for each in nodes]


@given(NODES, REQUESTS, st.sampled_from(["", "binpack", "spread"]))
def test_virtual_cards_and_their_scores(nodes: list[list[Card]], requests: list[Request], policy: str) -> None:
    limits = [
        {"vgpu-number": cards, "vgpu-memory": memory, "vgpu-cores": cores}
        | ({} if percentage is None else {"vgpu-memory-percentage": percentage})
        for cards, memory, percentage, cores in requests
    ]
    found = drafted(Virtual(policy, repaired=True), asking(*limits), nodes)
    assert found == [virtual(cards, requests, policy) for cards in copy.deepcopy(nodes)]


@given(_PARTS, _PARTS, st.lists(st.booleans(), min_size=3, max_size=3), st.integers(0, 6))
def test_cards_of_some_pods_are_counted_on(
    before: list[tuple[int, int, int]], turned: list[tuple[int, int, int]], chosen: list[bool], asked_after: int
) -> None:
    parts = np.array(sorted(before), np.intp).reshape(-1, 3)
    holders, held = CardParts(*parts.T, np.zeros((len(parts), 2), np.int64)), set(before)

    def found() -> list[tuple[int, int]]:
        cards = holders.cards_of("chosen", lambda: np.array(chosen), (2, 2))
        return list(map(tuple, np.argwhere(cards).tolist()))

    for number, part in enumerate(turned):
        if number == asked_after:
            found()
        holders.change(*part, -1 if part in held else 1)
        held ^= {part}
    assert found() == sorted({(node, card) for pod, node, card in held if chosen[pod]})


_INVENTORIES = st.lists(st.lists(st.sampled_from("abcd"), max_size=4), min_size=1, max_size=4)


@given(_INVENTORIES, _INVENTORIES)
def test_cards_are_found_by_their_ids_where_there_were_others_before(before: list[Any], now: list[Any]) -> None:
    """Of equal ids of a node the last counts; ids that no node has any longer are found nowhere."""

    def read(ids: list[str]) -> Inventory | None:
        return Inventory(tuple(cards.Card(index, 1, name) for index, name in enumerate(ids))) if ids else None

    earlier = Column.read(before, read, None, np.arange(len(before)))
    earlier.index(InventoryIndex)
    column = Column.read(now, read, earlier, np.full(len(now), -1))
    ids = column.index(InventoryIndex).ids
    pairs = [(node, name) for node in range(len(now)) for name in ids]
    nodes, wanted = (
        np.array(part, np.intp) for part in ([node for node, _ in pairs], [ids[name] for _, name in pairs])
    )
    found = Fleet(column).locate(nodes, wanted)
    assert found.tolist() == [
        max((at for at, each in enumerate(now[node]) if each == name), default=-1) for node, name in pairs
    ]
