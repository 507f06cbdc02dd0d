"""The scheduling gate by which a pod waits until its queue may allocate it, which Volcano's webhook adds on request.

While the gate is there, no cluster autoscaler adds nodes for the pod. It is removed once the queue can allocate the
pod, which a later session then places like any other. Until then its queue reserves the pod's request against other
pods.
"""

from __future__ import annotations

from collections.abc import Sequence

from stromboli.api.decisions import LiftGate
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord


def lift_gates(session: Session, job: Job, pods: Sequence[PodRecord]) -> None:
    """Lift the gates of those of a job's pods that its queue can allocate, in their order, if the rules say so."""
    if not session.rules.queue_gates:
        return
    lifted = session.view.lifted_gates
    for pod in session.ask.in_task_order([pod for pod in pods if pod.row not in lifted.now]):
        allowed, refusal = session.ask.allocatable(job.queue, pod)
        if allowed:
            lifted.lift(pod.row)
            session.decisions.append(LiftGate(pod.namespace, pod.name, pod.uid))
        elif refusal is not None:
            session.view.trace.pod(pod.row, refusal)
