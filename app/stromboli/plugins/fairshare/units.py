"""Units that are evicted together, and what gangs gave and took already in this session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.api.resources import Vector
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.plugins.fairshare.accounts import Accounts
from stromboli.state.pods import PodRecord


@dataclass(slots=True, eq=False)
class Unit:
    """Pods that are evicted together: a gang, or one pod that its gang can do without."""

    row: int
    pods: list[PodRecord]
    #: amounts that they hold, with pods of the gang that are not among the candidates
    amount: Vector
    #: amounts that the gang gave already in this session
    gone: Vector


class Units:
    """Candidates as units, in view of the evictions of this session."""

    def __init__(self, view: View, accounts: Accounts) -> None:
        self._view = view
        self._accounts = accounts
        #: evictions of this session, by the job that gave its place and by the one that got it
        self._given: defaultdict[str, list[Operation]] = defaultdict(list)
        self._taken: defaultdict[str, list[Operation]] = defaultdict(list)

    def evicted(self, operation: Operation) -> None:
        """Count an operation if it is an eviction."""
        if operation.kind is Kind.Evict and operation.job is not None:
            self._given[operation.job.key].append(operation)
            self._taken[operation.beneficiary].append(operation)

    def undone(self, operation: Operation) -> None:
        """Count an operation no longer."""
        if operation.kind is Kind.Evict and operation.job is not None:
            self._given[operation.job.key].remove(operation)
            self._taken[operation.beneficiary].remove(operation)

    def leaves_taken_from(self, job: Job) -> set[int]:
        """The rows of the queues that pods were evicted from for a job."""
        return {self._accounts.leaf(taken.job) for taken in self._taken[job.key] if taken.job is not None}

    def of(self, candidates: Sequence[PodRecord]) -> Iterator[Unit]:
        """Candidates grouped into units: each pod above a gang's minimum alone, the rest of the gang together."""
        view = self._view
        nothing = np.zeros(len(view.dimensions))
        by_job: dict[str, list[PodRecord]] = {}
        for candidate in candidates:
            by_job.setdefault(candidate.job, []).append(candidate)
        for key, pods in by_job.items():
            job = view.jobs[key]
            row, spare = self._accounts.leaf(job), max(0, job.allocated_count - job.min_available)
            for pod in pods[:spare]:
                yield Unit(row, [pod], view.request(pod), nothing)
            if len(pods) > spare:
                single = {pod.row for pod in pods[:spare]}
                amount = view.requested(pod for pod in view.holding(job) if pod.row not in single)
                yield Unit(row, pods[spare:], amount, self._gone(job))

    def _gone(self, job: Job) -> Vector:
        """The pods that a gang gave up in this session although its minimum needs them."""
        broken = job.min_available - job.allocated_count
        given = self._given[job.key][-broken:] if broken > 0 else []
        gone: Vector = np.sum([np.zeros(len(self._view.dimensions)), *(each.total for each in given)], axis=0)
        return gone
