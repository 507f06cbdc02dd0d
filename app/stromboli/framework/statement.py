"""A statement: operations that are tried together, and then committed together or taken back.

Operations take effect on the session at once, so that what is tried next sees them; `discard` undoes them in reverse,
`commit` turns them into decisions. `save` and `recover` carry a plan that was tried and discarded to the moment when
it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stromboli.api.pod_state import PodState
from stromboli.framework.job import NOWHERE, Job, SubJob
from stromboli.framework.ledger import Ledger
from stromboli.framework.operation import Kind, Operation
from stromboli.framework.view import View
from stromboli.state.pods import PodRecord


class Statement:
    """Operations on a session, committed or discarded together. A plugin that fails ends one with PluginLeftError."""

    __slots__ = ("_decide", "_ledger", "_located", "_shown", "_view", "operations")

    def __init__(self, view: View, ledger: Ledger, decide: Callable[[Sequence[Operation]], None]) -> None:
        self._view = view
        self._ledger = ledger
        self._decide = decide
        self.operations: list[Operation] = []
        #: the HyperNode of each job and group that this places: the one before, and the one with its pods
        self._located: dict[Job | SubJob, tuple[int, int]] = {}
        #: whether jobs and groups show it
        self._shown = False

    def __bool__(self) -> bool:
        return bool(self.operations)

    def allocate(self, sub_job: SubJob, pods: Sequence[PodRecord], nodes: Sequence[int]) -> None:
        """Give pods of one class nodes that have room for them."""
        self._do(Operation(Kind.Allocate, sub_job.job, sub_job, pods, nodes, self._view.request(pods[0])))

    def pipeline(self, sub_job: SubJob, pod: PodRecord, node: int, *, after_eviction: bool = False) -> None:
        """Promise a pod what terminating pods leave on a node."""
        request = self._view.request(pod)
        self._do(
            Operation(Kind.Pipeline, sub_job.job, sub_job, (pod,), (node,), request, after_eviction=after_eviction)
        )

    def evict(self, pod: PodRecord, reason: str, beneficiary: str = "") -> None:
        """Make a pod give up its place; `reason` names the action, `beneficiary` the job that gets the place."""
        self._do(eviction(self._view, pod, reason, beneficiary))

    def move(self, pod: PodRecord, node: int, beneficiary: str) -> None:
        """Promise a pod that was evicted for a job another place: its replacement is to go there."""
        view = self._view
        job = view.jobs[pod.job]
        origin = int(view.pods.node[pod.row])
        request, sub_job = view.request(pod), view.sub_job_of(job, pod)
        self._do(
            Operation(Kind.Pipeline, job, sub_job, (pod,), (node,), request, beneficiary=beneficiary, origin=origin)
        )

    def locate(self, of: Job | SubJob, hyper_node: int) -> None:
        """Have a job or group lie below a HyperNode, too: until the attempt ends, and for good once committed."""
        before, _ = self._located.get(of, (of.allocated_hyper_node, NOWHERE))
        of.allocated_hyper_node = self._view.topology.lca(of.allocated_hyper_node, hyper_node)
        self._located[of] = before, of.allocated_hyper_node
        self._shown = True

    def end_attempt(self) -> None:
        """Show jobs and groups where they were before, until this is committed."""
        if self._shown:
            self._shown = False
            for of, (before, _) in self._located.items():
                of.allocated_hyper_node = before

    def discard(self) -> None:
        """Take everything back, the last first."""
        self.take_back()
        self._ledger.raise_if_left()

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
        if self._located:
            self._settle()

    def _settle(self) -> None:
        """Have jobs and groups lie where they were located, for good."""
        for of, (_, now) in self._located.items():
            of.allocated_hyper_node = self._view.topology.lca(of.allocated_hyper_node, now)
            if isinstance(of, SubJob):
                of.nominated_hyper_node = NOWHERE
        self._located, self._shown = {}, False

    def save(self) -> list[Operation]:
        """The operations, to be recovered after a discard."""
        return list(self.operations)

    def recover(self, operations: Sequence[Operation]) -> None:
        """Do again what was saved."""
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
            other._located, other._shown = {}, False

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
