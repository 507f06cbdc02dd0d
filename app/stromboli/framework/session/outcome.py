"""The outcome of a session: committed operations become decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stromboli.api.decisions import Bind, ClaimUse, Decision, Evict, VolumeUse
from stromboli.api.pod_state import PodState
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.framework.runtime.questions import Questions
from stromboli.framework.session.breaker import ChurnBreaker
from stromboli.framework.session.ledger import Ledger
from stromboli.state.pods import PodRecord

_NO_ANNOTATIONS: Mapping[str, str] = {}


class Outcome:
    """The decisions of a session so far, in order, and the result for each pod."""

    def __init__(self, view: View, ask: Questions, ledger: Ledger, churn: ChurnBreaker) -> None:
        self._view = view
        self._ask = ask
        self.ledger = ledger
        self._churn = churn
        self.decisions: list[Decision] = []
        #: pods bound and evicted, by key -> node
        self.bound: dict[str, str] = {}
        self.evicted: dict[str, str] = {}
        #: indices of the nodes that they were evicted from
        self.vacated: set[int] = set()
        #: pods evicted, by key
        self.victims: dict[str, PodRecord] = {}
        #: node of each pod that waits for victims of this session to go, by row
        self.promised: dict[int, int] = {}
        #: for each moved pod, by row, the operation that promised it another place
        self.moved: dict[int, Operation] = {}

    def commit(self, operations: Sequence[Operation]) -> None:
        """Turn operations into decisions. Plugins are asked before anything is done."""
        annotations = self._annotations(operations) if self._ask.may_annotate else {}
        claimed = self._view.snapshot.claimed
        claims: Mapping[int, Sequence[ClaimUse]] = {}
        volumes: Mapping[int, Sequence[VolumeUse]] = {}
        for operation in operations:
            pod_class = operation.pods[0].pod_class
            if claimed or pod_class.claims or pod_class.spec.resource_claims:
                claims, volumes = self._claims(operations), self._volumes(operations)
                break
        for operation in operations:
            if operation.kind is Kind.Allocate:
                self._bind(operation, annotations, claims, volumes)
            elif operation.kind is Kind.Evict:
                self._evict(operation)
            elif operation.origin >= 0:
                self.moved[operation.pods[0].row] = operation
            elif operation.after_eviction:
                self.promised[operation.pods[0].row] = operation.nodes[0]
            for pod in operation.pods:
                self.ledger.tried.pop(pod.row, None)

    def commit_held(self, job: Job) -> None:
        """Decide for all pods of a job with a place that earlier turns left undecided."""
        view = self._view
        self.commit(
            [
                Operation(
                    Kind.Allocate,
                    job,
                    view.sub_job_of(job, pod),
                    (pod,),
                    (int(view.pods.node[pod.row]),),
                    view.request(pod),
                )
                for pod in view.members(job)
                if view.pods.state[pod.row] == PodState.Allocated
            ]
        )

    def _annotations(self, operations: Sequence[Operation]) -> dict[int, Mapping[str, str]]:
        """The annotations that pods get with their bindings, by row."""
        return {
            pod.row: self._ask.bind_annotations(pod, node)
            for operation in operations
            if operation.kind is Kind.Allocate
            for pod, node in zip(operation.pods, operation.nodes, strict=True)
        }

    def _claims(self, operations: Sequence[Operation]) -> dict[int, Sequence[ClaimUse]]:
        """The reservations for pods before they are bound, by row."""
        return {
            pod.row: self._ask.bind_claims(pod, node)
            for operation in operations
            if operation.kind is Kind.Allocate and operation.pods[0].pod_class.needs_claims(self._view.snapshot.claimed)
            for pod, node in zip(operation.pods, operation.nodes, strict=True)
        }

    def _volumes(self, operations: Sequence[Operation]) -> dict[int, Sequence[VolumeUse]]:
        """The claims of volumes that are bound before pods are, by row."""
        return {
            pod.row: self._ask.bind_volumes(pod, node)
            for operation in operations
            if operation.kind is Kind.Allocate and operation.pods[0].pod_class.claims
            for pod, node in zip(operation.pods, operation.nodes, strict=True)
        }

    def _bind(
        self,
        operation: Operation,
        annotations: Mapping[int, Mapping[str, str]],
        claims: Mapping[int, Sequence[ClaimUse]],
        volumes: Mapping[int, Sequence[VolumeUse]],
    ) -> None:
        self.ledger.bind(operation)
        self._view.trace.placed(operation.pods)
        for pod, node in zip(operation.pods, operation.nodes, strict=True):
            self.bound[pod.key] = name = self._view.nodes.name(node)
            on_pod = annotations.get(pod.row, _NO_ANNOTATIONS) if annotations else _NO_ANNOTATIONS
            uses = claims.get(pod.row, ()) if claims else ()
            bound = volumes.get(pod.row, ()) if volumes else ()
            self.decisions.append(Bind(pod.namespace, pod.name, pod.uid, name, on_pod, uses, bound))

    def _evict(self, operation: Operation) -> None:
        pod, node = operation.pods[0], operation.nodes[0]
        self.victims[pod.key] = pod
        if node >= 0:
            self.vacated.add(node)
        self._churn.evicted(operation)
        self.evicted[pod.key] = name = self._view.nodes.name(node) if node >= 0 else pod.node_name
        self.decisions.append(Evict(pod.namespace, pod.name, pod.uid, name, operation.reason, operation.beneficiary))
