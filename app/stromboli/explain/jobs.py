"""Why a job or a pod waits: one answer over all stages, from what the last session knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from stromboli.api.crds import PodGroup
from stromboli.api.decisions import Evict
from stromboli.api.pod_state import READY_STATES, PodState
from stromboli.api.reasons import Reason, Stage
from stromboli.api.resources import PODS, Vector, listed, told
from stromboli.eviction.diagnosis import PREEMPTING, RECLAIMING, why_no_evictions
from stromboli.explain.answers import Answer, Eviction, Holding, Step
from stromboli.explain.places import MOST_HOLDERS, Places, amounts, holders, limited, places, would_fit
from stromboli.fairness.queue_tree import QueueTree
from stromboli.framework import reasons
from stromboli.framework.explain import why, why_job, why_moved, without_place
from stromboli.framework.ignored import ignored_of_job
from stromboli.framework.job import Job, Queue, lineage
from stromboli.framework.session import Session
from stromboli.kube.pod_claims import claims_of
from stromboli.kube.storage import storage_of
from stromboli.state.pods import PodRecord, timestamp

#: jobs ahead that are named
_MOST_AHEAD = 5
#: states of a pod between a decision and a running container
_BINDING = (PodState.Allocated, PodState.Binding, PodState.Bound)
_PENDING = int(PodState.Pending)


def explain_pod(session: Session, pod: PodRecord) -> Answer:
    """Why a pod waits, or where it is."""
    state = PodState(int(session.view.pods.state[pod.row]))
    job = session.view.jobs.get(pod.job)
    said = Answer(
        kind="Pod",
        namespace=pod.namespace,
        name=pod.name,
        group=pod.job.partition("/")[2],
        queue=job.queue.name if job else "",
    )
    if pod.key in session.evicted:
        evicted = replace(said, phase="Releasing")
        return _told(evicted, why_moved(session, pod), _evicted(session, pod))
    if state is PodState.Pipelined and job is not None:
        return _answer(session, said, job, [pod], why(session, pod, job))
    if state is not PodState.Pending:
        return replace(said, phase=state.name, message=_placed(session, pod, state))
    if job is None:
        return _unseen(session, said, pod.job, [pod])
    # It goes with its gang: what the others lack keeps it waiting, too.
    others = [each for each in without_place(session, job) if each is not pod]
    return _answer(session, said, job, [pod, *others], why(session, pod, job, session.view.reason(job)))


def explain_job(session: Session, key: str) -> Answer | None:
    """Why a job waits, or how it runs; None when neither a PodGroup nor a pod of that name is there."""
    view = session.view
    namespace, _, name = key.partition("/")
    said = Answer(kind="Job", namespace=namespace, name=name)
    job = view.jobs.get(key)
    if job is not None:
        waiting = without_place(session, job)
        return _answer(session, said, job, waiting, why_job(session, job))
    pods = _pods_of(session, key)
    if not pods and _lost(session, key) is None:
        return None
    return _unseen(session, said, key, [pod for pod in pods if view.pods.state[pod.row] == _PENDING])


def outline(session: Session, key: str) -> Answer | None:
    """The answer about a job without what it takes to look at nodes and other jobs, for lists."""
    job = session.view.jobs.get(key)
    if job is None:
        return explain_job(session, key)
    said = Answer(kind="Job", namespace=job.namespace, name=job.name)
    return _outlined(session, said, job, why_job(session, job))


def _outlined(session: Session, said: Answer, job: Job, reason: Reason | None) -> Answer:
    """An answer with what a job says of itself, and why it waits."""
    return replace(
        _told(said, reason, _have_places(job.ready_count, job.size)),
        queue=job.queue.name,
        phase=job.phase,
        pods=job.size,
        placed=job.ready_count,
        min_member=job.min_available,
        ignored=ignored_of_job(session, job),
    )


def _evicted(session: Session, pod: PodRecord) -> str:
    """What the Event about an eviction says."""
    decided = (each for each in session.decisions if isinstance(each, Evict) and each.key == pod.key)
    return next((each.told(pod.namespace) for each in decided), "Pod is evicted")


def _placed(session: Session, pod: PodRecord, state: PodState) -> str:
    node = session.bound.get(pod.key) or pod.node_name
    if not node and (row := int(session.view.pods.node[pod.row])) >= 0:
        node = session.view.nodes.name(row)
    if state in _BINDING:
        if pod.node_name and pod.node_name not in {record.name for record in session.view.nodes.facts.records}:
            return f"it is bound to {node}, which is not there"
        if pod.node_name:
            return f"it is bound to {node} and starts"
        lacking = _volumes_that_lack(session, pod)
        return f"it is bound to {node} once it has {lacking}" if lacking else f"it is being bound to {node}"
    if state is PodState.Releasing:
        return f"it is on its way out{f' of {node}' if node else ''}"
    return f"{state.name} on {node}" if node else state.name


def _volumes_that_lack(session: Session, pod: PodRecord) -> str:
    """The volumes that a pod waits for, each with who makes it and since when; empty without any."""
    return " and ".join(_waited_for(session, pod))


def _waited_for(session: Session, pod: PodRecord) -> Iterator[str]:
    storage = storage_of(session.view.snapshot)
    for claim in claims_of(pod, storage):
        if claim.bound or claim.waiting_since is None:
            continue
        storage_class = storage.storage_class(claim.storage_class)
        made = claim.selected_node is not None and storage_class is not None
        by = f", which {storage_class.provisioner} is to make" if made and storage_class else ""
        yield f"the volume of claim {claim.metadata.name}{by} (waited for since {timestamp(claim.waiting_since)})"


def _answer(session: Session, said: Answer, job: Job, waiting: Sequence[PodRecord], reason: Reason | None) -> Answer:
    """The answer about some pods of a job that wait."""
    sample = _sample(session, waiting, reason)
    found = places(session, sample, _alike(session, sample, waiting)) if sample is not None else Places()
    fitting = would_fit(session, waiting) if waiting else 0
    at_nodes = reason is not None and reason.stage >= Stage.Gang
    ahead = _ahead(session, job) if reason else []
    evictions = [_eviction(action, why) for action, why in why_no_evictions(session, job)]
    return replace(
        _outlined(session, said, job, reason),
        would_fit=fitting,
        request=_request(session, sample),
        steps=_steps(session, job, waiting, reason, fitting, found, evictions),
        nodes=found.causes if at_nodes else [],
        nearest=found.nearest if at_nodes else "",
        ahead=[_waiting_for(session, each) for each in ahead[:_MOST_AHEAD]],
        ahead_count=len(ahead),
        holders=_holders(session, job, sample, reason, found),
        evictions=evictions,
    )


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
    """An answer with what a reason says, or something else where nothing waits."""
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
    return amounts(session, session.view.request(sample), pod=sample) if sample is not None else {}


def _pods_of(session: Session, key: str) -> list[PodRecord]:
    return [record for record in session.view.pods.records if record is not None and record.job == key and key]


def _lost(session: Session, key: str) -> PodGroup | None:
    """The PodGroup of a key if its queue does not exist."""
    return next((group for group in session.view.lost if group.key == key), None)


def _unseen(session: Session, said: Answer, key: str, waiting: Sequence[PodRecord]) -> Answer:
    """The answer about what is no job of the session, since its PodGroup or its queue does not exist."""
    group, pods = _lost(session, key), _pods_of(session, key) or waiting
    lacking = reasons.queue_not_found(group.spec.queue) if group else reasons.no_pod_group(pods[0])
    to_come = group is not None and not pods and group.status.phase != "Completed"
    placed = sum(int(session.view.pods.state[pod.row]) in READY_STATES for pod in pods)
    instead = f"{_have_places(placed, len(pods))}, and {lacking.message}"
    return replace(
        _told(said, lacking if waiting or to_come else None, instead),
        queue=group.spec.queue if group else "",
        phase=group.status.phase or "Pending" if group else "",
        pods=len(pods),
        placed=placed,
        min_member=group.spec.min_member if group else 0,
        request=_request(session, next(iter(waiting), None)),
    )


def _have_places(placed: int, pods: int) -> str:
    return f"{placed} of {pods} pods have a place"


def _sample(session: Session, waiting: Sequence[PodRecord], reason: Reason | None) -> PodRecord | None:
    """The pod that an answer about nodes is about: one that was refused for the reason, or the first that waits."""
    trace = session.view.trace.pods
    return next((pod for pod in waiting if trace.get(pod.row) is reason), None) or next(iter(waiting), None)


def _alike(session: Session, sample: PodRecord, waiting: Sequence[PodRecord]) -> int:
    return sum(pod.pod_class is sample.pod_class for pod in waiting)


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
    """Each stage with what it says, up to and beyond the one that blocks."""
    texts = {
        Stage.Admission: f"phase {job.phase or 'not set'}",
        Stage.QueueShare: queue_share(session, job.queue),
        Stage.Gang: _gang(job, waiting, fitting),
        Stage.Placement: "; ".join(f"{counted(cause.nodes, 'node')}: {cause.cause}" for cause in found.causes),
        Stage.Preemption: "; ".join(f"{each.action}: {each.reason}" for each in evictions),
        Stage.Binding: _binding(session, job),
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


def queue_share(session: Session, queue: Queue) -> str:
    """What a queue holds and may have, in a sentence."""
    gauges = session.report.gauges.get(queue.name)
    if gauges is None or "deserved" not in gauges.amounts:
        return f"queue {queue.name}: no plugin of the policy divides the cluster"
    held, deserved = gauges.amounts["allocated"], gauges.amounts["deserved"]
    parts = []
    for column, name in enumerate(session.view.dimensions):
        counts = column != PODS or session.view.counts_pods
        if column < len(held) and counts and (held[column] or deserved[column]):
            limit = limited(gauges, column)
            most = "" if limit is None else f", may have {told(name, limit)}"
            parts.append(f"{told(name, held[column])} of {told(name, deserved[column])} {name}{most}")
    return (
        f"queue {queue.name} holds, of what it deserves, {'; '.join(parts)}"
        if parts
        else f"queue {queue.name} holds and deserves nothing"
    )


def claims(session: Session, queue: Queue) -> str:
    """What counts against the limit of a queue beside what its pods hold."""
    gauges = session.report.gauges.get(queue.name)
    inqueue = gauges.amounts.get("inqueue") if gauges else None
    if gauges is None or inqueue is None or not inqueue.any():
        return ""
    held, claimed = amounts(session, gauges.amounts["allocated"]), amounts(session, inqueue)
    return (
        f"; pods of the queue hold {listed(held)}, jobs that were admitted and do not run yet claim {listed(claimed)}"
    )


def counted(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _gang(job: Job, waiting: Sequence[PodRecord], fitting: int) -> str:
    gated = sum(pod.pod_class.gated for pod in waiting)
    free = len(waiting) - gated
    rest = f", and {fitting} of the {free} that wait would find room now" if free else ""
    rest += f", {gated} {'are' if gated > 1 else 'is'} held back by scheduling gates" if gated else ""
    return f"starts with {counted(job.min_available, 'pod')}; {job.size} exist, {job.ready_count} have a place{rest}"


def _binding(session: Session, job: Job) -> str:
    under_way = sum(job.counts[state] for state in _BINDING)
    if not under_way:
        return ""
    rows = session.view.membership.rows(job.index)
    binding = session.view.records(rows[session.view.pods.state[rows] == PodState.Binding])
    lacking = list(filter(None, (_volumes_that_lack(session, pod) for pod in binding)))
    waits = f"; {counted(len(lacking), 'pod')} of them lack volumes, the first {lacking[0]}" if lacking else ""
    return f"{under_way} pods are decided and not running yet{waits}"


# -- others ----------------------------------------------------------------------------------------------------------


def _ahead(session: Session, job: Job) -> list[Job]:
    """The jobs that wait and are served before this one, in order."""
    ask = session.ask
    mine = ask.job_key(job)
    before = [
        (ask.job_key(other), other) for other in job.queue.jobs if other is not job and other.counts[PodState.Pending]
    ]
    same = [other for key, other in sorted(before, key=lambda pair: pair[0]) if key < mine]
    place = ask.queue_key(job.queue)
    queues = [queue for queue in session.view.queues.values() if queue is not job.queue and queue.jobs]
    earlier = [queue for queue in queues if ask.queue_key(queue) < place]
    others = [other for queue in earlier for other in queue.jobs if other.counts[PodState.Pending]]
    return same + others


def _waiting_for(session: Session, job: Job) -> Holding:
    pending = session.view.pending(job)
    asked = session.view.requested(pending)
    return Holding(
        namespace=job.namespace,
        name=job.name,
        queue=job.queue.name,
        pods=len(pending),
        amounts=amounts(session, asked, pod=next(iter(pending), None)),
    )


def _holders(
    session: Session, job: Job, sample: PodRecord | None, reason: Reason | None, found: Places
) -> list[Holding]:
    """Who holds what is missing at the stage that blocks."""
    asked = session.view.request(sample) if sample is not None else job.min_resources
    if reason is None or asked is None:
        return []
    if reason.stage >= Stage.Placement:
        return holders(session, found.willing, found.lacking)
    columns = np.flatnonzero(asked > 0).tolist()
    if reason.reason == "ClusterOvercommitted":
        return in_jobs(session, session.view.jobs.values(), columns, claimed=True)
    if reason.reason == "ResourceQuotaExceeded":
        return in_jobs(session, (j for j in session.view.jobs.values() if j.namespace == job.namespace), columns)
    if reason.stage is Stage.QueueShare or reason.reason == "QueueCapabilityExceeded":
        return in_jobs(session, jobs_below(session, limiting_queue(session, job, reason)), columns, claimed=True)
    return holders(session, found.willing, found.lacking) if reason.stage is Stage.Gang else []


def limiting_queue(session: Session, job: Job, reason: Reason) -> Queue:
    """The queue that a reason names: a job's own, or one of its ancestors."""
    above = lineage(job.queue, session.view.queues)
    return next((queue for queue in above if f"queue {queue.name} " in f"{reason.message} "), job.queue)


def jobs_below(session: Session, queue: Queue) -> list[Job]:
    """The jobs of a queue and of all queues below it."""
    queues = session.view.queues
    tree = QueueTree.of({each.name: each.parent for each in queues.values()})
    below = {tree.names[row] for row in tree.below(tree.names.index(queue.name))}
    return [job for each in queues.values() if each.name in below for job in each.jobs]


def in_jobs(session: Session, jobs: Iterable[Job], columns: Sequence[int], *, claimed: bool = False) -> list[Holding]:
    """The jobs that hold most of some resources, what they claim with their minResources counted if asked."""
    if not columns:
        return []
    now = session.view.membership.allocated_now()

    def held(job: Job) -> Vector:
        vector: Vector = now[job.index]
        if claimed and job.min_resources is not None and not job.pending_phase:
            vector = np.maximum(vector, job.min_resources)
        return vector

    total = np.maximum(session.view.total, 1)
    pairs = [(job, held(job)) for job in jobs]
    ranked = sorted(pairs, key=lambda pair: (-float((pair[1] / total)[list(columns)].max()), pair[0].key))
    return [
        Holding(
            namespace=job.namespace,
            name=job.name,
            queue=job.queue.name,
            pods=job.allocated_count,
            amounts=amounts(session, vector, columns),
        )
        for job, vector in ranked[:MOST_HOLDERS]
        if vector[list(columns)].any()
    ]
