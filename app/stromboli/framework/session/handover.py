"""State that a session hands over to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stromboli.framework.cluster.environment import Environment
from stromboli.framework.cluster.job import NOWHERE
from stromboli.framework.cluster.jobs import HELD_BACK
from stromboli.framework.session.admissions import EMPTY, HOPELESS
from stromboli.framework.session.session import Session


def environment_after(session: Session) -> Environment:
    """The environment of the next session: that of this one, and what plugins, actions and nominations leave."""
    environment = session.view.environment
    return replace(
        environment,
        nominated_hyper_nodes=nominated_hyper_nodes(session),
        admitted=session.admissions.after_session() if session.admissions is not None else environment.admitted,
        reservations=session.keeper.after_session(
            session.outcome.promised if session.rules.served_next else (), session.policy.evictions.keep
        ),
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


def _left(session: Session) -> dict[str, Any]:
    """State that plugins and actions leave for the next session. For a failed plugin the previous state is kept."""
    left = {**session.view.environment.left, **session.actions_left, **session.budget.left}
    if HELD_BACK not in session.actions_left:
        left.pop(HELD_BACK, None)
    if session.admissions is not None and (session.admissions.empty_since or EMPTY in left):
        left[EMPTY] = session.admissions.empty_since
    if session.admissions is not None and (session.admissions.hopeless or HOPELESS in left):
        left[HOPELESS] = session.admissions.hopeless
    for plugin in session.points.plugins:
        try:
            mine = plugin.leave()
        except BaseException as error:
            session.points.failures.add(plugin.name, "leave", "leave", error)
            continue
        if mine is not None:
            left[plugin.name] = mine
    return left
