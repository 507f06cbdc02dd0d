"""preempt: pods of a starving job evict pods of their own queue.

First between jobs, queue by queue: the pods of a job are promised places on one statement until the job no longer
starves, and the statement is committed if the job may then run. Then within each job that starved, pod by pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from typing import ClassVar

from pydantic import BaseModel, Field

from stromboli.api.pod_state import HELD, PodState
from stromboli.api.reasons import Stage
from stromboli.eviction import first_fit
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.first_fit import FirstFit
from stromboli.eviction.held_amounts import HeldAmounts
from stromboli.eviction.pod_index import PodIndex
from stromboli.eviction.preemptors import evicting_pods, preempting, search_steps
from stromboli.eviction.search import evict_for_job, evict_within
from stromboli.framework.action import Action, ErrorCacheArguments
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.topology import has_topology
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord


class PreemptArguments(ErrorCacheArguments):
    """Arguments of preempt."""

    compare_nodes: bool = Field(default=False, alias="enableTopologyAwarePreemption")
    """Whether the node whose victims matter least is chosen, with unnecessary victims given back."""
    workers: int = Field(default=16, alias="topologyAwarePreemptWorkerNum")
    """Accepted for compatibility."""
    percentage: int = Field(default=10, alias="minCandidateNodesPercentage")
    """Number of candidate nodes that are compared, in percent of all nodes."""
    at_least: int = Field(default=1, alias="minCandidateNodesAbsolute")
    at_most: int = Field(default=100, alias="maxCandidateNodesAbsolute")

    def choices(self, nodes: int) -> int:
        """Number of candidate nodes to compare, out of `nodes`."""
        return min(max(nodes * self.percentage // 100, self.at_least), self.at_most, max(1, nodes))


class Preempt(Action):
    name = "preempt"
    Arguments: ClassVar[type[BaseModel]] = PreemptArguments

    def run(self, session: Session) -> None:
        waiting = self._starving(session)
        if not waiting:
            return
        turns = session.budget.turns(self.name, waiting, search_steps(session))
        search = self._search(session)
        for _, name in sorted((session.ask.queue_key(session.view.queues[name]), name) for name in waiting):
            search.begin(session.view.queues[name])
            for job in turns.in_order(waiting[name], session.ask.job_key):
                session.budget.serve(turns, job, partial(search.between_jobs, job), search_steps(session))
            for job in waiting[name]:
                session.attempt(job, partial(search.within_job, job), otherwise=None)
        session.budget.end(self.name, turns)

    def _starving(self, session: Session) -> dict[str, list[Job]]:
        """The jobs that may evict others, by queue; under Volcano's rules none with a network topology."""
        if not session.rules.first_fit:
            return preempting(session)
        waiting = {name: [job for job in jobs if not has_topology(job)] for name, jobs in preempting(session).items()}
        return {name: jobs for name, jobs in waiting.items() if jobs}

    def _search(self, session: Session) -> _AtMinCost | _FirstFit:
        if not session.rules.first_fit:
            return _AtMinCost(session, self.name)
        arguments = session.policy.action_arguments.get(self.name, PreemptArguments())
        assert isinstance(arguments, PreemptArguments)
        compared = arguments.choices(len(session.view.nodes)) if arguments.compare_nodes else 0
        return _FirstFit(session, self.name, compared)


class _AtMinCost:
    """Pods are evicted at the least cost, and only where the preemptors then fit."""

    def __init__(self, session: Session, action: str) -> None:
        self._session = session
        self._action = action
        self._pod_index = PodIndex(session, HELD)

    def begin(self, queue: Queue) -> None:
        self._context = PreemptionContext(self._session, self._pod_index, self._action, "preemptable")

    def between_jobs(self, job: Job) -> None:
        """Pods of a job evict less important ones of others."""
        evict_for_job(self._context, job, partial(evicting_pods, self._session, job))

    def within_job(self, job: Job) -> None:
        """Pods of a job evict less important ones of it."""
        pods = _in_order(self._session, job) if job.allocated_count and not has_topology(job) else []
        evict_within(self._context, job, takewhile(_may_preempt, pods))


class _FirstFit:
    """Pods are evicted on the first node that works, or on the best of some that do."""

    def __init__(self, session: Session, action: str, compared: int) -> None:
        self._session = session
        self._context = PreemptionContext(session, PodIndex(session, HELD), action, "preemptable")
        self._compared = compared

    def begin(self, queue: Queue) -> None:
        index = self._context.pod_index
        self._held = HeldAmounts(self._session, index, (index.queue == queue.index) & index.may_go_for(queue))

    def between_jobs(self, job: Job) -> None:
        """Pods of a job evict pods of others."""
        preemptors = partial(self._preemptors, job)
        first_fit.evict_for_pods(self._context, job, preemptors, self._held, compared=self._compared)

    def within_job(self, job: Job) -> None:
        """Pods of a job evict others of it, until one finds no place."""
        session, context, index = self._session, self._context, self._context.pod_index
        pods = _in_order(session, job)
        if not pods:
            return
        held = HeldAmounts(session, index, (index.job == job.index) & index.may_go_for(job.queue))
        for pod in pods:
            statement = session.statement()
            search = FirstFit(context, job, pod, held, self._compared, own_job=True)
            if not self._eligible(pod) or not search.place(statement):
                return
            context.promise(job, [statement])

    def _preemptors(self, job: Job) -> Iterator[PodRecord]:
        return (pod for pod in _in_order(self._session, job) if self._eligible(pod))

    def _eligible(self, pod: PodRecord) -> bool:
        return _may_preempt(pod) and (not pod.nominated_node or _may_preempt_again(self._session, pod))


def _in_order(session: Session, job: Job) -> list[PodRecord]:
    """The pods of a job that wait for a place."""
    return session.ask.in_task_order([pod for pod in session.view.pending(job) if not pod.pod_class.gated])


def _may_preempt(pod: PodRecord) -> bool:
    """Whether a pod may evict others at all. A place that evictions freed for it before counts as free."""
    return pod.pod_class.spec.preemption_policy != "Never"


def _may_preempt_again(session: Session, pod: PodRecord) -> bool:
    """Whether a pod for which others were already evicted may evict more, as in Volcano.

    It may if its nominated node rejects it for reasons other than amounts and no victim is still terminating there. A
    pod about which no action has asked the predicates yet counts as rejected.
    """
    node = session.view.nodes.facts.index.get(pod.nominated_node)
    if node is None:
        return False
    why = session.view.trace.pods.get(pod.row)
    asked = pod.row in session.ledger.tried or (why is not None and why.stage is Stage.Placement)
    if (asked or not session.kernel.filters) and session.kernel.feasible(pod)[node]:
        return False
    return not any(_leaves_for_another(other, pod) for other in _terminating(session, node))


def _terminating(session: Session, node: int) -> list[PodRecord]:
    pods = session.view.pods
    return session.view.records(((pods.node == node) & (pods.state == PodState.Releasing)).nonzero()[0])


def _leaves_for_another(pod: PodRecord, preemptor: PodRecord) -> bool:
    """Whether a pod was evicted by a scheduler and is less important than a preemptor."""
    target = next((c for c in pod.conditions if c.type == "DisruptionTarget"), None)
    return (
        (pod.spec_priority or 0) < (preemptor.spec_priority or 0)
        and target is not None
        and (target.status, target.reason) == ("True", "PreemptionByScheduler")
    )
