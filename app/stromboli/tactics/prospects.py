"""Who could be evicted for a job that waits, and why that does not help: asked after a session, to explain it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from stromboli.api.keys import namespace_of
from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable, Passage, Reason, Stage
from stromboli.api.resources import copies_that_fit
from stromboli.framework.job import Job
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord
from stromboli.tactics.candidates import HELD, agrees

#: the point at which plugins are asked, by the action that evicts
_POINTS = {
    "preempt": "preemptable",
    "gangpreempt": "preemptable",
    "reclaim": "reclaimable",
    "gangreclaim": "reclaimable",
}
#: stages after which places are looked for: who is stopped before evicts nobody
_STAGES = (Stage.QueueShare, Stage.Gang, Stage.Placement)


def prospects(session: Session, job: Job) -> Iterator[tuple[str, Reason]]:
    """For each action of the policy that evicts, why it evicts nobody for a job, by the action's name."""
    waiting = [pod for pod in session.view.pending(job) if not pod.pod_class.gated]
    blocked = session.view.reason(job)
    if not waiting or blocked is None or blocked.stage not in _STAGES or session.ask.job_valid(job) is not None:
        return
    pod = session.ask.in_task_order(waiting)[0]
    for action in session.policy.actions:
        point = _POINTS.get(action)
        if point is not None:
            yield action, _prospect(session, job, pod, point)


def _prospect(session: Session, job: Job, pod: PodRecord, point: str) -> Reason:
    by_share = point == "reclaimable" and session.ask.takes_back_by_share
    if not (by_share or session.ask.job_starving(job)):
        return _reason("NotStarving", f"PodGroup {job.key} has what it starts with, and evicts nobody for more")
    if point == "reclaimable":
        why = session.ask.overused(job.queue) or session.ask.preemptive(job.queue, [pod])
        if why is not None:
            return _reason("MayNotReclaim", f"queue {job.queue.name} may not take from others", why.told)
    where = f"in queue {job.queue.name}" if point == "preemptable" else "in other queues"
    running = candidates(session, job, point)
    agreeing = [each for each in running if may_be_asked(session, each, point)]
    if not agreeing:
        detail = f"{len(running)} run, none may be evicted" if running else "none runs"
        return _reason("NoVictims", f"no pod {where} can be evicted", detail)
    refused = session.view.snapshot.refused
    alone = Counter((each.job, refused[each.uid].why) for each in agreeing if each.uid in refused)
    if alone.total() == len(agreeing):
        said = (
            Passage((namespace_of(of),), f"{count} of {of or '(none)'}: {why.rstrip('.')}", "some of other namespaces")
            for (of, why), count in sorted(alone.items())
        )
        message = f"evictions {where} were refused a moment ago, and who was to go is left alone for now"
        return _reason("EvictionRefused", message).saying(job.namespace, said)
    victims = session.ask.victims(point, pod, agreeing)
    if not victims:
        detail = f"of {len(agreeing)} that run: {_verdicts(session, point, pod, agreeing)}"
        return _reason("NoVictims", f"plugins let no pod {where} go", detail)
    return _not_enough(session, job, pod, victims, where)


def _not_enough(session: Session, job: Job, pod: PodRecord, victims: Sequence[PodRecord], where: str) -> Reason:
    """Why evicting those whom plugins let go does not help: there is no room even so, or only against the rules."""
    view = session.view
    room = view.nodes.future_idle().copy()
    for victim in victims:
        if (node := int(view.pods.node[victim.row])) >= 0:
            room[:, node] += view.request(victim)
    copies = copies_that_fit(view.request(pod), room, view.nodes.always)
    copies[~session.kernel.feasible(pod, hopeful=True)] = 0
    places, needed = float(copies.sum()), max(1, session.ask.job_missing(job))
    by_job = sorted(Counter(victim.job for victim in victims).items())
    who = ", ".join(f"{count} of {key}" for key, count in by_job[:3])
    who += f" and of {len(by_job) - 3} more PodGroups" if len(by_job) > 3 else ""
    named = tuple(sorted({namespace_of(key) for key, _ in by_job}))

    def saying(word: str, message: str, rest: str) -> Reason:
        told = Passage(named, f"{who} could go, {rest}", f"pods of other namespaces among them, {rest}")
        return _reason(word, message).saying(job.namespace, [told])

    if places < needed:
        message = f"evicting all pods {where} that plugins let go would not make room"
        return saying("VictimsDoNotSuffice", message, f"which leaves room for {places:.0f} of {needed} pods")
    message = f"pods {where} could go, and limits of queues, gangs or budgets keep them"
    return saying("VictimsKept", message, f"with room for {min(places, 1e6):.0f} pods, {needed} needed")


def candidates(session: Session, job: Job, point: str) -> list[PodRecord]:
    """The pods that hold a node and are asked about for a job: of its queue's other jobs, or of other queues."""
    view, same_queue = session.view, point == "preemptable"
    held = view.records(np.flatnonzero(np.isin(view.pods.state, HELD) & (view.pods.node >= 0)))
    jobs = ((pod, view.jobs.get(pod.job)) for pod in held)
    return [pod for pod, of in jobs if of is not None and of is not job and (of.queue is job.queue) == same_queue]


def may_be_asked(session: Session, pod: PodRecord, point: str) -> bool:
    """Whether a pod may be evicted as far as it, its PodGroup and its queue say."""
    if not agrees(session, pod):
        return False
    if point == "preemptable":
        return True
    running = session.view.pods.state[pod.row] == PodState.Running
    return bool(running) and session.view.jobs[pod.job].queue.spec.reclaimable is not False


def _verdicts(session: Session, point: str, pod: PodRecord, candidates: Sequence[PodRecord]) -> str:
    """`priority lets 0 go, gang 3`."""
    said = []
    for plugin, named in session.points.named(point, pod, candidates):
        said.append(f"plugin {plugin} failed" if named is None else f"{plugin} lets {named} go")
    return ", ".join(said) or "no plugin says that one may go"


def _reason(word: str, message: str, detail: str = "") -> Reason:
    return Reason(Stage.Preemption, word, message, Actionable.Wait, detail)
