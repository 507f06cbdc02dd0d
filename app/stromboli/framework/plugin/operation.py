"""An operation: pods of one class that get, or lose, their nodes. Statements consist of them, plugins are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Vector
from stromboli.framework.cluster.job import Job, SubJob
from stromboli.state.pods import PodRecord


class Kind(Enum):
    """Kind of an operation."""

    Allocate = "allocate"
    Pipeline = "pipeline"
    Evict = "evict"


@dataclass(slots=True, eq=False)
class Operation:
    """Pods of one identity class and one job that got, or lose, their nodes.

    It is never changed; it is not frozen because one is made for each turn of a job.
    """

    kind: Kind
    #: None for a running pod whose PodGroup is not in the session
    job: Job | None
    sub_job: SubJob | None
    pods: Sequence[PodRecord]
    #: index of the node of each pod; -1 for a victim whose node is not there
    nodes: Sequence[int]
    #: request of one pod, shape (dimensions,)
    request: Vector
    #: why, for evictions: the action's name
    reason: str = ""
    #: on whose behalf, for evictions: the key of a job, empty when it is for the cluster's own good
    beneficiary: str = ""
    #: whether others were evicted to make the place
    after_eviction: bool = False
    #: states of evicted pods before
    before: PodState = PodState.Running
    #: the node that a moved pod is evicted from, when its replacement is promised a place here; -1 for all others
    origin: int = -1

    @property
    def rows(self) -> slice | list[int]:
        """The rows of the pods, as an index into their columns."""
        if len(self.pods) == 1:
            row = self.pods[0].row
            return slice(row, row + 1)
        return [pod.row for pod in self.pods]

    @property
    def total(self) -> Vector:
        """The summed requests of all the pods."""
        return self.request if len(self.pods) == 1 else self.request * len(self.pods)
