"""Arithmetic of shares for several plugins. Amounts have the resource dimension last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stromboli.api.crds import PodGroup
from stromboli.api.resources import (
    CPU,
    MEMORY,
    PODS,
    TOLERANCE,
    Mask,
    Matrix,
    ResourceAmounts,
    Vector,
    amounts,
    exact,
)
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.view import View

#: API groups of whose jobs the controllers wait for admission before they make pods
_WAIT_FOR_ADMISSION = ("batch.volcano.sh", "kubeflow.org")
#: phases of jobs that had pods
_BEGUN = ("Running", "Unknown", "Completed")


def share(amount: Vector, of: Vector) -> Vector:
    """amount / of, elementwise; 0/0 is 0 and x/0 is 1, as in Volcano."""
    out = np.zeros(np.broadcast_shapes(amount.shape, of.shape))
    np.divide(amount, of, out=out, where=of != 0)
    out[(of == 0) & (amount != 0)] = 1.0
    return out


def dominant_share(amount: Vector, of: Vector) -> float:
    """The dominant share: the largest over the dimensions that exist."""
    shares = [have / whole for have, whole in zip(amount.tolist(), of.tolist(), strict=True) if whole >= TOLERANCE]
    return max(shares, default=0.0)


def dominant_shares(amounts: Matrix, of: Vector) -> Vector:
    """The dominant share of each row, shape (rows, dimensions)."""
    columns = np.flatnonzero(of >= TOLERANCE)
    found: Vector = (amounts[:, columns] / of[columns]).max(axis=1) if len(columns) else np.zeros(len(amounts))
    return found


def asked(request: Vector, pods: bool = False) -> Mask:
    """The dimensions in which a queue's limit is checked: those requested, and the number of pods only if it counts
    (`View.counts_pods`)."""
    out = request > 0
    if not pods:
        out[PODS] = False
    return out


def exceeded(used: Vector, limit: Vector, request: Vector, pods: bool = False) -> list[int]:
    """The columns in which `used` exceeds `limit`, among those that `request` names. There is no tolerance."""
    columns: list[int] = (asked(request, pods) & (used > limit)).nonzero()[0].tolist()
    return columns


def stays_above(
    held: Vector, request: Vector, wanted: Vector, deserved: Vector, named: Mask | None = None, pods: bool = False
) -> bool:
    """Whether a queue that gives up `request` uses more than it deserves of something `wanted`, and keeps what it
    deserves.

    Dimensions that are not `named` do not count, nor those in which it is within its deserved amount. A pod larger than
    the queue's share is borrowing, and may be evicted.
    """
    found = False
    columns = zip(held.tolist(), request.tolist(), wanted.tolist(), deserved.tolist(), strict=True)
    for column, (have, gives, wants, due) in enumerate(columns):
        counts = named is None or named[column]
        counts = counts and (pods or column != PODS)
        if counts and gives > 0 and wants > 0 and have > due + TOLERANCE:
            if not (have - gives > due - TOLERANCE or gives > due + TOLERANCE):
                return False
            found = True
    return found


def may_give(held: Matrix, deserved: Matrix, counted: Mask, smallest: Matrix, largest: Matrix) -> Mask:
    """The queues for which `stays_above` may hold for any of their pods, shape (queues,).

    What they use, what they deserve, and the smallest and largest requests of their pods have the shape (queues,
    dimensions); which dimensions count is given for one or all of them.
    """
    above = (held > deserved + TOLERANCE) & counted
    stays = (held - smallest > deserved - TOLERANCE) | (largest > deserved + TOLERANCE)
    found: Mask = np.any(above & stays, axis=1)
    return found


def keeps(held: Vector, request: Vector, guarantee: Vector, pods: bool = False) -> bool:
    """Whether a queue that gives up `request` keeps its guarantee. A pod larger than that is borrowing."""
    guaranteed = asked(request, pods) & (guarantee > 0)
    left, least = held[guaranteed] - request[guaranteed], guarantee[guaranteed]
    return bool((left > least - TOLERANCE).all() or (request[guaranteed] > least + TOLERANCE).any())


def copies_within(limit: Vector, used: Vector, request: Vector, count: int, pods: bool = False) -> int:
    """Number of copies of `request`, `count` at most, that can be added to `used` within `limit`."""
    tops, amounts = limit.tolist(), used.tolist()
    for column, want in enumerate(request.tolist()):
        if want <= 0 or (column == PODS and not pods):
            continue
        top, have = tops[column], amounts[column]
        if have + count * want <= top:
            continue
        # The division may round either way, so the result is verified.
        count = max(0, min(count, int((top - have) // want) + 1))
        while count > 0 and have + count * want > top:
            count -= 1
    return count


def _stays_admitted(view: View, job: Job) -> bool:
    """Whether an admitted job has its minimum and so keeps its claim.

    Under strict rules a job without pods is admitted anew: its own claim does not stand in its way.
    """
    if job.phase != "Running" or job.allocated_count < job.min_available:
        return False
    return job.allocated_count > 0 or not view.rules.admission


def is_empty(view: View, job: Job) -> bool:
    """Whether a job has no pods and claims nothing until it has some: its workload is suspended or has finished.

    Its owner creates pods whether the job is admitted or not. A job without an owner, or whose controller creates pods
    only after admission, is not empty in this sense.
    """
    return not job.size and view.rules.admission and _claims_with_pods_only(job.pod_group)


def _claims_with_pods_only(group: PodGroup) -> bool:
    status, owners = group.status, group.metadata.owner_references
    begun = status.phase in _BEGUN or bool(status.running or status.succeeded or status.failed)
    return (bool(owners) or begun) and not any(map(_waits, owners))


def _waits(owner: Mapping[str, Any]) -> bool:
    group = str(owner.get("apiVersion")).partition("/")[0]
    return group in _WAIT_FOR_ADMISSION and str(owner.get("kind")).endswith("Job")


def claims(view: View, *, beyond_allocated: bool) -> Matrix:
    """Amounts that each job claims (`reserved`), shape (jobs, dimensions): jobs that were admitted with minResources,
    may start and do not hold them yet.

    Without `beyond_allocated` only jobs that run claim no more than they lack.
    """
    jobs = view.jobs
    out = np.zeros(jobs.min_resources.shape)
    claiming = jobs.has_min_resources & ~view.shut
    if jobs.claims is not None:
        claiming &= jobs.claims
    if not claiming.any():
        return out
    claiming &= jobs.in_phase("Inqueue", "Running")
    if view.rules.admission:
        claiming &= ~(jobs.membership.empty & jobs.holds("claims with pods only", _claims_with_pods_only))
    running = np.flatnonzero(claiming & jobs.in_phase("Running"))
    claiming[running] = (jobs.min_resources[running] > view.job_allocated[running]).any(axis=1)
    plain = claiming
    if claiming.any():
        # Most jobs claim what their columns say.
        plain = claiming & jobs.in_phase("Inqueue") & ~jobs.membership.has_gated & jobs.unmade
    out[plain] = jobs.min_resources[plain]
    if beyond_allocated or view.rules.admission:
        out[plain] = np.maximum(out[plain] - view.job_allocated[plain], 0)
    for job in jobs.where(claiming & ~plain):
        if not plain[job.index] and _may_claim(view, job):
            out[job.index] = reserved(view, job, beyond_allocated=beyond_allocated or job.phase != "Inqueue")
    return out


def _may_claim(view: View, job: Job) -> bool:
    """Whether a job was admitted with minResources and may start, and does not hold them."""
    if job.min_resources is None or not job.claims or view.shut[job.index] or is_empty(view, job):
        return False
    return job.phase == "Inqueue" or _stays_admitted(view, job)


def admission_request(view: View, job: Job) -> Vector:
    """The request of a job for admission: its minResources, under strict rules without what it already holds."""
    assert job.min_resources is not None
    return np.maximum(job.min_resources - job.allocated, 0) if view.rules.admission else job.min_resources


def entitled(queue: Queue) -> ResourceAmounts:
    """The deserved amounts that a queue declares: in total, or else in single node pools."""
    if queue.spec.deserved is not None or not queue.spec.pools:
        return queue.spec.deserved or {}
    sums: dict[str, int] = {}
    for pool in queue.spec.pools:
        for name, amount in amounts(pool.deserved).items():
            sums[name] = sums.get(name, 0) + amount
    return {name: exact(name, amount) for name, amount in sums.items()}


def capability(view: View, queue: Queue) -> Vector:
    """The limit of a queue, shape (dimensions,); infinite where none is set, and for cpu or memory of 0."""
    most = view.vector(queue.spec.capability, np.inf)
    for column in (CPU, MEMORY):
        if most[column] <= 0:
            most[column] = np.inf
    return most


def reserved(view: View, job: Job, *, beyond_allocated: bool) -> Vector:
    """Amounts that an admitted job still claims: its minResources without the requests of gated pods.

    With `beyond_allocated`, and always under strict rules, without what it already holds.
    """
    assert job.min_resources is not None
    if is_empty(view, job):
        return np.zeros_like(job.min_resources)
    amount = job.min_resources
    if beyond_allocated or view.rules.admission:
        amount = np.maximum(amount - job.allocated, 0)
    gated = [view.request(pod) for pod in view.pending(job) if pod.pod_class.gated]
    return np.maximum(amount - np.sum(gated, axis=0), 0) if gated else amount
