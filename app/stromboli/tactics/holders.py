"""The pods that hold nodes, by node: what they would release, and what evicting them costs at least, in vectors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stromboli.api.pod_state import STATES, PodState
from stromboli.api.resources import TOLERANCE, Mask, Matrix, Rows, Vector, fits
from stromboli.framework.job import Queue
from stromboli.framework.nodes import Changes
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord
from stromboli.tactics.candidates import (
    LIFT,
    Weight,
    agreeing,
    beginnings,
    distinct,
    preemptable,
    priorities,
    priority_places,
    weight,
)
from stromboli.tactics.frontier import Frontier

#: how many rankings of nodes are kept, each as long as there are nodes
_MOST_RANKINGS = 8

#: from so many pods on it is worth finding the places of all once
_MANY = 256

#: what victims on a node weigh at least, whether the node belongs to another shard, and its row
Bound = tuple[Weight, bool, int]


class Holders:
    """The pods of jobs that hold a node when an action begins, by node. Arrays have shape (holders,)."""

    def __init__(self, session: Session, states: Sequence[PodState]) -> None:
        self._session = session
        pods = session.view.pods
        job_of = session.view.membership.index_of
        self.states = frozenset(states)
        #: by state, whether who is in it holds a node
        self.held: Mask = np.isin(np.arange(STATES), states)
        rows = np.flatnonzero(self.held[pods.state] & (pods.node >= 0) & (job_of[pods.job] >= 0))
        rows = rows[_sorted(pods.node[rows].astype(np.intp))]
        self.rows: Rows = rows
        self.node: Rows = pods.node[rows].astype(np.intp)
        self.job: Rows = job_of[pods.job[rows]]
        self.queue: Rows = session.view.jobs.queue[self.job]
        #: by the candidates that they are of
        self._releasable: dict[bytes, Releasable] = {}
        #: what may be had of these, by the queues that give
        self._given: dict[tuple[Releasable, bytes | None], Releasable] = {}
        self._rankings: _Rankings = {}

    @cached_property
    def by_job(self) -> Rows:
        """The order that brings those of each job together."""
        return _sorted(self.job)

    def of_job(self, job: int) -> Rows:
        """Which of them are of a job."""
        return self.by_job[self._ends[job] : self._ends[job + 1]]

    @cached_property
    def _ends(self) -> Rows:
        """Where those of each job begin in that order, and the last ones end."""
        counts = np.bincount(self.job, minlength=len(self._session.view.jobs))
        return np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def willing(self) -> Mask:
        """Which agree to go, and their jobs with them."""
        view = self._session.view
        said = view.snapshot.pod_facts.column("preemptable", preemptable)
        willing: Mask = np.array([*said.values[:], False], np.bool_)[said.numbers[self.rows]]
        willing &= agreeing(view.jobs)[self.job]
        for key in sorted(self._session.aside & view.jobs.keys()):
            willing &= self.job != view.jobs[key].index
        return willing

    @cached_property
    def willing_of(self) -> Mask:
        """The same by row of all pods."""
        willing = np.zeros(len(self._session.view.pods.state), np.bool_)
        willing[self.rows] = self.willing
        return willing

    @cached_property
    def rank(self) -> Rows:
        """How important each is: by the priority of its job, then by its own; equals have the same number."""
        of_jobs = np.unique(self._session.view.jobs.priority, return_inverse=True)[1].astype(np.intp)
        of_pods = priority_places(self._session.view.snapshot.pod_facts)
        levels = of_pods.max(initial=0) + 1
        both = of_jobs[self.job] * levels + of_pods[self.rows]
        return distinct(both, (of_jobs.max(initial=0) + 1) * levels)[1]

    @cached_property
    def by_rank(self) -> Rows:
        """The order that brings those of each node together, the least important first."""
        order: Rows = np.argsort(self.node * (self.rank.max(initial=0) + 1) + self.rank, kind="stable")
        return order

    @cached_property
    def rank_of(self) -> Rows:
        """The same rank by row of all pods, -1 for those that are no holders."""
        ranks = np.full(len(self._session.view.pods.state), -1, np.intp)
        ranks[self.rows] = self.rank
        return ranks

    @cached_property
    def priority(self) -> Rows:
        """The priority of all pods, by row."""
        return priorities(self._session.view.snapshot.pod_facts)

    @cached_property
    def began(self) -> Vector:
        """When all pods began to run, by row."""
        return beginnings(self._session.view.snapshot.pod_facts)

    def task_places(self, at: Rows) -> Rows:
        """The places of some of them in the order in which pods are tried, to be compared with each other."""
        if len(at) > _MANY:
            return self._task_places[at]
        return self._in_task_order(self.rows[at])

    @cached_property
    def _task_places(self) -> Rows:
        return self._in_task_order(self.rows)

    def _in_task_order(self, rows: Rows) -> Rows:
        pods = self._session.view.records(rows)
        place = {pod.row: place for place, pod in enumerate(self._session.ask.in_task_order(pods))}
        return np.array([place[pod.row] for pod in pods])

    @cached_property
    def _offered(self) -> Mask:
        """Which of them anybody else may take back."""
        gives = np.zeros(len(self._session.view.snapshot.queues), np.bool_)
        for queue in self._session.view.queues.values():
            gives[queue.index] = queue.spec.reclaimable is not False
        offered: Mask = gives[self.queue]
        return offered

    @cached_property
    def _holding(self) -> frozenset[int]:
        """The queues that hold anything."""
        return frozenset(self.queue.tolist())

    @cached_property
    def requests(self) -> Matrix:
        """What they request, shape (dimensions, holders)."""
        return self._session.view.amounts(self.rows)

    @cached_property
    def _requests(self) -> tuple[Matrix, Matrix, Matrix]:
        """Of each queue what everybody requests at least, and the smallest and the largest requests, shape (queues,
        dimensions).
        """
        requests, starts, queues = self._distinct(self.queue)
        shape = len(self._session.view.queues), requests.shape[1]
        least, smallest, largest = np.zeros(shape), np.full(shape, np.inf), np.zeros(shape)
        if len(starts):
            least[queues] = np.minimum.reduceat(requests, starts)
            smallest[queues] = np.minimum.reduceat(np.where(requests > 0, requests, np.inf), starts)
            largest[queues] = np.maximum.reduceat(requests, starts)
        return least, smallest, largest

    def least_of_jobs(self) -> Matrix:
        """What anybody in each job requests at least, shape (jobs, dimensions)."""
        return self._least_of_jobs

    @cached_property
    def _least_of_jobs(self) -> Matrix:
        requests, starts, jobs = self._distinct(self.job)
        least = np.zeros((len(self._session.view.jobs), requests.shape[1]))
        if len(starts):
            least[jobs] = np.minimum.reduceat(requests, starts)
        return least

    def _distinct(self, of: Rows) -> tuple[Matrix, Rows, Rows]:
        """The requests of each class that a group has, shape (classes, dimensions), group by group; where those of each
        group begin, and which groups they are. `of` has the group of each holder.
        """
        view = self._session.view
        width = len(view.snapshot.requests)
        cells, _ = distinct(of * width + view.pods.pod_class[self.rows], (of.max(initial=0) + 1) * width)
        groups, classes = np.divmod(cells, width)
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        return view.snapshot.requests[classes, : len(view.dimensions)], starts, groups[starts]

    def alive(self) -> Mask:
        """Which of them have not been evicted since."""
        still: Mask = self.held[self._session.view.pods.state[self.rows]]
        return still

    def may_go_for(self, queue: Queue) -> Mask:
        """Which of them are of jobs that were not evicted for a queue too often."""
        paused = self._session.churn.paused_for(queue)
        return ~np.isin(self.job, paused) if paused else np.ones(len(self.rows), np.bool_)

    def releasable(self, candidates: Mask) -> Releasable:
        """What some of them would release; shared by all who ask for the same ones."""
        which = candidates.tobytes()
        found = self._releasable.get(which)
        if found is None:
            still = candidates & self.alive()
            by_node = ByNode(self._session, self.rows[still], self.node[still], self.states)
            found = self._releasable[which] = Releasable(self, self._session, candidates, by_node, self._rankings)
        return found

    def given(self, releasable: Releasable, pod: PodRecord, point: str) -> Releasable:
        """What may be had of something at most for a pod: of those who agree to go, in queues that plugins let give."""
        if not self._session.rules.veto:
            return releasable
        queues = self.giving(pod) if point == "reclaimable" else None
        which = None if queues is None else queues.tobytes()
        found = self._given.get((releasable, which))
        if found is None:
            candidates = releasable.candidates & self.willing
            if queues is not None:
                candidates &= queues[self.queue]
            found = self._given[releasable, which] = self.releasable(candidates)
        return found

    def giving(self, pod: PodRecord) -> Mask | None:
        """The queues that plugins let give to a pod of another one, shape (queues,); None for all."""
        return self._session.ask.reclaimable_queues(pod, self._requests)

    def outside(self, queue: Queue) -> Mask:
        """Which of them are in other queues, of which anybody may take back."""
        others = self._offered
        if queue.index in self._holding:
            others = others & (self.queue != queue.index)
        if self._session.churn.paused_for(queue):
            others = others & self.may_go_for(queue)
        return others


class ByNode:
    """Candidates by the node that they hold."""

    def __init__(self, session: Session, rows: Rows, node: Rows, states: frozenset[PodState]) -> None:
        """`node` is that of each of the rows, in ascending order."""
        self._view = session.view
        self.rows = rows
        self._node = node
        self.states = states
        #: where the candidates of each node begin and end
        self._bounds = np.searchsorted(node, np.arange(len(session.view.nodes) + 1))

    @property
    def counts(self) -> Rows:
        """How many there were at first, shape (nodes,)."""
        counts: Rows = np.diff(self._bounds)
        return counts

    def amounts(self) -> Matrix:
        """What they held at first, shape (dimensions, nodes)."""
        nodes, held = len(self._view.nodes), self._view.amounts(self.rows)
        return np.array([np.bincount(self._node, weights=amounts, minlength=nodes) for amounts in held])

    def on(self, node: int) -> Rows:
        """The rows of the candidates that are still on a node."""
        rows = self.rows[self._bounds[node] : self._bounds[node + 1]]
        states = self._view.pods.state[rows].tolist()
        return rows[[state in self.states for state in states]] if len(rows) else rows

    def reduced(self, function: np.ufunc, values: NDArray[Any]) -> Matrix:
        """What a function makes of values of the candidates that there were on each node at first, 0 where none was.

        `values` has shape (..., candidates), what is returned (..., nodes).
        """
        found = np.zeros((*values.shape[:-1], len(self._bounds) - 1))
        nodes = np.flatnonzero(self.counts)
        if len(nodes):
            found[..., nodes] = function.reduceat(values, self._bounds[nodes], axis=-1)
        return found


class Releasable:
    """What candidates on each node would release at most, followed through the session's placements."""

    def __init__(
        self, holders: Holders, session: Session, candidates: Mask, by_node: ByNode, rankings: _Rankings
    ) -> None:
        self.holders = holders
        self.candidates = candidates
        self._session = session
        self._by_node = by_node
        self.states = by_node.states
        self._rankings = rankings
        #: whether the last who looked for victims among them found some
        self.fruitful = False
        #: kinds of pods that nodes were ranked for once
        self._ranked: set[Hashable] = set()
        #: the rows of the candidates that are still on a node
        self.on = by_node.on
        #: shape (dimensions, nodes)
        self.amounts: Matrix = by_node.amounts()
        #: number of candidates, shape (nodes,)
        self.counts: Rows = by_node.counts
        self._seen = self._made = len(session.view.nodes.log)
        self._least: _Least | None = None
        #: the last request that was asked for, where there was room for it, and how long the log was
        self._asked = b""
        self._enough: Mask = np.zeros(0, np.bool_)
        self._looked = 0

    @property
    def least(self) -> _Least:
        """What evictions on each node cost at least."""
        if self._least is None:
            self._least = _Least(self._session, self.holders, self._by_node)
            for node in set(self._session.view.nodes.log[self._made : self._seen]):
                self._least.look_at(node, self.on(node))
        return self._least

    def refresh(self) -> None:
        """Look again at the nodes that changed."""
        log, session = self._session.view.nodes.log, self._session
        for node in set(log[self._seen :]):
            rows = self.on(node)
            self.counts[node] = len(rows)
            self.amounts[:, node] = np.add.reduce(session.view.requests(rows))
            if self._least is not None:
                self._least.look_at(node, rows)
        self._seen = len(log)

    def sufficient(self, request: Vector) -> Mask:
        """The same of all nodes, shape (nodes,); kept for the next who asks for as much."""
        self.refresh()
        key, log = request.tobytes(), self._session.view.nodes.log
        if key != self._asked:
            self._asked, self._enough = key, self.suffices(request, self._session.view.nodes.rows)
        else:
            changed = np.array(list(set(log[self._looked :])), np.intp)
            self._enough[changed] = self.suffices(request, changed)
        self._looked = len(log)
        return self._enough.copy()

    def suffices(self, request: Vector, rows: Rows) -> Mask:
        """Which of some nodes would have room if all candidates went."""
        nodes = self._session.view.nodes
        if len(rows) == len(nodes):
            return fits(request, nodes.future_idle() + self.amounts, nodes.always)
        return fits(request, nodes.future_idle(rows) + self.amounts[:, rows], nodes.always)

    def ranking(self, kind: Hashable, request: Vector, possible: Callable[[], Rows]) -> _Ranking | None:
        """The ranking of nodes for a kind of pods; None the first time: it is worth its cost for the next of the kind.

        `possible` says which nodes come into question for the kind, as long as the session lasts.
        """
        if kind not in self._ranked:
            self._ranked.add(kind)
            return None
        ranking = self._rankings.pop((self, kind), None) or _Ranking(self._session, self, request, possible())
        self._rankings[self, kind] = ranking
        if len(self._rankings) > _MOST_RANKINGS:
            del self._rankings[next(iter(self._rankings))]
        return ranking


class _Least:
    """Bounds by node of what victims there weigh: the lowest priority, who started last, the largest request."""

    def __init__(self, session: Session, holders: Holders, by_node: ByNode) -> None:
        self._session = session
        self._holders = holders
        rows = by_node.rows
        self._priority: Vector = by_node.reduced(np.minimum, holders.priority[rows])
        self._started: Vector = by_node.reduced(np.maximum, holders.began[rows])
        self._largest: Matrix = by_node.reduced(np.maximum, session.view.amounts(rows))

    def look_at(self, node: int, rows: Rows) -> None:
        """Look again at a node with these candidates."""
        if not len(rows):
            return
        self._priority[node] = np.minimum.reduce(self._holders.priority[rows])
        self._started[node] = np.maximum.reduce(self._holders.began[rows])
        self._largest[:, node] = np.maximum.reduce(self._session.view.requests(rows))

    def weights(self, request: Vector, rows: Rows) -> Matrix:
        """For each of some nodes a weight that no set of victims there that makes room is below, shape (4, rows)."""
        lacks = request[:, None] - TOLERANCE - self._session.view.nodes.future_idle(rows)
        largest = self._largest[:, rows]
        needed = np.ceil(np.divide(lacks, largest, out=np.zeros(lacks.shape), where=largest > 0))
        count: Vector = np.maximum.reduce(needed, initial=0.0)
        priority = self._priority[rows]
        bounds = np.array([priority, count * (priority + LIFT), count, -self._started[rows]])
        bounds[:, count == 0] = _NO_VICTIMS
        return bounds


class _Ranking:
    """Where a kind of pods may find room, in the order of what victims there weigh at least; follows the session."""

    def __init__(self, session: Session, releasable: Releasable, request: Vector, rows: Rows) -> None:
        self._session = session
        self._releasable = releasable
        self._request = request
        count, shard = len(session.view.nodes), session.view.shard
        self._possible: Mask = np.zeros(count, np.bool_)
        self._possible[rows] = True
        self._foreign: Mask = np.zeros(count, np.bool_) if shard is None else ~shard.own
        #: what victims weigh at least, where there would be room, shape (4, nodes); else NaN
        self._weights: Matrix = np.full((4, count), np.nan)
        self._changes = Changes(session.view.nodes)
        releasable.refresh()
        rows = self._look_at(rows)
        self._frontier = Frontier((*self._weights[:, rows], self._foreign[rows], rows))
        #: what `in_order` took out
        self._out: list[tuple[Any, ...]] = []

    def in_order(self) -> Iterator[Bound]:
        """The nodes as they are now; what changes meanwhile is seen the next time."""
        self._refresh()
        told = set[int]()
        while self._frontier:
            *weights, foreign, node = entry = self._frontier.pop()
            if node not in told and weights == self._weights[:, node].tolist():
                told.add(node)
                self._out.append(entry)
                yield (weights[0], weights[1], weights[2], weights[3]), foreign, node

    def _refresh(self) -> None:
        for entry in self._out:
            self._frontier.push(entry)
        self._out.clear()
        changed = [node for node in self._changes.take() if self._possible[node]]
        self._releasable.refresh()
        if changed:
            rows = self._look_at(np.array(changed, np.intp))
            for weights, node in zip(self._weights[:, rows].T.tolist(), rows.tolist(), strict=True):
                self._frontier.push((*weights, bool(self._foreign[node]), node))

    def _look_at(self, rows: Rows) -> Rows:
        """Work out anew what victims on some nodes weigh at least; those of them that would have room."""
        self._weights[:, rows] = np.nan
        rows = rows[self._releasable.suffices(self._request, rows)]
        self._weights[:, rows] = self._releasable.least.weights(self._request, rows)
        return rows


def _sorted(numbers: Rows) -> Rows:
    """The stable order of numbers that are not negative. Those of 16 bits are sorted in a pass."""
    small = numbers.astype(np.uint16) if numbers.max(initial=0) < 2**16 else numbers
    order: Rows = np.argsort(small, kind="stable")
    return order


#: what no victims weigh, shape (4, 1)
_NO_VICTIMS: Matrix = np.array(weight(()))[:, None]

#: by the candidates and the kind, those that were asked for last at the end
_Rankings = dict[tuple[Releasable, Hashable], _Ranking]
