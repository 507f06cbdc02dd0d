"""Why no pod is evicted for a job that waits, by action: asked after a session, to explain it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from stromboli.api.keys import namespace_of
from stromboli.api.pod_state import HELD, PodState
from stromboli.api.reasons import Actionable, Passage, Reason, Stage
from stromboli.api.resources import PODS, TOLERANCE, copies_that_fit, told
from stromboli.api.words import by_number, counted, first_few
from stromboli.eviction.eligibility import agrees
from stromboli.framework.cluster.job import Job, Queue, called
from stromboli.framework.diagnosis.explain import why_job
from stromboli.framework.reasons import column_name
from stromboli.framework.session.session import Session
from stromboli.kube.budgets import budgets_of
from stromboli.placement.exact.places import is_impossible
from stromboli.plugins.minruntime.run_times import RunTimes
from stromboli.state.pods import PodRecord, timestamp

#: actions that evict for other jobs of the same queue, and for other queues
PREEMPTING = ("preempt", "gangpreempt")
RECLAIMING = ("reclaim", "gangreclaim")
#: stages after which places are looked for: a job that is stopped earlier evicts nothing
_STAGES = (Stage.QueueShare, Stage.Gang, Stage.Placement)
#: queues whose shares a detail compares
_MOST_QUEUES = 4
#: jobs, or disruption budgets, that a detail names
_MOST_JOBS = 3


def why_no_evictions(session: Session, job: Job) -> Iterator[tuple[str, Reason]]:
    """For each action of the policy that evicts, why it evicts no pod for a job, by the action's name."""
    waiting = [pod for pod in session.view.pending(job) if not pod.pod_class.gated]
    blocked = why_job(session, job)
    if waiting and blocked is not None and blocked.stage is Stage.Admission and job.pending_phase:
        yield from _not_admitted(session, job)
        return
    if not waiting or blocked is None or blocked.stage not in _STAGES or session.ask.job_valid(job) is not None:
        return
    if is_impossible(session, job):
        # Its reason says so.
        return
    pod = session.ask.in_task_order(waiting)[0]
    for action in session.policy.actions:
        if action in PREEMPTING or action in RECLAIMING:
            yield action, _why_none(session, job, pod, point_of(action))


def point_of(action: str) -> str:
    """The extension point that decides about the victims of an action that evicts."""
    return "preemptable" if action in PREEMPTING else "reclaimable"


def _not_admitted(session: Session, job: Job) -> Iterator[tuple[str, Reason]]:
    """For each action that evicts, that a job which is not admitted does not reach it, whatever its priority."""
    message = f"{job.title} is not admitted, and only admitted jobs evict, whatever their priority"
    for action in session.policy.actions:
        if action in PREEMPTING or action in RECLAIMING:
            below = ""
            if action in PREEMPTING:
                running = candidates(session, job, "preemptable")
                lower = sum(session.view.jobs[each.job].priority < job.priority for each in running)
                verb = by_number(lower, "has", "have")
                below = f"of {counted(len(running), 'pod')} running in queue {job.queue.name}, "
                below += f"{lower} {verb} a lower priority"
            yield action, _reason("NotAdmitted", message, below)


def _why_none(session: Session, job: Job, pod: PodRecord, point: str) -> Reason:
    """Why no pod is evicted for one pod of a job; `point` is where plugins are asked about victims."""
    may_not = _may_not_evict(session, job, pod, point)
    if may_not is not None:
        return may_not
    possible = session.kernel.feasible(pod, hopeful=True)
    if not possible.any():
        message = "every node is ruled out for a reason that no eviction can remove"
        return _reason("EvictionsDoNotHelp", message, actionable=Actionable.User)
    where = f"in queue {job.queue.name}" if point == "preemptable" else "in other queues"
    running = candidates(session, job, point)
    nodes = session.view.pods.node
    there = [each for each in running if possible[nodes[each.row]]]
    agreeing = [each for each in there if may_be_asked(session, each, point)]
    if not agreeing:
        return _no_victims(session, job, pod, point, f"no pod {where} can be evicted", _unasked(running, there), there)
    refused = session.view.snapshot.refused
    alone = Counter((each.job, refused[each.uid].why) for each in agreeing if each.uid in refused)
    if alone.total() == len(agreeing):
        jobs = session.view.jobs
        told = ((of, f"{count} of {called(jobs, of) or '(none)'}: {why}") for (of, why), count in sorted(alone.items()))
        said = (Passage((namespace_of(of),), words.rstrip("."), "some of other namespaces") for of, words in told)
        message = f"evictions {where} were refused a moment ago, and those pods are not tried again yet"
        return _reason("EvictionRefused", message).saying(job.namespace, said)
    victims = session.ask.victims(point, pod, agreeing)
    if not victims:
        detail = f"of {len(agreeing)} that run: {_verdicts(session, point, pod, agreeing)}"
        return _no_victims(session, job, pod, point, f"plugins allow no pod {where} to be evicted", detail, there)
    named = {victim.key for victim in victims}
    others = [each for each in agreeing if each.key not in named]
    protected = [*_protected(session, others, victims), *_young(session, job, point, others)]
    return _not_enough(session, job, pod, victims, where, protected)


def _may_not_evict(session: Session, job: Job, pod: PodRecord, point: str) -> Reason | None:
    """Why nothing may be evicted for a pod, whatever runs; None if something may."""
    if pod.pod_class.spec.preemption_policy == "Never":
        return _reason("NeverPreempts", "the pod's preemptionPolicy is Never", actionable=Actionable.User)
    by_share = point == "reclaimable" and session.ask.takes_back_by_share
    if not (by_share or session.ask.job_starving(job)):
        return _reason("NotStarving", f"{job.title} has its minimum, and nothing is evicted for pods beyond it")
    if point == "reclaimable":
        why = session.ask.overused(job.queue) or session.ask.preemptive(job.queue, [pod])
        if why is not None:
            detail = f"{why.message}{f'; {why.detail}' if why.detail else ''}"
            message = f"queue {job.queue.name} may not take from others"
            return _reason("MayNotReclaim", message, detail, why.actionable)
    return None


def _unasked(running: Sequence[PodRecord], there: Sequence[PodRecord]) -> str:
    """Number of running pods, and why none of them is a candidate."""
    if not running:
        return "none runs"
    if not there:
        return f"{len(running)} run, none on a node that would take the pod"
    return f"{len(there)} run, and they, their PodGroups or their queues forbid it"


def _no_victims(
    session: Session, job: Job, pod: PodRecord, point: str, message: str, detail: str, there: Sequence[PodRecord]
) -> Reason:
    """A reason with the conditions under which a pod would be evicted: priorities within a queue, or shares.

    `there` are the pods that run where the pod could.
    """
    running = candidates(session, job, point)
    protected = [*_protected(session, there), *_young(session, job, point, there)]
    if point == "preemptable":
        said = [*_by_priority(session, job, running), *protected]
        return _reason("NoVictims", message, detail).saying(job.namespace, said)
    holding = Counter(session.view.jobs[each.job].queue.name for each in there)
    others = [queue for queue in session.view.queues.values() if queue is not job.queue and queue.has_jobs]
    # Queues that hold nothing there have nothing to give, and are only mentioned if none does.
    others = sorted((queue for queue in others if not holding or holding[queue.name]), key=lambda q: -holding[q.name])
    giving = [queue for queue in others if queue.spec.reclaimable is not False]
    kept = [queue.name for queue in others if queue.spec.reclaimable is False]
    shares = [_share(session, queue, pod) for queue in giving[:_MOST_QUEUES]]
    shares += [f"not reclaimable: {', '.join(kept[:_MOST_QUEUES])}"] if kept else []
    return _reason("NoVictims", message, "; ".join([detail, *shares])).saying(job.namespace, protected)


def _by_priority(session: Session, job: Job, running: Sequence[PodRecord]) -> Iterator[Passage]:
    """The jobs whose priorities prevent an eviction, and those whose would not if they were in the same queue."""

    def lower(pods: Sequence[PodRecord]) -> list[PodRecord]:
        return [pod for pod in pods if session.view.jobs[pod.job].priority < job.priority]

    if running and not lower(running):
        words = f"no job has a lower priority than its {job.priority}"
        yield _naming(session, words, running)
    elif not running and (elsewhere := lower(candidates(session, job, "reclaimable"))):
        yield _naming(session, "jobs of lower priority are in other queues, from which only reclaim takes", elsewhere)


def _naming(session: Session, words: str, pods: Sequence[PodRecord]) -> Passage:
    """Words with the jobs of some pods and their priorities, the lowest first."""
    jobs = sorted(((session.view.jobs[key], n) for key, n in Counter(pod.job for pod in pods).items()), key=_by_rank)
    told = [f"{job.called} in queue {job.queue.name} has {job.priority} ({counted(n, 'pod')})" for job, n in jobs]
    namespaces = tuple(sorted({job.namespace for job, _ in jobs[:_MOST_JOBS]}))
    return Passage(namespaces, f"{words}: {first_few(told, _MOST_JOBS)}", words)


def _by_rank(pair: tuple[Job, int]) -> tuple[int, str]:
    return pair[0].priority, pair[0].key


def _protected(session: Session, pods: Sequence[PodRecord], victims: Sequence[PodRecord] = ()) -> Iterator[Passage]:
    """The disruption budgets that protect some pods besides the victims, if the policy respects them."""
    if not any(plugin.name == "pdb" for plugin in session.points.plugins):
        return
    budgets = budgets_of(session.view.snapshot, empty_selects_all=session.rules.budgets)
    used = Counter(n for pod in victims for n in budgets.covering(pod))
    barring = Counter(n for pod in pods for n in budgets.covering(pod) if budgets.listed[n].allowed <= used[n])
    for number, count in sorted(barring.items())[:_MOST_JOBS]:
        allowed = budgets.listed[number].allowed
        most = counted(allowed, "disruption") if allowed > 0 else "no disruption"
        covers = f"covers {count} more" if used[number] else f"covers {count} of them"
        words = f"PodDisruptionBudget {budgets.key(number)} allows {most}, and {covers}"
        others = f"disruption budgets of other namespaces allow {'no further' if used[number] else 'no'} disruption"
        yield Passage((budgets.listed[number].namespace,), words, others)
    several = [pod for pod in pods if session.rules.budgets and len(budgets.covering(pod)) > 1]
    if several:
        words = f"Kubernetes evicts no pod that several disruption budgets select, as they do {len(several)} of them"
        yield Passage(tuple(sorted({pod.namespace for pod in several})), words, "disruption budgets protect pods")


def young_jobs(session: Session, job: Job, point: str, pods: Sequence[PodRecord]) -> list[tuple[float, Job]]:
    """The jobs of some pods that have not run for their minimum, and when they will have, if the policy has one."""
    view, plugin = session.view, next((each for each in session.points.plugins if each.name == "minruntime"), None)
    if plugin is None or not pods:
        return []
    young = RunTimes(view, plugin.arguments).young(reclaimer_at(point, job))
    of_pods = (view.jobs[key] for key in dict.fromkeys(pod.job for pod in pods))
    found = [(float(young.until[of.index]), of) for of in of_pods if young.jobs[of.index]]
    return sorted(found, key=lambda each: each[0])


def reclaimer_at(point: str, job: Job) -> Queue | None:
    """The queue that reclaims from others; None if a job preempts within its own queue."""
    return None if point == "preemptable" else job.queue


def _young(session: Session, job: Job, point: str, pods: Sequence[PodRecord]) -> Iterator[Passage]:
    """The jobs of some pods that have not run for their minimum, and when they will have."""
    found = young_jobs(session, job, point, pods)
    if found:
        told = [f"{of.called} until {timestamp(until)}" for until, of in found]
        words = "their minimum run time protects"
        namespaces = tuple(sorted({of.namespace for _, of in found[:_MOST_JOBS]}))
        yield Passage(namespaces, f"{words} {first_few(told, _MOST_JOBS)}", f"{words} jobs of other namespaces")


def _share(session: Session, queue: Queue, pod: PodRecord) -> str:
    """Amounts that a queue holds and deserves of the resources that a pod requests, in words."""
    gauges = session.report.gauges.get(queue.name)
    if gauges is None or "deserved" not in gauges.amounts:
        return f"queue {queue.name} has no share that it could exceed"
    held, deserved = gauges.amounts["allocated"], gauges.amounts["deserved"]
    columns = [c for c in np.flatnonzero(session.view.request(pod) > 0).tolist() if c != PODS]
    named = ((c, column_name(session.view.dimensions, c)) for c in columns)
    pairs = ", ".join(f"{told(name, held[c])} {name} and deserves {told(name, deserved[c])}" for c, name in named)
    above = bool((held[columns] > deserved[columns] + TOLERANCE).any())
    return f"queue {queue.name} holds {pairs}" + (", and what it holds beyond that is protected" if above else "")


def _not_enough(
    session: Session, job: Job, pod: PodRecord, victims: Sequence[PodRecord], where: str, protected: Sequence[Passage]
) -> Reason:
    """Why evicting all pods that plugins allow does not help: they do not free enough, or the rules keep them.

    `protected` says what keeps others.
    """
    view = session.view
    free = view.nodes.future_idle().copy()
    for victim in victims:
        if (node := int(view.pods.node[victim.row])) >= 0:
            free[:, node] += view.request(victim)
    copies = copies_that_fit(view.request(pod), free, view.nodes.always)
    copies[~session.kernel.feasible(pod, hopeful=True)] = 0
    places, needed = float(copies.sum()), max(1, session.ask.job_missing(job))
    by_job = sorted(Counter(victim.job for victim in victims).items())
    who = ", ".join(f"{count} of {called(view.jobs, key)}" for key, count in by_job[:3])
    who += f" and of {counted(len(by_job) - 3, 'more job')}" if len(by_job) > 3 else ""
    named = tuple(sorted({namespace_of(key) for key, _ in by_job}))

    def saying(word: str, message: str, rest: str) -> Reason:
        passage = Passage(named, f"{who} could be evicted, {rest}", f"pods of other namespaces among them, {rest}")
        return _reason(word, message).saying(job.namespace, [passage, *_needed(session, victims), *protected])

    if places < needed:
        message = f"evicting all pods {where} that plugins allow would not free enough"
        return saying("VictimsDoNotSuffice", message, f"after which {places:.0f} of {counted(needed, 'pod')} fit")
    message = f"pods {where} could be evicted, and limits of queues, gangs or budgets keep them"
    return saying("VictimsKept", message, f"after which {counted(min(places, 1e6), 'pod')} would fit, {needed} needed")


def _needed(session: Session, victims: Sequence[PodRecord]) -> Iterator[Passage]:
    """The gangs of some victims that would lose the pods that they start with, and keep others."""
    for key, count in sorted(Counter(victim.job for victim in victims).items())[:_MOST_JOBS]:
        of = session.view.jobs[key]
        left = of.ready_count - count
        if 0 < left < of.min_available:
            words = (
                f"{of.called} would be left with {left} of the {counted(of.min_available, 'pod')} that it starts with"
            )
            yield Passage((of.namespace,), words, "gangs of other namespaces would be left with too few pods")


def candidates(session: Session, job: Job, point: str) -> list[PodRecord]:
    """The pods that hold a node and are asked about for a job: of its queue's other jobs, or of other queues."""
    view, same_queue = session.view, point == "preemptable"
    held = view.records(np.flatnonzero(np.isin(view.pods.state, HELD) & (view.pods.node >= 0)))
    jobs = ((pod, view.jobs.get(pod.job)) for pod in held)
    return [pod for pod, of in jobs if of is not None and of is not job and (of.queue is job.queue) == same_queue]


def may_be_asked(session: Session, pod: PodRecord, point: str) -> bool:
    """Whether a pod, its PodGroup and its queue allow its eviction."""
    if not agrees(session, pod):
        return False
    if point == "preemptable":
        return True
    running = session.view.pods.state[pod.row] == PodState.Running
    return bool(running) and session.view.jobs[pod.job].queue.spec.reclaimable is not False


def _verdicts(session: Session, point: str, pod: PodRecord, candidates: Sequence[PodRecord]) -> str:
    """`priority allows 0, gang allows 3`."""
    said = []
    for plugin, named in session.points.named(point, pod, candidates):
        said.append(f"plugin {plugin} failed" if named is None else f"{plugin} allows {named}")
    return ", ".join(said) or "no plugin allows one"


def _reason(word: str, message: str, detail: str = "", actionable: Actionable = Actionable.Wait) -> Reason:
    return Reason(Stage.Preemption, word, message, actionable, detail)
