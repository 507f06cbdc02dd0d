"""The amounts that queues hold and may have in each pool of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from stromboli.api.crds.queues import PoolShare
from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Matrix, Rows, Vector, amounts
from stromboli.fairness import guarantees, shares
from stromboli.framework.cluster.job import Queue, lineage
from stromboli.framework.cluster.nodes import read_only
from stromboli.framework.cluster.tally import ALLOCATED, Requests
from stromboli.framework.cluster.view import View
from stromboli.plugins.nodepools.arguments import NodePool, nodes_of
from stromboli.state.nodes import NodeFacts

_RELEASING = int(PodState.Releasing)


@dataclass(slots=True, eq=False)
class Account:
    """A queue's amounts by pool, each of shape (pools, dimensions). What it holds counts for all its ancestors."""

    queue: Queue
    said: InitVar[_Shares]
    deserved: Matrix = field(init=False)
    guarantee: Matrix = field(init=False)
    #: infinite where unset
    capability: Matrix = field(init=False)
    #: where its deserved amounts are set, shape (pools, dimensions)
    named: Mask = field(init=False)
    held: Matrix = field(init=False)
    #: the most that it may hold when others hold no more than what is guaranteed to them
    most: Matrix = field(init=False)
    #: amounts that terminating pods hold besides
    terminating: Matrix = field(init=False)
    #: the queue and its ancestors, upwards
    path: list[Account] = field(init=False, default_factory=list)
    #: amounts that guarantees leave to it; None where nothing is guaranteed
    kept: guarantees.Pool | None = field(init=False, default=None)

    def __post_init__(self, said: _Shares) -> None:
        self.deserved, self.guarantee, self.named = said.deserved, said.guarantee, said.named
        self.capability = self.most = said.capability
        self.held, self.terminating = np.zeros_like(self.deserved), np.zeros_like(self.deserved)

    def deserves_more(self, pool: int, wanted: Vector, pods: bool) -> bool:
        """Whether it may reclaim an amount in a pool: it has to stay within its deserved amount there, if set."""
        counted = shares.asked(wanted, pods) & self.named[pool]
        return bool(counted.any() and (self.held[pool] + wanted <= self.deserved[pool])[counted].all())


@dataclass(frozen=True, slots=True, eq=False)
class Shortage:
    """Limit that keeps a queue from more in pools: the queue or ancestor, its amounts, its limit, and dimensions."""

    account: Account
    pools: tuple[int, ...]
    held: Vector
    bound: Vector
    columns: list[int]
    #: whether it is what others hold or are guaranteed
    for_others: bool
    #: amounts that admitted jobs claim besides
    claimed: Vector | None = None


class Accounts:
    """The accounts of all queues, and the pool of each node."""

    def __init__(self, view: View, pools: Sequence[NodePool], *, hierarchy: bool) -> None:
        self.names = [pool.name for pool in pools]
        number = {name: at for at, name in enumerate(self.names)}
        #: the pool of each node, -1 for none, shape (nodes,)
        self.of_node: Rows = pools_of_nodes(pools, view.nodes.facts)
        #: whether any node is in none
        self.leaves_nodes = bool((self.of_node < 0).any())
        self._of_node: list[int] = self.of_node.tolist()
        said = _Known.of(view, number).by_queue
        self.every = {name: Account(queue, said[name]) for name, queue in view.queues.items()}
        for account in self.every.values():
            line: Iterable[Queue] = lineage(account.queue, view.queues) if hierarchy else (account.queue,)
            account.path = [self.every[each.name] for each in line]
        #: whether any queue says anything about a pool
        self.used = any(any(each.name in number for each in queue.spec.pools) for queue in view.queues.values())
        #: whether limits name the number of pods
        self.pods = self.used and any(each.pods for each in said.values())
        #: whether any queue has pods that terminate in a pool
        self.ends = False
        if self.used:
            self._keep_guarantees(view, self._count(view))

    def pool(self, node: int) -> int:
        """The pool of a node, -1 for none."""
        return self._of_node[node] if node >= 0 else -1

    def change(self, account: Account, nodes: Sequence[int], amount: Vector, *, starts: bool) -> bool:
        """Add an amount on each of some nodes, where they are in pools; whether any is.

        Unless it `starts`, the queue holds as much as before for now.
        """
        pools = [self._of_node[node] for node in nodes]
        touched = {pool for pool in pools if pool >= 0}
        if not touched:
            return False
        change = np.zeros_like(account.held)
        for pool in touched:
            change[pool] = amount * pools.count(pool)
        for each in account.path:
            each.held += change
            if not starts:
                each.terminating -= change
        self.ends |= not starts
        if account.kept is not None:
            account.kept.change(change)
        return True

    def copies(self, account: Account, request: Vector) -> list[float]:
        """Number of copies of a request that a queue may take in each pool, whatever nodes have; below 1 for none."""
        asked = shares.asked(request, self.pods)
        left = self.left(account)[:, asked] / request[asked]
        copies: list[float] = np.floor(left).min(axis=1, initial=np.inf).tolist()
        return copies

    def copies_now(self, account: Account, pool: int, request: Vector) -> float:
        """Number of copies of a request that a queue may bind in a pool before its pods there have terminated."""
        asked = shares.asked(request, self.pods)
        limits = [each.capability[pool] - each.held[pool] - each.terminating[pool] for each in account.path]
        left = reduce(np.minimum, limits)[asked]
        return float(np.floor(left / request[asked]).min(initial=np.inf))

    def left(self, account: Account) -> Matrix:
        """Amounts that a queue may still take in each pool, by limits and guarantees, shape (pools, dimensions)."""
        left: Matrix = account.capability - account.held
        for each in account.path[1:]:
            np.minimum(left, each.capability - each.held, out=left)
        return left if account.kept is None else np.minimum(left, account.kept.left(), out=left)

    def shortage(self, account: Account, pool: int, request: Vector) -> Shortage | None:
        """Why a queue may not take a request more in a pool."""
        for each in account.path:
            columns = shares.exceeded(each.held[pool] + request, each.capability[pool], request, self.pods)
            if columns:
                return Shortage(each, (pool,), each.held[pool], each.capability[pool], columns, for_others=False)
        kept = account.kept
        if kept is not None:
            columns = shares.exceeded(kept.taken[pool] + request, kept.bound[pool], request, self.pods)
            if columns:
                held = account.held[pool]
                return Shortage(account, (pool,), held, held + kept.left()[pool], columns, for_others=True)
        return None

    # -- opening ---------------------------------------------------------------------------------------------------

    def _count(self, view: View) -> NDArray[np.float64]:
        """Add what pods hold on nodes of pools, and what those hold that terminate there.

        What each queue's own pods hold has shape (queues, pools, dimensions).
        """
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
        return held

    def _by_queue(self, view: View, pods: Mask) -> NDArray[np.float64]:
        """The requests of some pods, by queue and pool, shape (queues, pools, dimensions)."""
        rows, size = np.flatnonzero(pods), len(self.every) * len(self.names)
        pools, queues = self.of_node[view.pods.node[rows]], _queues_of(view, rows)
        keys = np.where((pools >= 0) & (queues >= 0), queues * len(self.names) + pools, size)
        sums = Requests.of(view.snapshot).sum(view.pods.pod_class[rows], keys, size + 1)[:, :size]
        return sums.T.reshape(len(self.every), len(self.names), -1)

    def _keep_guarantees(self, view: View, own: NDArray[np.float64]) -> None:
        """Reserve the guarantees of queues for them; one that gets nothing new keeps no more than it holds.

        `own` is what the pods of each queue hold, shape (queues, pools, dimensions).
        """
        accounts = self.every.values()
        parents = {above.queue.name for account in accounts for above in account.path[1:]}
        leaves = [account for name, account in self.every.items() if name not in parents]
        used = {above.queue.name for leaf in leaves if not view.closed[leaf.queue.index] for above in leaf.path}
        for name, account in self.every.items():
            if name not in used:
                account.guarantee = np.minimum(account.guarantee, account.held)
        guaranteed = np.sum([account.guarantee for account in accounts], axis=0)
        if not guaranteed.any():
            return
        total = [view.nodes.allocatable[:, self.of_node == pool].sum(axis=1) for pool in range(len(self.names))]
        cluster = guarantees.Pool.cluster(np.array(total), guaranteed, self.pods)
        for account in accounts:
            above = cluster
            for each in reversed(account.path):
                if each.kept is None:
                    each.kept = above.part(each.guarantee, each.capability)
                above = each.kept
        for account in accounts:
            if account.kept is not None:
                account.most = np.minimum(account.most, account.kept.bound)
        for account in accounts:
            if account.kept is not None and own[account.queue.index].any():
                account.kept.change(own[account.queue.index])


def pools_of_nodes(pools: Sequence[NodePool], facts: NodeFacts) -> Rows:
    """The number of the pool of each node, -1 for none, shape (nodes,)."""
    found: Rows = np.full(len(facts), -1, np.intp)
    for at in reversed(range(len(pools))):
        found[nodes_of(pools[at], facts)] = at
    return found


def capabilities(view: View, pools: Sequence[str]) -> Mapping[str, Matrix]:
    """The limit of each queue in pools, infinite where unset, shape (pools, dimensions)."""
    said = _Known.of(view, {name: at for at, name in enumerate(pools)}).by_queue
    return {name: each.capability for name, each in said.items()}


def _queues_of(view: View, rows: Rows) -> Rows:
    """The index of the queue of each of some pods, also where the PodGroup was deleted; -1 for none."""
    index_of = view.membership.index_of
    of_group = np.full(len(index_of), -1, np.intp)
    of_group[index_of >= 0] = view.jobs.queue[index_of[index_of >= 0]]
    for group, name in view.snapshot.left_queues.items():
        of_group[group] = view.queues[name].index if name in view.queues else -1
    return of_group[view.pods.job[rows]]


@dataclass(frozen=True, slots=True, eq=False)
class _Shares:
    """A queue's entries for pools, each of shape (pools, dimensions); capabilities it does not name are infinite."""

    said: Sequence[PoolShare]
    deserved: Matrix
    guarantee: Matrix
    capability: Matrix
    #: where its deserved amounts are set
    named: Mask
    #: whether limits name the number of pods
    pods: bool

    @classmethod
    def of(cls, view: View, said: Sequence[PoolShare], number: Mapping[str, int]) -> _Shares:
        """Shares of a queue, in pools by their numbers."""
        shape = len(number), len(view.dimensions)
        deserved, guarantee, capability = np.zeros(shape), np.zeros(shape), np.full(shape, np.inf)
        named = np.zeros(shape, np.bool_)
        for each in said:
            pool = number.get(each.name)
            if pool is not None:
                deserved[pool] = view.vector(each.deserved)
                guarantee[pool] = view.vector(each.guarantee.resource)
                capability[pool] = view.vector(each.capability, np.inf)
                listed = amounts(each.deserved)
                named[pool] = [name in listed for name in view.dimensions]
        pods = any("pods" in (listed or ()) for each in said for listed in each.amounts.values())
        return cls(said, read_only(deserved), read_only(guarantee), read_only(capability), read_only(named), pods)


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """The settings of queues for pools, valid while neither resources nor pools change."""

    dimensions: tuple[str, ...]
    number: Mapping[str, int]
    by_queue: Mapping[str, _Shares]

    @classmethod
    def of(cls, view: View, number: Mapping[str, int]) -> _Known:
        """The settings of a session's queues, reusing those of the previous session."""
        derived, dimensions = view.snapshot.derived, tuple(view.dimensions)
        before = derived.get(cls)
        known: Mapping[str, _Shares] = {}
        if isinstance(before, cls) and before.dimensions == dimensions and before.number == number:
            known = before.by_queue
        by_queue = {}
        for name, queue in view.queues.items():
            shares_of, said = known.get(name), queue.spec.pools
            unchanged = shares_of is not None and shares_of.said is said
            by_queue[name] = shares_of if shares_of and unchanged else _Shares.of(view, said, number)
        found = derived[cls] = cls(dimensions, number, by_queue)
        return found
