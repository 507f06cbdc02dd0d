"""What queues hold and may have in each pool of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Matrix, Rows, Vector, amounts
from stromboli.fairness import guarantees, shares
from stromboli.framework.cluster.job import Queue, lineage
from stromboli.framework.cluster.tally import ALLOCATED, Requests
from stromboli.framework.cluster.view import View
from stromboli.plugins.nodepools.arguments import NodePool, nodes_of

_RELEASING = int(PodState.Releasing)


@dataclass(slots=True, eq=False)
class Account:
    """A queue's amounts by pool, each of shape (pools, dimensions). What it holds counts for all its ancestors."""

    queue: Queue
    deserved: Matrix
    guarantee: Matrix
    #: infinite where nothing is said
    capability: Matrix
    #: where it is said what it deserves, shape (pools, dimensions)
    named: Mask
    held: Matrix = field(init=False)
    #: the most that it may hold when others hold no more than what is guaranteed to them
    most: Matrix = field(init=False)
    #: what its pods hold besides that terminate
    terminating: Matrix = field(init=False)
    #: what it may take besides, and when that was found, by the number of changes in each pool
    left: Matrix = field(init=False)
    as_of: list[int] = field(init=False)
    #: the queue and its ancestors, upwards
    path: list[Account] = field(init=False, default_factory=list)
    #: what guarantees leave to it, by number of the pool; none where nothing is guaranteed
    kept: dict[int, guarantees.Pool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.held, self.terminating, self.left = (np.zeros_like(self.deserved) for _ in range(3))
        self.as_of = [-1] * len(self.deserved)

    def deserves_more(self, pool: int, wanted: Vector, pods: bool) -> bool:
        """Whether it may take back so much in a pool: it stays within what it is said to deserve of that."""
        counted = shares.asked(wanted, pods) & self.named[pool]
        return bool(counted.any() and (self.held[pool] + wanted <= self.deserved[pool])[counted].all())


@dataclass(frozen=True, slots=True, eq=False)
class Shortage:
    """What keeps a queue from holding more in pools: it or one above it, what it holds, its limit, and dimensions."""

    account: Account
    pools: tuple[int, ...]
    held: Vector
    bound: Vector
    columns: list[int]
    #: whether it is what others hold or are guaranteed
    for_others: bool
    #: what admitted jobs claim besides
    claimed: Vector | None = None


class Accounts:
    """The accounts of all queues, and the pool of each node."""

    def __init__(self, view: View, pools: Sequence[NodePool], *, hierarchy: bool) -> None:
        self.names = [pool.name for pool in pools]
        number = {name: at for at, name in enumerate(self.names)}
        #: the pool of each node, -1 for none, shape (nodes,)
        self.of_node: Rows = np.full(len(view.nodes), -1, np.intp)
        for at in reversed(range(len(pools))):
            self.of_node[nodes_of(pools[at], view.nodes.facts)] = at
        #: whether any node is in none
        self.leaves_nodes = bool((self.of_node < 0).any())
        self._of_node: list[int] = self.of_node.tolist()
        #: how often something changed in each pool
        self._changes = [0] * len(pools)
        self.every = {name: _account(view, queue, number) for name, queue in view.queues.items()}
        for account in self.every.values():
            line: Iterable[Queue] = lineage(account.queue, view.queues) if hierarchy else (account.queue,)
            account.path = [self.every[each.name] for each in line]
        #: whether any queue says anything about a pool
        self.used = any(any(each.name in number for each in queue.spec.pools) for queue in view.queues.values())
        #: whether limits name the number of pods
        self.pods = self.used and any(map(_names_pods, view.queues.values()))
        #: whether any queue has pods that terminate in a pool
        self.ends = False
        if self.used:
            self._count(view)
            self._keep_guarantees(view)

    def pool(self, node: int) -> int:
        """The pool of a node, -1 for none."""
        return self._of_node[node] if node >= 0 else -1

    def change(self, account: Account, nodes: Sequence[int], amount: Vector) -> bool:
        """Add an amount on each of some nodes, where they are in pools; whether any is."""
        pools = [self._of_node[node] for node in nodes]
        counts = {pool: pools.count(pool) for pool in set(pools) if pool >= 0}
        for pool, count in counts.items():
            for each in account.path:
                each.held[pool] += amount * count
            if pool in account.kept:
                account.kept[pool].change(amount * count)
            self._changes[pool] += 1
        return bool(counts)

    def copies(self, account: Account, request: Vector) -> list[float]:
        """How many copies of a request a queue may take in each pool, whatever its nodes have; below 1 for none."""
        asked = shares.asked(request, self.pods)
        if not asked.any():
            return [np.inf] * len(self.names)
        for pool, changes in enumerate(self._changes):
            if account.as_of[pool] != changes:
                account.left[pool], account.as_of[pool] = self.left(account, pool), changes
        copies: list[float] = np.floor(account.left[:, asked] / request[asked]).min(axis=1).tolist()
        return copies

    def copies_now(self, account: Account, pool: int, request: Vector) -> float:
        """How many copies of a request a queue may bind in a pool before its pods there have terminated."""
        asked = shares.asked(request, self.pods)
        limits = [each.capability[pool] - each.held[pool] - each.terminating[pool] for each in account.path]
        left = reduce(np.minimum, limits)[asked]
        return float(np.floor(left / request[asked]).min(initial=np.inf))

    def left(self, account: Account, pool: int) -> Vector:
        """What a queue may take besides in a pool, by limits and guarantees."""
        left: Vector = account.capability[pool] - account.held[pool]
        for each in account.path[1:]:
            np.minimum(left, each.capability[pool] - each.held[pool], out=left)
        if pool in account.kept:
            np.minimum(left, account.kept[pool].left(), out=left)
        return left

    def shortage(self, account: Account, pool: int, request: Vector) -> Shortage | None:
        """Why a queue may not take a request more in a pool."""
        for each in account.path:
            columns = shares.exceeded(each.held[pool] + request, each.capability[pool], request, self.pods)
            if columns:
                return Shortage(each, (pool,), each.held[pool], each.capability[pool], columns, for_others=False)
        if pool in account.kept:
            kept = account.kept[pool]
            columns = shares.exceeded(kept.taken + request, kept.bound, request, self.pods)
            if columns:
                held = account.held[pool]
                return Shortage(account, (pool,), held, held + kept.left(), columns, for_others=True)
        return None

    # -- opening ---------------------------------------------------------------------------------------------------

    def _count(self, view: View) -> None:
        """Add what pods hold on nodes of pools, and what those hold that terminate there."""
        placed = view.pods.node >= 0
        held = self._by_queue(view, ALLOCATED[view.pods.state] & placed)
        leaving = (view.pods.state == _RELEASING) & placed
        self.ends = view.rules.terminating and bool(leaving.any())
        terminating = self._by_queue(view, leaving) if self.ends else np.zeros_like(held)
        for account in self.every.values():
            at = account.queue.index
            if held[at].any() or terminating[at].any():
                for each in account.path:
                    each.held += held[at]
                    each.terminating += terminating[at]

    def _by_queue(self, view: View, pods: Mask) -> NDArray[np.float64]:
        """What some pods request, by queue and pool, shape (queues, pools, dimensions)."""
        rows, size = np.flatnonzero(pods), len(self.every) * len(self.names)
        pools, queues = self.of_node[view.pods.node[rows]], _queues_of(view, rows)
        keys = np.where((pools >= 0) & (queues >= 0), queues * len(self.names) + pools, size)
        sums = Requests.of(view.snapshot).sum(view.pods.pod_class[rows], keys, size + 1)[:, :size]
        return sums.T.reshape(len(self.every), len(self.names), -1)

    def _keep_guarantees(self, view: View) -> None:
        """Have what is guaranteed to queues kept for them; a closed queue keeps no more than it holds."""
        for account in self.every.values():
            if view.closed[account.queue.index]:
                account.guarantee = np.minimum(account.guarantee, account.held)
        for pool in range(len(self.names)):
            guaranteed = sum((account.guarantee[pool] for account in self.every.values()), view.vector(None))
            if not guaranteed.any():
                continue
            total = view.nodes.allocatable[:, self.of_node == pool].sum(axis=1)
            cluster = guarantees.Pool.cluster(total, guaranteed, self.pods)
            for account in self.every.values():
                above = cluster
                for each in reversed(account.path):
                    if pool not in each.kept:
                        each.kept[pool] = above.part(each.guarantee[pool])
                    above = each.kept[pool]
        for account in self.every.values():
            for pool, kept in account.kept.items():
                account.most[pool] = np.minimum(account.most[pool], kept.bound)
        for account in self.every.values():
            below = [each for each in self.every.values() if each.path[1:2] == [account]]
            for pool, kept in account.kept.items():
                kept.change(account.held[pool] - sum(each.held[pool] for each in below))


def _queues_of(view: View, rows: Rows) -> Rows:
    """The index of the queue of each of some pods, also where the PodGroup was deleted; -1 for none."""
    index_of = view.membership.index_of
    of_group = np.full(len(index_of), -1, np.intp)
    of_group[index_of >= 0] = view.jobs.queue[index_of[index_of >= 0]]
    for group, name in view.snapshot.left_queues.items():
        of_group[group] = view.queues[name].index if name in view.queues else -1
    return of_group[view.pods.job[rows]]


def _account(view: View, queue: Queue, number: dict[str, int]) -> Account:
    shape = len(number), len(view.dimensions)
    account = Account(queue, np.zeros(shape), np.zeros(shape), np.full(shape, np.inf), np.zeros(shape, np.bool_))
    for said in queue.spec.pools:
        pool = number.get(said.name)
        if pool is not None:
            account.deserved[pool] = view.vector(said.deserved)
            account.guarantee[pool] = view.vector(said.guarantee.resource)
            account.capability[pool] = view.vector(said.capability, np.inf)
            deserved = amounts(said.deserved)
            account.named[pool] = [name in deserved for name in view.dimensions]
    account.most = account.capability.copy()
    return account


def _names_pods(queue: Queue) -> bool:
    return any("pods" in (said or ()) for pool in queue.spec.pools for said in pool.amounts.values())
