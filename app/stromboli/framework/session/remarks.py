"""What is added to the reasons of jobs that wait when the actions are over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from stromboli.framework import reasons
from stromboli.framework.cluster.view import View
from stromboli.framework.runtime.failures import PluginFailure


def add_refusals(view: View) -> None:
    """Add to the reasons of jobs that wait whose eviction for them was refused."""
    refused: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for each in view.snapshot.refused.values():
        refused[each.beneficiary].add((each.job, each.why))
    for key in filter(view.jobs.__contains__, refused):
        namespace = view.jobs[key].namespace
        told = partial(reasons.with_refusals, namespace=namespace, refused=sorted(refused[key]))
        trace = view.trace
        if key in trace.jobs:
            trace.jobs[key] = told(trace.jobs[key])
        for pod in view.pending(view.jobs[key]):
            if pod.row in trace.pods:
                trace.pods[pod.row] = told(trace.pods[pod.row])


def add_failures(view: View, failures: Sequence[PluginFailure]) -> None:
    """Add to the reasons of jobs that wait which plugins failed when they were asked about them."""
    trace = view.trace
    for failure in failures:
        job = view.jobs.get(failure.where)
        if job is None:
            continue
        failed = reasons.plugin_failed(failure.plugin, failure.error)
        if job.key in trace.jobs:
            trace.jobs[job.key] = reasons.with_failure(trace.jobs[job.key], failed)
        for pod in view.pending(job):
            if pod.row in trace.pods:
                trace.pods[pod.row] = reasons.with_failure(trace.pods[pod.row], failed)
