"""cdp: cooldown protection. A pod can ask not to be evicted for a while after it was scheduled.

The pod's label or annotation `volcano.sh/cooldown-time` gives the duration (`10m`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stromboli.api import duration
from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Rows
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin
from stromboli.state.pods import PodRecord, seconds
from stromboli.state.reads import Reads

_COOLDOWN = "volcano.sh/cooldown-time"


class Cdp(Plugin):
    name = "cdp"
    steady = True
    protects = True
    reads = Reads(kept=(_COOLDOWN,))

    def open(self, view: View) -> None:
        self._view, self._now = view, view.time(math.inf)
        self._states = view.pods.state
        self._facts = view.snapshot.pod_facts

    def evictable(self, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return [candidate for candidate in candidates if not self._cooling_down(candidate)]

    def evictable_pods(self, rows: Rows) -> Mask:
        column = self._facts.column("in cooldown until", _until)
        until = np.array([*column.values[:], -np.inf])
        over = until <= self._now
        self._view.time(float(until[~over].min(initial=math.inf)))
        spared: Mask = over[column.numbers[rows]] | (self._states[rows] != PodState.Running)
        return spared

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self.evictable(candidates)

    reclaimable = preemptable

    def _cooling_down(self, pod: PodRecord) -> bool:
        if self._states[pod.row] != PodState.Running:
            return False
        until = _until(pod)
        if until is None or until <= self._now:
            return False
        self._view.time(until)
        return True


def _until(pod: PodRecord) -> float | None:
    """The end of a pod's protection, in seconds since the epoch; None without protection."""
    cooldown = _cooldown(pod)
    if cooldown is None:
        return None
    for condition in pod.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            return seconds(condition.last_transition_time) + cooldown
    return None


def _cooldown(pod: PodRecord) -> float | None:
    """Seconds of protection; None if the pod asks for none, or its value is invalid."""
    text = pod.labels.get(_COOLDOWN, pod.annotations.get(_COOLDOWN))
    if text is None:
        return None
    try:
        return duration.parse(text)
    except ValueError:
        return None
