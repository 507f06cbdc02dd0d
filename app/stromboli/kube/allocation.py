"""Scores by how full a node is: LeastAllocated, MostAllocated and BalancedAllocation of kube-scheduler.

Its scores are integers from 0 to 100, computed by integer division; the float64 arithmetic here gives the same numbers
for amounts below 2**46. Amounts have shape (resources, n), scores shape (n,).
"""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Matrix, Vector


def least_allocated(requested: Matrix, allocatable: Matrix) -> Vector:
    """The average share of each resource that is left, in percent. A resource that is exceeded scores 0."""
    left = np.maximum(allocatable - requested, 0.0)
    left *= 100.0
    return _average(left, allocatable)


def most_allocated(requested: Matrix, allocatable: Matrix) -> Vector:
    """The average share of each resource that is used, in percent. A resource that is exceeded scores 100."""
    used = np.minimum(requested, allocatable)
    used *= 100.0
    return _average(used, allocatable)


def balanced(requested: Matrix, allocated: Matrix, allocatable: Matrix) -> Vector:
    """How much a pod evens out the shares in which the resources are used: 75 is as before, 50 worse, 100 better.

    `requested` is `allocated` and the pod. Resources that a node does not have are left out for that node.
    """
    score = _evenness(requested, allocatable)
    score -= _evenness(allocated, allocatable)
    score += 50.0
    score *= 0.5
    np.floor(score, out=score)
    score += 50.0
    return score


def _average(percent_of: Matrix, allocatable: Matrix) -> Vector:
    """The mean of percent_of / allocatable over the resources that a node has; fractions are dropped at each step."""
    if allocatable.all():
        share = np.floor(percent_of / allocatable)
        return np.floor(share.sum(axis=0) / len(share))
    share = np.floor(percent_of / np.maximum(allocatable, 1.0))
    share[allocatable == 0] = 0.0
    return np.floor(share.sum(axis=0) / np.maximum(np.count_nonzero(allocatable, axis=0), 1))


def _evenness(amounts: Matrix, allocatable: Matrix) -> Vector:
    """100 less the standard deviation of the shares in use, in percent, without the fraction."""
    if len(amounts) == 2 and allocatable.all():
        shares = np.minimum(amounts / allocatable, 1.0)
        deviation = np.abs(shares[0] - shares[1])
        deviation *= 0.5
    else:
        deviation = _deviation(amounts, allocatable)
    return np.floor((1.0 - deviation) * 100.0)


def _deviation(amounts: Matrix, allocatable: Matrix) -> Vector:
    """The standard deviation of the shares of the resources that each node has."""
    has = allocatable > 0
    shares = np.minimum(amounts / np.where(has, allocatable, 1.0), 1.0)
    count = np.count_nonzero(has, axis=0)
    mean = np.where(has, shares, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = np.where(has, (shares - mean) ** 2, 0.0).sum(axis=0)
    # kube-scheduler halves the difference of two shares, which rounds differently
    highest, lowest = np.where(has, shares, -np.inf).max(axis=0), np.where(has, shares, np.inf).min(axis=0)
    return np.select(
        [count > 2, count == 2], [np.sqrt(squares / np.maximum(count, 1)), (highest - lowest) / 2], 0.0
    )
