"""Scores by how full a node is: kube-scheduler's LeastAllocated, MostAllocated and BalancedAllocation.

kube-scheduler's scores are integers from 0 to 100, computed by integer division; the float64 arithmetic here gives
equal numbers for amounts below 2**46. Amounts have shape (resources, n), scores shape (n,). `complete` says that no
node lacks any of the resources. These functions run for every node that a placement changes, so they reuse their arrays
and clip with arrays: NumPy takes three times as long to clip with a scalar.
"""

from __future__ import annotations

import math

import numpy as np

from stromboli.api.resources import Matrix, Vector


def least_allocated(requested: Matrix, allocatable: Matrix, *, complete: bool = False) -> Vector:
    """The average free share of each resource, in percent. An overcommitted resource scores 0."""
    left = np.minimum(requested, allocatable)
    np.subtract(allocatable, left, out=left)
    left *= 100.0
    return _average(left, allocatable, complete)


def most_allocated(requested: Matrix, allocatable: Matrix, *, complete: bool = False) -> Vector:
    """The average used share of each resource, in percent. An overcommitted resource scores 100."""
    used = np.minimum(requested, allocatable)
    used *= 100.0
    return _average(used, allocatable, complete)


def without_and_with(request: Vector) -> Matrix:
    """Zeros and the request of a pod side by side, shape (2, resources, 1)."""
    cases = np.zeros((2, len(request), 1))
    cases[1, :, 0] = request
    return cases


def balanced(cases: Matrix, allocated: Matrix, allocatable: Matrix) -> Vector:
    """Score of how a pod evens out the used shares of resources: 75 is unchanged, 50 worse, 100 better.

    `cases` comes from `without_and_with`. For each node, resources that it does not have are ignored.
    """
    even = _deviation(allocated + cases, allocatable)
    np.subtract(1.0, even, out=even)
    even *= 100.0
    np.floor(even, out=even)
    return evened_out(even[0], even[1])


def evened_out(without: Vector, even: Vector) -> Vector:
    """The balance score for the evenness without and with the pod; the latter is overwritten."""
    even -= without
    even += 150.0
    even *= 0.5
    return np.floor(even, out=even)


def evenness(shares: Matrix) -> Vector:
    """100 minus the standard deviation of two shares, in percent, rounded down; `shares` has shape (2, n)."""
    if highest(shares) > 1.0:
        shares = np.minimum(shares, 1.0)
    even: Vector = shares[0] - shares[1]
    np.abs(even, out=even)
    # The standard deviation of two numbers is half of their difference; doubling both terms keeps the rounding.
    np.subtract(2.0, even, out=even)
    even *= 50.0
    return np.floor(even, out=even)


def evenness_of_one(cpu: float, memory: float) -> float:
    """The evenness of two shares of one node."""
    return math.floor((2.0 - abs(min(cpu, 1.0) - min(memory, 1.0))) * 50.0)


def highest(amounts: Matrix) -> float:
    """The largest number, 0 for no numbers; indexing by argmax is faster than np.maximum.reduce."""
    return float(amounts.item(amounts.argmax())) if amounts.size else 0.0


def sum_of_rows(matrix: Matrix) -> Vector:
    """The sum over the first axis for few rows, which may be overwritten; np.add.reduce takes twice as long."""
    total: Vector = matrix[0]
    for row in matrix[1:]:
        total += row
    return total


def _average(percent_of: Matrix, allocatable: Matrix, complete: bool) -> Vector:
    """The mean of percent_of / allocatable over the resources that a node has, rounded down at each step."""
    if complete:
        percent_of /= allocatable
        mean = sum_of_rows(np.floor(percent_of, out=percent_of))
        mean /= len(allocatable)
    else:
        has = allocatable > 0
        share = np.floor(np.divide(percent_of, allocatable, out=np.zeros_like(percent_of), where=has))
        mean = share.sum(axis=0) / np.maximum(has.sum(axis=0), 1)
    return np.floor(mean, out=mean)


def _deviation(amounts: Matrix, allocatable: Matrix) -> Matrix:
    """The standard deviation of the shares of the resources that each node has; `amounts` is (cases, resources, n)."""
    has = allocatable > 0
    shares = np.minimum(amounts / np.where(has, allocatable, 1.0), 1.0)
    count = has.sum(axis=0)
    mean = np.where(has, shares, 0.0).sum(axis=1) / np.maximum(count, 1)
    squares = np.where(has, (shares - mean[:, None]) ** 2, 0.0).sum(axis=1)
    # kube-scheduler halves the difference of two shares, which rounds differently
    highest, lowest = np.where(has, shares, 0.0).max(axis=1), np.where(has, shares, 1.0).min(axis=1)
    return np.select([count > 2, count == 2], [np.sqrt(squares / np.maximum(count, 1)), (highest - lowest) / 2], 0.0)
