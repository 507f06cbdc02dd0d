"""The smallest changes that would let a job or a pod run, each tried on a fork of the cluster's state.

Candidates come kind by kind, the cheapest first; if a change has a size, the smallest one that works is searched. A
change that fails the trial is not proposed, unless it removes an obstacle to admission, or requests that no node
meets: then the answer says what the job would wait for next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Stage
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
from stromboli.explain.remedies.case import MANY_WAIT, MOST_ALIKE, Candidate, Case, taken
from stromboli.framework.cluster.job import Job, title_of
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord

#: the number of changes tried together if none is enough alone
_PAIR, _MOST_TOGETHER = 2, 3
_IN_VAIN = "it would not start even if all other jobs were gone"
_NO_MORE = "its other pods would find no places even if all other jobs were gone"
#: reasons of pods that wait for others of their gang
_OF_OTHERS = ("GangNotReady", "SameRoleFailed")


def with_remedies(session: Session, answer: Answer, rehearsal: Rehearsal) -> Answer:
    """The answer with a change for each party that can act, where one was found that works."""
    case = _case(session, answer, rehearsal)
    if case is None:
        return answer
    if case.reached(case.before):
        nothing = Candidate("nothing: it will get its place without a change", "wait")
        case.found["wait"] = nothing, _effect(case, case.before)
    elif case.others_first:
        turn = Candidate("wait until the other jobs that wait have places or are gone", "wait")
        case.found["wait"] = turn, f"{counted(case.needed, 'pod')} bound"
    else:
        _search(case)
        lacks = not case.found or (answer.who == "user" and not case.found.keys() & {"user", "wait"})
        case.seen.add(_in_the_way(answer))
        later = _in_steps(case, _MOST_TOGETHER) if lacks else []
        vain = answer.who == "wait" and "wait" not in case.found and not case.exhausted and _waits_in_vain(case)
        if vain:
            answer = replace(answer, who="user" if "user" in case.found else "admin")
        case.found = case.first_steps | case.found
        in_vain = _NO_MORE if answer.placed >= answer.min_member > 0 else _IN_VAIN
        answer = replace(
            answer, detail="; ".join(filter(None, [answer.detail, _later(answer, later) or (in_vain if vain else "")]))
        )
    order = {who: rank for rank, who in enumerate(dict.fromkeys((answer.who, "user", "admin", "wait")))}
    remedies = [
        Remedy(change=each.words, who=who, effect=effect, jobs=list(each.jobs))
        for who, (each, effect) in case.found.items()
    ]
    return replace(
        answer,
        remedies=sorted(remedies, key=lambda remedy: order[remedy.who]),
        tried=True,
        unfinished=case.exhausted or case.others_first,
    )


def _waits_in_vain(case: Case) -> bool:
    """Whether a job would not start even if all others were gone, so that waiting is no advice."""
    return not case.reached(case.outcome(Candidate("", "", others.all_gone(case.key))))


def _search(case: Case) -> None:
    """Find single changes that are enough."""
    first_steps = dict[str, tuple[Candidate, str]]()
    for kind in _KINDS:
        for candidate in kind(case):
            if case.exhausted or candidate.who in case.found:
                break
            future = case.outcome(candidate, whole=kind in _FIRST)
            if case.reached(future, candidate.needed):
                case.found[candidate.who] = candidate, _effect(case, future)
                continue
            if kind in _FIRST and candidate.who not in first_steps and (then := _waits_next(case, future)):
                first_steps[candidate.who] = candidate, then
            if len(case.parts) < MOST_ALIKE and (kind in _PARTS or (kind is gangs.gangs and case.lacks_pods)):
                case.parts.append(candidate)
    case.first_steps = first_steps


def _in_steps(case: Case, most: int) -> list[Answer]:
    """Find the fewest changes that are enough together, up to `most`, where none is alone. Returns what the job or pod
    waits for after each but the last.
    """
    open_ = list[tuple[Candidate, Case]]()
    for part in case.parts:
        after = _after(case, part)
        if after is None:
            continue
        _search(after)
        if after.found:
            _together(case, part, after)
            return [after.answer]
        open_.append((part, after))
    for part, after in open_ if most > _PAIR else ():
        later = _in_steps(after, most - 1)
        if after.found:
            _together(case, part, after)
            return [after.answer, *later]
    return []


def _together(case: Case, part: Candidate, after: Case) -> None:
    """Add a change and its outcome; of changes made by the same party, keep the smallest."""
    for who in [who for who in ("wait", "user", "admin") if who in after.found]:
        candidate, effect = after.found[who]
        both = part.then(candidate)
        case.found.setdefault(both.who, (both, effect))


def _after(case: Case, part: Candidate) -> Case | None:
    """The case after a change that is not enough; None where what is in the way then was seen before."""
    if case.exhausted:
        return None
    there = case.alone if case.apart else case.rehearsal
    if part.change is not None:
        there = there.after(part.change)
    if part.engine is not None:
        there = there.under(part.engine)
    session = there.session()
    answer = explained(session, case.answer.kind.lower(), f"{case.answer.namespace}/{case.answer.name}", None)
    if answer is None or _in_the_way(answer) in case.seen:
        return None
    case.seen.add(_in_the_way(answer))
    after = _case(session, answer, there)
    if after is not None:
        after.began, after.seen = case.began, case.seen
    return after


def _in_the_way(answer: Answer) -> object:
    """The obstacle that an answer reports."""
    causes = frozenset((each.cause, *each.also) for each in answer.nodes)
    return answer.stage, answer.reason, answer.message, causes


def _later(answer: Answer, later: Sequence[Answer]) -> str:
    """Obstacles that a job or pod meets after the one in its answer, which may not be the first removed."""
    others = [each for each in later if (each.reason, each.message) != (answer.reason, answer.message)]
    said = "; then ".join(f"at {each.stage}: {each.reason}: {_blocking(each)}" for each in others)
    return f"once that is mended it waits {said}" if said else ""


def _blocking(answer: Answer) -> str:
    """The message of the blocking stage; what queues hold is in the answer's own stages."""
    if answer.stage == Stage.QueueShare.name:
        return f"{answer.message} ({answer.detail})" if answer.detail else answer.message
    return next((step.text for step in answer.steps if step.stage == answer.stage), answer.message)


def _waits_next(case: Case, future: Future) -> str:
    """For what a job or pod would wait after a change that is not enough; empty when for the same."""
    answer, session = case.answer, future.session
    after = explained(session, answer.kind.lower(), f"{answer.namespace}/{answer.name}", None) if session else None
    if after is None or after.reason in ("", answer.reason):
        return ""
    return f"then it waits at {after.stage}: {after.reason}"


def explained(session: Session, kind: str, key: str, rehearsal: Rehearsal | None) -> Answer | None:
    """The answer about a job or a pod (`kind`), with remedies if they can be tried."""
    answer: Answer | None
    if kind == "job":
        answer = explain_job(session, job_called(session.view, key))
    else:
        record = next((pod for pod in session.view.pods.records if pod is not None and pod.key == key), None)
        answer = explain_pod(session, record) if record is not None else None
    return answer if answer is None or rehearsal is None else with_remedies(session, answer, rehearsal)


def _case(session: Session, answer: Answer, rehearsal: Rehearsal) -> Case | None:
    """Build the case; None if nothing waits."""
    view = session.view
    if not answer.reason:
        return None
    key = f"{answer.namespace}/{answer.name}"
    if answer.kind == "Pod":
        own = [record for record in view.pods.records if record is not None and record.key == key]
        job = view.jobs.get(own[0].job) if own else None
        needed, group = 1, own[0].job if own else ""
        pods = [*own, *_beside(session, job, group, own)]
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
    needed = min(needed, len(keys))
    promised = any(view.pods.state[pod.row] == PodState.Pipelined for pod in pods)
    before, many_wait = _before(rehearsal, keys, needed, promised=promised)
    case = Case(
        session=session,
        rehearsal=rehearsal,
        answer=answer,
        job=job,
        key=group,
        pods=ordered,
        keys=keys,
        needed=needed,
        before=before,
        apart=many_wait,
        alone=rehearsal.after(others.none_waiting(group, keys)),
        began=taken(rehearsal),
        reason=word,
        stage=stage,
    )
    if many_wait:
        case.others_first = case.reached(case.alone.run(enough=case.reached))
    return case


def _beside(session: Session, job: Job | None, group: str, own: Sequence[PodRecord]) -> Iterator[PodRecord]:
    """The other waiting pods of a pod's gang, even if its PodGroup does not exist."""
    view = session.view
    gang = view.pending(job) if job else [pod for pod in view.pods.records if pod is not None and pod.job == group]
    yield from (pod for pod in gang if group and pod is not own[0])


def _before(rehearsal: Rehearsal, keys: frozenset[str], needed: int, *, promised: bool) -> tuple[Future, bool]:
    """The outcome without any change, and whether too many other jobs wait to follow it beyond one session."""
    begun = rehearsal.begun or rehearsal.run(cycles=1)
    costly = begun.in_part or begun.steps > MANY_WAIT
    if costly and not promised:
        return begun, True
    # Of a costly future no more is needed than whether promised places are had.
    return rehearsal.run(enough=lambda future: costly and len(keys & future.bound.keys()) >= needed), False


def _effect(case: Case, future: Future) -> str:
    """The side effects of a change."""
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
    return ", ".join(parts) + (" if no other job waited" if case.apart else "")


_ADMITTING: tuple[Callable[[Case], Iterator[Candidate]], ...] = (admission.groups, admission.queues)
#: changes that remove the obstacle but may leave the job waiting for something else
_FIRST = (*_ADMITTING, placement.requests)
_KINDS: tuple[Callable[[Case], Iterator[Candidate]], ...] = (
    *(*_ADMITTING, placement.requests, repairs.repairs, placement.predicates, claims.claims, gangs.topology),
    *(gangs.sub_groups, gangs.roles, gangs.resources, gangs.gangs, shares.limits, pools.limits, users.limits),
    *(shares.quotas, pools.others, run_times.timed_out, run_times.over, run_times.given_up),
    *(others.actions, others.ends),
    *(others.priorities, shares.weights, pools.deserved),
    *(shares.kept_by_others, pools.kept_by_others, placement.nodes),
)
#: possible parts of a change: what is wrong with the job itself, limits, and jobs that have to end
_PARTS = (
    *(*_FIRST, repairs.repairs, placement.predicates, claims.claims, gangs.topology, gangs.sub_groups, gangs.roles),
    *(gangs.resources, shares.limits, pools.limits, users.limits, shares.quotas, pools.others, others.ends),
)
