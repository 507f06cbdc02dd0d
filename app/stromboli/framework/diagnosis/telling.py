"""Which jobs a session compares with what their PodGroups show, and which pods it tells that their turn is to come.

A mass of PodGroups that are new, or whose pods ended together, differs from what it shows until all of its statuses
are written, which takes many sessions. So of the jobs that a session did not touch it tells of a bounded number: each
is told once before one that was told is told again, and namespaces take turns. What earlier sessions said of the
others, and is still to be written, stands. Pods are told in the order of their rows, round and round.
"""

from __future__ import annotations

import numpy as np

from stromboli.api.objects import refusal
from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Rows
from stromboli.framework import reasons
from stromboli.framework.cluster.job import SCHEDULED_STATES, Job
from stromboli.framework.cluster.jobs import Jobs
from stromboli.framework.session.session import Session
from stromboli.framework.session.turns import TOLD, TURN, places

#: under which name it is left to the next session which jobs were told and still differ, the one told last at the end,
#: and by which the session is unfinished while there are others
_NAME = "statuses"
#: under which name it is left to the next session which pod was looked at last, by its row
_ROUND = "turns of pods to be told"


def to_tell(session: Session) -> list[Job]:
    """The jobs of which something else may be shown than before, in order."""
    jobs = session.view.jobs
    differ, most = _may_differ(jobs), session.policy.session.steps // TOLD + 1
    before: tuple[str, ...] = session.view.environment.left.get(_NAME, ())
    if not session.view.bounded or np.count_nonzero(differ) <= most:
        if before:
            session.actions_left[_NAME] = ()
        return jobs.where(differ)
    touched = jobs.keys_of(np.flatnonzero(differ & ~jobs.unmade))
    untouched = np.flatnonzero(differ & jobs.unmade)
    untouched = untouched[np.argsort(places(jobs.namespace[untouched]), kind="stable")]
    index = dict(zip(jobs.keys_of(untouched), untouched.tolist(), strict=True))
    again = {key: None for key in before if key in index}
    new = [key for key in index if key not in again]
    chosen = [*new, *again][:most]
    session.view.trace.untold = untold = index.keys() - chosen
    session.actions_left[_NAME] = (*(key for key in again if key in untold), *chosen, *touched)
    if len(new) > most:
        session.budget.unfinished.add(_NAME)
    differ[[index[key] for key in untold]] = False
    return jobs.where(differ)


def silent_to_tell(session: Session, rows: Rows) -> set[int]:
    """Of the pods in some rows, in ascending order, a few that the session's budget did not reach, whose job had no
    turn yet, and that say nothing.
    """
    trace, records, steps = session.view.trace, session.view.pods.records, session.policy.session.steps
    begin = int(np.searchsorted(rows, session.view.environment.left.get(_ROUND, -1), side="right"))
    found, row, left = set[int](), -1, steps // TURN
    for row in np.roll(rows, -begin).tolist():
        record = records[row]
        if record is None or record.job not in trace.not_reached:
            continue
        if trace.jobs.get(record.job) is not reasons.TURN_PENDING_AGAIN and refusal(record.conditions) is None:
            found.add(row)
        left -= 1
        if left <= 0 or len(found) > steps // TOLD:
            break
    session.budget.left[_ROUND] = row
    return found


def _may_differ(jobs: Jobs) -> Mask:
    """Which jobs show something else than their PodGroups even if no decision changes them: what `phase` and
    `_has_moved` of `closing` find, for all at once.
    """
    done = jobs.count(PodState.Succeeded, PodState.Failed)
    scheduled = jobs.count(*SCHEDULED_STATES)
    has_begun, is_done = scheduled >= jobs.min_available, scheduled == done
    settled = np.where(
        has_begun,
        np.where(is_done, jobs.in_phase("Completed"), jobs.in_phase("Running")),
        jobs.in_phase("Inqueue", "Pending") | (jobs.in_phase("Completed") & jobs.membership.empty),
    )
    shown = np.array([jobs.count(state) for state in (PodState.Running, PodState.Succeeded, PodState.Failed)])
    moved: Mask = ~settled | (shown != jobs.numbers[1:]).any(axis=0)
    return moved
