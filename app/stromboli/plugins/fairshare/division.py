"""Dividing a cluster between queues: quotas first, the remainder by priority and weight, then single units.

Each resource is divided separately, and each queue's fair share among its children: a resource at one parent is a
*pool*, and all pools of a level are divided at once. A *claim* is what one queue wants of one pool.

    1  each claim gets its quota, cut to limit and request, even where the quotas exceed the pool
    2  by priority, the highest first, rounds: each claim is offered its part of the remainder and takes what it needs,
       or the whole units of it; while a queue needed less than its part, the rest is offered again
    3  remaining units go to the claims that fell short by most, a unit each

A part follows the weight, corrected by usage: `n + k (n - usage)`, where n is the weight relative to the claims of the
same priority that are not satisfied yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from stromboli.api.resources import Rows, Vector
from stromboli.fairness.queue_tree import TOP
from stromboli.plugins.fairshare.tree import DivisionTree

#: a round that satisfies no queue is the last; the cap only guards against rounding errors
_ROUNDS = 10_000
#: claims, and what each got
Step: TypeAlias = tuple[Rows, Vector]


@dataclass(slots=True, eq=False)
class Claims:
    """The claims of queues on pools; vectors of shape (claims,). Within a pool they are sorted by name."""

    pool: Rows
    #: one whole unit of the pool's resource
    unit: Vector
    quota: Vector
    requestable: Vector
    weight: Vector
    usage: Vector
    priority: Vector
    #: place by creation, then name; the oldest is 0
    seniority: Rows


@dataclass(slots=True, eq=False)
class Division:
    """Result of dividing pools."""

    #: shape (claims,)
    share: Vector
    #: rest of each pool; negative where quotas exceed it
    rest: Vector
    #: amounts that each queue got: for the quotas, in each round, and for the remainders
    quotas: Step | None = None
    rounds: list[Step] = field(default_factory=list)
    remainders: Step | None = None

    def give(self, claims: Claims, at: Rows, amounts: Vector) -> Step:
        """Give amounts to some claims."""
        self.share[at] += amounts
        self.rest -= np.bincount(claims.pool[at], weights=amounts, minlength=len(self.rest))
        return at, amounts


def divide(claims: Claims, available: Vector, k: float) -> Division:
    """Divide pools; `available` has shape (pools,), `k` is at least 0 and says how much past usage counts."""
    division = Division(np.zeros(len(claims.pool)), available.copy())
    quota = np.where(np.isinf(claims.quota), available[claims.pool], claims.quota)
    division.quotas = division.give(claims, np.arange(len(claims.pool)), np.minimum(quota, claims.requestable))
    divide_over_quota(claims, division, k)
    return division


def divide_over_quota(claims: Claims, division: Division, k: float) -> None:
    """Divide the rest of pools."""
    cut_short = np.zeros(len(claims.pool))
    order = np.argsort(-claims.priority, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(claims.priority[order])) + 1):
        _divide_among_equals(claims, division, at, cut_short, k)
    _give_remainders(claims, division, cut_short)


def _divide_among_equals(claims: Claims, division: Division, at: Rows, cut_short: Vector, k: float) -> None:
    """Rounds among the claims `at`, which have one priority."""
    at = at[(division.rest[claims.pool[at]] > 0) & (claims.requestable[at] > division.share[at])]
    for _ in range(_ROUNDS):
        if not len(at):
            return
        pool, unit = claims.pool[at], claims.unit[at]
        part = _parts(claims, division, at, k)
        need = claims.requestable[at] - division.share[at]
        satisfied = need <= part
        give = np.where(satisfied, need, np.maximum(np.floor(part / unit) * unit, 0))
        cut_short[at] = np.where(satisfied, 0, np.where(part > give, (part - give) / unit, cut_short[at]))
        division.rounds.append(division.give(claims, at, give))
        again = np.zeros(len(division.rest), np.bool_)
        again[pool[need < part]] = True
        at = at[~satisfied & (again & (division.rest != 0))[pool]]


def _parts(claims: Claims, division: Division, at: Rows, k: float) -> Vector:
    """The part of the rest of its pool that each of some claims is offered; nothing if all weights are 0."""
    pool, weight, pools = claims.pool[at], claims.weight[at], len(division.rest)
    share = weight / _divisors(pool, weight, pools)[pool]
    corrected = np.maximum(share + k * (share - claims.usage[at]), 0)
    return division.rest[pool] * (corrected / _divisors(pool, corrected, pools)[pool])


def _divisors(pool: Rows, weights: Vector, pools: int) -> Vector:
    """The sum of weights by pool, infinite where it is 0: then no queue has a part."""
    sums = np.bincount(pool, weights=weights, minlength=pools)
    return np.where(sums == 0, np.inf, sums)


def _give_remainders(claims: Claims, division: Division, cut_short: Vector) -> None:
    """A unit for each claim that was cut short, by priority, then by how much, then to the oldest."""
    at = np.flatnonzero((cut_short > 0) & (division.rest[claims.pool] > 0))
    if not len(at):
        return
    pool = claims.pool[at]
    order = np.lexsort((claims.seniority[at], -cut_short[at], -claims.priority[at], pool))
    at, pool = at[order], pool[order]
    first = np.searchsorted(pool, pool)
    unit = claims.unit[at]
    left = division.rest[pool] - (np.arange(len(at)) - first) * unit
    division.remainders = division.give(claims, at, np.clip(left, 0, unit))


# -- a whole tree ------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class History:
    """Derivation of the fair shares of a tree's queues, level by level."""

    tree: DivisionTree
    #: the rows of each level, and how it was divided
    levels: list[tuple[Rows, Division]]

    def of(self, row: int) -> list[tuple[str, Vector]]:
        """A queue's fair share after the quotas, after each round in which it got something, and at the end."""
        resources = len(self.tree.unit)
        for rows, division in self.levels:
            place = int(np.searchsorted(rows, row))
            if place < len(rows) and rows[place] == row:
                claims = np.arange(place * resources, (place + 1) * resources)
                return _history(division, claims)
        return []


def _history(division: Division, claims: Rows) -> list[tuple[str, Vector]]:
    named: list[tuple[str, Step | None]] = [("quota", division.quotas)]
    named += [("over quota", step) for step in division.rounds]
    named.append(("remainder", division.remainders))
    share, out, rounds = np.zeros(len(claims)), [], 0
    for name, step in named:
        gained = np.zeros(len(claims)) if step is None else _gained(step, claims)
        if not gained.any() and name != "quota":
            continue
        share = share + gained
        rounds += name == "over quota"
        out.append((f"round {rounds}" if name == "over quota" else name, share))
    return out


def _gained(step: Step, claims: Rows) -> Vector:
    at, amounts = step
    inside = (at >= claims[0]) & (at <= claims[-1])
    out: Vector = np.zeros(len(claims))
    out[at[inside] - claims[0]] = amounts[inside]
    return out


def divide_tree(tree: DivisionTree, total: Vector, k: float) -> History:
    """Set the fair share of every queue; `total`, of shape (resources,), is divided at the top."""
    resources = len(tree.unit)
    seniority = np.empty(len(tree), np.intp)
    seniority[np.argsort(tree.created, kind="stable")] = np.arange(len(tree))
    levels = []
    for rows in tree.levels():
        parents, place = np.unique(tree.parent[rows], return_inverse=True)
        top = parents[0] == TOP
        available = total[None, :] if top else tree.fair_share[parents]
        claims = claims_of(tree, rows, place[:, None] * resources + np.arange(resources), seniority)
        division = divide(claims, available.ravel(), k)
        tree.fair_share[rows] = division.share.reshape(-1, resources)
        levels.append((rows, division))
    return History(tree, levels)


def claims_of(tree: DivisionTree, rows: Rows, pool: Rows, seniority: Rows) -> Claims:
    """The claims of some queues, all resources of one after the other; `pool` has shape (queues, resources)."""
    resources = len(tree.unit)

    return Claims(
        pool=pool.ravel(),
        unit=np.tile(tree.unit, len(rows)),
        quota=tree.quota[rows].ravel(),
        requestable=tree.requestable()[rows].ravel(),
        weight=tree.weight[rows].ravel(),
        usage=tree.usage[rows].ravel(),
        priority=np.repeat(tree.priority[rows], resources),
        seniority=np.repeat(seniority[rows], resources),
    )
