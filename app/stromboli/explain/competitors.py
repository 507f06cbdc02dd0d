"""Jobs that compete with a waiting one: those served before it, and those that hold what it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import Mask, Vector
from stromboli.explain.answers import Holding
from stromboli.explain.places import MOST_HOLDERS, Places, amounts, holders
from stromboli.fairness.queue_tree import QueueTree
from stromboli.framework.cluster.job import Job, Queue, lineage
from stromboli.framework.diagnosis.explain import why_job
from stromboli.framework.session.session import Session
from stromboli.kube.dra.users import users_of
from stromboli.state.pods import USER_ANNOTATION, PodRecord

#: of no node in particular
NOWHERE = np.zeros(0, np.bool_)


def jobs_ahead(session: Session, job: Job, reason: Reason, willing: Mask) -> list[Job]:
    """The jobs that wait only for capacity, are served before this one, and want the same resources, in order.

    Jobs that cannot start as they are, even when others finish, take nothing from it. Neither do jobs of queues with
    another share if the job's share blocks it or, where nodes lack capacity, jobs that use none of its nodes
    (`willing`).
    """
    if job.counts[PodState.Pipelined]:
        # A place is reserved for it, which counts in its share as if it held it.
        return []
    ask, kernel = session.ask, session.kernel
    at_nodes = reason.stage >= Stage.Gang
    line = [] if at_nodes else jobs_below(session, _limiting_queue(session, job, reason))
    competing = {each.key for each in line}
    meets: dict[int, bool] = {}

    def wants_the_same(other: Job) -> bool:
        if not at_nodes:
            return other.key in competing
        pod = session.view.pending(other)[0]
        if pod.pod_class.id not in meets:
            meets[pod.pod_class.id] = not len(willing) or bool((kernel.feasible(pod) & willing).any())
        return meets[pod.pod_class.id]

    def in_line(other: Job) -> bool:
        if other is job or not other.counts[PodState.Pending]:
            return False
        why = why_job(session, other)
        return (why is None or why.actionable is Actionable.Wait) and wants_the_same(other)

    mine = ask.job_key(job)
    keys = ((ask.job_key(other), other) for other in job.queue.jobs)
    before = [(key, other) for key, other in keys if key < mine and in_line(other)]
    same = [other for _, other in sorted(before, key=lambda pair: pair[0])]
    place = ask.queue_key(job.queue)
    queues = [queue for queue in session.view.queues.values() if queue is not job.queue and queue.jobs]
    earlier = [queue for queue in queues if ask.queue_key(queue) < place]
    others = [other for queue in earlier for other in queue.jobs if in_line(other)]
    return same + others


def waiting_for(session: Session, job: Job) -> Holding:
    pending = session.view.pending(job)
    asked = session.view.requested(pending)
    return Holding(
        namespace=job.namespace,
        name=job.name,
        queue=job.queue.name,
        pods=len(pending),
        amounts=amounts(session, asked, pod=next(iter(pending), None)),
        called=job.pod_group.workload,
    )


def holders_of(
    session: Session, job: Job, sample: PodRecord | None, reason: Reason | None, found: Places
) -> list[Holding]:
    """The other jobs that hold what is missing at the blocking stage; a job never waits for its own pods."""
    asked = session.view.request(sample) if sample is not None else job.min_resources
    if reason is None or asked is None:
        return []
    if reason.stage >= Stage.Placement:
        return holders(session, found.willing, found.lacking, job) or of_devices(session, sample, job)
    columns = np.flatnonzero(asked > 0).tolist()
    others = [other for other in session.view.jobs.values() if other is not job]
    if reason.reason == "ClusterOvercommitted":
        claiming = in_jobs(session, others, columns, claimed=True)
        named = {(each.namespace, each.name) for each in claiming}
        # Pods of no job, and those that terminate, hold what is lacking, too.
        beside = [each for each in holders(session, NOWHERE, columns, job) if (each.namespace, each.name) not in named]
        return [*claiming[: max(1, MOST_HOLDERS - len(beside))], *beside][:MOST_HOLDERS]
    if reason.reason == "ResourceQuotaExceeded":
        return in_jobs(session, (other for other in others if other.namespace == job.namespace), columns)
    if reason.reason == "UserLimitReached":
        own = [other for other in others if other.queue is job.queue and _user(other) == _user(job)]
        return in_jobs(session, own, columns, claimed=True)
    if reason.stage is Stage.QueueShare or reason.reason in ("QueueCapabilityExceeded", "NodePoolLimitReached"):
        below = jobs_below(session, _limiting_queue(session, job, reason))
        return in_jobs(session, (other for other in below if other is not job), columns, claimed=True)
    return holders(session, found.willing, found.lacking, job) if reason.stage is Stage.Gang else []


def of_devices(session: Session, pod: PodRecord | None, waiting: Job) -> list[Holding]:
    """The jobs that hold most of the devices that a pod's claims request, without the waiting job itself."""
    if pod is None or not pod.pod_class.spec.resource_claims:
        return []
    view, held, pods = session.view, dict[str, Counter[str]](), Counter[str]()
    users = users_of(view.snapshot, pod)
    for record in view.pods.records if users else ():
        if record is not None and record.key in users and record.job in view.jobs and record.job != waiting.key:
            held.setdefault(record.job, Counter()).update(users[record.key])
            pods[record.job] += 1
    largest = sorted(held, key=lambda key: (-held[key].total(), key))
    return [
        Holding(
            namespace=job.namespace,
            name=job.name,
            queue=job.queue.name,
            pods=pods[job.key],
            amounts={f"devices of {name}": str(number) for name, number in sorted(held[job.key].items())},
            called=job.pod_group.workload,
        )
        for job in (view.jobs[key] for key in largest[:MOST_HOLDERS])
    ]


def _user(job: Job) -> str:
    return job.pod_group.metadata.annotations.get(USER_ANNOTATION, "")


def _limiting_queue(session: Session, job: Job, reason: Reason) -> Queue:
    """The queue that a reason names: a job's own, or one of its ancestors."""
    above = lineage(job.queue, session.view.queues)
    return next((queue for queue in above if f"queue {queue.name} " in f"{reason.message} "), job.queue)


def jobs_below(session: Session, queue: Queue) -> list[Job]:
    """The jobs of a queue and of all queues below it."""
    queues = session.view.queues
    tree = QueueTree.of({each.name: each.parent for each in queues.values()})
    below = {tree.names[row] for row in tree.below(tree.names.index(queue.name))}
    return [job for each in queues.values() if each.name in below for job in each.jobs]


def in_jobs(session: Session, jobs: Iterable[Job], columns: Sequence[int], *, claimed: bool = False) -> list[Holding]:
    """The jobs that hold most of some resources, what they claim with their minResources counted if asked."""
    if not columns:
        return []
    now = session.view.membership.allocated_now()

    def held(job: Job) -> Vector:
        vector: Vector = now[job.index]
        if claimed and job.min_resources is not None and not job.pending_phase:
            vector = np.maximum(vector, job.min_resources)
        return vector

    total = np.maximum(session.view.total, 1)
    pairs = [(job, held(job)) for job in jobs]
    ranked = sorted(pairs, key=lambda pair: (-float((pair[1] / total)[list(columns)].max()), pair[0].key))
    return [
        Holding(
            namespace=job.namespace,
            name=job.name,
            queue=job.queue.name,
            pods=job.allocated_count,
            amounts=amounts(session, vector, columns),
            called=job.pod_group.workload,
        )
        for job, vector in ranked[:MOST_HOLDERS]
        if vector[list(columns)].any()
    ]
