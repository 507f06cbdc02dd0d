"""Gangs too large for the cluster that would not start on a larger one either: they lack pods, or limits stop them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Protocol

import numpy as np
from msgspec.structs import replace

from stromboli.api.crds import PodGroup
from stromboli.api.reasons import Reason
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.framework.runtime.questions import Questions

#: gangs of which no more are asked about in a session, as there may be thousands
_MOST = 256


class _Attempt(Protocol):
    """Asks about a job, which is set aside where a plugin fails."""

    def __call__(self, job: Job, turn: Callable[[], Reason | None], otherwise: None) -> Reason | None: ...


def heed_limits(view: View, ask: Questions, attempt: _Attempt) -> None:
    """Say of gangs that more nodes would help that they do not, where something else keeps them from starting."""
    jobs, found = view.jobs, dict(view.never_fits)
    together = (jobs.min_available > 1) | jobs.holds("needs roles or sub groups", _in_parts)
    gangs = np.flatnonzero(jobs.aside & together).tolist()
    large = (at for at in gangs if found[jobs.key(at)].scalable)
    for job in map(jobs.at, islice(large, _MOST)):
        why = attempt(job, partial(_besides, view, ask, job), None)
        if why is not None and not why.scalable:
            found[job.key] = reasons.with_words(replace(found[job.key], scalable=False), f"besides, {why.message}")
    view.never_fits = found
    view.trace.jobs.update(found)


def _besides(view: View, ask: Questions, job: Job) -> Reason | None:
    """What else keeps a gang from starting: pods that it lacks, or a limit of what they may hold now."""
    lacking, need = ask.job_valid(job), job.min_available
    rows = view.membership.pending(job.index)
    if lacking is not None or len(rows) < need:
        return lacking
    classes = view.pods.pod_class[rows]
    if (classes != classes[0]).any():
        return None
    return ask.allocatable(job.queue, view.record(int(rows[0])), need)[1]


def _in_parts(group: PodGroup) -> bool:
    return bool(group.spec.min_task_member or group.spec.sub_group_policy)
