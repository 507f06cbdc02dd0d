"""Jobs that wait: since when, and at which place of their queue."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable
from stromboli.explain.overview import Amounts, JobRow
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord

#: sort keys of lists of jobs, and the default
SORTED: dict[str, Callable[[JobRow], tuple[float, str, str]]] = {
    "": lambda row: (0.0, row.namespace, row.name),
    "age": lambda row: (row.created, row.namespace, row.name),
    "since": lambda row: (row.since or math.inf, row.namespace, row.name),
    "priority": lambda row: (-row.priority, row.namespace, row.name),
    "position": lambda row: (row.position or math.inf, row.namespace, row.name),
    "cards": lambda row: (-sum(row.cards.values()), row.namespace, row.name),
}
#: sort keys of lists of pods, from the pod and its cards
SORTED_PODS: dict[str, Callable[[PodRecord, Amounts], tuple[float, str]]] = {
    "age": lambda pod, cards: (pod.created, pod.key),
    "priority": lambda pod, cards: (-pod.priority, pod.key),
    "cards": lambda pod, cards: (-sum(cards.values()), pod.key),
}


def in_line(session: Session, rows: list[tuple[JobRow, int]]) -> list[tuple[JobRow, int]]:
    """Rows of waiting jobs with their positions in their queues, in the order in which they are served.

    A job that must be changed before it can start has no position and is ahead of no other. A job that is promised a
    place comes first, since the place already counts in its queue's share.
    """
    jobs = session.view.jobs
    at = {
        jobs[f"{row.namespace}/{row.name}"].index: number
        for number, (row, _) in enumerate(rows)
        if row.who == Actionable.Wait
    }
    places, out = Counter[str](), list(rows)
    order = session.ask.in_job_order(jobs, np.fromiter(at, np.intp, len(at)))
    promised = jobs.now(jobs.count(PodState.Pipelined), lambda job: job.counts[PodState.Pipelined])[order] > 0
    for index in order[np.argsort(~promised, kind="stable")].tolist():
        row, unplaced = rows[at[index]]
        places[row.queue] += 1
        out[at[index]] = msgspec.structs.replace(row, position=places[row.queue]), unplaced
    return out


def waiting_since(job: Job) -> float:
    """Time since which a job waits: its creation or, if it ran before, the time in its PodGroup's condition."""
    status = job.pod_group.status
    said = next((each for each in status.conditions if each.type == "Unschedulable" and each.status == "True"), None)
    if said is None or said.last_transition_time is None or not (status.running or job.ready_count):
        return job.created
    return said.last_transition_time.timestamp()
