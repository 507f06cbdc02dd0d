"""The pods that may be evicted at most, by columns of queues, jobs and plugins, before single pods are judged."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Mask
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.units import above_minimum
from stromboli.framework.cluster.job import Job
from stromboli.state.pods import PodRecord


def candidates(context: PreemptionContext, job: Job, pod: PodRecord, *, within_job: bool = False) -> Mask:
    """Which indexed pods may be evicted at most for a pod of a job, as things stand, shape (indexed pods,).

    Evictions for that job never make an ineligible pod eligible. `within_job` has pods of the job itself evicted.
    """
    pod_index, ask, view = context.pod_index, context.session.ask, context.session.view
    # 1. The pods of other queues, of other jobs of the queue, or of the job, and whether these may give to the pod.
    if context.reclaiming:
        found = pod_index.outside(job.queue)
        of, gives = pod_index.queue, ask.reclaimable_queues(pod, pod_index.requests_of_queues)
    else:
        own = pod_index.job == job.index
        found = own if within_job else (pod_index.queue == job.queue.index) & ~own
        found = found & pod_index.may_go_for(job.queue)
        of, gives = pod_index.job, ask.preemptable_jobs(pod, len(view.jobs), lambda: pod_index.least_of_jobs)
    if gives is not None:
        found = found & gives[of]
    if context.less_important:
        found = found & (view.jobs.priority[pod_index.job] < job.priority)
    # 2. Those that may be evicted as far as they say, and that plugins allow whatever else is evicted.
    willing = pod_index.willing
    let_go = ask.evictable_pods(context.point, pod_index.rows)
    if let_go is not None:
        willing = willing & let_go
    # 3. Those of gangs that can spare pods, or that may be broken: of which no pod has to stay.
    able = above_minimum(view.jobs)
    if context.may_break_gangs and not within_job:
        able |= ~np.bincount(pod_index.job[pod_index.alive() & ~willing], minlength=len(able)).astype(np.bool_)
    mask: Mask = found & willing & able[pod_index.job]
    return mask
