"""Why a job or a pod waits: one answer over all stages, from the last session."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from stromboli.api.crds import PodGroup, longest_run
from stromboli.api.decisions import Evict
from stromboli.api.keys import namespace_of
from stromboli.api.pod_state import READY_STATES, PodState
from stromboli.api.reasons import Reason, Stage
from stromboli.api.resources import fits
from stromboli.api.words import by_number, counted
from stromboli.explain.absent import groups_elsewhere, pods_elsewhere, why_no_more
from stromboli.explain.answers import Answer, Eviction, Step
from stromboli.explain.competitors import holders_of, jobs_ahead, waiting_for
from stromboli.explain.doubts import too_small
from stromboli.explain.evictions import PREEMPTING, RECLAIMING, why_no_evictions
from stromboli.explain.places import Places, amounts, places, would_fit
from stromboli.explain.running import binding, finished, have_places, held_up_together, placed
from stromboli.explain.shares import claims, queue_share, shares_of_others
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job, title_of
from stromboli.framework.diagnosis.explain import why, why_job, why_moved, without_place
from stromboli.framework.diagnosis.ignored import ignored_of_job
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord
from stromboli.workloads.in_order import Ordered, ordered
from stromboli.workloads.names import is_by_hand, workload_of
from stromboli.workloads.node_requests import nodes_asked_for

#: jobs ahead that are named
_MOST_AHEAD = 5
#: reasons of gangs whose pods have to be close
_OF_HYPER_NODES = ("NoHyperNode", "NoHyperNodeFits")


def explain_pod(session: Session, pod: PodRecord) -> Answer:
    """Why a pod waits, or where it is."""
    state = PodState(int(session.view.pods.state[pod.row]))
    job = session.view.jobs.get(pod.job)
    said = Answer(
        kind="Pod",
        namespace=pod.namespace,
        name=pod.name,
        group=pod.job.partition("/")[2],
        part_of=_part_of(session, pod),
        queue=job.queue.name if job else "",
    )
    if pod.key in session.evicted:
        evicted = replace(said, phase="Releasing")
        return _told(evicted, why_moved(session, pod), _evicted(session, pod))
    if state is PodState.Pipelined and job is not None:
        return replace(_answer(session, said, job, [pod], why(session, pod, job)), phase=state.name)
    if state is not PodState.Pending:
        told = (placed(session, pod, state), too_small([pod]))
        return replace(said, phase=state.name, message="; ".join(filter(None, told)))
    if job is None:
        return replace(_unseen(session, said, pod.job, [pod]), phase=state.name)
    # It starts with its gang: what the other pods lack keeps it waiting, too.
    waiting = [pod, *(each for each in without_place(session, job) if each is not pod)]
    return replace(
        _answer(session, said, job, waiting, why(session, pod, job, session.view.reason(job))), phase=state.name
    )


def _part_of(session: Session, pod: PodRecord) -> str:
    kind, _, name = title_of(session.view.jobs, pod.job).partition(" ") if pod.job else ("", "", "")
    return "" if (kind, name) in (("", ""), ("Pod", pod.key)) else f"{kind} {name.partition('/')[2]}"


def explain_job(session: Session, key: str) -> Answer | None:
    """Why a job waits, or how it runs; None if there is neither a PodGroup nor a pod of that name."""
    view = session.view
    said = Answer(kind="Job", namespace=namespace_of(key), name=key.partition("/")[2])
    job = view.jobs.get(key)
    if job is not None:
        waiting = without_place(session, job)
        found = _answer(session, said, job, waiting, why_job(session, job))
        if found.reason:
            return found
        told = (found.message, held_up_together(session, job), too_small(view.members(job)))
        return replace(found, message="; ".join(filter(None, told)))
    pods = _pods_of(session, key)
    waiting = [pod for pod in pods if view.pods.state[pod.row] == PodState.Pending]
    return _unseen(session, said, key, waiting) if pods or _lost(session, key) is not None else None


def outline(session: Session, key: str) -> Answer | None:
    """The answer about a job without a look at nodes and other jobs, which takes long, for lists."""
    job = session.view.jobs.get(key)
    if job is None:
        return explain_job(session, key)
    said = Answer(kind="Job", namespace=job.namespace, name=job.name)
    return _outlined(session, said, job, why_job(session, job))


def _outlined(session: Session, said: Answer, job: Job, reason: Reason | None) -> Answer:
    """An answer with the facts of a job, and why it waits."""
    return replace(
        _told(said, reason, finished(job) or have_places(job.ready_count, job.size)),
        queue=job.queue.name,
        phase=job.phase,
        pods=job.size,
        placed=job.ready_count,
        min_member=job.min_available,
        run_time=longest_run(job.pod_group.run_time, (pod.deadline for pod in session.view.members(job))) or 0.0,
        workload=workload_of(job.pod_group),
        ignored=ignored_of_job(session, job),
    )


def _evicted(session: Session, pod: PodRecord) -> str:
    """The message of the Event about an eviction."""
    decided = (each for each in session.decisions if isinstance(each, Evict) and each.key == pod.key)
    return next(
        (each.told(pod.namespace, title_of(session.view.jobs, each.beneficiary)) for each in decided), "Pod is evicted"
    )


def _answer(session: Session, said: Answer, job: Job, waiting: Sequence[PodRecord], reason: Reason | None) -> Answer:
    """The answer about some pods of a job that wait."""
    sample = sample_of(session, waiting, reason)
    found = _places(session, sample, waiting)
    fitting = would_fit(session, waiting) if waiting else 0
    at_nodes = reason is not None and reason.stage >= Stage.Gang
    # Others are in the way of none that would never fit.
    lasting = reason is not None and reason.reason == "NeverFits"
    ahead = jobs_ahead(session, job, reason, found.willing) if reason and not lasting else []
    evictions = [_eviction(action, why) for action, why in why_no_evictions(session, job)]
    return replace(
        _lacking_pods(session, job, waiting, _outlined(session, said, job, reason)),
        would_fit=fitting,
        request=_request(session, sample),
        steps=_steps(session, job, waiting, reason, fitting, found, evictions),
        nodes=found.causes if at_nodes else [],
        nearest=found.nearest if at_nodes else "",
        ahead=[waiting_for(session, each) for each in ahead[:_MOST_AHEAD]],
        ahead_count=len(ahead),
        holders=[] if lasting else holders_of(session, job, sample, reason, found),
        evictions=evictions,
    )


def _lacking_pods(session: Session, job: Job, waiting: Sequence[PodRecord], said: Answer) -> Answer:
    """An answer about a gang, with the nodes that it asked for, or what keeps pods that it lacks from being made."""
    if said.reason not in ("NotEnoughPods", "NotEnoughPodsOfTask"):
        asked_for = nodes_asked_for(session.view.snapshot, job.key) if said.reason else ""
        return replace(said, detail="; ".join(filter(None, (said.detail, asked_for, too_small(waiting)))))
    first = in_order(job.pod_group, waiting)
    held = held_up_together(session, job)
    told = (said.detail, first.why if first and first.why else why_no_more(session, job), held)
    passages = [*said.passages, *pods_elsewhere(session, job)]
    return replace(said, detail="; ".join(filter(None, told)), passages=passages)


def in_order(group: PodGroup, waiting: Sequence[PodRecord]) -> Ordered | None:
    """The workload that makes more pods of a group written by hand once these run."""
    if not is_by_hand(group):
        return None
    train_job = next((name for kind, name in group.owners if kind == "TrainJob"), "")
    return ordered(group.metadata.namespace, [pod.labels for pod in waiting], train_job)


def _eviction(action: str, why: Reason) -> Eviction:
    return Eviction(
        action=action,
        reason=why.reason,
        message=why.message,
        detail=why.detail,
        passages=list(why.passages),
        who=str(why.actionable),
    )


def _told(said: Answer, reason: Reason | None, otherwise: str) -> Answer:
    """An answer filled in from a reason, or with the message `otherwise` if there is none."""
    if reason is None:
        return replace(said, message=otherwise)
    return replace(
        said,
        stage=reason.stage.name,
        reason=reason.reason,
        message=reason.message,
        detail=reason.detail,
        passages=list(reason.passages),
        who=str(reason.actionable),
    )


def _request(session: Session, sample: PodRecord | None) -> dict[str, str]:
    return {} if sample is None else amounts(session, session.view.request(sample), pod=sample)


def _pods_of(session: Session, key: str) -> list[PodRecord]:
    return [record for record in session.view.pods.records if record is not None and record.job == key and key]


def _lost(session: Session, key: str) -> PodGroup | None:
    """The PodGroup of a key if its queue does not exist."""
    return next((group for group in session.view.lost if group.key == key), None)


def _unseen(session: Session, said: Answer, key: str, waiting: Sequence[PodRecord]) -> Answer:
    """The answer about a job that is not in the session, since its PodGroup or its queue does not exist."""
    group, pods = _lost(session, key), _pods_of(session, key) or waiting
    lacking = reasons.queue_not_found(group.spec.queue, session.view.queues) if group else reasons.no_pod_group(pods[0])
    lacking = lacking if group else lacking.saying(said.namespace, groups_elsewhere(session, pods[0].job))
    to_come = group is not None and not pods and group.status.phase != "Completed"
    placed = sum(int(session.view.pods.state[pod.row]) in READY_STATES for pod in pods)
    instead = f"{have_places(placed, len(pods))}, and {lacking.message}"
    return replace(
        _told(said, lacking if waiting or to_come else None, instead),
        queue=group.spec.queue if group else "",
        workload=workload_of(group) if group else "",
        phase=group.status.phase or "Pending" if group else "",
        pods=len(pods),
        placed=placed,
        min_member=group.spec.min_member if group else 0,
        request=_request(session, next(iter(waiting), None)),
    )


def sample_of(session: Session, waiting: Sequence[PodRecord], reason: Reason | None) -> PodRecord | None:
    """The pod that an answer about nodes refers to: one refused for the reason, or the first waiting one."""
    trace = session.view.trace.pods
    refused = next((pod for pod in waiting if trace.get(pod.row) is reason), None)
    if refused is None and reason is not None and reason.reason == "NeverFits":
        refused = _too_large(session, waiting)
    return refused or next(iter(waiting), None)


def _too_large(session: Session, pods: Sequence[PodRecord]) -> PodRecord | None:
    """The first of some pods that fits on none of its nodes even if they were empty, or else the largest."""
    allocatable, kinds = session.view.nodes.allocatable, {pod.pod_class.id: pod for pod in reversed(pods)}
    for pod in sorted(kinds.values(), key=pods.index):
        if not fits(session.view.request(pod), allocatable[:, session.kernel.feasible(pod)]).any():
            return pod
    total = np.maximum(session.view.total, 1)
    return max(kinds.values(), key=lambda pod: float((session.view.request(pod) / total).max()), default=None)


def places_of(session: Session, job: Job) -> Places:
    """Places that nodes offer the waiting pods of a job, in the words of its answer."""
    waiting = without_place(session, job)
    return _places(session, sample_of(session, waiting, why_job(session, job)), waiting)


def _places(session: Session, sample: PodRecord | None, waiting: Sequence[PodRecord]) -> Places:
    if sample is None:
        return Places()
    return places(session, sample, sum(pod.pod_class is sample.pod_class for pod in waiting))


# -- stages ----------------------------------------------------------------------------------------------------------


def _steps(
    session: Session,
    job: Job,
    waiting: Sequence[PodRecord],
    reason: Reason | None,
    fitting: int,
    found: Places,
    evictions: Sequence[Eviction],
) -> list[Step]:
    """All stages with their messages, including those after the one that blocks."""
    texts = {
        Stage.Admission: f"phase {job.phase or 'not set'}",
        Stage.QueueShare: queue_share(session, job.queue)
        + (shares_of_others(session, job.queue, waiting) if reason is not None else ""),
        Stage.Gang: _gang(job, waiting, fitting) + _apart(reason),
        Stage.Placement: "; ".join(f"{counted(cause.nodes, 'node')}: {cause.all_of_it}" for cause in found.causes),
        Stage.Preemption: "; ".join(f"{each.action}: {each.reason}" for each in evictions),
        Stage.Binding: binding(session, job),
    }
    verdicts = {stage: "passed" if reason is None or stage < reason.stage else "open" for stage in Stage}
    if reason is not None:
        verdicts[reason.stage] = "blocks"
        said = f"{reason.message}{f' ({reason.detail})' if reason.detail else ''}"
        if not (reason.stage is Stage.Placement and reason.nodes):
            texts[reason.stage] = f"{said}; {texts[reason.stage]}" if texts[reason.stage] else said
        if reason.stage is Stage.Placement and waiting:
            verdicts[Stage.Preemption] = "blocks"
            if not any(action in session.policy.actions for action in (*PREEMPTING, *RECLAIMING)):
                texts[Stage.Preemption] = "no action of the policy evicts others: there is neither preempt nor reclaim"
        if reason.stage is Stage.Admission:
            texts[Stage.Admission] += claims(session, job.queue)
    return [Step(stage=stage.name, verdict=verdicts[stage], text=texts[stage]) for stage in Stage if texts[stage]]


def _gang(job: Job, waiting: Sequence[PodRecord], fitting: int) -> str:
    gated = sum(pod.pod_class.gated for pod in waiting)
    free = len(waiting) - gated
    rest = f", and {fitting} of the {free} that {by_number(free, 'waits', 'wait')} would fit now" if free else ""
    rest += f", {gated} {by_number(gated, 'is', 'are')} held back by scheduling gates" if gated else ""
    exist, have = by_number(job.size, "exists", "exist"), by_number(job.ready_count, "has", "have")
    return (
        f"starts with {counted(job.min_available, 'pod')}; {job.size} {exist}, {job.ready_count} {have} a place{rest}"
    )


def _apart(reason: Reason | None) -> str:
    """Words for a restriction that is ignored when counting the pods of a gang that would fit."""
    return ", wherever HyperNodes are" if reason is not None and reason.reason in _OF_HYPER_NODES else ""
