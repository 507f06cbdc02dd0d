"""preempt: pods of a starving job evict pods of their own queue.

First jobs among each other, queue by queue: a job's pods are promised places on one statement until it no longer
starves, which is kept when the job may then run. Then pods within each job that starved, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from pydantic import BaseModel, Field

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Stage
from stromboli.framework.action import Action, ErrorCacheArguments
from stromboli.framework.job import Job, Queue
from stromboli.framework.session import Session
from stromboli.framework.topology import has_topology
from stromboli.framework.turns import Turns
from stromboli.state.pods import PodRecord
from stromboli.tactics.candidates import HELD, preempting, search_steps
from stromboli.tactics.cheapest import Market, serve_cheaply
from stromboli.tactics.holders import Holders
from stromboli.tactics.victims import CHOICES, Search, Way, serve


class PreemptArguments(ErrorCacheArguments):
    """Arguments of preempt."""

    compare_nodes: bool = Field(default=False, alias="enableTopologyAwarePreemption")
    """Whether the node whose victims matter least is chosen, with pods given back that need not go."""
    workers: int = Field(default=16, alias="topologyAwarePreemptWorkerNum")
    """Accepted for compatibility."""
    percentage: int = Field(default=10, alias="minCandidateNodesPercentage")
    """How many of the nodes that work are compared, in percent of all nodes."""
    at_least: int = Field(default=1, alias="minCandidateNodesAbsolute")
    at_most: int = Field(default=100, alias="maxCandidateNodesAbsolute")

    def choices(self, nodes: int) -> int:
        """How many of the nodes that work are compared."""
        return min(max(nodes * self.percentage // 100, self.at_least), self.at_most, max(1, nodes))


class Preempt(Action):
    name = "preempt"
    Arguments: ClassVar[type[BaseModel]] = PreemptArguments

    def run(self, session: Session) -> None:
        waiting = self._starving(session)
        if not waiting:
            return
        turns = session.turns(self.name, waiting)
        holders = Holders(session, HELD)
        for _, queue in sorted((session.ask.queue_key(session.view.queues[name]), name) for name in waiting):
            jobs = waiting[queue]
            self._between_jobs(session, holders, turns, session.view.queues[queue], jobs)
            for job in jobs:
                session.attempt(job, partial(self._within_job, session, holders, job), otherwise=None)
        session.end_turns(self.name, turns)

    def _starving(self, session: Session) -> dict[str, list[Job]]:
        """The jobs that may evict others, by queue; those that care where their pods lie evict as gangs only."""
        waiting = {name: [job for job in jobs if not has_topology(job)] for name, jobs in preempting(session).items()}
        return {name: jobs for name, jobs in waiting.items() if jobs}

    def _between_jobs(self, session: Session, holders: Holders, turns: Turns, queue: Queue, jobs: list[Job]) -> None:
        if session.rules.evict_only_what_helps:
            self._cheaply(session, Market(session, holders, self.name, "preemptable"), turns, jobs)
            return
        way = self._way(session)
        releasable = holders.releasable((holders.queue == queue.index) & holders.may_go_for(queue))
        for job in turns.in_order(jobs, session.ask.job_key):
            turn = partial(serve, session, way, job, partial(self._preemptors, session, job), releasable)
            session.serve(turns, job, turn, search_steps(session))

    def _cheaply(self, session: Session, market: Market, turns: Turns, jobs: list[Job]) -> None:
        def turn(job: Job) -> None:
            serve_cheaply(market, job, list(self._preemptors(session, job)))

        for job in turns.in_order(jobs, session.ask.job_key):
            session.serve(turns, job, partial(turn, job), search_steps(session))

    def _preemptors(self, session: Session, job: Job) -> Iterator[PodRecord]:
        """The pods of a job that may evict others, in order."""
        return (pod for pod in _in_order(session, job) if _eligible(session, pod))

    def _within_job(self, session: Session, holders: Holders, job: Job) -> None:
        """Pods evict others of their own job, until one finds no place."""
        if session.rules.evict_only_what_helps and not job.allocated_count:
            return
        pods = _in_order(session, job)
        if not pods:
            return
        way, releasable = (
            self._way(session, own_job=True),
            holders.releasable((holders.job == job.index) & holders.may_go_for(job.queue)),
        )
        for pod in pods:
            statement = session.statement()
            if not _eligible(session, pod) or not Search(session, way, job, pod, releasable).place(statement):
                return
            session.promise(job, [statement])

    def _way(self, session: Session, *, own_job: bool = False) -> Way:
        strict = session.rules.evict_only_what_helps
        arguments = session.policy.action_arguments.get(self.name, PreemptArguments())
        assert isinstance(arguments, PreemptArguments)
        compared = arguments.compare_nodes
        return Way(
            action=self.name,
            point="preemptable",
            scored=True,
            checked=True,
            sparing=strict or compared,
            choices=arguments.choices(len(session.view.nodes)) if compared else CHOICES if strict else 1,
            own_job=own_job,
            needs_victims=compared and not strict,
        )


def _in_order(session: Session, job: Job) -> list[PodRecord]:
    """The pods of a job that wait for a place."""
    return session.ask.in_task_order([pod for pod in session.view.pending(job) if not pod.pod_class.gated])


def _eligible(session: Session, pod: PodRecord) -> bool:
    """Whether a pod may evict others at all."""
    if pod.pod_class.spec.preemption_policy == "Never":
        return False
    if session.rules.evict_only_what_helps or not pod.nominated_node:
        # A place that others already left for the pod is found as one that nobody has to leave.
        return True
    return _may_preempt_again(session, pod)


def _may_preempt_again(session: Session, pod: PodRecord) -> bool:
    """Whether a pod that others were evicted for may evict more, as Volcano has it.

    It may when its nominated node refuses it, room aside, and none of the victims is still on its way out there. A
    pod that no action asked the predicates about yet counts as refused.
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
