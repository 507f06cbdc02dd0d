"""Bundles: which pods of a gang Volcano evicts together.

The safe bundle of a gang is what it can lose and still run, the least important pods first; the whole bundle is the
rest, without which it stops. Volcano looks at the pods that are candidates alone, and all of them are safe when the
gang is below its minimum already.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.api.resources import Vector
from stromboli.eviction.units import Surplus
from stromboli.framework.job import Job
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord


@dataclass(frozen=True, slots=True)
class Bundle:
    """Pods of a job that are evicted together."""

    job: Job
    pods: Sequence[PodRecord]
    whole: bool


def bundles(session: Session, job: Job, candidates: Iterable[PodRecord]) -> list[Bundle]:
    """What a job can give of some candidates: its safe bundle and its whole one, if there is anything in them."""
    pods = sorted(candidates, key=lambda pod: (pod.priority, pod.uid))
    if job.ready_count < job.min_available:
        return _made(Bundle(job, pods, whole=False))
    surplus = Surplus(session, job)
    safe = [pod for pod in pods if surplus.spend(pod)]
    gone = {pod.row for pod in safe}
    rest = [pod for pod in pods if pod.row not in gone]
    return _made(Bundle(job, safe, whole=False), Bundle(job, rest, whole=True))


def permitted(offers: Iterable[Bundle], allowed: Iterable[PodRecord]) -> list[Bundle]:
    """What is left of bundles when only some pods may be evicted: of a whole bundle all is evicted, or none."""
    rows = {pod.row for pod in allowed}
    found: list[Bundle] = []
    for bundle in offers:
        pods = [pod for pod in bundle.pods if pod.row in rows]
        if len(pods) == len(bundle.pods):
            found.append(bundle)
        elif not bundle.whole:
            found += _made(Bundle(bundle.job, pods, whole=False))
    return found


def bundle_value(session: Session, bundle: Bundle, need: Vector) -> float:
    """How much of what is needed a bundle gives, relative to what its job as a whole requests; the more the better."""
    if not bundle.whole:
        return math.inf
    gives = session.view.requested(bundle.pods)
    loses = session.view.requested(session.view.members(bundle.job))
    gain, cost = 0.0, 0.0
    for column in np.flatnonzero(need > 0).tolist():
        gain += min(gives[column] / need[column], 1)
        cost += loses[column] / need[column]
    return gain / cost if cost > 0 else math.inf


def _made(*offers: Bundle) -> list[Bundle]:
    return [bundle for bundle in offers if bundle.pods]
