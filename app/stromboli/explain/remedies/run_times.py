"""Remedies for run times: minima that protect a job's victims, and times that a job itself exceeded."""

from __future__ import annotations

from collections.abc import Iterator

from stromboli.actions.timeouts import EXCEEDED, UNREADY, paused_until
from stromboli.api.crds import PodGroupStatus
from stromboli.api.words import first_few
from stromboli.explain.evictions import PREEMPTING, RECLAIMING, candidates, point_of, reclaimer_at, young_jobs
from stromboli.explain.rehearsal import Change
from stromboli.explain.remedies.case import MOST_ALIKE, Candidate, Case
from stromboli.explain.remedies.changes import group_of, set_queue
from stromboli.framework.cluster.job import Job
from stromboli.plugins.minruntime.run_times import RunTimes
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import timestamp

#: the fields with run times, as written in the spec and as attributes of the models
_FIELDS = {
    "preemptable": ("preemptMinRuntime", "preempt_min_runtime", "preempt"),
    "reclaimable": ("reclaimMinRuntime", "reclaim_min_runtime", "reclaim"),
}


def over(case: Case) -> Iterator[Candidate]:
    """The first time by which enough of them are over."""
    protected = [each for point in _points(case) for each in _protected(case, point)]
    for until in sorted({at for at, _ in protected})[:MOST_ALIKE]:
        done = sorted({of.key for at, of in protected if at <= until})
        words = f"wait until {timestamp(until)}, when the minimum run time of {first_few(done, MOST_ALIKE)} is over"
        yield Candidate(words, "wait", at=until, jobs=done[:MOST_ALIKE])


def timed_out(case: Case) -> Iterator[Candidate]:
    """The end of the pause of a gang that timed out, or another PodGroup for a gang that is not tried again."""
    if case.job is None or case.reason not in (UNREADY, EXCEEDED):
        return
    until = paused_until(case.session, case.job)
    if until:
        yield Candidate(f"wait until {timestamp(until)}, when it is tried again", "wait", at=until)
    yield Candidate(f"delete PodGroup {case.job.key} and submit it again", "user", _submitted_again(case.job.key))


def _submitted_again(key: str) -> Change:
    def change(state: ClusterState) -> None:
        group = group_of(state, key)
        metadata = group.metadata.model_copy(update={"uid": f"{group.metadata.uid}-again"})
        state.upsert("PodGroup", group.model_copy(update={"metadata": metadata, "status": PodGroupStatus()}))

    return change


def given_up(case: Case) -> Iterator[Candidate]:
    """Queues, or priority classes in the policy, that give them up."""
    view, engine = case.session.view, case.rehearsal.engine
    plugin = next((each for each in case.session.points.plugins if each.name == "minruntime"), None)
    for point in _points(case) if plugin is not None else ():
        assert case.job is not None
        assert plugin is not None
        written, field, argument = _FIELDS[point]
        reclaimer = reclaimer_at(point, case.job)
        run_times = RunTimes(view, plugin.arguments)
        for _, of in _protected(case, point)[:MOST_ALIKE]:
            if name := run_times.class_of(of, reclaimer):
                classes = dict(plugin.arguments.classes)
                classes[name] = classes[name].model_copy(update={argument: 0.0})
                words = f"set priorityClasses.{name}.{written}: 0s for plugin minruntime in the policy"
                yield Candidate(words, "admin", engine=engine.arguing("minruntime", classes=classes))
                continue
            queue = run_times.queue_of(of.queue, reclaimer)
            yield Candidate(f"set {written}: 0s in queue {queue.name}", "admin", set_queue(queue.name, **{field: "0s"}))


def _points(case: Case) -> list[str]:
    """Where plugins are asked about victims for the job, if it looks for any."""
    if case.job is None or case.stage not in ("QueueShare", "Gang", "Placement"):
        return []
    actions = [name for name in case.session.policy.actions if name in PREEMPTING or name in RECLAIMING]
    return list(dict.fromkeys(map(point_of, actions)))


def _protected(case: Case, point: str) -> list[tuple[float, Job]]:
    assert case.job is not None
    running = candidates(case.session, case.job, point)
    return young_jobs(case.session, case.job, point, running)
