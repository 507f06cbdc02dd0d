"""Rehearsals: what successive sessions would decide, and how a cluster would react in between."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

import msgspec
import numpy as np

from stromboli.api import crds, objects
from stromboli.api.decisions import Bind, Decision, Evict, LiftGate, Nominate, SetPodGroupStatus, VolumeUse
from stromboli.api.pod_state import PodState
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.explain.work import AbandonedError, Unasked, Work
from stromboli.framework.cluster.environment import Environment
from stromboli.framework.diagnosis.pod_trace import PodTrace
from stromboli.framework.session.session import Session
from stromboli.kube.dra.extended import special_prefix
from stromboli.kube.dra.holdings import claim_keys
from stromboli.kube.dra.reservation import is_special_of, released, reserved
from stromboli.kube.storage import SELECTED_NODE
from stromboli.kube.volume_reservation import annotated, completed, shown_bound
from stromboli.placement.exact.memory import IN_VAIN
from stromboli.state.cluster import ClusterState
from stromboli.state.nodes import NodeRecord
from stromboli.state.pods import PodRecord, claim_statuses, timestamp

Change: TypeAlias = Callable[[ClusterState], None]
"""Changes a state that is the caller's alone."""

#: subject of a session about the whole cluster, which need not reach any job
NO_JOB = frozenset(("",))
#: sessions until evicted pods have gone and others are in their place
CYCLES = 4


def advance(state: ClusterState, decisions: Iterable[Decision], now: float, *, nominating: bool = True) -> None:
    """Apply decisions as a cluster would: bound pods run, evicted ones are gone, and statuses are written.

    `nominating` says whether the statuses of pods are, in which the node stands that others leave for them.
    """
    for decision in decisions:
        match decision:
            case Bind(node=node):
                status = objects.PodStatus(phase="Running", start_time=timestamp(now))
                state.upsert("Pod", pod_of(_known(state, decision.key), node, status))
                _reserve(state, decision)
            case Nominate(node=node) if nominating:
                status = objects.PodStatus(phase="Pending", nominated_node_name=node)
                state.upsert("Pod", pod_of(_known(state, decision.key), "", status))
            case LiftGate():
                pod = pod_of(_known(state, decision.key), "", objects.PodStatus(phase="Pending"))
                state.upsert("Pod", msgspec.structs.replace(pod, spec=_without_gates(pod.spec)))
            case Evict():
                remove(state, decision.key)
            case SetPodGroupStatus(status=shown):
                pod_group = state.pod_group(decision.key)
                assert isinstance(pod_group, crds.PodGroup)
                state.upsert("PodGroup", pod_group.model_copy(update={"status": shown}))


def _without_gates(spec: objects.PodSpec) -> objects.PodSpec:
    return msgspec.structs.replace(spec, scheduling_gates=None)


def _reserve(state: ClusterState, bind: Bind) -> None:
    """Give the claims of a bound pod their devices and volumes, if these are known."""
    for use in bind.claims:
        claim = state.objects["ResourceClaim"].get(use.key, use.manifest)
        if claim is not None:
            state.upsert("ResourceClaim", reserved(claim, use, bind.name, bind.uid))
    for volume_use in bind.volumes:
        _bind_claim(state, volume_use, bind.node)


def _bind_claim(state: ClusterState, use: VolumeUse, node: str) -> None:
    """Give a claim its volume; for a volume provisioned on demand only the node is known."""
    claim, volume = (
        state.objects["PersistentVolumeClaim"].get(use.key),
        state.objects["PersistentVolume"].get(use.volume),
    )
    if claim is None:
        return
    if volume is None:
        state.upsert("PersistentVolumeClaim", annotated(claim, {SELECTED_NODE: node}))
    else:
        state.upsert("PersistentVolume", {**shown_bound(volume, claim), "status": {"phase": "Bound"}})
        state.upsert("PersistentVolumeClaim", completed(claim, use.volume))


def remove(state: ClusterState, key: str) -> None:
    """Delete a pod, and release the devices that its claims hold for it alone."""
    release(state, _known(state, key))
    state.delete("Pod", key)


def release(state: ClusterState, pod: PodRecord) -> None:
    """Release the devices that a pod's claims hold for it alone."""
    for key in claim_keys(pod):
        claim = state.objects["ResourceClaim"].get(key)
        if claim is not None:
            state.upsert("ResourceClaim", released(claim, pod.uid))
    claims, prefix = state.objects["ResourceClaim"], special_prefix(pod)
    for key in [key for key in claims if key.startswith(prefix)]:
        if is_special_of(claims[key], pod.uid):
            state.delete("ResourceClaim", key)


def _known(state: ClusterState, key: str) -> PodRecord:
    record = state.record(key)
    assert record is not None
    return record


def pod_of(record: PodRecord, node: str, status: objects.PodStatus) -> objects.Pod:
    """A known pod with a new node and status; its conditions stay."""
    return objects.Pod(
        metadata=objects.Metadata(
            name=record.name,
            namespace=record.namespace,
            uid=record.uid,
            creation_timestamp=timestamp(record.created),
            labels=dict(record.labels),
            annotations=dict(record.annotations),
        ),
        spec=msgspec.structs.replace(
            record.pod_class.spec,
            node_name=node,
            priority=record.spec_priority,
            scheduler_name=record.scheduler_name,
            active_deadline_seconds=int(record.deadline) or None,
        ),
        status=msgspec.structs.replace(
            status,
            conditions=list(record.conditions),
            resource_claim_statuses=claim_statuses(record.claim_names),
        ),
    )


def node_of(record: NodeRecord) -> objects.Node:
    """A known node."""
    return objects.Node(
        metadata=objects.Metadata(
            name=record.name, uid=record.uid, labels=dict(record.labels), annotations=dict(record.annotations)
        ),
        spec=objects.NodeSpec(unschedulable=record.unschedulable, taints=list(record.taints)),
        status=objects.NodeStatus(
            allocatable=dict(record.allocatable),
            capacity=dict(record.capacity),
            images=list(record.images),
            declared_features=list(record.declared_features),
            conditions=[objects.NodeCondition("Ready", record.ready)] if record.ready else None,
        ),
    )


@dataclass(slots=True)
class Future:
    """The decisions of the rehearsed sessions, and the last session."""

    #: node by pod
    bound: dict[str, str] = field(default_factory=dict)
    evicted: dict[str, str] = field(default_factory=dict)
    #: on whose behalf each of those is evicted, and by which action
    causes: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: the PodGroups that are in the queue or beyond, by key
    admitted: set[str] = field(default_factory=set)
    #: the job of each pod that is bound or evicted
    jobs: dict[str, str] = field(default_factory=dict)
    session: Session | None = None
    #: decisions of the last session, and inputs of the next one
    result: SessionResult | None = None
    #: whether the last session still decided something
    unsettled: bool = False
    #: steps of the first session
    steps: int = 0
    #: whether that reached but some of the jobs that wait
    in_part: bool = False


class Rehearsal:
    """Tries changes on forks of a state. Nothing outside of it is touched, and no extender is asked."""

    def __init__(
        self,
        engine: Engine,
        state: ClusterState,
        environment: Environment,
        now: float,
        *,
        most_steps: int | None = None,
        late: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take ownership of `state`; `environment` is the one that the next session would get.

        All sessions together take at most `most_steps`, about one for each node looked at; None sets no bound. Once it
        is `late`, optional work is skipped.
        """
        self.engine = engine
        self.state = state
        self._extender = Unasked()
        #: the environment and the time of the next session
        self.environment = replace(environment, extender=self._extender)
        self.now = now
        self._work = Work(most_steps)
        #: the outcome of a session on the unchanged cluster, once it was needed
        self.begun: Future | None = None
        #: whether the caller has waited so long that nothing more should be tried
        self.late = late

    @property
    def sessions(self) -> int:
        """Number of sessions that were run."""
        return self._work.sessions

    @property
    def steps(self) -> int:
        """The steps of these sessions."""
        return self._work.steps

    def after(self, change: Change) -> Rehearsal:
        """A rehearsal on the cluster after a change; its work counts here as well."""
        other = copy(self)
        other.state, other.begun = self.state.fork(), None
        change(other.state)
        return other

    def at(self, now: float) -> Rehearsal:
        """A rehearsal on the unchanged cluster at another time; its work counts here as well."""
        other = copy(self)
        other.now, other.begun = now, None
        return other

    def under(self, engine: Engine) -> Rehearsal:
        """A rehearsal on the unchanged cluster with another engine; its work counts here as well."""
        other = copy(self)
        other.engine, other.begun = engine, None
        return other

    def abandon(self) -> None:
        """End the running session and start no other; may be called from another thread."""
        self._work.abandoned = True

    def step(self, steps: int) -> None:
        """Count work. Raises AbandonedError and TooManyStepsError."""
        self._work.step(steps)

    @property
    def misses_extender(self) -> bool:
        """Whether sessions would have asked an HTTP extender, so that results which depend on it may be wrong."""
        return self._extender.missed

    def session(self, about: Collection[str] = ()) -> Session:
        """A session on the unchanged cluster. Failed searches for gangs are remembered and not repeated.

        With the keys of the jobs that it is `about` it does no more work than a session of the service, however many
        others wait.
        """
        self.begun = (self._about(frozenset(about)) if about else None) or self.run(cycles=1)
        session = self.begun.session
        assert session is not None
        if IN_VAIN in session.actions_left:
            left = {**self.environment.left, IN_VAIN: session.actions_left[IN_VAIN]}
            self.environment = replace(self.environment, left=left)
        return session

    def _about(self, jobs: frozenset[str]) -> Future | None:
        """The next session, with its budget, concentrated on some jobs; None where an unbounded one may decide
        otherwise at little cost.

        If the budget does not reach these jobs, they have the first turns in another session. A job that finds no place
        even then finds none in its own turn; of any other job it is only known that its turn is to come.
        """
        future = self.run(cycles=1, bounded=self.environment)
        session = future.session
        assert session is not None
        budget = session.budget
        if not (budget.without_turn or budget.too_long):
            return None if budget.divided else future
        future.in_part = True
        if jobs.isdisjoint(budget.without_turn | budget.too_long):
            return future
        other = self.run(cycles=1, bounded=_served_first(session, jobs))
        assert other.session is not None
        if not jobs.isdisjoint(other.session.budget.too_long):
            return None
        other.in_part = True
        reached = jobs.isdisjoint(other.session.budget.without_turn)
        return other if reached and _standing(other.session, jobs) == _standing(session, jobs) else future

    def follow(self, trace: PodTrace, change: Change | None = None) -> Session:
        """A session on the cluster as it is, or after a change, that traces a pod."""
        state = self.state.fork()
        if change is not None:
            change(state)
        self._work.sessions += 1
        engine = self.engine.unbounded().watched(self.step)
        result = engine.decide(state.snapshot(), now=self.now, environment=self.environment, follow=trace)
        return result.session

    def run(
        self,
        change: Change | None = None,
        *,
        engine: Engine | None = None,
        bounded: Environment | None = None,
        cycles: int = CYCLES,
        enough: Callable[[Future], bool] = lambda future: False,
        most: float = inf,
    ) -> Future:
        """Decisions after a change, until none are made, they are `enough`, `cycles` sessions are over, or they
        took as many steps as `most`. Sessions that are `bounded` go on from another environment.

        Raises AbandonedError and TooManyStepsError.
        """
        state = self.state.fork()
        if change is not None:
            change(state)
        engine = engine or self.engine
        engine = engine.bounded() if bounded else engine.unbounded()
        future, sessions = Future(), Successive(engine.watched(self.step), bounded or self.environment)
        before = self.steps
        for _ in range(cycles):
            if self._work.abandoned:
                raise AbandonedError
            result = sessions.decide(state.snapshot(), now=self.now)
            future.steps = future.steps or self.steps - before
            self._work.sessions += 1
            future.session, future.result = result.session, result
            _note(future, result.decisions, state)
            future.unsettled = any(isinstance(each, Bind | Evict) for each in result.decisions)
            admitted = any(isinstance(each, SetPodGroupStatus) for each in result.decisions)
            leaving = terminating(state)
            if enough(future) or self.steps - before >= most or not (future.unsettled or admitted or leaving):
                break
            advance(state, result.decisions, self.now)
            for key in leaving:
                remove(state, key)
        return future


def _served_first(session: Session, jobs: frozenset[str]) -> Environment:
    """An environment that puts some jobs first: others had their turns, and other queues are in debt."""
    view, known = session.view, session.view.jobs
    queues = {known[key].queue.name for key in jobs if key in known}
    had = {
        queue.name: frozenset(known.keys_of(np.flatnonzero(known.queue == number))) - jobs
        for number, queue in enumerate(view.queues.values())
        if queue.name in queues and not view.in_strict_order(queue)
    }
    owed = dict.fromkeys((name for name in view.queues if name not in queues), float(view.policy.session.steps))
    environment = view.environment
    turns = {f"turns of {action}": {"had": had, "owed": owed} for action in session.policy.actions}
    return replace(environment, left={**environment.left, **turns})


def _standing(session: Session, jobs: Collection[str]) -> list[object]:
    """The status changes of a session on jobs that it finds places for."""
    found = [session.view.jobs.get(key) for key in sorted(jobs)]
    return [job and (job.pending_phase, tuple(job.counts)) for job in found]


def terminating(state: ClusterState) -> list[str]:
    """The pods that are about to be gone."""
    pods = state.pods
    rows = np.flatnonzero(pods.state[: pods.size] == PodState.Releasing).tolist()
    return [record.key for row in rows if (record := pods.records[row]) is not None]


def _note(future: Future, decisions: Iterable[Decision], state: ClusterState) -> None:
    for decision in decisions:
        match decision:
            case Bind(node=node):
                future.bound[decision.key] = node
            case Evict(node=node):
                future.evicted[decision.key] = node
                future.causes[decision.key] = decision.action, decision.beneficiary
            case SetPodGroupStatus(status=status) if status.phase not in ("", "Pending"):
                future.admitted.add(decision.key)
                continue
            case _:
                continue
        record = state.record(decision.key)
        future.jobs[decision.key] = record.job if record else ""
