"""What a session remembers of its refusals: a typed reason for every job and pod that got nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from stromboli.api.reasons import Reason
from stromboli.state.pods import PodRecord


class Trace:
    """Reasons by job key and by pod row. The first stage that blocks is kept: a later one cannot be reached yet."""

    __slots__ = ("in_vain", "jobs", "kinds", "lost", "not_reached", "pods", "promised", "untold")

    def __init__(self) -> None:
        self.jobs: dict[str, Reason] = {}
        self.pods: dict[int, Reason] = {}
        #: why pods that are promised a place may not start yet, though it may be free, by row
        self.promised: dict[int, Reason] = {}
        #: why no node takes pods of some kinds, after how many changes of nodes that was, and what it took to find out
        self.kinds: dict[Hashable, tuple[int, Reason, int]] = {}
        #: failed attempts to place gangs, for the actions that make them, by identity of the pods
        self.in_vain: dict[Hashable, Any] = {}
        #: why nothing of queues runs that do not exist, by name
        self.lost: dict[str, Reason] = {}
        #: keys of jobs that the session's budget did not reach; what is shown of them stays as it is
        self.not_reached: set[str] = set()
        #: keys of jobs that show something else than what holds, which a later session tells
        self.untold: set[str] = set()

    def job(self, key: str, reason: Reason) -> None:
        """A job does not go on."""
        known = self.jobs.get(key)
        if known is None or reason.stage <= known.stage:
            self.jobs[key] = reason

    def all_jobs(self, keys: Iterable[str], reason: Reason) -> None:
        """None of some jobs goes on."""
        for key in keys:
            self.job(key, reason)

    def pod(self, row: int, reason: Reason) -> None:
        """A pod got no place. What was found last counts: earlier tries were taken back."""
        self.pods[row] = reason

    def placed(self, pods: Iterable[PodRecord]) -> None:
        """Pods got a place after all."""
        if self.pods:
            for pod in pods:
                self.pods.pop(pod.row, None)
