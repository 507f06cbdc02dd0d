"""Gangs too large for the cluster that limits keep from starting besides: more nodes would stand idle."""

from __future__ import annotations

from itertools import islice

import numpy as np
from msgspec.structs import replace

from stromboli.framework import reasons
from stromboli.framework.cluster.view import View
from stromboli.framework.runtime.questions import Questions

#: gangs of which no more are asked about in a session, as there may be thousands
_MOST = 256


def heed_limits(view: View, ask: Questions) -> None:
    """Say of gangs that more nodes would help that they do not, where their queue may not take so many pods now."""
    jobs, found = view.jobs, dict(view.never_fits)
    gangs = [int(at) for at in np.flatnonzero(jobs.aside & (jobs.min_available > 1))]
    large = (at for at in gangs if found[jobs.key(at)].scalable)
    for job in map(jobs.at, islice(large, _MOST)):
        rows = view.membership.pending(job.index)
        classes = view.pods.pod_class[rows]
        need = job.min_available
        if len(rows) < need or (classes != classes[0]).any():
            continue
        allowed, why = ask.allocatable(job.queue, view.record(int(rows[0])), need)
        if allowed < need and why is not None and not why.scalable:
            found[job.key] = reasons.with_words(replace(found[job.key], scalable=False), f"besides, {why.message}")
    view.never_fits = found
    view.trace.jobs.update(found)
