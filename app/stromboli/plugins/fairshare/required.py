"""Amounts that a job has to get at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stromboli.api.resources import Vector
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.state.pods import PodRecord


def required(view: View, job: Job, first: Sequence[PodRecord] = ()) -> Vector:
    """The requests of some pods of a job, and of the next ones that its gang still lacks; at least of one pod."""
    return view.requested([*first, *_others(view, job, first)][: _count(job, first)])


def at_least(view: View, job: Job, first: Sequence[PodRecord]) -> Vector:
    """The least that a gang requests with its first pods: of its other pods the smallest requests, by resource."""
    requests = np.array([view.request(pod) for pod in _others(view, job, first)])
    lacking = _count(job, first) - len(first)
    if not lacking or not len(requests):
        return view.requested([*first])
    smallest: Vector = np.sort(requests, axis=0)[:lacking].sum(axis=0)
    return view.requested([*first]) + smallest


def _count(job: Job, first: Sequence[PodRecord]) -> int:
    return max(1, len(first), job.min_available - job.ready_count - job.waiting_count)


def _others(view: View, job: Job, first: Sequence[PodRecord]) -> list[PodRecord]:
    """The waiting pods of a job other than some, in order."""
    rows = {pod.row for pod in first}
    others = (pod for pod in view.pending(job) if pod.row not in rows and not pod.pod_class.gated)
    return sorted(others, key=view.task_key)
