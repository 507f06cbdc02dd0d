"""The room that a gang would have if all candidates were evicted: where sums are too small, no victims suffice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Matrix, Vector
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.held_amounts import HeldAmounts
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.placement.exact.reading import kinds_of
from stromboli.state.pods import PodRecord


def kinds_to_place(session: Session, job: Job, pods: Sequence[PodRecord]) -> list[list[PodRecord]]:
    """The pods of a job that got no place yet in this session, by kind; none where it is not asked what fits."""
    has_places = bool(job.waiting_count or job.counts[PodState.Allocated])
    return kinds_of(session, job, pods) if len(pods) > 1 and session.rules.what_fits and not has_places else []


def alike(session: Session, job: Job, kinds: Sequence[Sequence[PodRecord]]) -> bool:
    """Whether it makes no difference in which order a job's pods, by kind, are placed."""
    return len(kinds) == 1 and not job.divided and not session.kernel.varies(kinds[0][0])


def held_for(context: PreemptionContext, job: Job, kinds: Sequence[Sequence[PodRecord]]) -> HeldAmounts | None:
    """What the candidates for any of a gang's pods, by kind, hold; None if it could not start without all of them.

    Each pod that it starts with needs a node, and the nodes that take any of its pods the amounts that it lacks.
    """
    session, nodes = context.session, context.session.view.nodes
    for_any: Mask = np.logical_or.reduce([context.candidates(job, pods[0]) for pods in kinds])
    held = context.held_amounts(job, for_any)
    takes, requests = np.zeros(len(nodes), np.bool_), list[Vector]()
    for pods in kinds:
        request = session.view.request(pods[0])
        # Rules between the pods themselves are an exact search's to judge.
        rows = nodes.rows if session.kernel.varies(pods[0]) else session.kernel.possible(pods[0])
        rows = rows[held.suffices(request, rows)]
        takes[rows] = True
        requests += [request] * len(pods) if len(rows) else []
    lacking = session.ask.job_missing(job)
    free = (nodes.future_idle() + held.amounts)[:, takes]
    return held if len(requests) >= lacking and sums_suffice(requests, lacking, free) else None


def sums_suffice(requests: Sequence[Vector], count: int, free: Matrix) -> bool:
    """Whether `count` of some requests may fit into what nodes have, shape (dimensions, nodes)."""
    least = np.sort(requests, axis=0)[:count].sum(axis=0)
    return bool((np.maximum(free, 0).sum(axis=1) >= least)[least > 0].all())
