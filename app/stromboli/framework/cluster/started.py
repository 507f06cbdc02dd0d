"""Times when pods were scheduled and started, from their statuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stromboli.api import duration
from stromboli.api.pod_state import HELD, PodState
from stromboli.api.resources import Rows, Vector
from stromboli.framework.cluster.view import View
from stromboli.state.pods import PodRecord, seconds


def times_of_held(
    view: View, key: str, read: Callable[[PodRecord], float], now: float, *, unknown: float
) -> tuple[Rows, Vector]:
    """The job index of each pod that holds a node, and a time read from that pod.

    0 means that the pod does not give the time: a pod that was just bound then gets `now`, any other `unknown`. So does
    a time in the future.
    """
    states = view.pods.state
    rows = np.flatnonzero(np.isin(states, HELD) & (view.membership.index_of[view.pods.job] >= 0))
    column = view.snapshot.pod_facts.column(key, read)
    at = np.array([*column.values[:], 0.0])[column.numbers[rows]]
    at = np.where(at != 0, at, np.where(states[rows] == PodState.Bound, now, unknown))
    at[np.isfinite(at) & (at > now + duration.CLOCK_STEP)] = unknown
    return view.membership.index_of[view.pods.job[rows]], at


def scheduled(pod: PodRecord) -> float:
    """Time when a pod was scheduled; 0 if unknown."""
    said = (each for each in pod.conditions if each.type == "PodScheduled" and each.status == "True")
    return max((seconds(each.last_transition_time) for each in said), default=0.0)


def started_or_scheduled(pod: PodRecord) -> float:
    """Start time of a pod, or else the time when it was scheduled; 0 if neither is known."""
    return pod.started or scheduled(pod)
