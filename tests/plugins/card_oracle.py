"""Which cards a pod gets on one node, card by card: what the matrices of deviceshare are compared with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Card:
    memory: int
    seats: int
    users: int = 0
    used_memory: int = 0
    used_cores: int = 0


#: cards, memory, percent of the memory or None, cores
Request = tuple[int, int, int | None, int]


def shared(cards: list[Card], wanted: int) -> list[int] | None:
    """The first card with enough memory left."""
    return next(([i] for i, card in enumerate(cards) if card.memory - card.used_memory >= wanted), None)


def whole(cards: list[Card], wanted: int) -> list[int] | None:
    """Cards that nobody uses."""
    idle = [i for i, card in enumerate(cards) if not card.users]
    return idle[:wanted] if len(idle) >= wanted else None


def virtual(cards: list[Card], requests: list[Request], policy: str) -> tuple[list[list[int]], float] | None:
    """The cards of each container and the score; None when they do not suffice. The cards are changed."""
    plan, score = [], 0.0
    for count, amount, percentage, cores in requests:
        chosen: list[int] = []
        for i in _in_order(cards, policy):
            card = cards[i]
            memory = amount if percentage is None else card.memory * percentage // 100
            if len(chosen) < count and _has_room(card, memory, cores):
                score += 100.0 * (policy == "spread" and card.users == 0)
                card.users, card.used_memory = card.users + 1, card.used_memory + memory
                card.used_cores += cores
                score += 100.0 * card.used_memory / card.memory if policy == "binpack" and card.memory else 0.0
                chosen.append(i)
        if len(chosen) < count:
            return None
        plan.append(chosen)
    return plan, float(int(score + 0.5))


def _in_order(cards: list[Card], policy: str) -> list[int]:
    keys = {
        "binpack": lambda i: (-cards[i].used_memory, i),
        "spread": lambda i: (cards[i].users, i),
        "": lambda i: -i,
    }
    return sorted(range(len(cards)), key=keys[policy])


def _has_room(card: Card, memory: int, cores: int) -> bool:
    return (
        card.users < card.seats
        and memory <= card.memory - card.used_memory
        and card.used_cores + cores <= 100
        and not (cores == 100 and card.users > 0)
        and not (cores == 0 and card.used_cores == 100)
    )
