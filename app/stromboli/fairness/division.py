"""Dividing a cluster between queues by weight, within limits. Matrices have shape (queues, dimensions)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stromboli.api.resources import PODS, TOLERANCE, Mask, Matrix, Vector


def level(total: Vector, weight: Vector, request: Matrix, limit: Matrix, guarantee: Matrix) -> Matrix:
    """Weighted max-min fairness: each queue gets `weight * level`, at least its guarantee and at most what it can use.

    In every dimension the level is chosen so that the total is used up, so the sum never exceeds the total as long as
    the guarantees do not. The sum of the queues' amounts is piecewise linear in the level; its breakpoints are sorted
    and the segment that contains the total is solved. O(queues log queues) for each dimension.
    """
    floor = _within(total, guarantee)
    ceiling = np.maximum(np.minimum(request, limit), floor)
    out: Matrix = floor.copy()
    served = weight > 0
    w = weight[served]
    for column in range(len(total)):
        low, high = floor[served, column] / w, ceiling[served, column] / w
        bends = np.concatenate([low, high])
        slopes = np.concatenate([w, -w])
        order = np.argsort(bends, kind="stable")
        bends, slope = bends[order], np.cumsum(slopes[order])
        if not len(bends):
            continue
        sums = floor[:, column].sum() + np.concatenate([[0.0], np.cumsum(np.diff(bends) * slope[:-1])])
        piece = int(np.searchsorted(sums, total[column]))
        if piece == len(sums):
            out[:, column] = np.where(served, ceiling[:, column], out[:, column])
            continue
        at = bends[0] if piece == 0 else bends[piece] - (sums[piece] - total[column]) / slope[piece - 1]
        out[served, column] = np.clip(w * at, floor[served, column], ceiling[served, column])
    return out


def _within(total: Vector, guarantee: Matrix) -> Matrix:
    """The guarantees, scaled down where their sum exceeds the total."""
    sums = guarantee.sum(axis=0)
    scale = np.divide(total, sums, out=np.ones_like(sums), where=sums > total)
    scaled: Matrix = guarantee * scale
    return scaled


def rounds(
    total: Vector,
    weight: Vector,
    request: Matrix,
    limit: Matrix,
    guarantee: Matrix,
    told: Callable[[Matrix], None] = lambda amounts: None,
) -> Matrix:
    """Volcano's division: in rounds, the open queues get what is left in proportion to their weights.

    `told` is called with the amounts after each round.

    In every round a queue is cut to its limit and its request and raised to its guarantee, and closed once it has all
    that it requests or nothing changed. A guarantee above the weighted share makes the sum exceed the total.
    """
    out = np.zeros_like(request)
    left = total.copy()
    is_open: Mask = np.ones(len(weight), np.bool_)
    # A round that closes no queue halves what is left or ends the loop; the cap only guards against rounding errors.
    for _ in range(len(weight) + 128):
        weights = np.where(is_open, weight, 0.0)
        if weights.sum() == 0:
            break
        wanted = out + left * (weights / weights.sum())[:, None]
        wanted = np.maximum(np.minimum(np.minimum(wanted, limit), request), guarantee)
        change = np.where(is_open[:, None], wanted - out, 0.0)
        new = np.where(is_open[:, None], wanted, out)
        is_open &= ~((request < new + TOLERANCE).all(axis=1) | (new == out).all(axis=1))
        out = new
        told(out)
        before, left = left, np.maximum(left - change.clip(max=0).sum(axis=0) - change.clip(min=0).sum(axis=0), 0)
        if (np.delete(left, PODS) < TOLERANCE).all() or np.array_equal(left, before):
            break
    return out


def in_base_units(amounts: Matrix) -> Matrix:
    """Amounts rounded down to whole units, except within the rounding error of the next unit."""
    out: Matrix = np.floor(amounts * (1 + 1e-12) + 1e-6)
    return out
