"""The effects of a change: the difference between two rehearsals, one with it and one without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from stromboli.api.objects import PodStatus
from stromboli.api.pod_state import PodState
from stromboli.api.resources import MEMORY, UNKNOWN, Vector, exact, told_quantity
from stromboli.api.words import by_number, counted
from stromboli.engine import Engine
from stromboli.explain.checkup import Finding, news
from stromboli.explain.rehearsal import Change, Future, Rehearsal, pod_of
from stromboli.framework.cluster.job import title_of
from stromboli.framework.diagnosis.explain import pending_reasons
from stromboli.framework.runtime.failures import summaries
from stromboli.framework.session.session import Session
from stromboli.state.cluster import ClusterState

_EXTENDER = "the policy asks an HTTP extender, which is not asked here: jobs that need its answer wait"
#: maximum number of lines of a kind in the text
_MOST_LINES = 20


class Moved(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod that is bound or evicted."""

    pod: str
    node: str
    queue: str = ""
    #: of evictions, the action
    action: str = ""
    #: of evictions, the PodGroup on whose behalf
    beneficiary: str = ""
    #: its name for users
    whom: str = ""


class Waiting(Struct, frozen=True, rename="camel"):
    """A pod that has no place."""

    pod: str
    stage: str
    reason: str
    message: str


class Shift(Struct, frozen=True, rename="camel"):
    """An amount of a queue in one resource that the change alters: held, deserved or requested."""

    queue: str
    resource: str
    #: which amount: held, deserved or requested
    amount: str
    before: str
    after: str


class JobShift(Struct, frozen=True, rename="camel"):
    """The effects of the change on the pods of a job, as numbers of pods."""

    #: `NAMESPACE/NAME`
    job: str
    #: its name for users
    called: str
    queue: str = ""
    bound: int = 0
    evicted: int = 0
    #: whose node is gone
    lost: int = 0
    #: bound without the change only
    no_longer_bound: int = 0
    #: that have no place after the change, and how many of the job's
    waiting: int = 0
    pods: int = 0


class WhatIf(Struct, frozen=True, kw_only=True, rename="camel"):
    """The difference that a change makes. Nothing of it was carried out."""

    #: pods whose node is gone; their controllers make others, which are bound or wait
    lost: list[Moved] = field(default_factory=list)
    #: effects on each job that the change touches
    jobs: list[JobShift] = field(default_factory=list)
    #: bound with the change only
    bound: list[Moved] = field(default_factory=list)
    #: evicted with the change only
    evicted: list[Moved] = field(default_factory=list)
    #: bound without the change only
    no_longer_bound: list[Moved] = field(default_factory=list)
    #: evicted without the change only
    no_longer_evicted: list[Moved] = field(default_factory=list)
    #: bound in both cases, on another node with the change
    elsewhere: list[Moved] = field(default_factory=list)
    #: which amounts of queues are others
    queues: list[Shift] = field(default_factory=list)
    #: pods of the change that wait, and others that wait with it only
    waiting: list[Waiting] = field(default_factory=list)
    #: findings of `doctor` after the change that it does not have without it
    findings: list[Finding] = field(default_factory=list)
    #: number of waiting pods after the change, by reason
    pending: dict[str, int] = field(default_factory=dict)
    #: whether sessions would still decide something when they were no longer followed
    unsettled: bool = False
    #: why workloads of the change, or parts of them, have no pods yet
    without_pods: list[str] = field(default_factory=list)
    #: parts of the change that could not be used
    problems: list[str] = field(default_factory=list)


def what_if(
    rehearsal: Rehearsal, change: Change, *, engine: Engine | None = None, about: Collection[str] = (), cycles: int = 6
) -> WhatIf:
    """The difference between what happens anyway and after a change; `about` are the pods that it brings."""
    lost: list[Moved] = []

    def changed(state: ClusterState) -> None:
        change(state)
        lost.extend(_without_node(state))

    before, after = rehearsal.run(cycles=cycles), rehearsal.run(changed, engine=engine, cycles=cycles)
    assert before.session is not None
    assert after.session is not None
    problems = [_EXTENDER] if rehearsal.misses_extender else []
    problems += summaries([*before.session.failures, *after.session.failures], after.session.view.jobs).values()
    waited, waits = pending_reasons(before.session), pending_reasons(after.session)
    mine = set(about)
    moved = [pod for pod in after.bound if pod in before.bound and before.bound[pod] != after.bound[pod]]
    found = WhatIf(
        lost=[_in_queue(each, after.session) for each in lost],
        bound=list(_moves(after, after.bound.keys() - before.bound.keys())),
        evicted=list(_moves(after, after.evicted.keys() - before.evicted.keys())),
        no_longer_bound=list(_moves(before, before.bound.keys() - after.bound.keys())),
        no_longer_evicted=list(_moves(before, before.evicted.keys() - after.evicted.keys())),
        elsewhere=list(_moves(after, moved)),
        queues=list(_shifts(before.session, after.session)),
        waiting=[
            Waiting(pod, reason.stage.name, reason.reason, reason.message)
            for pod, reason in sorted(waits.items())
            if pod in mine or pod not in waited
        ],
        findings=list(news(before.session, after.session)),
        pending=dict(Counter(reason.reason for reason in waits.values()).most_common()),
        unsettled=after.unsettled,
        problems=problems,
    )
    records = (record for each in (before.session, after.session) for record in each.view.pods.records)
    job_of = {record.key: record.job for record in records if record is not None} | before.jobs | after.jobs
    return replace(found, jobs=list(_jobs(found, job_of, before.session, after.session)))


def _without_node(state: ClusterState) -> Iterator[Moved]:
    """Take pods off missing nodes, as if their controllers replaced them; other schedulers' pods just vanish."""
    records = [record for record in state.pods.records if record is not None]
    for record in records:
        held = state.pods.state[record.row] in (PodState.Bound, PodState.Running)
        if held and record.node_name and record.node_name not in state.nodes.by_name:
            state.upsert("Pod", pod_of(record, "", PodStatus(phase="Pending")))
            if state.record(record.key) is not None:
                yield Moved(record.key, record.node_name, record.job)


def _in_queue(lost: Moved, session: Session) -> Moved:
    """A pod that lost its node, whose `queue` is the key of its job so far."""
    job = session.view.jobs.get(lost.queue)
    return Moved(lost.pod, lost.node, job.queue.name if job else "")


def _jobs(found: WhatIf, job_of: Mapping[str, str], before: Session, after: Session) -> Iterator[JobShift]:
    """The jobs of the pods that a difference names, with the number of theirs that wait after it."""
    counts: dict[str, Counter[str]] = {}
    for what in ("bound", "evicted", "lost", "no_longer_bound"):
        for moved in getattr(found, what):
            counts.setdefault(job_of.get(moved.pod, ""), Counter())[what] += 1
    for waiting in found.waiting:
        counts.setdefault(job_of.get(waiting.pod, ""), Counter())
    for key, count in sorted(counts.items()):
        if not key:
            continue
        job = after.view.jobs.get(key) or before.view.jobs.get(key)
        left = after.view.jobs.get(key)
        yield JobShift(
            job=key,
            called=job.called if job else key,
            queue=job.queue.name if job else "",
            **count,
            waiting=left.counts[PodState.Pending] if left else 0,
            pods=left.size if left else 0,
        )


def _moves(future: Future, pods: Collection[str]) -> Iterator[Moved]:
    session = future.session
    assert session is not None
    for pod in sorted(pods):
        job = session.view.jobs.get(future.jobs.get(pod, ""))
        queue = job.queue.name if job else ""
        if pod in future.causes:
            action, beneficiary = future.causes[pod]
            whom = title_of(session.view.jobs, beneficiary) if beneficiary else ""
            yield Moved(pod, future.evicted[pod], queue, action, beneficiary, whom)
        else:
            yield Moved(pod, future.bound[pod], queue)


def _shifts(before: Session, after: Session) -> Iterator[Shift]:
    old, new = _amounts(before), _amounts(after)
    for queue in dict.fromkeys([*old, *new]):
        for amount in ("held", "deserved", "requested"):
            was, now = (side.get(queue, {}).get(amount, {}) for side in (old, new))
            for resource in dict.fromkeys([*was, *now]):
                if was.get(resource, "0") != now.get(resource, "0"):
                    yield Shift(queue, resource, amount, was.get(resource, "0"), now.get(resource, "0"))


def _amounts(session: Session) -> dict[str, dict[str, dict[str, str]]]:
    """The amounts that queues hold, deserve and request, by resource."""
    view = session.view
    held, requested = view.by_queue(view.membership.allocated_now()), view.by_queue(view.membership.requested())
    hidden = {"pods", UNKNOWN}

    def named(vector: Vector | None) -> dict[str, str]:
        pairs = [] if vector is None else zip(view.dimensions, np.floor(vector + 1e-6).tolist(), strict=True)
        return {name: exact(name, value) for name, value in pairs if value and name not in hidden}

    def deserved(queue: str) -> Vector | None:
        gauges = session.report.gauges.get(queue)
        return None if gauges is None else gauges.amounts.get("deserved")

    return {
        queue: {
            "held": named(held[queue]),
            "deserved": named(_in_mebibytes(deserved(queue))),
            "requested": named(requested[queue]),
        }
        for queue in view.queues
    }


def _in_mebibytes(vector: Vector | None) -> Vector | None:
    """Amounts with memory cut to whole MiB, since shares are hardly ever round numbers of bytes."""
    if vector is None:
        return None
    out = vector.copy()
    out[MEMORY] = np.floor(out[MEMORY] / 2**20) * 2**20
    return out


def lines(answer: WhatIf) -> Iterator[str]:
    """The difference for humans, as a diff: + for what the change adds, - for what it removes."""
    parts = [
        *(f"- {each.pod} loses its node {each.node}{_in(each)}" for each in answer.lost),
        *(f"+ bind {each.pod} to {each.node}{_in(each)}" for each in answer.bound),
        *(f"- bind {each.pod} to {each.node}{_in(each)}" for each in answer.no_longer_bound),
        *(f"~ bind {each.pod} to {each.node} instead{_in(each)}" for each in answer.elsewhere),
        *(f"+ evict {each.pod} from {each.node}{_in(each)}{_for(each)}" for each in answer.evicted),
        *(f"- evict {each.pod} from {each.node}{_in(each)}{_for(each)}" for each in answer.no_longer_evicted),
    ]
    waiting = [f"! {each.pod} waits at {each.stage}: {each.reason}: {each.message}" for each in answer.waiting]
    for some in (parts, waiting):
        yield from some[:_MOST_LINES]
        if len(some) > _MOST_LINES:
            yield f"  and {len(some) - _MOST_LINES} more"
    yield from (f"  job {each.called}: {_shifted(each)}" for each in answer.jobs[:_MOST_LINES])
    if len(answer.jobs) > _MOST_LINES:
        yield f"  and {counted(len(answer.jobs) - _MOST_LINES, 'more job')}"
    for shift in answer.queues:
        before, after = (told_quantity(shift.resource, amount) for amount in (shift.before, shift.after))
        yield f"  queue {shift.queue} {shift.amount} {shift.resource}: {before} -> {after}"
    yield from (f"! {each.area}: {each.problem}: {each.advice}" for each in answer.findings)
    if not (parts or answer.queues):
        yield "no difference"
    total = sum(answer.pending.values())
    made = f"{counted(len(answer.bound), 'pod')} bound, {len(answer.evicted)} evicted by the change"
    if answer.lost:
        verb = by_number(len(answer.lost), "loses its node", "lose their nodes")
        made = f"{counted(len(answer.lost), 'pod')} {verb}, {made}"
    yield f"{made}; {total} {by_number(total, 'waits', 'wait')} after it"
    if answer.unsettled:
        yield "later sessions would decide more, which is not shown"
    yield from answer.without_pods


def _shifted(job: JobShift) -> str:
    """`2 of its pods lose their nodes, 1 is bound, 1 of 4 waits`."""
    parts = (
        (job.lost, "lost their nodes"),
        (job.evicted, "evicted"),
        (job.no_longer_bound, "not bound any more"),
        (job.bound, "bound"),
    )
    said = [f"{number} {what}" for number, what in parts if number]
    return ", ".join([*said, f"{job.waiting} of {job.pods} wait" if job.pods else "no pods left"])


def _in(each: Moved) -> str:
    return f" (queue {each.queue})" if each.queue else ""


def _for(each: Moved) -> str:
    return f" by {each.action}" + (f" for {each.whom}" if each.whom else "") if each.action else ""
