"""Gangs too large for the cluster that would not start on a larger one either: they lack pods, or limits stop them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Protocol

import numpy as np
from msgspec.structs import replace

from stromboli.api.crds import PodGroup
from stromboli.api.reasons import Reason
from stromboli.api.resources import Rows
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.framework.node_selection.kernel import Kernel
from stromboli.framework.runtime.questions import Questions
from stromboli.framework.session.statement import Statement
from stromboli.state.pods import PodRecord

#: pods about which limits are asked in a session at most, as thousands of gangs may be too large
_MOST = 512


class _Attempt(Protocol):
    """Asks about a job, which is set aside where a plugin fails."""

    def __call__(self, job: Job, turn: Callable[[], Reason | None], otherwise: None) -> Reason | None: ...


def correct_for_limits(
    view: View, ask: Questions, kernel: Kernel, attempt: _Attempt, statement: Callable[[], Statement]
) -> None:
    """Correct the reasons of gangs that more nodes seem to help but that something else keeps from starting.

    `kernel` finds nodes that may take a pod, and `statement` makes a statement for attempts that are undone.
    """
    besides = _Besides(view, ask, kernel, statement)
    jobs, found = view.jobs, dict(view.never_fits)
    together = (jobs.min_available > 1) | jobs.holds("needs roles or sub groups", _in_parts)
    gangs = np.flatnonzero(jobs.aside & together).tolist()
    large = (at for at in gangs if found[jobs.key(at)].scalable)
    for job in map(jobs.at, takewhile(lambda _: besides.left > 0, large)):
        why = attempt(job, partial(besides.why, job), None)
        if why is not None and not why.scalable:
            found[job.key] = reasons.with_words(replace(found[job.key], scalable=False), f"besides, {why.message}")
    view.never_fits = found
    view.trace.jobs.update(found)


class _Besides:
    """Other obstacles to the start of a gang: pods that it lacks, or a limit of what they may hold now."""

    def __init__(self, view: View, ask: Questions, kernel: Kernel, statement: Callable[[], Statement]) -> None:
        self._view = view
        self._ask = ask
        self._kernel = kernel
        self._statement = statement
        #: the number of pods for which limits may still be asked
        self.left = _MOST

    def why(self, job: Job) -> Reason | None:
        """Reason that keeps a gang from starting; None if nothing is known."""
        lacking, need = self._ask.job_valid(job), job.min_available
        rows = self._view.membership.pending(job.index)
        if lacking is not None or len(rows) < need:
            return lacking
        self.left -= 1
        largest = self._largest(rows)
        _, refused = self._ask.allocatable(job.queue, self._view.record(int(rows[largest or 0])), need)
        if largest is None or refused is None or refused.scalable:
            # Limits are sums: if they allow this many of the largest pods, they allow this many of any.
            return refused
        chosen = self._smallest(rows, need)
        self.left -= len(chosen)
        return self._together(job, chosen) if self.left >= 0 else None

    def _largest(self, rows: Rows) -> int | None:
        """Index of the pod with the largest request; None if all are alike."""
        classes = self._view.pods.pod_class[rows]
        if (classes == classes[0]).all():
            return None
        requests = self._view.snapshot.requests[classes]
        return int((requests / np.maximum(requests.max(axis=0), 1.0)).sum(axis=1).argmax())

    def _smallest(self, rows: Rows, need: int) -> list[PodRecord]:
        """The `need` smallest of some pods, the largest of them first; none if the smallest are not certain."""
        requests = self._view.snapshot.requests[self._view.pods.pod_class[rows]]
        order = np.argsort(requests.sum(axis=1), kind="stable")
        if need < len(rows) and (np.diff(requests[order], axis=0) < 0).any():
            return []
        return self._view.records(rows[order[:need][::-1]])

    def _together(self, job: Job, pods: Sequence[PodRecord]) -> Reason | None:
        """Why some pods may not hold their requests all together: each is tried on a node, even a full one.

        Limits that grow with the cluster are ignored.
        """
        tried, refused = self._statement(), None
        for pod in pods:
            _, why = self._ask.allocatable(job.queue, pod, 1)
            nodes = self._kernel.possible(pod)
            refused = why if why is not None and not why.scalable else None
            if refused is not None or not len(nodes):
                break
            tried.pipeline(self._view.sub_job_of(job, pod), pod, int(nodes[0]))
        tried.discard()
        return refused


def _in_parts(group: PodGroup) -> bool:
    return bool(group.spec.min_task_member or group.spec.sub_group_policy)
