"""The search for places that cost least: which pods to evict so that identical pods of a job find places.

The steps are: the pods that may be evicted at most (`PreemptionContext.candidates`), and for each node a lower bound of
what the next place there costs (`CostBounds`), both in vectors; the exact candidates of the nodes that look cheapest
(`NodeCandidates`), of these the cheapest for each place (`_find_place`), and victims on any node where it is the queue
that may take no more (`_free_share`). Where pods are in the way not by their amounts but by ports, affinity or
spread, a node is cleared of all pods that may be evicted, and those beside which the pod fits are given back
(`_clear`): that is the node's candidate then, and competes with the others.

A pod that its gang can spare is evicted alone, or with its sub group, any other with its whole gang, wherever that is.
What a gang leaves free on other nodes is used for the next pods. Candidates follow from amounts; evictions are tried on
a statement, and every plugin that has a say is asked before anything is decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stromboli.api.resources import Mask, Rows, Vector
from stromboli.eviction.node_candidates import Candidate, NodeCandidates
from stromboli.eviction.ordering import NO_VICTIMS, Cost, unit_cost
from stromboli.eviction.plan import Evicted, Place, Plan, give_back, undo
from stromboli.framework.cluster.job import NO_ROWS
from stromboli.framework.cluster.nodes import Changes
from stromboli.state.pods import PodRecord

#: lower bounds on the cost of any place, and of one that needs victims whatever the amounts
_NO_BOUND, _WITH_VICTIMS = Cost(NO_VICTIMS, 0, 0, -math.inf), Cost(0, 0, 1, -math.inf)
#: number of similar nodes that are compared for a place
_COMPARED = 16
#: number of nodes that are cleared for a pod
_CLEARED = 128


class MinCostSearch:
    """Places for identical pods of a job, at the least cost, in addition to those of a plan."""

    def __init__(
        self, plan: Plan, pods: Sequence[PodRecord], within: Mask | None = None, *, within_job: bool = False
    ) -> None:
        """`within` is where the places have to be; `within_job` has pods of the job itself evicted, and no others."""
        self._plan = plan
        self._context = context = plan.context
        self._session = session = context.session
        self._job = job = plan.job
        self._pods = pods
        self._pod = pods[0]
        self._request: Vector = session.view.request(pods[0])
        self._varies = session.kernel.varies(pods[0])
        self._candidates = context.candidates(job, pods[0], within_job=within_job)
        self._within = within
        #: nodes that refused the pods although these fit by amounts
        self._refused: set[int] = set()
        #: the pod that looks for a place, and the number of nodes that may still be cleared for it
        self._current, self._clearable = pods[0], 0
        #: whether the queue may take no more, whatever is evicted
        self._exhausted = False
        #: number of pods that places are looked for
        self._left = len(pods)

    def run(self) -> int:
        """Find places for as many pods as possible; returns their number."""
        # 1. The nodes on which the pods would fit if all candidates were evicted.
        context = self._context
        held_amounts = context.held_amounts(self._job, self._candidates)
        allowed = self._session.kernel.possible(self._pod)
        if self._within is not None:
            allowed = allowed[self._within[allowed]]
        #: where they may go instead, for victims that stay after all
        self._instead = NO_ROWS if self._varies else allowed
        rows = allowed[held_amounts.suffices(self._request, allowed)]
        if not len(rows):
            return 0
        # 2. What places cost there at least.
        bounds = context.bounds(held_amounts, self._request)
        self._node_candidates = NodeCandidates(context, held_amounts, self._pod)
        #: which nodes come into question, shape (nodes,)
        self._possible: Mask = np.zeros(len(self._session.view.nodes), np.bool_)
        self._possible[rows] = True
        self._candidates_by_node: dict[int, Candidate | None] = {}
        self._heap, self._place = bounds.heap(rows, self._scores(rows), len(self._pods))
        self._changes = Changes(self._session.view.nodes)
        # 3. The cheapest place for each pod.
        for pod in self._pods:
            if not self._find_place(pod):
                break
            self._left -= 1
        return len(self._pods) - self._left

    def _scores(self, rows: Rows) -> Vector:
        """The tie-breaker of each node, smaller is better: nodes of the own shard first, then the best score."""
        shard = self._session.view.shard
        keys: list[NDArray[Any]] = [-self._session.kernel.whole_score(self._pod, rows)]
        if shard is not None:
            keys.append(~shard.own[rows])
        place = np.empty(len(rows))
        place[np.lexsort(keys)] = np.arange(len(rows))
        return place

    def _find_place(self, pod: PodRecord) -> bool:
        """Find the cheapest place for a pod; False when there is none."""
        # Where a queue above is at its limit, evictions in its other queues may let a pod in.
        below = self._context.reclaiming and self._job.queue.parent not in ("", "root")
        clears = self._varies or (below and not self._plan.has_share(pod))
        self._current, self._clearable = pod, _CLEARED if clears else 0
        if clears:
            self._look_again(self._refused)
        while not self._exhausted:
            changed = {node for node in self._changes.take() if self._possible[node]}
            self._look_again(changed - self._refused)
            candidate = self._best_candidate()
            if candidate is None:
                return False
            if self._try_candidate(candidate, pod):
                return True
            # What looked possible in amounts is not: these are not asked about that node again.
            self._candidates_by_node[candidate.node] = None
            if candidate.node not in self._refused:
                self._refused.add(candidate.node)
                if self._clearable:
                    self._look_again([candidate.node])
        return False

    def _look_again(self, nodes: Iterable[int]) -> None:
        """Forget the candidates of some nodes."""
        for node in nodes:
            self._candidates_by_node.pop(node, None)
            bound = _WITH_VICTIMS if node in self._refused else _NO_BOUND
            heappush(self._heap, (*bound, float(self._place[node]), node))

    def _best_candidate(self) -> Candidate | None:
        """The cheapest candidate of the nodes that look best: once its cost is no bound, no other node costs less."""
        heap, known, found = self._heap, self._candidates_by_node, dict[int, tuple[Any, ...]]()
        while heap and len(found) < _COMPARED:
            *_, place, node = bound = heappop(heap)
            if node not in known:
                refused, candidates = node in self._refused, self._node_candidates
                known[node] = self._clear(node) if refused else candidates.candidate(node, self._left, self._possible)
            candidate = known[node]
            if candidate is None or found.get(node, bound) != bound:
                continue
            found[node] = (*candidate.cost, place, node)
            heappush(heap, found[node])
            if found[node] == bound:
                return candidate
        return known[min(found.values())[-1]] if found else None

    def _clear(self, node: int) -> Candidate | None:
        """The victims on a node, less those that the pod fits beside; None if it does not fit at all."""
        if not self._clearable:
            return None
        self._clearable, pod = self._clearable - 1, self._current
        gone = [self._plan.evict(unit) for unit in self._node_candidates.on(node)]
        found = None
        if gone and self._plan.fits(pod, node):
            costliest = sorted(gone, key=lambda entry: unit_cost(entry[0]), reverse=True)
            give_back((statement for _, statement in costliest), lambda: self._plan.fits(pod, node))
            units = [unit for unit, statement in gone if statement]
            found = Candidate(node, units, Cost.of(units))
        undo(gone)
        return found

    def _try_candidate(self, candidate: Candidate, pod: PodRecord) -> bool:
        """Evict the units of a candidate and promise a pod the place; False, and nothing done, when that fails."""
        if not self._node_candidates.allowed_together(candidate.units):
            return False
        gone = [self._plan.evict(unit) for unit in candidate.units]
        if not self._context.reclaiming and not self._plan.has_share(pod):
            gone += self._free_share(pod)
        if self._plan.fits(pod, candidate.node):
            self._plan.keep(gone, Place(pod, candidate.node, self._instead))
            # Nodes with other pods of these jobs, which have less to give, as far as they have been looked at.
            reduced = self._node_candidates.evicted([unit for unit, _ in gone]) & self._candidates_by_node.keys()
            self._look_again(reduced - self._refused)
            return True
        undo(gone)
        return False

    def _free_share(self, pod: PodRecord) -> list[Evicted]:
        """Evict units on any node, the cheapest first, until the queue may take a pod; none if it never may.

        Plugins do not say how much of its share a queue lacks, so they are asked after each eviction.
        """
        gone = list[Evicted]()
        for unit in self._node_candidates.cheapest_first():
            gone.append(self._plan.evict(unit))
            if self._plan.has_share(pod):
                return gone
        undo(gone)
        self._exhausted = True
        return []
