"""A statement: placements that are tried together, and then committed together or taken back.

Operations take effect on the session at once, so that what is tried next sees them; `discard` undoes them in reverse,
`commit` turns them into decisions. `save` and `recover` carry a plan that was tried and discarded to the moment when
it is chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Vector

if TYPE_CHECKING:
    from stromboli.framework.job import Job, SubJob
    from stromboli.framework.session import Session
    from stromboli.state.pods import PodRecord


class Kind(Enum):
    """What an operation does."""

    Allocate = "allocate"
    Pipeline = "pipeline"
    Evict = "evict"


@dataclass(slots=True, eq=False)
class Placement:
    """Pods of one identity class and one job that got, or lose, their nodes; what `on_allocate` handlers are told.

    Nobody changes it; it is not frozen because one is made for each turn of a job.
    """

    kind: Kind
    #: None for a running pod whose PodGroup is not in the session
    job: Job | None
    sub_job: SubJob | None
    pods: Sequence[PodRecord]
    #: index of the node of each pod; -1 for a victim whose node is not there
    nodes: Sequence[int]
    #: what one pod requests, shape (dimensions,)
    request: Vector
    #: why, for evictions: the action's name
    reason: str = ""
    #: on whose behalf, for evictions: the key of a job, empty when it is for the cluster's own good
    beneficiary: str = ""
    #: whether others were evicted to make the place
    after_eviction: bool = False
    #: what evicted pods were before
    before: PodState = PodState.Running

    @property
    def rows(self) -> slice | list[int]:
        """The rows of the pods, as an index into their columns."""
        if len(self.pods) == 1:
            row = self.pods[0].row
            return slice(row, row + 1)
        return [pod.row for pod in self.pods]

    @property
    def total(self) -> Vector:
        """What all the pods request together."""
        return self.request if len(self.pods) == 1 else self.request * len(self.pods)


class Statement:
    """Operations on a session; see the module's docstring."""

    __slots__ = ("_session", "operations")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.operations: list[Placement] = []

    def __bool__(self) -> bool:
        return bool(self.operations)

    def allocate(self, sub_job: SubJob, pods: Sequence[PodRecord], nodes: Sequence[int]) -> None:
        """Give pods of one class nodes that have room for them."""
        self._do(self._placement(Kind.Allocate, sub_job, pods, nodes))

    def pipeline(self, sub_job: SubJob, pod: PodRecord, node: int, *, after_eviction: bool = False) -> None:
        """Promise a pod what terminating pods leave on a node."""
        placement = self._placement(Kind.Pipeline, sub_job, (pod,), (node,))
        self._do(replace(placement, after_eviction=after_eviction))

    def evict(self, pod: PodRecord, reason: str, beneficiary: str = "") -> None:
        """Make a pod give up its place; `reason` names the action, `beneficiary` the job that gets the place."""
        session = self._session
        job = session.jobs.get(pod.job)
        sub_job = session.sub_job_of(job, pod) if job else None
        node = int(session.pods.node[pod.row])
        self._do(
            Placement(
                Kind.Evict,
                job,
                sub_job,
                (pod,),
                (node,),
                session.request(pod),
                reason,
                beneficiary,
                before=PodState(session.pods.state[pod.row]),
            )
        )

    def discard(self) -> None:
        """Take everything back, the last first."""
        for placement in reversed(self.operations):
            self._session.remember_try(placement)
            _undo(self._session, placement)
        self.operations = []

    def commit(self) -> None:
        """Decide: allocated pods are to be bound, evicted ones deleted."""
        for placement in self.operations:
            self._session.commit(placement)
        self.operations = []

    def save(self) -> list[Placement]:
        """The operations, to be recovered after a discard."""
        return list(self.operations)

    def recover(self, operations: Sequence[Placement]) -> None:
        """Do again what was saved."""
        for placement in operations:
            self._do(placement)

    def merge(self, *others: Statement) -> None:
        """Take over the operations of other statements."""
        for other in others:
            self.operations.extend(other.operations)
            other.operations = []

    def _placement(self, kind: Kind, sub_job: SubJob, pods: Sequence[PodRecord], nodes: Sequence[int]) -> Placement:
        return Placement(kind, sub_job.job, sub_job, pods, nodes, self._session.request(pods[0]))

    def _do(self, placement: Placement) -> None:
        _apply(self._session, placement)
        self.operations.append(placement)


_TARGET = {Kind.Allocate: PodState.Allocated, Kind.Pipeline: PodState.Pipelined}


def _apply(session: Session, placement: Placement) -> None:
    if placement.kind is Kind.Evict:
        _set_state(session, placement, placement.before, PodState.Releasing)
        _release(session, placement, +1)
        _tell(session, "on_deallocate", placement)
        return
    target = _TARGET[placement.kind]
    _set_state(session, placement, PodState.Pending, target)
    session.pods.node[placement.rows] = placement.nodes
    _count_on_nodes(session, placement, +1)
    _tell(session, "on_allocate", placement)


def _undo(session: Session, placement: Placement) -> None:
    if placement.kind is Kind.Evict:
        _set_state(session, placement, PodState.Releasing, placement.before)
        _release(session, placement, -1)
        _tell(session, "on_allocate", placement)
        return
    _set_state(session, placement, _TARGET[placement.kind], PodState.Pending)
    session.pods.node[placement.rows] = -1
    _count_on_nodes(session, placement, -1)
    _tell(session, "on_deallocate", placement)


def _release(session: Session, placement: Placement, sign: int) -> None:
    if placement.nodes[0] >= 0:
        session.nodes.release(placement.nodes[0], placement.request, sign)


def _count_on_nodes(session: Session, placement: Placement, sign: int) -> None:
    change = session.nodes.occupy if placement.kind is Kind.Allocate else session.nodes.promise
    scoring = placement.pods[0].pod_class.scoring_request
    if len(placement.nodes) == 1:
        change(placement.nodes[0], placement.request, scoring, sign)
        return
    for node, count in Counter(placement.nodes).items():
        change(node, placement.request, scoring, sign * count)


def _set_state(session: Session, placement: Placement, old: PodState, new: PodState) -> None:
    session.pods.state[placement.rows] = new
    if placement.job is not None and placement.sub_job is not None:
        best_effort = placement.pods[0].pod_class.best_effort
        placement.job.move(placement.sub_job, old, new, len(placement.pods), best_effort)


def _tell(session: Session, point: str, placement: Placement) -> None:
    for method in session.points.all(point):
        try:
            method(placement)
        except Exception as error:
            # the operation is half told: the plugin's figures are wrong from here on, everybody else's are not
            session.disable(error, point)
