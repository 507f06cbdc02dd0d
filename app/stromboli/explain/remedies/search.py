"""The smallest changes that would let a job or a pod run, each tried on a fork of the cluster's state.

Candidates come kind by kind, those that cost least first; where a change has a size, the smallest that works is
searched. What does not work when it is tried is not proposed, unless it does away with what is in the way of an
admission, or with requests that no node meets: then it is told for what else the job would wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from stromboli.api.pod_state import PodState
from stromboli.api.words import counted
from stromboli.explain.answers import Answer, Remedy
from stromboli.explain.jobs import explain_job, explain_pod, sample_of
from stromboli.explain.named import job_called
from stromboli.explain.rehearsal import Future, Rehearsal
from stromboli.explain.remedies import (
    admission,
    claims,
    gangs,
    others,
    placement,
    pools,
    repairs,
    run_times,
    shares,
    users,
)
from stromboli.explain.remedies.case import Candidate, Case, taken
from stromboli.framework.cluster.job import title_of
from stromboli.framework.session.session import Session

#: reasons of pods that wait for others of their gang
_OF_OTHERS = ("GangNotReady", "SameRoleFailed")


def with_remedies(session: Session, answer: Answer, rehearsal: Rehearsal) -> Answer:
    """The answer with a change for each party that can act, where one was found that works."""
    case = _case(session, answer, rehearsal)
    if case is None:
        return answer
    found, first_steps = case.found, dict[str, Remedy]()
    if case.reached(case.before):
        nothing = "nothing: it will get its place without a change"
        found["wait"] = Remedy(change=nothing, who="wait", effect=_effect(case, case.before))
    else:
        for kind in _KINDS:
            for candidate in kind(case):
                if case.exhausted or candidate.who in found:
                    break
                future = case.outcome(candidate, whole=kind in _FIRST)
                if case.reached(future, candidate.needed):
                    found[candidate.who] = _remedy(candidate, _effect(case, future))
                elif kind in _FIRST and candidate.who not in first_steps and (then := _waits_next(case, future)):
                    first_steps[candidate.who] = _remedy(candidate, then)
        if answer.who == "wait" and "wait" not in found and not case.exhausted and _waits_in_vain(case):
            said = [answer.detail] if answer.detail else []
            detail = "; ".join([*said, "it would not start even if all other jobs were gone"])
            answer = replace(answer, who="user" if "user" in found else "admin", detail=detail)
    found = first_steps | found
    order = {who: rank for rank, who in enumerate(dict.fromkeys((answer.who, "user", "admin", "wait")))}
    return replace(
        answer,
        remedies=sorted(found.values(), key=lambda remedy: order[remedy.who]),
        tried=True,
        unfinished=case.exhausted,
    )


def _waits_in_vain(case: Case) -> bool:
    """Whether a job would not start even if all others were gone, so that waiting is no advice."""
    return not case.reached(case.outcome(Candidate("", "", others.all_gone(case.key))))


def _remedy(candidate: Candidate, effect: str) -> Remedy:
    return Remedy(change=candidate.words, who=candidate.who, effect=effect, jobs=list(candidate.jobs))


def _waits_next(case: Case, future: Future) -> str:
    """For what a job or pod would wait after a change that is not enough; empty when for the same."""
    answer, session = case.answer, future.session
    after = explained(session, answer.kind.lower(), f"{answer.namespace}/{answer.name}", None) if session else None
    if after is None or after.reason in ("", answer.reason):
        return ""
    return f"then it waits at {after.stage}: {after.reason}"


def explained(session: Session, kind: str, key: str, rehearsal: Rehearsal | None) -> Answer | None:
    """The answer about a job or a pod (`kind`), with what would help if there is something to try it on."""
    answer: Answer | None
    if kind == "job":
        answer = explain_job(session, job_called(session.view, key))
    else:
        record = next((pod for pod in session.view.pods.records if pod is not None and pod.key == key), None)
        answer = explain_pod(session, record) if record is not None else None
    return answer if answer is None or rehearsal is None else with_remedies(session, answer, rehearsal)


def _case(session: Session, answer: Answer, rehearsal: Rehearsal) -> Case | None:
    """None when nothing waits."""
    view = session.view
    if not answer.reason:
        return None
    key = f"{answer.namespace}/{answer.name}"
    if answer.kind == "Pod":
        own = [record for record in view.pods.records if record is not None and record.key == key]
        job = view.jobs.get(own[0].job) if own else None
        pods = [*own, *(pod for pod in view.pending(job) if pod is not own[0])] if job else own
        needed, group = 1, own[0].job if own else ""
    else:
        job = view.jobs.get(key)
        pods = [record for record in view.pods.records if record is not None and record.job == key]
        needed, group = max(1, job.min_available - job.ready_count) if job else 1, key
    pods = [pod for pod in pods if view.pods.state[pod.row] in (PodState.Pending, PodState.Pipelined)]
    if not pods and (answer.kind == "Pod" or (job is not None and not job.pending_phase)):
        return None
    keys = frozenset([key] if answer.kind == "Pod" else [pod.key for pod in pods])
    word, stage = answer.reason, answer.stage
    root = view.reason(job) if job and word in _OF_OTHERS else None
    if root is not None:
        word, stage = root.reason, root.stage.name
    ordered = session.ask.in_task_order(pods)
    told = view.reason(job) if job and answer.kind == "Job" else None
    sample = sample_of(session, ordered, told)
    if sample is not None:
        ordered = [sample, *(pod for pod in ordered if pod is not sample)]
    before = rehearsal.run()
    return Case(
        session=session,
        rehearsal=rehearsal,
        answer=answer,
        job=job,
        key=group,
        pods=ordered,
        keys=keys,
        needed=min(needed, len(keys)),
        before=before,
        alone=rehearsal.after(others.none_waiting(group, keys)),
        began=taken(rehearsal),
        reason=word,
        stage=stage,
    )


def _effect(case: Case, future: Future) -> str:
    """What a change would bring about beside."""
    mine = len(case.keys & future.bound.keys())
    admitted = "" if case.pods else f"{title_of(case.session.view.jobs, case.key)} admitted"
    known = case.before if future is not case.before else Future()
    others = len(future.bound.keys() - known.bound.keys() - case.keys)
    gone = len(future.evicted.keys() - known.evicted.keys())
    parts = [admitted or f"{counted(mine, 'pod')} bound"]
    if others:
        parts.append(f"{others} more")
    if gone:
        parts.append(f"{counted(gone, 'pod')} of others evicted")
    return ", ".join(parts)


_ADMITTING: tuple[Callable[[Case], Iterator[Candidate]], ...] = (admission.groups, admission.queues)
#: what does away with what is in the way, and may leave the job to wait for something else
_FIRST = (*_ADMITTING, placement.requests)
_KINDS: tuple[Callable[[Case], Iterator[Candidate]], ...] = (
    *(*_ADMITTING, placement.requests, repairs.repairs, placement.predicates, claims.claims, gangs.topology),
    *(gangs.sub_groups, gangs.roles, gangs.gangs, gangs.resources, shares.limits, pools.limits, users.limits),
    *(shares.quotas, pools.others, run_times.over, run_times.given_up, others.actions, others.ends),
    *(others.priorities, shares.weights, pools.deserved),
    *(shares.kept_by_others, pools.kept_by_others, placement.nodes),
)
