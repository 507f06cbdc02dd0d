"""The pods that hold nodes, in columns: their nodes, their ranks as victims, and which of them may be evicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from stromboli.api.pod_state import STATES, PodState
from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.eviction.eligibility import agreeing, preemptable
from stromboli.eviction.ordering import descending, victim_queue_key
from stromboli.framework.cluster.job import Queue
from stromboli.framework.session.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """Ranks of indexed pods as victims: a lower one is evicted first, equals have the same."""

    #: shape (indexed pods,)
    rank: Rows
    #: the order that brings the pods of each node together, the lowest rank first, shape (indexed pods,)
    by_node: Rows
    #: by row of all pods, -1 for pods that are not indexed
    of_row: Rows


class PodIndex:
    """The pods of jobs that hold a node when an action begins, by node. Arrays have shape (indexed pods,)."""

    def __init__(self, session: Session, states: Sequence[PodState]) -> None:
        self._session = session
        pods = session.view.pods
        job_of = session.view.membership.index_of
        self.states = frozenset(states)
        #: by state, whether a pod in it holds a node
        self.held: Mask = np.isin(np.arange(STATES), states)
        rows = np.flatnonzero(self.held[pods.state] & (pods.node >= 0) & (job_of[pods.job] >= 0))
        rows = rows[np.argsort(pods.node[rows], kind="stable")]
        self.rows: Rows = rows
        self.node: Rows = pods.node[rows].astype(np.intp)
        self.job: Rows = job_of[pods.job[rows]]
        self.queue: Rows = session.view.jobs.queue[self.job]
        #: the ranks by the last places that came before them
        self._ranks: dict[bytes, Ranks] = {}

    @cached_property
    def by_job(self) -> Rows:
        """The order that groups pods by job."""
        order: Rows = np.argsort(self.job, kind="stable")
        return order

    @cached_property
    def willing(self) -> Mask:
        """Mask of pods that their own and their jobs' settings let be evicted."""
        view = self._session.view
        said = view.snapshot.pod_facts.column("preemptable", preemptable)
        willing: Mask = np.array([*said.values[:], False], np.bool_)[said.numbers[self.rows]]
        willing &= agreeing(view.jobs)[self.job]
        for key in sorted(self._session.aside & view.jobs.keys()):
            willing &= self.job != view.jobs[key].index
        return willing

    @cached_property
    def ranks(self) -> Ranks:
        """The ranks of pods by the priority of their jobs, then by their own."""
        of_jobs = np.unique(self._session.view.jobs.priority, return_inverse=True)[1].astype(np.intp)
        of_pods = self._session.view.snapshot.pod_facts.priority_places()
        levels = of_pods.max(initial=0) + 1
        both = of_jobs[self.job] * levels + of_pods[self.rows]
        return self._ranked(both)

    def ranks_after(self, places: Rows) -> Ranks:
        """The ranks of pods by `places`, shape (indexed pods,), and of equal places by `ranks`."""
        key = places.tobytes()
        if key not in self._ranks:
            levels = self.ranks.rank.max(initial=0) + 1
            both = places * levels + self.ranks.rank
            self._ranks = {key: self._ranked(both)}
        return self._ranks[key]

    def _ranked(self, keys: Rows) -> Ranks:
        rank: Rows = np.unique(keys, return_inverse=True)[1].astype(np.intp)
        by_node: Rows = np.argsort(self.node * (rank.max(initial=0) + 1) + rank, kind="stable")
        of_row = np.full(len(self._session.view.pods.state), -1, np.intp)
        of_row[self.rows] = rank
        return Ranks(rank, by_node, of_row)

    @cached_property
    def began(self) -> Vector:
        """Start time of each pod, by row of all pods."""
        return self._session.view.snapshot.pod_facts.beginnings()

    @cached_property
    def _takeable(self) -> Mask:
        """Mask of pods in queues that other queues may reclaim from."""
        gives = np.zeros(len(self._session.view.snapshot.queues), np.bool_)
        for queue in self._session.view.queues.values():
            gives[queue.index] = queue.spec.reclaimable is not False
        offered: Mask = gives[self.queue]
        return offered

    @cached_property
    def requests_of_queues(self) -> tuple[Matrix, Matrix, Matrix]:
        """The bounds on the requests of each queue's pods, see `_extremes`."""
        return self._extremes(self.queue, len(self._session.view.queues))

    @cached_property
    def least_of_jobs(self) -> Matrix:
        """A lower bound on the request of each pod of a job, shape (jobs, dimensions)."""
        return self._extremes(self.job, len(self._session.view.jobs))[0]

    def _extremes(self, of: Rows, count: int) -> tuple[Matrix, Matrix, Matrix]:
        """For each group of pods a lower bound on each request, the smallest request above zero, and the largest.

        `of` has the group of each indexed pod; results have the shape (groups, dimensions).
        """
        view = self._session.view
        width = len(view.snapshot.requests)
        cells = np.unique(of * width + view.pods.pod_class[self.rows])
        groups, classes = np.divmod(cells, width)
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        requests = view.snapshot.requests[classes, : len(view.dimensions)]
        shape = count, requests.shape[1]
        least, smallest, largest = np.zeros(shape), np.full(shape, np.inf), np.zeros(shape)
        if len(starts):
            found = groups[starts]
            least[found] = np.minimum.reduceat(requests, starts)
            smallest[found] = np.minimum.reduceat(np.where(requests > 0, requests, np.inf), starts)
            largest[found] = np.maximum.reduceat(requests, starts)
        return least, smallest, largest

    def alive(self, rows: Rows | None = None) -> Mask:
        """Mask of indexed pods, or of the pods in `rows`, that still hold their nodes."""
        still: Mask = self.held[self._session.view.pods.state[self.rows if rows is None else rows]]
        return still

    def may_go_for(self, queue: Queue) -> Mask:
        """Mask of pods that may be evicted for a queue: their jobs were not evicted for it too often."""
        paused = self._session.churn.paused_for(queue)
        return ~np.isin(self.job, paused) if paused else np.ones(len(self.rows), np.bool_)

    def outside(self, queue: Queue) -> Mask:
        """Mask of pods that may be evicted for a queue and are in other queues that can be reclaimed from."""
        others: Mask = self._takeable & (self.queue != queue.index) & self.may_go_for(queue)
        return others


def queue_ranks(session: Session, pod_index: PodIndex, queue: Queue) -> Ranks:
    """Ranks of pods as victims for a queue that reclaims its share.

    Queues come before priorities as far as a plugin orders them. If a plugin has its order followed, though more pods
    are evicted, the queue that is served last gives up its last job first.
    """
    ask, jobs = session.ask, session.view.jobs
    queues = {each.index: each for each in session.view.queues.values()}
    if ask.gives_back_in_order:
        keys: dict[int, Any] = {
            index: (victim_queue_key(session, jobs.at(index).queue, queue), descending(ask.job_key(jobs.at(index))))
            for index in np.unique(pod_index.job).tolist()
        }
        of = pod_index.job
    else:
        keys = {index: ask.victim_queue_order(queues[index], queue) for index in np.unique(pod_index.queue).tolist()}
        of = pod_index.queue
    in_order = sorted(keys, key=keys.__getitem__)
    if not keys or keys[in_order[0]] == keys[in_order[-1]]:
        return pod_index.ranks
    places = np.zeros(max(keys) + 1, np.intp)
    for place, (_, equals) in enumerate(groupby(in_order, keys.__getitem__)):
        places[list(equals)] = place
    return pod_index.ranks_after(places[of])
