"""The accounts of a session's queues: made from their specs, linked to a tree, with jobs' holdings and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from stromboli.api.pod_state import ALLOCATED_STATES, PodState
from stromboli.api.reasons import Reason
from stromboli.api.resources import CPU, MEMORY, Mask, Matrix, Vector
from stromboli.fairness import guarantees, lending, obstacles, shares
from stromboli.fairness.obstacles import ROOT
from stromboli.fairness.queue_tree import linked
from stromboli.framework.cluster.job import Queue
from stromboli.framework.cluster.view import View
from stromboli.kube.dra.quota import ClaimedDevices, DeviceQuota
from stromboli.plugins.capacity.account import Account
from stromboli.state.nodes import NodeFacts
from stromboli.state.pods import PodRecord
from stromboli.state.selectors import derived


class Accounts:
    """The accounts of all queues, and of participating ones: all with a hierarchy, else those with jobs."""

    def __init__(self, view: View, devices: ClaimedDevices, *, hierarchy: bool, limits_claims: bool) -> None:
        """`limits_claims` says whether queues are limited in the devices of claims, which `devices` knows."""
        self._view = view
        self._hierarchy = hierarchy
        self._limits_claims = limits_claims
        self.devices = devices
        #: why the whole cluster stands still; only under Volcano's rules
        self.stopped: Reason | None = None
        #: by queue name, the dimensions in which its guarantee exceeds what can be kept
        self.clipped: dict[str, Mask] = {}
        #: amounts that queues hold, shape (queues, dimensions): the rows are the `allocated` of their accounts
        self.held: Matrix = np.zeros((len(view.queues), len(view.dimensions)))
        # 1. What specs say, and the tree.
        self.every = {queue.name: self._account(queue) for queue in view.queues.values()}
        self.taking_part = {name: each for name, each in self.every.items() if hierarchy or each.queue.has_jobs}
        if hierarchy:
            self._link()
        # 2. What jobs hold and want.
        self.limits_devices = any(account.devices for account in self.taking_part.values())
        self._count_jobs()
        if self.limits_devices:
            self._count_devices()
        # 3. What queues may have and deserve.
        self._release_guarantees()
        self._set_limits()
        if view.rules.kept_guarantees and len(view.nodes):
            self._keep_guarantees()
        for account in self.taking_part.values():
            account.derive()

    def pool_now(self, account: Account) -> guarantees.Pool | None:
        """The amounts that guarantees leave to a queue now."""
        if account.pool is not None and account.pool_now is None:
            for each, pool in self._pools(lambda each: each.now):
                each.pool_now = pool
        return account.pool_now

    def _account(self, queue: Queue) -> Account:
        view = self._view
        capability, guarantee = lending.ceiling(view, queue), view.vector(queue.spec.guarantee.resource)
        if queue.spec.lending_limit:
            guarantee = np.maximum(guarantee, lending.unlent(view, queue))
        named = shares.entitled(queue)
        deserved = view.vector(named)
        deserves = guarantee > 0
        deserves |= [name in named for name in view.dimensions]
        both, forgoes = [CPU, MEMORY], np.zeros(len(deserves), bool)
        forgoes[both] = deserves[both] & (deserved[both] <= 0) & (guarantee[both] <= 0)
        deserves[both] = True
        return Account(
            queue=queue,
            deserved=deserved,
            guarantee=guarantee,
            capability=capability,
            limit=capability,
            allocated=self.held[queue.index],
            request=view.vector(None),
            inqueue=view.vector(None),
            elastic=view.vector(None),
            terminating=view.vector(None),
            deserves=deserves,
            forgoes=forgoes,
            devices=self._device_quota(queue),
            pods=view.counts_pods,
        )

    def _device_quota(self, queue: Queue) -> DeviceQuota:
        return DeviceQuota(queue.spec.capability if self._limits_claims else None)

    def _link(self) -> None:
        """Make the tree. What is wrong with it stops the cluster under Volcano's rules, and a subtree under ours.

        A root that is missing is implied under ours: queues without a parent share the cluster.
        """
        if ROOT not in self.taking_part:
            self._stop(obstacles.no_root())
            if self.stopped is not None:
                return
        accounts = list(self.taking_part.values())
        tree, broken = linked(self._view.queues, list(self.taking_part), with_root=ROOT in self.taking_part)
        for row, account in enumerate(accounts):
            account.path = [accounts[above] for above in tree.path(row).tolist()]
            account.parent = account.path[1] if len(account.path) > 1 else None
            account.children = [accounts[child] for child in tree.children(row)]
        for name, why in broken.items():
            self._break(self.taking_part[name], why)
        for account in self.taking_part.values():
            if account.children and account.queue.has_jobs:
                self._stop(obstacles.not_a_leaf(account.queue))
        for account in self.taking_part.values():
            account.broken = next((above.broken for above in account.path if above.broken), None)

    def _break(self, account: Account, why: Reason) -> None:
        account.broken = why
        self._stop(why)

    def _stop(self, why: Reason) -> None:
        """Stop all queues for a mistake in one, under Volcano's rules."""
        if not self._view.rules.broken_queue:
            self.stopped = why

    def _release_guarantees(self) -> None:
        """Keep nothing beyond what is held for queues that get nothing new, and where all below get nothing new."""
        closed = self._view.closed
        leaves = [account for account in self.every.values() if not account.children and account.broken is None]
        used = {above.queue.name for leaf in leaves if not closed[leaf.queue.index] for above in leaf.path}
        for name, account in self.every.items():
            if name not in used:
                account.guarantee = np.minimum(account.guarantee, account.allocated)

    def _count_jobs(self) -> None:
        """Add the holdings and requests of jobs to their queues and the ancestors."""
        view = self._view
        held, request = view.jobs.by_queue(view.job_allocated), view.jobs.by_queue(view.job_requested)
        elastic = view.jobs.by_queue(np.maximum(view.job_allocated - view.jobs.min_resources, 0))
        claims = view.jobs.by_queue(shares.claims(view, beyond_allocated=True))
        for account in self.taking_part.values():
            for each in account.path if account.queue.has_jobs else ():
                each.inqueue += claims[account.queue.index]
                each.allocated += held[account.queue.index]
                each.request += request[account.queue.index]
                each.elastic += elastic[account.queue.index]
        if view.terminating is not None:
            self._count_terminating(view.terminating)

    def _count_terminating(self, held: Matrix) -> None:
        """Add the holdings of terminating pods, shape (queues, dimensions), to their queues and the ancestors."""
        for account in self.taking_part.values():
            for each in account.path:
                each.terminating += held[account.queue.index]

    def _count_devices(self) -> None:
        """Add the devices that pods hold to their queues and the ancestors."""
        view = self._view
        for account in self.taking_part.values() if view.rules.terminating else ():
            account.devices_now = self._device_quota(account.queue)
        for job in view.jobs.of(view.jobs.count(*ALLOCATED_STATES, PodState.Releasing) > 0):
            for pod in view.members(job):
                state = view.pods.state[pod.row]
                if not pod.pod_class.spec.resource_claims or not (state in ALLOCATED_STATES or _ends(state, pod)):
                    continue
                for each in self.taking_part[job.queue.name].path:
                    if state in ALLOCATED_STATES:
                        each.devices.add(self.devices.of(pod))
                    if each.devices_now is not None:
                        each.devices_now.add(self.devices.of(pod))

    def _set_limits(self) -> None:
        none = self._view.vector(None)
        if not self._hierarchy:
            self._clip(list(self.every.values()), self._view.total)
        kept = (account.guarantee for account in self.every.values())
        #: amounts that no guarantee holds, for flat queues
        self.free: Vector = np.maximum(self._view.total - np.sum([none, *kept], axis=0), 0)
        if self._hierarchy and (ROOT in self.taking_part or self.stopped is None):
            self._limit_tree()
            return
        for account in self.taking_part.values():
            account.limit = np.minimum(self.free + account.guarantee, account.capability)
            account.deserved = np.maximum(np.minimum(account.deserved, account.limit), account.guarantee)

    def _limit_tree(self) -> None:
        root, tops = self.taking_part.get(ROOT), self._tops()
        limit = self._root_limit(root)
        for top in tops if self._view.rules.kept_guarantees else ():
            self._guarantee_parents(top)
        self._limit(tops, limit, limit)
        if root is not None:
            root.limit = root.capability = limit
            root.guarantee = _total(top.guarantee for top in tops) + self._view.vector(None)
            root.deserved = _total(top.deserved for top in tops) + self._view.vector(None)
            root.deserves = np.any([root.deserves, *(top.deserves for top in tops)], axis=0)

    def _tops(self) -> list[Account]:
        """The queues of a tree right below the root, whether there is one or it is implied."""
        if ROOT in self.taking_part:
            return self.taking_part[ROOT].children
        return [account for account in self.taking_part.values() if account.parent is None and account.broken is None]

    def _root_limit(self, root: Account | None) -> Vector:
        """The root is not limited by the cluster's size, only in the resources that the cluster has."""
        if root is None or not root.queue.spec.capability:
            named = derived(self._view.nodes.facts, _named_by_nodes)
            known = np.array([name in named for name in self._view.dimensions])
            unlimited = np.where(known, float(2**63 - 1), 0.0)
            unlimited[[CPU, MEMORY]] = np.inf
            return unlimited
        if self._view.rules.broken_queue:
            return root.capability
        return self._view.vector(root.queue.spec.capability)

    def _guarantee_parents(self, parent: Account) -> None:
        """Raises the guarantees of parents to the sum of their children's."""
        for child in parent.children:
            self._guarantee_parents(child)
        together = _total(np.minimum(child.guarantee, child.capability) for child in parent.children)
        parent.guarantee = np.maximum(parent.guarantee, together)

    def _keep_guarantees(self) -> None:
        """Give queues pools, if anything is guaranteed to any queue."""
        for account, pool in self._pools(lambda each: each.allocated):
            account.pool = pool

    def _pools(self, holding: Callable[[Account], Vector]) -> Iterator[tuple[Account, guarantees.Pool]]:
        """The amounts that guarantees leave to each queue, given what queues hold; empty if nothing is guaranteed."""
        tops = [account for account in self.taking_part.values() if account.parent is None]
        idle = [account.guarantee for name, account in self.every.items() if name not in self.taking_part]
        kept = idle + [each.guarantee for each in (self._tops() if self._hierarchy else tops)]
        together = _total(kept) + self._view.vector(None)
        if not together.any():
            return
        cluster = guarantees.Pool.cluster(self._view.total, together, self._view.counts_pods)
        for amount in idle:
            cluster.part(amount)
        for top in tops:
            yield from self._pools_below(top, cluster, holding)

    def _pools_below(
        self, account: Account, above: guarantees.Pool, holding: Callable[[Account], Vector]
    ) -> Iterator[tuple[Account, guarantees.Pool]]:
        is_root = account.queue.name == ROOT and account.children
        pool = above if is_root else above.part(account.guarantee, account.limit)
        pool.change(holding(account) - _total(holding(child) for child in account.children))
        yield account, pool
        for child in account.children:
            yield from self._pools_below(child, pool, holding)

    def _limit(self, siblings: Sequence[Account], limit: Vector, capability: Vector) -> None:
        """Say what queues may have and deserve that share what is limited so, and those below them."""
        for each in siblings:
            each.capability = np.where(np.isinf(each.capability), capability, each.capability)
        self._clip(siblings, np.minimum(limit, self._view.total))
        guaranteed = _total(each.guarantee for each in siblings)
        for each in siblings:
            each.deserved = np.maximum(each.deserved, each.guarantee)
            free = np.maximum(limit - guaranteed, 0) + each.guarantee
            each.limit = np.minimum(free, each.capability)
            self._limit(each.children, each.limit, each.capability)

    def _clip(self, siblings: Sequence[Account], whole: Vector) -> None:
        """Clip guarantees to the amounts that their queues can have."""
        if not (self._view.rules.clipped_guarantees and len(self._view.nodes) and siblings):
            return
        guarantee, own, asked = (
            np.stack([getattr(account, amount) for account in siblings])
            for amount in ("guarantee", "capability", "request")
        )
        kept, clipped = guarantees.clip(guarantee, own, whole, asked)
        for account, amounts, less in zip(siblings, kept, clipped, strict=True):
            account.guarantee = amounts
            self.clipped[account.queue.name] = less


def _named_by_nodes(facts: NodeFacts) -> frozenset[str]:
    """The resources that any node lists, even with an amount of zero."""
    return frozenset(("cpu", "memory")).union(*(record.allocatable for record in facts.records))


def _ends(state: int, pod: PodRecord) -> bool:
    """Whether a pod terminates on a node."""
    return state == PodState.Releasing and bool(pod.node_name)


def _total(vectors: Iterable[Vector]) -> Vector:
    out: Vector = np.sum(list(vectors), axis=0)
    return out
