"""The refusals of a session: a typed reason for every job and pod that got nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from stromboli.api.reasons import Reason
from stromboli.state.pods import PodRecord


class Trace:
    """Reasons by job key and by pod row. The first stage that blocks is kept: a later one cannot be reached yet."""

    __slots__ = ("in_vain", "jobs", "kinds", "lost", "not_reached", "nowhere", "pods", "promised", "untold")

    def __init__(self) -> None:
        self.jobs: dict[str, Reason] = {}
        self.pods: dict[int, Reason] = {}
        #: why pods that were promised a place may not start yet, even if it is free, by row
        self.promised: dict[int, Reason] = {}
        #: why no node takes pods of some kinds, after how many changes of nodes that was, and what it took to find out
        self.kinds: dict[Hashable, tuple[int, Reason, int]] = {}
        #: whether pods with some terms about nodes match none
        self.nowhere: dict[Hashable, bool] = {}
        #: failed attempts to place gangs, for the actions that make them, by identity of the pods
        self.in_vain: dict[Hashable, Any] = {}
        #: why nothing runs in queues that do not exist, by queue name
        self.lost: dict[str, Reason] = {}
        #: keys of jobs that the session's budget did not reach; what is shown of them stays as it is
        self.not_reached: set[str] = set()
        #: keys of jobs whose shown status is out of date; a later session updates it
        self.untold: set[str] = set()

    def job(self, key: str, reason: Reason) -> None:
        """Record why a job cannot proceed; an earlier stage wins over a later one."""
        known = self.jobs.get(key)
        if known is None or reason.stage <= known.stage:
            self.jobs[key] = reason

    def all_jobs(self, keys: Iterable[str], reason: Reason) -> None:
        """Record why some jobs cannot proceed, all for the same reason."""
        for key in keys:
            self.job(key, reason)

    def pod(self, row: int, reason: Reason) -> None:
        """Record why a pod got no place. The last reason counts, since earlier attempts were undone."""
        self.pods[row] = reason

    def placed(self, pods: Iterable[PodRecord]) -> None:
        """Pods got a place after all."""
        if self.pods:
            for pod in pods:
                self.pods.pop(pod.row, None)
