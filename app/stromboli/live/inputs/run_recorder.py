"""Learns the run times of jobs from their succeeded pods, and whether they start when predicted."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from stromboli.explain.past_runs import PastRuns, learn
from stromboli.live.watch.mirror import Mirror
from stromboli.state.cluster import object_key

#: pods that succeeded and are not counted again when they change
_REMEMBERED = 10_000


class RunRecorder:
    """Tells the past runs of each job that is over, as its first pod succeeds."""

    def __init__(self, mirror: Mirror, past: PastRuns) -> None:
        self._state, self._past = mirror.state, past
        #: the jobs that were counted, by the uid of their PodGroup
        self._counted: dict[str, None] = {}
        mirror.listen("Pod", self._changed)
        mirror.listen("Pod", self._may_have_started)
        mirror.listen("PodGroup", self._may_be_gone)

    def _changed(self, type: str, pod: Any) -> None:
        if isinstance(pod, str) or type == "DELETED" or pod.status.phase != "Succeeded":
            return
        record = self._state.record(pod.metadata.key)
        group = self._state.pod_group(record.job) if record is not None and record.job else None
        if record is None or group is None or (uid := group.metadata.uid or group.key) in self._counted:
            return
        # For a pod that existed when the process began, the end is only known if its status says so.
        if learn(self._past, record, group, time.time() if type == "MODIFIED" else 0.0):
            self._counted[uid] = None
            if len(self._counted) > _REMEMBERED:
                del self._counted[next(iter(self._counted))]

    def _may_have_started(self, type: str, pod: Any) -> None:
        record = None if isinstance(pod, str) or type == "DELETED" else self._state.record(pod.metadata.key)
        if record is None or record.job not in self._past.starts or not record.node_name:
            return
        group, pods = self._state.pod_group(record.job), self._state.pods
        placed = (pods.job[: pods.size] == pods.job[record.row]) & (pods.node[: pods.size] >= 0)
        if group is not None and np.count_nonzero(placed) >= group.spec.min_member:
            self._past.starts.started(record.job, group.metadata.uid, time.time())

    def _may_be_gone(self, type: str, group: Any) -> None:
        if type == "DELETED":
            self._past.starts.gone(group if isinstance(group, str) else object_key(group), time.time())
