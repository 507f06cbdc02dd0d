"""Holdings and limits of a queue, and the order of queues by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import total_ordering

import numpy as np

from stromboli.api.reasons import Reason
from stromboli.api.resources import CPU, MEMORY, PODS, TOLERANCE, Mask, Vector
from stromboli.fairness import shares
from stromboli.fairness.guarantees import Pool
from stromboli.framework.cluster.job import Queue
from stromboli.kube.dra.quota import DeviceQuota


@dataclass(slots=True, eq=False)
class Account:
    """A queue's amounts, each of shape (dimensions,). In a tree, what a queue holds counts for all its ancestors."""

    queue: Queue
    deserved: Vector
    guarantee: Vector
    #: its limit; infinite where unset
    capability: Vector
    #: the most that it may have
    limit: Vector
    allocated: Vector
    request: Vector
    inqueue: Vector
    #: held above the minResources of its jobs
    elastic: Vector
    #: dimensions in which something is deserved
    deserves: Mask
    #: those of cpu and memory that the queue explicitly deserves none of
    forgoes: Mask
    #: devices that claims ask for, which are no dimension
    devices: DeviceQuota
    #: what terminating pods hold beyond `allocated`, without what is promised to others that start when they are gone
    terminating: Vector
    #: the devices of all pods that hold some now; None where nothing is limited in devices
    devices_now: DeviceQuota | None = None
    #: whether the number of pods counts
    pods: bool = False
    #: its usage as a dominant share of its deserved amounts, for the order of queues
    share: float = 0.0
    #: whether it deserves nothing: then it comes after all queues below their share
    undeserving: bool = False
    parent: Account | None = None
    children: list[Account] = field(default_factory=list)
    #: the queue and its ancestors, upwards
    path: list[Account] = field(init=False)
    #: why nothing can be scheduled in it
    broken: Reason | None = None
    #: amounts that guarantees leave to it, in the end and now; None where nothing is guaranteed, or it is not known yet
    pool: Pool | None = None
    pool_now: Pool | None = None

    def __post_init__(self) -> None:
        self.path = [self]

    def derive(self) -> None:
        """Compute values that depend on the deserved amount, which is fixed for the session."""
        self.undeserving = not (self.deserved if self.pods else np.delete(self.deserved, PODS)).max() >= TOLERANCE
        self.update_share()

    def update_share(self) -> None:
        """Recompute the share: 1 for a queue that deserves nothing."""
        self.share = self.share_of(self.allocated)

    def share_of(self, held: Vector) -> float:
        """The share that it would have if it held a given amount."""
        return 1.0 if self.undeserving else shares.dominant_share(held, self.deserved)

    @property
    def now(self) -> Vector:
        """The amounts that it holds or is getting now."""
        return self.allocated + self.terminating

    def ancestors(self, level: int) -> list[Account]:
        """Its parent, grandparent and so on, `level` at most."""
        return self.path[1 : level + 1]


def deserves_any(account: Account, request: Vector) -> bool:
    """Whether a queue deserves any of the requested resources."""
    return bool(((request >= TOLERANCE) & (account.deserved >= TOLERANCE)).any())


def deserves_more(account: Account, request: Vector) -> bool:
    """Whether the queue stays within its deserved amount in one of the dimensions that are requested."""
    future = account.allocated + request
    used = (future >= TOLERANCE) | (account.deserved >= TOLERANCE)
    return bool((shares.asked(request, account.pods) & used & (future < account.deserved + TOLERANCE)).any())


def named(account: Account) -> Mask:
    """The dimensions in which a deserved amount is set."""
    out = account.deserves.copy()
    out[[CPU, MEMORY]] &= account.deserved[[CPU, MEMORY]] >= TOLERANCE
    return out


def deserves_all(account: Account, request: Vector) -> bool:
    """Whether the queue stays within its deserved amount, even 0, of every requested resource that has one."""
    counted = shares.asked(request, account.pods) & (named(account) | account.forgoes)
    future = account.allocated[counted] + request[counted]
    return bool(counted.any() and (future < account.deserved[counted] + TOLERANCE).all())


def extended(account: Account) -> Mask:
    """The extended resources with a deserved amount for any queue: queues that do not name one deserve none of it."""
    out = account.deserves.copy()
    out[[CPU, MEMORY, PODS]] = False
    return out


def part(held: Vector, deserved: Vector, counted: Sequence[bool]) -> float:
    """The largest part of what is deserved that is held, of what counts; infinite where something is held and nothing
    deserved.
    """
    largest = 0.0
    for have, due, counts in zip(held.tolist(), deserved.tolist(), counted, strict=True):
        if counts and have > TOLERANCE:
            share = have / due if due else np.inf
            largest = max(largest, share)
    return largest


def parting(one: Account, other: Account) -> tuple[Account, Account]:
    """The ancestors of two queues, or they themselves, at which their paths from the root part."""
    ours, theirs = one.path, other.path
    at, last = -1, -min(len(ours), len(theirs))
    while at > last and ours[at] is theirs[at]:
        at -= 1
    return ours[at], theirs[at]


@total_ordering
class PlaceInTree:
    """Sorts queues by the shares of the two ancestors at which their paths part, as they are when compared.

    A key of numbers could not say it: equal shares there end the comparison, whatever lies below.
    """

    __slots__ = ("_account",)

    def __init__(self, account: Account) -> None:
        self._account = account

    def _compared_with(self, other: PlaceInTree) -> tuple[tuple[float, bool], tuple[float, bool]]:
        left, right = parting(self._account, other._account)
        return (left.share, left.undeserving), (right.share, right.undeserving)

    def __lt__(self, other: PlaceInTree) -> bool:
        left, right = self._compared_with(other)
        return left < right

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlaceInTree):
            return NotImplemented
        left, right = self._compared_with(other)
        return left == right

    def __hash__(self) -> int:
        return id(self._account)
