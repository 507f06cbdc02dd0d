"""The scheduling gate by which a pod waits for room in its queue, as Volcano's webhook puts it on pods that ask for it.

While the gate is there no cluster autoscaler makes nodes for the pod. It is lifted once the queue can allocate the pod,
which a later session then places like any other. Until then its queue keeps what it asks for from other pods.
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
    lifted = session.view.lifted_gates.now
    for pod in session.ask.in_task_order([pod for pod in pods if pod.row not in lifted]):
        room, refusal = session.ask.allocatable(job.queue, pod)
        if room:
            lifted.add(pod.row)
            session.decisions.append(LiftGate(pod.namespace, pod.name, pod.uid))
        elif refusal is not None:
            session.view.trace.pod(pod.row, refusal)
