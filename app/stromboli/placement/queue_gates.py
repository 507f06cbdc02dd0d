"""The scheduling gate by which a pod waits for room in its queue, as Volcano's webhook puts it on pods that ask for it.

While the gate is there no cluster autoscaler makes nodes for the pod. It is lifted once the queue can allocate the pod,
which a later session then places like any other. Until then its room is kept from other gated pods of the queue.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stromboli.api.decisions import LiftGate
from stromboli.api.pod_state import PodState
from stromboli.api.resources import PODS, Vector
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.session.session import Session
from stromboli.state.pods import QUEUE_GATE, PodRecord


def waits_for_queue(pod: PodRecord) -> bool:
    """Whether room in its queue is all that a pod's scheduling gates wait for."""
    gates = [gate.name for gate in pod.pod_class.spec.scheduling_gates or ()]
    return gates == [QUEUE_GATE] and asks_for_gate(pod)


def asks_for_gate(pod: PodRecord) -> bool:
    """Whether a pod has or had the gate by its own will, and so may lose it."""
    return bool(pod.annotations.get(QUEUE_GATE) == "true")


def lift_gates(session: Session, job: Job, pods: Sequence[PodRecord]) -> None:
    """Lift the gates of those of a job's pods that its queue has room for, in their order, if the rules say so."""
    if not session.rules.queue_gates:
        return
    pods = [pod for pod in pods if pod.row not in session.outcome.lifted]
    if not pods:
        return
    kept = _kept(session, job.queue)
    for pod in session.ask.in_task_order(pods):
        request = session.view.request(pod)
        copies = 1 + _covering(request, kept, session.view.counts_pods)
        room, refusal = session.ask.allocatable(job.queue, pod, copies)
        if room < copies:
            if refusal is not None:
                session.view.trace.pod(pod.row, refusal)
            continue
        session.outcome.lifted.add(pod.row)
        session.decisions.append(LiftGate(pod.namespace, pod.name, pod.uid))
        kept = kept + request


def _kept(session: Session, queue: Queue) -> Vector:
    """What pods of a queue ask for whose gates were lifted and that have no place yet, shape (dimensions,)."""
    view = session.view
    jobs = view.jobs.of((view.jobs.queue == queue.index) & (view.jobs.count(PodState.Pending) > 0))
    waiting = (pod for job in jobs for pod in view.pending(job))
    return view.requested(
        pod for pod in waiting if pod.row in session.outcome.lifted or (not pod.pod_class.gated and asks_for_gate(pod))
    )


def _covering(request: Vector, amount: Vector, pods: bool) -> int:
    """How many copies of a request are no less than an amount, where the request asks for something."""
    asked = request > 0
    asked[PODS] = pods
    return int(np.ceil(amount[asked] / request[asked]).max(initial=0))
