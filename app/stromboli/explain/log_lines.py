"""The debug log of a session: how the cluster was divided, which jobs were held back and which pods evicted.

The events are those by which Volcano's guides search a log, and stay what they are; the other fields are ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np

from stromboli.api.decisions import Evict
from stromboli.api.reasons import Stage
from stromboli.api.resources import Vector, listed
from stromboli.api.words import first_few
from stromboli.explain.places import amounts
from stromboli.framework.cluster.job import Queue
from stromboli.framework.plugin.report import QueueGauges
from stromboli.framework.session.session import Session

#: victims that a line names
_MOST = 20


def log_lines(session: Session) -> Iterator[tuple[str, dict[str, object]]]:
    """Events with their fields, in the order in which they occur in a session."""

    def told(vector: Vector) -> str:
        return listed(amounts(session, np.floor(vector)))

    gauges = session.report.gauges
    sharing = [queue for queue in session.view.queues.values() if "deserved" in _of(session, queue).amounts]
    if sharing:
        yield "Total resource", {"amounts": told(session.view.total)}
    for queue in sharing:
        yield "Considering queue", {"queue": queue.name, "weight": queue.spec.weight}
        found = gauges[queue.name]
        for step, deserved in found.steps() if found.steps else ():
            yield "Format queue", {"queue": queue.name, "deserved": told(deserved), "step": step}
        if (found.amounts["deserved"] >= found.amounts["request"]).all():
            yield "queue is meet", {"queue": queue.name}
    if sharing:
        parents = {queue.parent for queue in sharing}
        leaves = [gauges[queue.name].amounts["deserved"] for queue in sharing if queue.name not in parents]
        left = session.view.total - np.sum(leaves, axis=0)
        yield "Remaining resource", {"amounts": told(np.maximum(left, 0))}
    yield from _kept_back(session, told)
    yield from _victims(session)


def _of(session: Session, queue: Queue) -> QueueGauges:
    return session.report.gauges.get(queue.name, QueueGauges())


def _kept_back(session: Session, told: Callable[[Vector], str]) -> Iterator[tuple[str, dict[str, object]]]:
    """Queues that get nothing more, and jobs that their queue's limits keep from it."""
    for queue in session.view.queues.values():
        found = _of(session, queue)
        if not queue.open:
            yield "queue is not in open state", {"queue": queue.name, "state": queue.state or "not set"}
        elif found.gets_nothing_more and "deserved" in found.amounts:
            held = {name: told(found.amounts[name]) for name in ("deserved", "allocated")}
            yield "queue is overused", {"queue": queue.name, **held, "share": found.share}
    for key, reason in session.view.trace.jobs.items():
        if reason.stage is Stage.QueueShare and (job := session.view.jobs.get(key)) is not None:
            fields = {"queue": job.queue.name, "job": key, "reason": reason.reason}
            yield "Candidate is not allocatable", {**fields, "detail": reason.detail or reason.message}


def _victims(session: Session) -> Iterator[tuple[str, dict[str, object]]]:
    """The victims of each action, by the job that they were evicted for."""
    victims: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for each in session.decisions:
        if isinstance(each, Evict):
            victims[each.action, each.beneficiary].append(each.key)
    for (action, job), pods in victims.items():
        yield "Victims", {"action": action, "job": job, "pods": first_few(pods, _MOST)}
