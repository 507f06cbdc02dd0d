"""What the next session has to know of this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stromboli.api.pod_state import PodState
from stromboli.framework.environment import Environment
from stromboli.framework.job import NOWHERE, Job
from stromboli.framework.kept import KeptRoom
from stromboli.framework.session import Session


def environment_after(session: Session) -> Environment:
    """The environment of the next session: that of this one, and what plugins, actions and nominations leave."""
    environment = session.view.environment
    return replace(
        environment,
        nominated_hyper_nodes=nominated_hyper_nodes(session),
        admitted=session.admissions.after_session() if session.admissions is not None else environment.admitted,
        kept=session.keeper.kept,
        room=_kept_room(session),
        churn=session.churn.after_session(),
        left=_left(session),
    )


def nominated_hyper_nodes(session: Session) -> dict[str, str]:
    """The HyperNodes that were nominated, by uid of the group."""
    if not session.rules.nominations:
        return {}
    return {
        sub_job.uid: session.view.topology.name(sub_job.nominated_hyper_node)
        for job in session.view.jobs.made
        for sub_job in job.opened_sub_jobs
        if sub_job.nominated_hyper_node != NOWHERE
    }


def _kept_room(session: Session) -> Mapping[str, KeptRoom]:
    """Room that was made, by key of the job."""
    before, promised = session.view.environment.room, session.outcome.promised
    if not (promised and session.rules.served_next and session.policy.evictions.keep):
        return session.room if session.room != before else before
    kept, now = dict(session.room), session.view.time()
    for key in {session.view.record(row).job for row in promised}:
        kept[key] = KeptRoom(now, dict(_places_promised(session, session.view.jobs[key])))
    return kept


def _places_promised(session: Session, job: Job) -> Iterator[tuple[str, str]]:
    """The uid of each pod of a job that gets a place when victims have gone, and the name of its node."""
    pods = session.view.pods
    for pod in session.view.members(job):
        if pods.state[pod.row] == PodState.Pipelined:
            yield pod.uid, session.view.nodes.name(int(pods.node[pod.row]))


def _left(session: Session) -> dict[str, Any]:
    """What plugins and actions leave. A plugin that failed leaves what was left before."""
    left = {**session.view.environment.left, **session.actions_left, **session.budget.left}
    for plugin in [p for p in session.plugins if p in session.points]:
        try:
            mine = plugin.leave()
        except BaseException as error:
            session.points.failures.add(plugin.name, "leave", "leave", error)
            continue
        if mine is not None:
            left[plugin.name] = mine
    return left
