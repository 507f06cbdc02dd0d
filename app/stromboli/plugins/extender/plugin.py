"""The plugin: each configured verb is called at its extension point, for pods that the extender manages.

The plugin does no I/O itself: the session's environment provides a transport. What an error means depends on the
extension point and on `extender.ignorable`; under the rule `extender_errors` an error never means yes, and an ignorable
error counts as no answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api.duration import Duration
from stromboli.api.objects import Container
from stromboli.api.reasons import Actionable, Passage, Reason, Stage
from stromboli.api.resources import Vector
from stromboli.framework.cluster.environment import ExtenderError
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin, Verdict, Vote
from stromboli.framework.plugin.causes import Filters, Passing
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.plugin.report import Report
from stromboli.plugins.extender import wire
from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads

#: why a node is refused, and whether evictions may help
Refusal: TypeAlias = tuple[str, bool]

_NO_ANSWER = "an extender did not answer"


class ExtenderArguments(Arguments):
    """Arguments of extender. A verb without a path is not called."""

    url_prefix: str = Field(default="", alias="extender.urlPrefix")
    """URL of the extender; verbs are paths below it."""
    http_timeout: Duration = Field(default=1.0, alias="extender.httpTimeout", gt=0, le=60)
    """Timeout of a request."""
    ignorable: bool = Field(default=False, alias="extender.ignorable")
    """Whether scheduling continues without the extender's answer."""
    managed_resources: list[str] = Field(default_factory=list, alias="extender.managedResources")
    """The extender is asked only about pods that request one of these; by default about all."""
    on_session_open: str = Field(default="", alias="extender.onSessionOpenVerb")
    on_session_close: str = Field(default="", alias="extender.onSessionCloseVerb")
    predicate: str = Field(default="", alias="extender.predicateVerb")
    prioritize: str = Field(default="", alias="extender.prioritizeVerb")
    preemptable: str = Field(default="", alias="extender.preemptableVerb")
    reclaimable: str = Field(default="", alias="extender.reclaimableVerb")
    queue_overused: str = Field(default="", alias="extender.queueOverusedVerb")
    job_enqueueable: str = Field(default="", alias="extender.jobEnqueueableVerb")
    job_enqueued: str = Field(default="", alias="extender.jobEnqueuedVerb")
    job_ready: str = Field(default="", alias="extender.jobReadyVerb")
    allocate: str = Field(default="", alias="extender.allocateFuncVerb")
    deallocate: str = Field(default="", alias="extender.deallocateFuncVerb")


class Extender(Plugin):
    name = "extender"
    #: enabled: a configured extender must take part
    protects = True
    #: encoded pods by class; pods that vary are encoded individually
    reads = Reads(
        fields=("priority_class_name", "host_network", "runtime_class_name"),
        kept=("volcano.sh/", "scheduling.k8s.io/", "scheduling.volcano.sh/", "nvidia.com/"),
    )
    Arguments: ClassVar[type[BaseModel]] = ExtenderArguments

    def open(self, view: View) -> None:
        self._view = view
        self._verbs: ExtenderArguments = self.arguments
        self._managed = frozenset(self.arguments.managed_resources)
        self._ignorable = bool(self.arguments.ignorable)
        self._strict = view.rules.extender_errors
        #: node -> pod -> why it is refused; dropped when the node changes
        self._refusals: dict[int, dict[int, Refusal | None]] = {}
        #: the last answer about each job, and its number of pods by state at that time
        self._ready: dict[str, tuple[list[int], bool]] = {}
        verb = self._verbs.on_session_open
        if verb and not self._tell(verb, wire.everything(view)) and not self._ignorable:
            self._verbs = ExtenderArguments()

    def close(self, report: Report) -> None:
        if self._verbs.on_session_close:
            self._tell(self._verbs.on_session_close, {})

    # -- queues and jobs -----------------------------------------------------------------------------------------

    def overused(self, queue: Queue) -> Reason | None:
        if not self._verbs.queue_overused:
            return None
        try:
            answer = self._ask(wire.OverusedAnswer, self._verbs.queue_overused, {"queue": wire.queue(queue)})
        except ExtenderError as error:
            return None if self._ignorable else _no_answer(Stage.QueueShare, error)
        if not answer.overused:
            return None
        message = f"an extender reports that queue {queue.name} is overused"
        return Reason(Stage.QueueShare, "QueueOverused", message, Actionable.Wait)

    def job_enqueueable(self, job: Job) -> Verdict:
        if not self._verbs.job_enqueueable:
            return Vote.Abstain
        try:
            payload = {"job": wire.job(self._view, job)}
            answer = self._ask(wire.VoteAnswer, self._verbs.job_enqueueable, payload)
        except ExtenderError as error:
            if not self._ignorable:
                return _no_answer(Stage.Admission, error)
            return Vote.Abstain if self._strict else Vote.Permit
        if answer.status >= 0:
            return Vote.Permit if answer.status else Vote.Abstain
        message = f"an extender does not admit {job.title}"
        return Reason(Stage.Admission, "RefusedByExtender", message, Actionable.Wait)

    def job_enqueued(self, job: Job) -> None:
        if self._verbs.job_enqueued:
            self._tell(self._verbs.job_enqueued, {"job": wire.job(self._view, job)})

    def job_missing(self, job: Job) -> int:
        if not self._verbs.job_ready:
            return 0
        counts, ready = self._ready.get(job.key, ([], False))
        if counts != job.counts:
            ready = self._is_ready(job)
            self._ready[job.key] = list(job.counts), ready
        return 0 if ready else 1

    def _is_ready(self, job: Job) -> bool:
        try:
            payload = {"job": wire.job(self._view, job)}
            return self._ask(wire.ReadyAnswer, self._verbs.job_ready, payload).status
        except ExtenderError:
            # Volcano does the reverse: an error that must not be ignored makes the job ready.
            return self._ignorable is self._strict

    # -- victims -------------------------------------------------------------------------------------------------

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord] | None:
        return self._victims(self._verbs.preemptable, pod, candidates)

    def reclaimable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord] | None:
        return self._victims(self._verbs.reclaimable, pod, candidates)

    def _victims(self, verb: str, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord] | None:
        """The candidates that the extender permits as victims; None if it has no opinion."""
        if not verb or not self._manages(pod.pod_class):
            return None
        tasks = [wire.task(self._view, candidate) for candidate in candidates]
        payload = {"evictor": wire.task(self._view, pod), "evictees": tasks}
        try:
            answer = self._ask(wire.VictimsAnswer, verb, payload)
        except ExtenderError:
            return None if self._ignorable and self._strict else []
        if answer.status == 0:
            return None
        named = {victim.uid for victim in answer.victims}
        return [candidate for candidate in candidates if candidate.uid in named]

    # -- nodes ---------------------------------------------------------------------------------------------------

    def varies(self, pod: PodRecord) -> bool:
        verbs = self._verbs
        return bool(verbs.predicate or verbs.prioritize or verbs.allocate) and self._manages(pod.pod_class)

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        if not self._verbs.predicate or not self._manages(pod.pod_class):
            return
        refusals = [self._refusal_of(pod, row) for row in nodes.rows.tolist()]
        for refusal in sorted({each for each in refusals if each is not None}):
            message, passing = refusal
            cause = f"an extender refused node(s): {message}"
            yield Passing(cause) if passing else cause, np.array([each != refusal for each in refusals])

    def _refusal_of(self, pod: PodRecord, row: int) -> Refusal | None:
        """Why the extender refuses a node, None if it does not."""
        known = self._refusals.setdefault(row, {})
        if pod.row not in known:
            payload = {"task": wire.task(self._view, pod), "node": wire.node(self._view, row)}
            try:
                answer = self._ask(wire.PredicateAnswer, self._verbs.predicate, payload)
                known[pod.row] = (answer.status, answer.code == wire.UNSCHEDULABLE) if answer.status else None
            except ExtenderError:
                known[pod.row] = None if self._ignorable else (_NO_ANSWER, False)
        return known[pod.row]

    def batch_node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        if not self._verbs.prioritize or not self._manages(pod.pod_class):
            return None
        rows = nodes.rows.tolist()
        payload = {
            "task": wire.task(self._view, pod),
            "nodes": [wire.node(self._view, row) for row in rows],
        }
        try:
            answer = self._ask(wire.PrioritizeAnswer, self._verbs.prioritize, payload)
        except ExtenderError:
            return None if self._ignorable else self._unscored(len(rows))
        if answer.error or answer.scores is None:
            return self._unscored(len(rows))
        return np.array([answer.scores.get(self._view.nodes.name(row), 0.0) for row in rows], np.float64)

    def _unscored(self, count: int) -> Vector | None:
        """An error means no scores under our rules; Volcano then chooses no node at all."""
        return None if self._strict else np.full(count, -np.inf)

    # -- placements ----------------------------------------------------------------------------------------------

    def refusal(self, pod: PodRecord, node: int) -> Reason | None:
        """Why a pod must not use the node that was chosen."""
        if not self._verbs.allocate or not self._manages(pod.pod_class):
            return None
        try:
            payload = {"task": wire.task(self._view, pod, node)}
            message = self._ask(wire.EventAnswer, self._verbs.allocate, payload).error
        except ExtenderError as error:
            return None if self._ignorable else _no_answer(Stage.Placement, error)
        if not message:
            return None
        return Reason(Stage.Placement, "RefusedByExtender", f"an extender refused the node: {message}", Actionable.Wait)

    def on_allocate(self, operation: Operation) -> None:
        self._forget(operation)

    def on_deallocate(self, operation: Operation) -> None:
        self._forget(operation)
        if self._verbs.deallocate:
            for pod in operation.pods:
                if self._manages(pod.pod_class):
                    self._tell(self._verbs.deallocate, {"task": wire.task(self._view, pod)})

    def _forget(self, operation: Operation) -> None:
        for node in operation.nodes:
            self._refusals.pop(node, None)

    # -- calls ---------------------------------------------------------------------------------------------------

    def _manages(self, pod_class: PodClass) -> bool:
        if not self._managed:
            return True
        spec = pod_class.spec
        return any(self._names(container) for container in (*(spec.containers or ()), *(spec.init_containers or ())))

    def _names(self, container: Container) -> bool:
        resources = container.resources
        if resources is None:
            return False
        return not self._managed.isdisjoint((resources.requests or {}).keys() | (resources.limits or {}).keys())

    def _ask(self, model: type[wire.AnyAnswer], verb: str, payload: Mapping[str, Any]) -> wire.AnyAnswer:
        """The response to a verb. Raises ExtenderError."""
        return wire.parse(model, self._post(verb, payload))

    def _tell(self, verb: str, payload: Mapping[str, Any]) -> bool:
        """Send a request without response; returns whether it arrived."""
        try:
            self._post(verb, payload)
        except ExtenderError:
            return False
        return True

    def _post(self, verb: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        transport = self._view.extender()
        if transport is None:
            raise ExtenderError("extenders cannot be reached from here")
        url = f"{self.arguments.url_prefix.rstrip('/')}/{verb}"
        return transport.post(url, payload, self.arguments.http_timeout)


def _no_answer(stage: Stage, error: ExtenderError) -> Reason:
    # What a server says may name anything, as may the address at which it was asked.
    said = (Passage(("",), str(error), ""),)
    return Reason(stage, "ExtenderFailed", _NO_ANSWER, Actionable.Admin, passages=said)
