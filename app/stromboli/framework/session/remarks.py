"""Additions to the reasons of waiting jobs, made when the actions are over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from stromboli.api.reasons import Reason
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job, title_of
from stromboli.framework.cluster.view import View
from stromboli.framework.runtime.failures import PluginFailure


def amend(view: View, job: Job, amended: Callable[[Reason], Reason]) -> None:
    """Change the reasons of a job and of its pods that wait."""
    trace = view.trace
    if job.key in trace.jobs:
        trace.jobs[job.key] = amended(trace.jobs[job.key])
    for pod in view.pending(job):
        if pod.row in trace.pods:
            trace.pods[pod.row] = amended(trace.pods[pod.row])


def add_refusals(view: View) -> None:
    """Add to the reasons of jobs that wait whose eviction for them was refused."""
    refused: defaultdict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for each in view.snapshot.refused.values():
        refused[each.beneficiary].add((each.job, title_of(view.jobs, each.job), each.why))
    for key in filter(view.jobs.__contains__, refused):
        job, known = view.jobs[key], sorted(refused[key])
        amend(view, job, partial(reasons.with_refusals, namespace=job.namespace, refused=known))


def add_failures(view: View, failures: Sequence[PluginFailure]) -> None:
    """Add to the reasons of jobs that wait which plugins failed when they were asked about them."""
    for failure in failures:
        job = view.jobs.get(failure.where)
        if job is not None:
            amend(view, job, partial(reasons.with_failure, failed=reasons.plugin_failed(failure.plugin, failure.error)))
