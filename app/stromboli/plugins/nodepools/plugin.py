"""nodepools: shares of queues by pools of nodes, and which pools a job may use, in which order.

The policy names pools by labels of their nodes, and a queue says in `spec.pools` what it deserves, is guaranteed and
may have at most in single pools. Pods of a job whose PodGroup has the annotation `stromboli.io/pools: a,b` run in these
pools only, in `b` when its queue may hold no more in `a` or that is full. A queue takes back in a pool what it deserves
there, from queues that hold more than they deserve there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.api.validation import nearest
from stromboli.api.words import by_number
from stromboli.fairness import shares
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.nodes import NodeView, read_only
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin, Verdict, Vote
from stromboli.framework.plugin.causes import Filters, Passing
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.framework.plugin.relations import Narrowing, Relation
from stromboli.framework.plugin.report import PoolGauges, Report
from stromboli.plugins.nodepools.accounts import Account, Accounts, Shortage
from stromboli.plugins.nodepools.admission import Claims
from stromboli.plugins.nodepools.arguments import NodePoolsArguments, listed, named_by
from stromboli.plugins.nodepools.ceilings import ceilings, rations
from stromboli.plugins.nodepools.words import Words
from stromboli.state.pods import PodRecord

#: weight of a place in the order of pools: more than the sum of all other plugins' scores
_SCORE = 100_000.0

Column = TypeVar("Column", Mask, Vector, Rows)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The pools that a job may use, the best first; None for all nodes. And names of no pools."""

    pools: tuple[int, ...] | None
    unknown: tuple[str, ...]
    #: the numbers of the pools
    usable: Sequence[int]


class _Owner(NamedTuple):
    """The job of a pod, its settings for pools, and the account of its queue."""

    job: Job
    choice: _Choice
    account: Account


class _Order(NamedTuple):
    """Effect of an order of pools on each node, shape (nodes,): whether it is in one, and its score by that."""

    usable: Mask
    scores: Vector


class NodePools(Plugin):
    name = "nodepools"
    queue_fields = frozenset(("pools",))
    counts_pods = True
    Arguments: ClassVar[type[BaseModel]] = NodePoolsArguments

    def job_ceilings(self, view: View) -> Mapping[str, tuple[Vector, str]]:
        """The limits of all pools that a job may use, together."""
        return ceilings(view, self.arguments.pools, hierarchy=self.hierarchy)

    def open(self, view: View) -> None:
        self._view = view
        self._accounts = Accounts(view, self.arguments.pools, hierarchy=self.hierarchy)
        self._words = Words(view, self._accounts)
        self._number = {name: at for at, name in enumerate(self._accounts.names)}
        #: the settings of PodGroups, and the number of each job's setting
        self._said, self._of_job = view.jobs.said("node pools", named_by)
        self._choices: dict[str, _Choice] = {}
        #: by the key of a pod's job
        self._owners: dict[str, _Owner | None] = {}
        #: by the pools, the best first
        self._orders: dict[tuple[int, ...], _Order] = {}
        #: number of copies of a pod that its queue may take in each pool, by queue and class; until something changes
        self._copies_of: dict[tuple[int, int], list[float]] = {}
        #: by job and class, as long
        self._identities: dict[tuple[str, int], Hashable] = {}

    # -- which pools -------------------------------------------------------------------------------------------------

    def job_valid(self, job: Job) -> Reason | None:
        unknown = self._choice(job).unknown
        if not unknown:
            return None
        near = {name: nearest(name, self._number) for name in unknown}
        names = ", ".join(f"{name} (did you mean {meant}?)" if meant else name for name, meant in near.items())
        pools = by_number(len(unknown), "pool", "pools")
        message = f"{job.title} may use node {pools} {names}, which the policy does not name"
        return Reason(Stage.Admission, "NodePoolNotFound", message, Actionable.User)

    def identity(self, pod: PodRecord) -> Hashable:
        """The pools that it may use, and those of them in which its queue may hold one more."""
        key = pod.job, pod.pod_class.id
        if key not in self._identities:
            owner = self._owner(pod)
            open_to = () if owner is None else tuple([copies >= 1 for copies in self._copies(owner.account, pod)])
            self._identities[key] = None if owner is None else (owner.choice.pools, open_to)
        return self._identities[key]

    def varies_on_node(self, pod: PodRecord) -> bool:
        """Whether placements of its job may use up a pool, or evictions may open one."""
        owner = self._owner(pod)
        if owner is None or not self._accounts.used:
            return False
        copies, size = self._copies(owner.account, pod), owner.job.size
        if min([copies[pool] for pool in owner.choice.usable], default=size) < size:
            return True
        return self._accounts.ends and min(self._copies_now(owner, pod).values(), default=size) < size

    def by_class(self, pod: PodRecord) -> bool:
        return True

    def by_amounts(self, pod: PodRecord) -> bool:
        return len(self._ordered(pod)) < 2

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        owner = self._owner(pod)
        if owner is None:
            return
        pools = owner.choice.pools
        if pools is not None:
            yield "node(s) in no node pool that the job may use", _shown(self._order(pools).usable, nodes)
        for pool, copies in enumerate(self._copies(owner.account, pod)):
            if copies < 1:
                name = self._accounts.names[pool]
                full = Passing(f"queue {owner.job.queue.name} has no capacity left in node pool {name}")
                yield full, _shown(self._accounts.of_node, nodes) != pool

    def relations(self, pods: Sequence[PodRecord]) -> list[Relation]:
        """Limits of a queue and those above it in pools; guarantees of others leave less."""
        owner = self._owner(pods[0])
        if owner is None or not self._accounts.used:
            return []
        requests = np.array([self._view.request(pod) for pod in pods])
        found: list[Relation] = list(rations(self._view, self._accounts, owner.account, requests))
        return [*found, Narrowing("limits in node pools", np.ones(len(pods), np.bool_), (frozenset(),) * len(pods))]

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        order = self._ordered(pod)
        return None if len(order) < 2 else _shown(self._order(order).scores, nodes)

    def _order(self, pools: tuple[int, ...]) -> _Order:
        found = self._orders.get(pools)
        if found is None:
            usable, scores = np.zeros(len(self._number) + 1, np.bool_), np.zeros(len(self._number) + 1)
            usable[list(pools)] = True
            scores[list(pools)] = _SCORE * np.arange(len(pools))[::-1]
            of_node = self._accounts.of_node
            found = self._orders[pools] = _Order(read_only(usable[of_node]), read_only(scores[of_node]))
        return found

    # -- admission ---------------------------------------------------------------------------------------------------

    def job_enqueueable(self, job: Job) -> Verdict:
        """Whether a job's queue may hold the job's minimum in its pools."""
        usable = self._only(job)
        if not usable or job.min_resources is None:
            return Vote.Abstain
        short = self._claims.shortage(self._account(job.queue), usable, job)
        if short is None:
            return Vote.Abstain
        return self._words.reached(job.queue, shares.admission_request(self._view, job), [short], Stage.Admission)

    def job_enqueued(self, job: Job) -> None:
        usable = self._only(job)
        if usable and job.min_resources is not None:
            claim = shares.reserved(self._view, job, beyond_allocated=False)
            self._claims.claim(self._account(job.queue), usable, claim)

    @cached_property
    def _claims(self) -> Claims:
        named = [self._choice_of(text).pools for text in self._said[:]]
        every = None if self._accounts.leaves_nodes else frozenset(self._number.values())
        usable = [every if pools is None else frozenset(pools) for pools in named]
        return Claims(self._view, self._accounts, usable, self._of_job)

    # -- limits ------------------------------------------------------------------------------------------------------

    def allocatable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        owner = self._owner(pod)
        if owner is None or not self._accounts.used:
            return count, None
        account, pools = self._account(queue), owner.choice.usable
        copies = self._copies(account, pod)
        fitting = sum([max(0.0, copies[pool]) for pool in pools])
        if fitting >= count or self._may_leave(owner.choice):
            return count, None
        request = self._view.request(pod)
        lacking = ((1 + max(0.0, copies[pool])) * request for pool in pools)
        short = [self._accounts.shortage(account, pool, more) for pool, more in zip(pools, lacking, strict=True)]
        found = [each for each in short if each is not None]
        return int(fitting), self._words.reached(queue, request, found, Stage.QueueShare, owner.job)

    def startable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        owner = self._owner(pod)
        if owner is None or not self._accounts.ends or self._may_leave(owner.choice):
            return count, None
        copies = self._copies_now(owner, pod)
        fitting = sum(max(0.0, each) for each in copies.values())
        if fitting >= count:
            return count, None
        return int(fitting), self._waits([pool for pool, each in copies.items() if each < 1], queue)

    def starts_later(self, pod: PodRecord, node: int) -> Reason | None:
        owner, pool = self._owner(pod), self._accounts.pool(node)
        if owner is None or pool < 0 or not self._accounts.ends:
            return None
        copies = self._accounts.copies_now(owner.account, pool, self._view.request(pod))
        return self._waits([pool], owner.job.queue) if copies < 1 else None

    def _copies_now(self, owner: _Owner, pod: PodRecord) -> dict[int, float]:
        """Number of pods like one that may start now in each pool that it may use."""
        request = self._view.request(pod)
        return {pool: self._accounts.copies_now(owner.account, pool, request) for pool in owner.choice.usable}

    def _waits(self, pools: Sequence[int], queue: Queue) -> Reason:
        """A queue may hold more in some pools later."""
        message = f"queue {queue.name} may not hold more in {self._words.told(pools)}"
        message += " until pods of it have terminated there"
        return Reason(Stage.QueueShare, "NodePoolLimitReached", message, Actionable.Wait)

    def preemptive(self, queue: Queue, pods: Sequence[PodRecord]) -> Reason | None:
        """A queue reclaims its share in the pools that its pods may use, where its spec names one."""
        owner, account = self._owner(pods[0]), self._account(queue)
        pools = [] if owner is None else [pool for pool in owner.choice.usable if account.named[pool].any()]
        if not pools:
            return None
        request = self._view.requested(pods)
        named = account.named[pools].any(axis=0) & shares.asked(request, self._accounts.pods)
        left = np.where(account.named, np.maximum(account.deserved - account.held, 0), 0)[pools].sum(axis=0)
        if named.any() and (request <= left)[named].all():
            return None
        columns = np.flatnonzero(named & (request > left)).tolist()
        short = [
            Shortage(account, (pool,), account.held[pool], account.deserved[pool], columns, for_others=False)
            for pool in pools
        ]
        message = f"queue {queue.name} takes back no more in {self._words.told(pools)} than it deserves there"
        return Reason(
            Stage.QueueShare,
            "NodePoolShareExceeded",
            message,
            Actionable.Wait,
            self._words.numbers(request, short, "deserves"),
        )

    def reclaimable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord] | None:
        """Pods of queues that hold more of a pool than they deserve there, where the pod's own queue deserves it."""
        accounts, view, job = self._accounts, self._view, self._view.job_of(pod)
        pools = [accounts.pool(int(view.pods.node[candidate.row])) for candidate in candidates]
        if job is None or not self._account(job.queue).named.any() or all(pool < 0 for pool in pools):
            return None
        own, wanted = self._account(job.queue), view.request(pod)
        takes = {pool: pool < 0 or own.deserves_more(pool, wanted, accounts.pods) for pool in set(pools)}
        left: dict[str, Matrix] = {}
        victims = []
        for candidate, pool in zip(candidates, pools, strict=True):
            request = view.request(candidate)
            giving = self._giving(view.jobs[candidate.job].queue, own) if pool >= 0 else []
            held = [left.get(each.queue.name, each.held) for each in giving]
            if takes[pool] and all(map(partial(self._gives, own, pool, request, wanted), giving, held)):
                for each, amounts in zip(giving, held, strict=True):
                    left[each.queue.name] = amounts.copy()
                    left[each.queue.name][pool] -= request
                victims.append(candidate)
        return victims

    def _gives(self, taker: Account, pool: int, request: Vector, wanted: Vector, giver: Account, held: Matrix) -> bool:
        """Whether a queue that holds `held`, shape (pools, dimensions), gives only what exceeds its share of a pool."""
        pods, named = self._accounts.pods, giver.named[pool] | taker.named[pool]
        return (
            shares.stays_above(held[pool], request, wanted, giver.deserved[pool], named, pods)
            and shares.keeps(held[pool], request, giver.guarantee[pool], pods)
            and shares.keeps(held.sum(axis=0), request, self._view.vector(giver.queue.spec.guarantee.resource), pods)
        )

    def _giving(self, queue: Queue, own: Account) -> list[Account]:
        """A giving queue and those of its ancestors that are not ancestors of the reclaiming queue."""
        return [each for each in self._account(queue).path if each not in own.path]

    # -- reporting ---------------------------------------------------------------------------------------------------

    def close(self, report: Report) -> None:
        if self._accounts.used:
            report.pools = self._gauges

    def _gauges(self, queue: Queue) -> dict[str, PoolGauges]:
        account, found = self._account(queue), {}
        limits = np.maximum(account.held + self._accounts.left(account), 0)
        for pool, name in enumerate(self._accounts.names):
            found[name] = PoolGauges(
                nodes=self._accounts.of_node == pool,
                held=account.held[pool],
                terminating=account.terminating[pool],
                claimed=self._claims.claimed(account, frozenset((pool,))),
                deserved=account.deserved[pool],
                guarantee=account.guarantee[pool],
                limit=limits[pool],
            )
        return found

    # -- accounts ----------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        self._change(operation, operation.request)

    def on_deallocate(self, operation: Operation) -> None:
        self._change(operation, -operation.request)

    def _change(self, operation: Operation, amount: Vector) -> None:
        # What terminates already counts no more as held.
        ended = operation.kind is Kind.Evict and operation.before == PodState.Releasing
        if operation.job is None or not self._accounts.used or ended:
            return
        # An evicted pod holds its part of a pool until it is gone, a pod that is promised it does not yet.
        starts = operation.kind is Kind.Allocate or not self._view.rules.terminating
        if self._accounts.change(self._account(operation.job.queue), operation.nodes, amount, starts=starts):
            self._copies_of.clear()
            self._identities.clear()

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _account(self, queue: Queue) -> Account:
        return self._accounts.every[queue.name]

    def _choice(self, job: Job) -> _Choice:
        """The settings of a job for pools."""
        return self._choice_of(self._said[self._of_job[job.index]])

    def _choice_of(self, text: str) -> _Choice:
        found = self._choices.get(text)
        if found is None:
            names = listed(text)
            known = tuple(self._number[name] for name in names if name in self._number)
            unknown = tuple(name for name in names if name not in self._number)
            usable = known if names else range(len(self._number))
            found = self._choices[text] = _Choice(known if names else None, unknown, usable)
        return found

    def _owner(self, pod: PodRecord) -> _Owner | None:
        """The settings of a pod's job, with its account; None if its PodGroup is not in the session."""
        if pod.job not in self._owners:
            job = self._view.job_of(pod)
            owner = None if job is None else _Owner(job, self._choice(job), self._account(job.queue))
            self._owners[pod.job] = owner
        return self._owners[pod.job]

    def _may_leave(self, choice: _Choice) -> bool:
        """Whether a job may use nodes that are in no pool, and there are any."""
        return self._accounts.leaves_nodes and choice.pools is None

    def _only(self, job: Job) -> frozenset[int] | None:
        """The pools that a job may not leave; None where it may, or where no queue says anything about pools."""
        choice = self._choice(job)
        return None if not self._accounts.used or self._may_leave(choice) else frozenset(choice.usable)

    def _ordered(self, pod: PodRecord) -> tuple[int, ...]:
        """The pools that a pod may use, in order; none where all are as good."""
        owner = self._owner(pod)
        return () if owner is None else owner.choice.pools or ()

    def _copies(self, account: Account, pod: PodRecord) -> list[float]:
        """Number of pods like one that a queue may take in each pool; empty where no queue names pools."""
        if not self._accounts.used:
            return []
        key = account.queue.index, pod.pod_class.id
        found = self._copies_of.get(key)
        if found is None:
            found = self._copies_of[key] = self._accounts.copies(account, self._view.request(pod))
        return found


def _shown(column: Column, nodes: NodeView) -> Column:
    """Values of a column for the nodes of a view; not copied when these are all."""
    return column if len(nodes.rows) == len(column) else column.take(nodes.rows)
