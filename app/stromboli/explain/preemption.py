"""Why nobody is evicted for a pod: whether the policy may, whether the job may, and what the others could give."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import PODS, TOLERANCE, Mask, told
from stromboli.framework.job import Job, Queue
from stromboli.framework.reasons import column_name
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord
from stromboli.tactics.prospects import candidates, may_be_asked

#: actions that evict for other queues, and for other jobs of a queue
RECLAIMING = ("reclaim", "gangreclaim")
PREEMPTING = ("preempt", "gangpreempt")
#: queues that are compared in the text
_MOST_QUEUES = 4
_UNWILLING = "they, their PodGroups or their queues say that they must not be"


def look(session: Session, job: Job, pod: PodRecord, willing: Mask) -> tuple[str, str]:
    """A verdict (blocks, or open when victims may be found) and what it rests on, for a pod that needs room."""
    actions = session.policy.actions
    evicting = [name for name in (*PREEMPTING, *RECLAIMING) if name in actions]
    if not willing.any():
        return "open", "no room would help: all nodes are ruled out for other causes"
    if not evicting:
        return "blocks", "no action of the policy evicts others: there is neither preempt nor reclaim"
    if pod.pod_class.spec.preemption_policy == "Never":
        return "blocks", "its preemptionPolicy is Never"
    parts: list[tuple[str, str]] = []
    starves = session.ask.job_starving(job)
    if not (starves or (session.ask.takes_back_by_share and any(name in actions for name in RECLAIMING))):
        return "blocks", f"PodGroup {job.key} has its minimum, so nobody is evicted for more"
    if starves and any(name in actions for name in PREEMPTING):
        parts.append(_preempt(session, job, pod, willing))
    if any(name in actions for name in RECLAIMING):
        parts.append(_reclaim(session, job, pod, willing))
    verdict = "blocks" if all(verdict == "blocks" for verdict, _ in parts) else "open"
    return verdict, "; ".join(text for _, text in parts)


def _candidates(session: Session, job: Job, point: str, willing: Mask) -> tuple[list[PodRecord], list[PodRecord]]:
    """The pods on nodes that could be asked to go for a job, and those of them that agree to it."""
    nodes = session.view.pods.node
    found = [each for each in candidates(session, job, point) if willing[nodes[each.row]]]
    return found, [each for each in found if may_be_asked(session, each, point)]


def _preempt(session: Session, job: Job, pod: PodRecord, willing: Mask) -> tuple[str, str]:
    running, agreeing = _candidates(session, job, "preemptable", willing)
    if not running:
        return "blocks", f"preempt: no other job of queue {job.queue.name} runs pods there"
    victims = session.ask.victims("preemptable", pod, agreeing) if agreeing else []
    if not victims:
        words = f"none of {len(running)} pods of queue {job.queue.name} may be evicted for it"
        highest, lowest = job.priority, min(session.view.jobs[each.job].priority for each in running)
        if lowest >= highest:
            words += f": no job has a lower priority than its {highest}"
        elif not agreeing:
            words += f": {_UNWILLING}"
        return "blocks", f"preempt: {words}"
    return "open", f"preempt: {len(victims)} of {len(running)} pods of queue {job.queue.name} may be evicted for it"


def _reclaim(session: Session, job: Job, pod: PodRecord, willing: Mask) -> tuple[str, str]:
    overused = session.ask.overused(job.queue) or session.ask.preemptive(job.queue, [pod])
    if overused is not None:
        return "blocks", f"reclaim: its queue may take nothing back: {overused.message}"
    others = [queue for queue in session.view.queues.values() if queue is not job.queue and queue.has_jobs]
    giving = [queue for queue in others if queue.spec.reclaimable is not False]
    kept = [queue.name for queue in others if queue.spec.reclaimable is False]
    running, agreeing = _candidates(session, job, "reclaimable", willing)
    victims = session.ask.victims("reclaimable", pod, agreeing) if agreeing else []
    if victims:
        names = sorted({session.view.jobs[victim.job].queue.name for victim in victims})
        return "open", f"reclaim: {len(victims)} pods of {', '.join(names)} may be evicted for it"
    if running and not agreeing and giving:
        return "blocks", f"reclaim: none of {len(running)} pods of other queues may be evicted for it: {_UNWILLING}"
    words = "; ".join(_not_above(session, queue, pod) for queue in giving[:_MOST_QUEUES])
    if kept:
        words += f"{'; ' if words else ''}not reclaimable: {', '.join(kept[:_MOST_QUEUES])}"
    return "blocks", f"reclaim: no victims: {words or 'no other queue runs pods there'}"


def _not_above(session: Session, queue: Queue, pod: PodRecord) -> str:
    """What a queue holds beside what it deserves, in what a pod asks for."""
    gauges = session.report.gauges.get(queue.name)
    if gauges is None or "deserved" not in gauges.amounts:
        return f"queue {queue.name} has no share to be above"
    held, deserved = gauges.amounts["allocated"], gauges.amounts["deserved"]
    columns = [c for c in np.flatnonzero(session.view.request(pod) > 0).tolist() if c != PODS]
    named = ((c, column_name(session.view.dimensions, c)) for c in columns)
    pairs = ", ".join(f"{told(name, held[c])} {name} and deserves {told(name, deserved[c])}" for c, name in named)
    above = bool((held[columns] > deserved[columns] + TOLERANCE).any())
    return f"queue {queue.name} holds {pairs}" + (", and what it holds above is protected" if above else "")
