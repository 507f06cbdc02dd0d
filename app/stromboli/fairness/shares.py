"""Arithmetic of shares that several plugins use. Amounts have the resource dimension last."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import CPU, MEMORY, PODS, TOLERANCE, Mask, Matrix, Vector
from stromboli.framework.job import Job, Queue
from stromboli.framework.view import View


def share(amount: Vector, of: Vector) -> Vector:
    """amount / of, element by element; 0/0 is 0 and x/0 is 1, as Volcano has it."""
    out = np.zeros(np.broadcast_shapes(amount.shape, of.shape))
    np.divide(amount, of, out=out, where=of != 0)
    out[(of == 0) & (amount != 0)] = 1.0
    return out


def dominant_share(amount: Vector, of: Vector) -> float:
    """The largest share over the dimensions of which there is anything."""
    shares = [have / whole for have, whole in zip(amount.tolist(), of.tolist(), strict=True) if whole >= TOLERANCE]
    return max(shares, default=0.0)


def dominant_shares(amounts: Matrix, of: Vector) -> Vector:
    """The same of many, shape (rows, dimensions)."""
    columns = np.flatnonzero(of >= TOLERANCE)
    found: Vector = (amounts[:, columns] / of[columns]).max(axis=1) if len(columns) else np.zeros(len(amounts))
    return found


def asked(request: Vector, pods: bool = False) -> Mask:
    """The dimensions that a queue's limit is checked in: those that are requested, the number of pods only if it counts
    (`View.counts_pods`).
    """
    out = request > 0
    if not pods:
        out[PODS] = False
    return out


def exceeded(used: Vector, limit: Vector, request: Vector, pods: bool = False) -> list[int]:
    """The columns in which `used` is above `limit`, of those that `request` asks for. There is no tolerance."""
    return np.flatnonzero(asked(request, pods) & (used > limit)).tolist()


def stays_above(
    held: Vector, request: Vector, wanted: Vector, deserved: Vector, named: Mask | None = None, pods: bool = False
) -> bool:
    """Whether a queue that gives `request` has more than it deserves of something `wanted`, and keeps what it deserves.

    Dimensions that are not `named` do not count, nor those in which it has no more than it deserves already. A pod that
    is larger than all that the queue deserves has a borrowed place, and goes.
    """
    found = False
    amounts = zip(held.tolist(), request.tolist(), wanted.tolist(), deserved.tolist(), strict=True)
    for column, (have, gives, wants, due) in enumerate(amounts):
        counts = named is None or named[column]
        counts = counts and (pods or column != PODS)
        if counts and gives > 0 and wants > 0 and have > due + TOLERANCE:
            if not (have - gives > due - TOLERANCE or gives > due + TOLERANCE):
                return False
            found = True
    return found


def may_give(held: Matrix, deserved: Matrix, counted: Mask, smallest: Matrix, largest: Matrix) -> Mask:
    """Of which queues `stays_above` may say so of anybody, shape (queues,).

    What they hold, what they deserve, and the smallest and largest requests there have the shape (queues, dimensions),
    what counts has that of one or all of them.
    """
    above = (held > deserved + TOLERANCE) & counted
    stays = (held - smallest > deserved - TOLERANCE) | (largest > deserved + TOLERANCE)
    found: Mask = np.any(above & stays, axis=1)
    return found


def keeps(held: Vector, request: Vector, guarantee: Vector, pods: bool = False) -> bool:
    """Whether a queue that gives `request` keeps what it is guaranteed. A pod larger than that has a borrowed place."""
    guaranteed = asked(request, pods) & (guarantee > 0)
    left, least = held[guaranteed] - request[guaranteed], guarantee[guaranteed]
    return bool((left > least - TOLERANCE).all() or (request[guaranteed] > least + TOLERANCE).any())


def copies_within(limit: Vector, used: Vector, request: Vector, count: int, pods: bool = False) -> int:
    """How many copies of `request`, up to `count`, can be added to `used` without going above `limit`."""
    tops, amounts = limit.tolist(), used.tolist()
    for column, want in enumerate(request.tolist()):
        if want <= 0 or (column == PODS and not pods):
            continue
        top, have = tops[column], amounts[column]
        if have + count * want <= top:
            continue
        # The division may round either way; the comparison is what counts.
        count = max(0, min(count, int((top - have) // want) + 1))
        while count > 0 and have + count * want > top:
            count -= 1
    return count


def _stays_admitted(view: View, job: Job) -> bool:
    """Whether a job that was admitted before has what it started with, and so keeps its claim.

    One without any pod asks anew, if the rules say so: its own claim is no obstacle to it.
    """
    if job.phase != "Running" or job.allocated_count < job.min_available:
        return False
    return job.allocated_count > 0 or not view.rules.admission


def claimants(view: View) -> list[Job]:
    """The jobs that were admitted with minResources and may start, but for some that hold all of them."""
    jobs = view.jobs
    claiming = jobs.has_min_resources & jobs.in_phase("Inqueue", "Running") & ~view.shut
    running = np.flatnonzero(claiming & jobs.in_phase("Running"))
    claiming[running] = (jobs.min_resources[running] > view.job_allocated[running]).any(axis=1)
    return [
        job
        for job in jobs.where(claiming)
        if job.min_resources is not None
        and job.claims
        and not view.shut[job.index]
        and (job.phase == "Inqueue" or _stays_admitted(view, job))
    ]


def admission_request(view: View, job: Job) -> Vector:
    """What a job asks to be admitted with: its minResources, under strict rules without what it holds already."""
    assert job.min_resources is not None
    return np.maximum(job.min_resources - job.allocated, 0) if view.rules.admission else job.min_resources


def capability(view: View, queue: Queue) -> Vector:
    """What a queue is limited to, shape (dimensions,); infinite where nothing is said, as for cpu or memory of 0."""
    amounts = view.vector(queue.spec.capability, np.inf)
    for column in (CPU, MEMORY):
        if amounts[column] <= 0:
            amounts[column] = np.inf
    return amounts


def reserved(view: View, job: Job, *, beyond_allocated: bool) -> Vector:
    """What an admitted job still has a claim to: its minResources without what gated pods would take.

    With `beyond_allocated`, and always under strict rules, what it holds already is not counted again.
    """
    assert job.min_resources is not None
    amount = job.min_resources
    if beyond_allocated or view.rules.admission:
        amount = np.maximum(amount - job.allocated, 0)
    gated = [view.request(pod) for pod in view.pending(job) if pod.pod_class.gated]
    return np.maximum(amount - np.sum(gated, axis=0), 0) if gated else amount
