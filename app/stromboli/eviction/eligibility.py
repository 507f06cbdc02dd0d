"""Which pods may be evicted at all."""

from __future__ import annotations

from stromboli.api import crds
from stromboli.api.resources import Mask
from stromboli.framework.cluster.jobs import Jobs
from stromboli.framework.session.session import Session
from stromboli.state.pods import PREEMPTABLE, PodRecord

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
#: the priority of the class system-cluster-critical
_CRITICAL = 2_000_000_000


def preemptable(of: PodRecord | crds.Metadata) -> bool:
    """Whether a pod, or a PodGroup by its metadata, may be evicted. It may unless a label or annotation forbids it."""
    # Read of every pod that runs: the methods of `Annotations` that refuse undeclared keys take as long as all else.
    said = dict.get(of.annotations, PREEMPTABLE) if of.annotations else None
    if said is None and PREEMPTABLE in of.labels:
        said = of.labels[PREEMPTABLE]
    return said is None or said in _TRUE


def agreeing(jobs: Jobs) -> Mask:
    """Mask of jobs whose PodGroups permit eviction, shape (jobs,)."""
    return jobs.holds("preemptable", lambda group: preemptable(group.metadata))


def agrees(session: Session, pod: PodRecord) -> bool:
    """Whether a pod may be evicted as far as it says, and its PodGroup where vetoes of PodGroups count."""
    if not preemptable(pod) or pod.job in session.aside:
        return False
    job = session.view.jobs.get(pod.job) if session.ask.heeds_vetoes else None
    return job is None or preemptable(job.pod_group.metadata)


def critical(pod: PodRecord) -> bool:
    """Whether a pod is critical to the cluster: in kube-system, or with the priority of a system priority class."""
    return pod.namespace == "kube-system" or (pod.spec_priority or 0) >= _CRITICAL
