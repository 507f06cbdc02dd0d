"""The room that a gang would have if all candidates were evicted, which may prove that no victims suffice.

Sums are compared before victims are looked for. Where these suffice and a search was in vain, it is found out whether
the pods can be packed at all. What was found is remembered as a digest of the room in the environment of sessions, so
that a replay knows it: while the room is the same, no victims are looked for that would be too few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Matrix, Vector
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.held_amounts import HeldAmounts
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.placement.exact.memory import digest_of, remembered
from stromboli.placement.exact.problem import Kind, Need, Problem, as_set
from stromboli.placement.exact.reading import kinds_of
from stromboli.placement.exact.search import search
from stromboli.placement.exact.solving import STEP, budget_of
from stromboli.state.pods import PodRecord

#: key of the state left by sessions: by key of the job the digest of its room, and whether it is proven too small
TOO_SMALL = "room of evictions"
#: the part of its budget after which a search ends that is about a reason to look for no victims
_FOR_A_REASON = 5


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """The pods that a job needs, by kind, and what nodes have for them if all candidates were evicted."""

    #: amounts that the candidates for any of the pods hold
    held: HeldAmounts
    #: number of pods by kind, the request of each, and the nodes that it may use, shape (nodes,)
    kinds: Sequence[tuple[int, Vector, Mask]]
    #: number of the pods that the job needs to start
    lacking: int
    #: amounts of nodes, shape (dimensions, nodes)
    free: Matrix

    @classmethod
    def of(cls, context: PreemptionContext, job: Job, kinds: Sequence[Sequence[PodRecord]]) -> Room:
        session, nodes = context.session, context.session.view.nodes
        for_any: Mask = np.logical_or.reduce([context.candidates(job, pods[0]) for pods in kinds])
        held, found = context.held_amounts(job, for_any), []
        for pods in kinds:
            request, takes = session.view.request(pods[0]), np.zeros(len(nodes), np.bool_)
            # Rules between the pods themselves are an exact search's to judge.
            rows = nodes.rows if session.kernel.varies(pods[0]) else session.kernel.possible(pods[0])
            takes[rows] = held.suffices(request, rows)
            found.append((len(pods), request, takes))
        return cls(held, found, session.ask.job_missing(job), nodes.future_idle() + held.amounts)

    @property
    def takes_any(self) -> Mask:
        """The nodes that take any of the pods."""
        nodes: Mask = np.logical_or.reduce([takes for _, _, takes in self.kinds])
        return nodes

    @property
    def suffices(self) -> bool:
        """Whether each pod has a node, and the nodes that take any the amounts that the job lacks."""
        requests = [request for count, request, takes in self.kinds if takes.any() for _ in range(count)]
        enough = len(requests) >= self.lacking
        return enough and sums_suffice(requests, self.lacking, self.free[:, self.takes_any])

    def problem(self) -> Problem:
        """The packing problem of the pods, with nodes and amounts as the only rules."""
        rows = np.flatnonzero(self.takes_any)
        columns = np.flatnonzero(np.any([request > 0 for _, request, _ in self.kinds], axis=0))
        kinds = [
            Kind(count, tuple(request[columns].tolist()), as_set(takes[rows])) for count, request, takes in self.kinds
        ]
        free = [tuple(node) for node in self.free[np.ix_(columns, rows)].T.tolist()]
        need = Need((1 << len(kinds)) - 1, self.lacking)
        return Problem(kinds=kinds, needs=[need], free=free, dimensions=[str(column) for column in columns])


def sums_suffice(requests: Sequence[Vector], count: int, free: Matrix) -> bool:
    """Whether `count` of some requests may fit into what nodes have, shape (dimensions, nodes)."""
    least = np.sort(requests, axis=0)[:count].sum(axis=0)
    return bool((np.maximum(free, 0).sum(axis=1) >= least)[least > 0].all())


def kinds_to_place(session: Session, job: Job, pods: Sequence[PodRecord]) -> list[list[PodRecord]]:
    """The pods of a job that got no place yet in this session, by kind; none where it is not asked what fits."""
    has_places = bool(job.waiting_count or job.counts[PodState.Allocated])
    return kinds_of(session, job, pods) if len(pods) > 1 and session.rules.what_fits and not has_places else []


def may_start(context: PreemptionContext, job: Job, kinds: Sequence[Sequence[PodRecord]]) -> bool:
    """Whether a gang might start if all candidates for any of its pods, by kind, were evicted.

    It is seen from sums and what was proven before, before places are looked for pod by pod.
    """
    known = remembered(context.session, TOO_SMALL).get(job.key)
    if len(kinds) == 1 and known is None:
        return True
    room = Room.of(context, job, kinds)
    return room.suffices and (known is None or known != [digest_of([room.problem()]), True])


def found_no_victims(context: PreemptionContext, job: Job, kinds: Sequence[Sequence[PodRecord]]) -> None:
    """After a search without victims, find out whether evicting all candidates would make room for a gang."""
    session, problem = context.session, Room.of(context, job, kinds).problem()
    digest, entries = digest_of([problem]), remembered(session, TOO_SMALL)
    if entries.get(job.key, ("", False))[0] == digest:
        return
    budget = min(context.search_left, budget_of(session)) // _FOR_A_REASON
    found = search(problem, budget)
    context.search_left -= min(found.steps, context.search_left)
    session.kernel.step(found.steps * STEP)
    session.actions_left[TOO_SMALL] = {**entries, job.key: [digest, found.places is None and found.proven]}


def alike(session: Session, job: Job, kinds: Sequence[Sequence[PodRecord]]) -> bool:
    """Whether it makes no difference in which order a job's pods, by kind, are placed."""
    return len(kinds) == 1 and not job.divided and not session.kernel.varies(kinds[0][0])
