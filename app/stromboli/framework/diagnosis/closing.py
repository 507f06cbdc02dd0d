"""The end of a session: what PodGroups and queues show from now on, and a reason for every pod without a place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from stromboli.api.crds import Condition, PodGroup, PodGroupCondition, PodGroupStatus
from stromboli.api.decisions import (
    Decision,
    EmitEvent,
    Evict,
    Nominate,
    RequestNodes,
    SetPodGroupStatus,
    SetPodUnscheduled,
    SetQueueStatus,
)
from stromboli.api.objects import refusal
from stromboli.api.pod_state import PodState
from stromboli.api.reasons import OncePerReason, Reason
from stromboli.api.resources import Dimensions, Vector
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job, Queue, title_of
from stromboli.framework.diagnosis.explain import Evictions, may_compare, no_such_queue, waiting
from stromboli.framework.diagnosis.telling import WAITING_PHASES, lost_to_tell, to_tell
from stromboli.framework.plugin.report import with_condition
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord

# int: the members themselves are slow to get at before Python 3.12
_RUNNING, _SUCCEEDED, _FAILED = int(PodState.Running), int(PodState.Succeeded), int(PodState.Failed)
_READY = Condition(type="Ready", status="True", reason="Open", message="the queue takes new work")
_OVERUSED = Condition(type="Overused", status="True", reason="Overused", message="the queue holds all that it deserves")
#: the type of the condition about fields that have no effect
_IGNORED = "FieldIgnored"
#: under which name it is left to the next session why PodGroups without pods are not admitted, by key
_TOLD = "told of jobs without pods"
#: kinds of pods that a ProvisioningRequest may be for
_MOST_KINDS = 32
_WAITING = (PodState.Pending, PodState.Allocated, PodState.Pipelined)


def close(session: Session, *, tells: bool = True) -> None:
    """Add the status decisions that differ from the snapshot, and explain each eviction.

    Without `tells` only what later sessions rely on is added: pods get no reason why they have no place, no nodes are
    requested, and queue statuses are left alone.
    """
    if session.outcome.victims:
        rules = Evictions(session)
        session.decisions = [
            replace(each, why=rules.why(session.outcome.victims[each.key], each.action, each.beneficiary))
            if isinstance(each, Evict)
            else each
            for each in session.decisions
        ]
    for job in to_tell(session):
        job.phase = phase(job)
        if _differs(job):
            minor = _is_minor(job)
            session.decisions.append(SetPodGroupStatus(job.namespace, job.name, pod_group_status(job), minor))
            session.decisions += () if minor else _news(job.pod_group, job.conditions)
    if tells:
        session.decisions += _of_lost_groups(session)
        session.decisions += _of_empty_groups(session)
        session.decisions += _unscheduled(session)
        quantities = _Quantities(session)
        for name, held in session.view.by_queue(session.view.membership.allocated_now()).items():
            session.decisions += _of_queue(session, session.view.queues[name], quantities.of(held))
    session.decisions += _paused(session)
    for row, node in _promised(session).items():
        pod, name = session.view.record(row), session.view.nodes.name(node)
        if pod.nominated_node != name:
            session.decisions.append(Nominate(pod.namespace, pod.name, pod.uid, name))


def _paused(session: Session) -> Iterator[EmitEvent]:
    """An Event for each job that is not evicted for a queue any more, for a while."""
    for key, queue in session.churn.tripped():
        found = reasons.evictions_paused(title_of(session.view.jobs, key), queue, session.policy.evictions.most)
        yield _event(session.view.jobs[key].pod_group, "Warning", found.reason, found.message)


def _event(pod_group: PodGroup, type: str, reason: str, message: str) -> EmitEvent:
    meta = pod_group.metadata
    return EmitEvent(meta.namespace, meta.name, "PodGroup", meta.uid, type, reason, message)


def _of_queue(session: Session, queue: Queue, amounts: dict[str, str]) -> Iterator[Decision]:
    """The status of a queue, and an Event for each changed condition, except that the queue is used up."""
    status = queue.resource.status
    conditions = queue_conditions(session, queue) if session.rules.conditions else status.conditions
    if [c.shown for c in conditions] != [c.shown for c in status.conditions]:
        yield SetQueueStatus(queue.name, amounts, conditions)
        uid, before = queue.resource.metadata.uid, {c.type: c for c in status.conditions}
        for now in conditions:
            was = before.get(now.type)
            is_news = now.shown != (was.shown if was else _READY.shown)
            if now.type != "Overused" and is_news:
                good = (now.status == "True") == (now.type == "Ready")
                message = now.message or "it is over"
                yield EmitEvent("", queue.name, "Queue", uid, "Normal" if good else "Warning", now.reason, message)
    elif amounts != dict(status.allocated):
        yield SetQueueStatus(queue.name, amounts)


def queue_conditions(session: Session, queue: Queue) -> list[Condition]:
    """All conditions of a queue after a session: those that hold, and those that held before and are over."""
    reported = session.report.queue_conditions.get(queue.name, {})
    found: dict[str, Condition] = {"Ready": _READY if queue.open or not queue.state else _not_ready(queue)}
    broken = reported.get("Misconfigured")
    if broken is not None and broken.status == "True":
        found["Ready"] = Condition(type="Ready", status="False", reason=broken.reason, message=broken.message)
    found |= reported
    if session.report.queue(queue.name).gets_nothing_more:
        found.setdefault("Overused", _OVERUSED)
    over = [c.type for c in queue.resource.status.conditions if c.type not in found]
    return [*found.values(), *(Condition(type=type, status="False", reason=f"Not{type}") for type in over)]


def _not_ready(queue: Queue) -> Condition:
    why = reasons.queue_not_open(queue)
    return Condition(type="Ready", status="False", reason=queue.state or why.reason, message=why.message)


def _of_lost_groups(session: Session) -> Iterator[Decision]:
    """The statuses of PodGroups whose queue does not exist; they are in no session."""
    view = session.view
    if not len(view.jobs.lost) or not session.rules.conditions:
        return
    pending = {record.job for record in view.records(np.flatnonzero(view.pods.state == PodState.Pending))}
    for pod_group in lost_to_tell(session):
        status = pod_group.status
        if pod_group.key not in pending and status.phase not in WAITING_PHASES:
            continue
        why = no_such_queue(view, pod_group.spec.queue)
        if not why.detail and not may_compare(view) and _suggests(status.conditions, why):
            continue
        conditions = with_condition(status.conditions, reasons.unschedulable(session.rules, why))
        if conditions is not status.conditions:
            meta, shown = pod_group.metadata, status.model_copy(update={"conditions": conditions})
            yield SetPodGroupStatus(meta.namespace, meta.name, shown)
            yield from _news(pod_group, conditions)


def _suggests(conditions: Iterable[PodGroupCondition], why: Reason) -> bool:
    """Whether a condition tells a reason without a detail, and more besides."""
    return any(each.message.startswith(f"{why.reason}: {why.message} (") for each in conditions)


def _of_empty_groups(session: Session) -> Iterator[EmitEvent]:
    """An Event for each new reason why a PodGroup without pods is not admitted, under Volcano's rules.

    Volcano's clients wait for that Event, and no condition carries the reason.
    """
    view, jobs = session.view, session.view.jobs
    if session.rules.conditions:
        return
    before: Mapping[str, str] = view.environment.left.get(_TOLD, {})
    told: dict[str, str] = {}
    empty = np.flatnonzero(jobs.in_phase("", "Pending") & jobs.membership.empty)
    for key in jobs.keys_of(empty):
        why = view.trace.jobs.get(key)
        if why is None:
            # It had no turn.
            told |= {key: before[key]} if key in before else {}
            continue
        told[key] = why.reason
        if before.get(key) != why.reason:
            yield _event(jobs[key].pod_group, "Warning", "Unschedulable", why.told)
    if told or before:
        session.actions_left[_TOLD] = told


def _news(pod_group: PodGroup, conditions: list[PodGroupCondition]) -> Iterator[EmitEvent]:
    """Events for each new reason why a PodGroup does not run, for its end, and for spec fields without effect.

    The Event's reason is the condition's type, for which clients of Volcano wait; the message begins with our own
    reason.
    """
    before = next((c for c in pod_group.status.conditions if c.type == "Unschedulable"), None)
    now = next((c for c in conditions if c.type == "Unschedulable"), None)
    was = before is not None and before.status == "True"
    past = f" Before: {_word(before)}." if before is not None and was else ""
    if now is not None and now.status == "True":
        if before is None or not was or _word(before) != _word(now):
            yield _event(pod_group, "Warning", now.type, f"{now.message}{past}")
    elif now is not None and was:
        yield _event(pod_group, "Normal", "Schedulable", f"nothing keeps it from being scheduled any more.{past}")
    ignored = next((c for c in conditions if c.type == _IGNORED and c.status == "True"), None)
    if ignored is not None and all(c.shown != ignored.shown for c in pod_group.status.conditions):
        yield _event(pod_group, "Warning", ignored.type, ignored.message)


def _word(condition: PodGroupCondition) -> str:
    """The word of the reason, whatever Volcano's is."""
    return condition.message.partition(":")[0] or condition.reason


def _unscheduled(session: Session) -> Iterator[SetPodUnscheduled | RequestNodes]:
    """Why each pod waits, unless its status says so already; pods with scheduling gates do.

    If the policy requests nodes, one request covers a whole gang as far as possible.
    """
    told = OncePerReason(lambda reason: reason.told)
    shown = [each for each in waiting(session, shown=True) if not each[0].pod_class.gated]
    asked = _asked(session, [pod for pod, _, scalable in shown if scalable])
    for pod, reason, scalable in shown:
        message = told[reason]
        word = "Unschedulable" if scalable else reason.reason
        if scalable and pod.job in asked:
            word = "NodesRequested"
        said = refusal(pod.conditions)
        if said is None or said.message != message or said.reason != word:
            minor = said is not None and said.reason == word and _begins(said.message, reason.reason)
            yield SetPodUnscheduled(pod.namespace, pod.name, pod.uid, word, message, minor)
    yield from asked.values()


def _asked(session: Session, waiting: list[PodRecord]) -> dict[str, RequestNodes]:
    """The requests for the nodes of gangs whose pods more nodes would help, by the key of the gang."""
    if not session.policy.provisioning.class_name:
        return {}
    gangs: defaultdict[str, list[PodRecord]] = defaultdict(list)
    for pod in waiting:
        job = session.view.jobs.get(pod.job)
        if job is not None and job.min_available > 1:
            gangs[pod.job].append(pod)
    found = ((key, _nodes_for(session, session.view.jobs[key], pods)) for key, pods in gangs.items())
    return {key: request for key, request in found if request is not None}


def _nodes_for(session: Session, job: Job, waiting: list[PodRecord]) -> RequestNodes | None:
    """The request for the nodes that a gang needs to start; None if the request would be refused.

    Pods that differ only in their volumes count as alike if there are too many kinds otherwise.
    """
    settings = session.policy.provisioning
    needed = waiting[: max(1, job.min_available - job.ready_count)]
    alike: tuple[Callable[[PodRecord], object], ...] = (lambda pod: pod.pod_class, lambda pod: pod.pod_class.shape)
    for kind_of in alike:
        kinds: dict[object, tuple[str, int]] = {}
        for pod in needed:
            name, count = kinds.get(kind_of(pod), (pod.name, 0))
            kinds[kind_of(pod)] = name, count + 1
        if len(kinds) <= _MOST_KINDS:
            sets = tuple(kinds.values())
            about = job.namespace, job.name, job.pod_group.metadata.uid
            return RequestNodes(*about, settings.class_name, settings.parameters, sets, settings.retry)
    return None


def _begins(message: str | None, word: str) -> bool:
    return bool(message) and str(message).startswith(f"{word}:")


def _promised(session: Session) -> dict[int, int]:
    """The node of each pod for which others are evicted; under Volcano's rules also of those that gave it back."""
    promised = dict(session.outcome.promised)
    if not session.rules.evict_only_what_helps:
        for row, placement in session.ledger.tried.items():
            if placement.after_eviction and session.view.pods.state[row] in _WAITING:
                promised[row] = placement.nodes[0]
    return promised


def phase(job: Job) -> str:
    """The phase of a PodGroup after a session."""
    if job.unschedulable and job.counts[_RUNNING]:
        return "Unknown"
    if job.phase == "Completed" and not job.size:
        # Its pods were deleted, and as far as is known none will follow.
        return job.phase
    done, scheduled = job.counts[_SUCCEEDED] + job.counts[_FAILED], job.scheduled_count
    if scheduled >= job.min_available:
        return "Completed" if scheduled == done else "Running"
    return "Inqueue" if job.phase == "Inqueue" else "Pending"


def pod_group_status(job: Job) -> PodGroupStatus:
    """The status of a PodGroup after a session."""
    return PodGroupStatus(
        phase=job.phase,
        conditions=job.conditions,
        running=job.counts[_RUNNING],
        succeeded=job.counts[_SUCCEEDED],
        failed=job.counts[_FAILED],
    )


def _differs(job: Job) -> bool:
    """Whether the status of a job is worth writing: times and transition ids alone are not."""
    if _has_moved(job):
        return True
    old = job.pod_group.status
    if job.conditions is old.conditions:
        return False
    return [condition.shown for condition in job.conditions] != [condition.shown for condition in old.conditions]


def _has_moved(job: Job) -> bool:
    """Whether a job's phase or one of its pod counts differs from what its PodGroup shows."""
    old, counts = job.pod_group.status, job.counts
    if job.phase != old.phase or counts[_RUNNING] != old.running:
        return True
    return bool(counts[_SUCCEEDED] != old.succeeded or counts[_FAILED] != old.failed)


def _is_minor(job: Job) -> bool:
    """Whether a status that differs does so in the messages of conditions only, and not in the words at their front."""
    if _has_moved(job):
        return False
    old = job.pod_group.status
    return [(c.type, c.status, c.reason, _word(c)) for c in job.conditions] == [
        (c.type, c.status, c.reason, _word(c)) for c in old.conditions
    ]


class _Quantities:
    """Amounts of the session's dimensions as Kubernetes resource lists; many queues hold the same."""

    def __init__(self, session: Session) -> None:
        self._dimensions = Dimensions()
        self._dimensions.names = list(session.view.dimensions)
        self._known: dict[bytes, dict[str, str]] = {}

    def of(self, amounts: Vector) -> dict[str, str]:
        key = amounts.tobytes()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._dimensions.quantities(amounts)
        return found
