"""A statement: operations that are tried together, and then committed or undone together.

Operations take effect on the session at once, so that the next trial sees them; `discard` undoes them in reverse,
`commit` turns them into decisions. `save` and `recover` keep a plan that was tried and discarded until it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stromboli.api.pod_state import PodState
from stromboli.framework.cluster.job import NOWHERE, Job, SubJob
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.framework.session.ledger import Ledger
from stromboli.state.pods import PodRecord


class Statement:
    """Operations on a session, committed or discarded together. A plugin that fails ends one with PluginLeftError."""

    __slots__ = ("_anchored", "_decide", "_ledger", "_located", "_nominated", "_shown", "_view", "operations")

    def __init__(self, view: View, ledger: Ledger, decide: Callable[[Sequence[Operation]], None]) -> None:
        self._view = view
        self._ledger = ledger
        self._decide = decide
        self.operations: list[Operation] = []
        #: the HyperNode of each job and group that this places: the one before, and the one with its pods
        self._located: dict[Job | SubJob, tuple[int, int]] = {}
        #: whether jobs and groups show it
        self._shown = False
        #: the groups whose anchor this changed
        self._anchored: set[SubJob] = set()
        #: the HyperNode that is nominated for a group once this is committed
        self._nominated: dict[SubJob, int] = {}

    def __bool__(self) -> bool:
        return bool(self.operations)

    def allocate(self, sub_job: SubJob, pods: Sequence[PodRecord], nodes: Sequence[int]) -> None:
        """Give pods of one class nodes on which they fit."""
        self._do(Operation(Kind.Allocate, sub_job.job, sub_job, pods, nodes, self._view.request(pods[0])))

    def pipeline(self, sub_job: SubJob, pod: PodRecord, node: int, *, after_eviction: bool = False) -> None:
        """Promise a pod the amounts of terminating pods on a node."""
        request = self._view.request(pod)
        self._do(
            Operation(Kind.Pipeline, sub_job.job, sub_job, (pod,), (node,), request, after_eviction=after_eviction)
        )

    def evict(self, pod: PodRecord, reason: str, beneficiary: str = "") -> None:
        """Make a pod give up its place; `reason` names the action, `beneficiary` the job that gets the place."""
        self._do(eviction(self._view, pod, reason, beneficiary))

    def move(self, pod: PodRecord, node: int, beneficiary: str) -> None:
        """Promise another place to a pod that was evicted for a job, for its replacement."""
        view = self._view
        job = view.jobs[pod.job]
        origin = int(view.pods.node[pod.row])
        request, sub_job = view.request(pod), view.sub_job_of(job, pod)
        self._do(
            Operation(Kind.Pipeline, job, sub_job, (pod,), (node,), request, beneficiary=beneficiary, origin=origin)
        )

    def locate(self, of: Job | SubJob, hyper_node: int) -> None:
        """Extend the location of a job or group to a HyperNode until the attempt ends, or for good if committed."""
        before, _ = self._located.get(of, (of.allocated_hyper_node, NOWHERE))
        of.allocated_hyper_node = self._view.topology.lca(of.allocated_hyper_node, hyper_node)
        self._located[of] = before, of.allocated_hyper_node
        self._shown = True

    def anchor(self, sub_job: SubJob, hyper_node: int) -> None:
        """Place the next pods of a group near a HyperNode, until the attempt ends."""
        sub_job.anchor = hyper_node
        self._anchored.add(sub_job)

    def nominate(self, sub_job: SubJob, hyper_node: int) -> None:
        """Once this is committed, a HyperNode is nominated for a group, or none if it got its places."""
        self._nominated[sub_job] = hyper_node

    def end_attempt(self) -> None:
        """Show jobs and groups where they were before, until this is committed."""
        if self._shown:
            self._shown = False
            for of, (before, _) in self._located.items():
                of.allocated_hyper_node = before
        if self._anchored:
            self._release_anchors()

    def _release_anchors(self) -> None:
        for sub_job in self._anchored:
            sub_job.anchor = sub_job.allocated_hyper_node
        self._anchored.clear()

    def discard(self) -> None:
        """Take everything back, the last first."""
        self.take_back()
        self._ledger.raise_if_left()

    def give_up_nomination(self, sub_job: SubJob) -> None:
        """Take everything back: some pod of a group cannot have its nominated node, so none is held to it any more."""
        sub_job.nominated_hyper_node, sub_job.nominations_void = NOWHERE, True
        self.discard()

    def take_back(self) -> None:
        """Take everything back after a failure: a plugin that fails now, too, is left out without an error."""
        for operation in reversed(self.operations):
            for pod in operation.pods:
                self._ledger.tried[pod.row] = operation
            self._ledger.undo(operation)
        self.operations = []
        self.end_attempt()

    def commit(self) -> None:
        """Decide: allocated pods are to be bound, evicted ones deleted. All of it, or nothing when a plugin fails."""
        self._decide(self.operations)
        self.operations = []
        if self._located or self._nominated or self._anchored:
            self._settle()

    def _settle(self) -> None:
        """Make the locations and nominated HyperNodes of jobs and groups permanent."""
        for of, (_, now) in self._located.items():
            of.allocated_hyper_node = self._view.topology.lca(of.allocated_hyper_node, now)
            if isinstance(of, SubJob):
                of.anchor, of.nominated_hyper_node = of.allocated_hyper_node, NOWHERE
        for sub_job, hyper_node in self._nominated.items():
            sub_job.nominated_hyper_node = hyper_node
        self._located, self._shown, self._nominated = {}, False, {}
        self._release_anchors()

    def save(self) -> list[Operation]:
        """The operations, to be recovered after a discard."""
        return list(self.operations)

    def recover(self, operations: Sequence[Operation]) -> None:
        """Redo saved operations."""
        for operation in operations:
            self._do(operation)

    def merge(self, *others: Statement) -> None:
        """Take over the operations of other statements."""
        for other in others:
            self.operations.extend(other.operations)
            other.operations = []
            for of, (before, now) in other._located.items():
                first, _ = self._located.get(of, (before, NOWHERE))
                self._located[of] = first, now
            self._shown = self._shown or other._shown
            self._anchored |= other._anchored
            self._nominated |= other._nominated
            other._located, other._shown, other._anchored, other._nominated = {}, False, set(), {}

    def _do(self, operation: Operation) -> None:
        self.operations.append(operation)
        self._ledger.apply(operation)
        if self._ledger.left:
            self._ledger.raise_if_left()


def eviction(view: View, pod: PodRecord, reason: str, beneficiary: str = "") -> Operation:
    """The eviction of a pod as things are."""
    job = view.job_of(pod)
    return Operation(
        Kind.Evict,
        job,
        view.sub_job_of(job, pod) if job else None,
        (pod,),
        (int(view.pods.node[pod.row]),),
        view.request(pod),
        reason,
        beneficiary,
        before=PodState(view.pods.state[pod.row]),
    )
