"""Which jobs a session compares with the status of their PodGroups, and which pods it tells that their turn is to come.

While a mass of PodGroups is new, or their pods ended together, they differ from their status until all are written,
which takes many sessions. So a session compares a bounded number of the jobs that it did not touch: each once before
any of them a second time, with namespaces taking turns. For the others, what earlier sessions found and have not yet
written stands. Pods are taken in the order of their rows, round robin.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from stromboli.api.crds import PodGroup
from stromboli.api.objects import refusal
from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Rows
from stromboli.framework import reasons
from stromboli.framework.cluster.job import SCHEDULED_STATES, Job
from stromboli.framework.cluster.jobs import Jobs
from stromboli.framework.session.session import Session
from stromboli.framework.session.turns import TOLD, TURN, places

#: the name under which jobs that were updated but still differ are left to the next session, the latest one last;
#: while there are more, it marks the session as unfinished
_NAME = "statuses"
#: the same for PodGroups whose queue does not exist
_LOST = "statuses of lost PodGroups"
#: phases of PodGroups that wait, or may have to
WAITING_PHASES = ("", "Pending", "Inqueue")
#: the name under which the row of the pod looked at last is left to the next session
_ROUND = "turns of pods to be told"


def to_tell(session: Session) -> list[Job]:
    """The jobs whose shown status may change, in order."""
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
    untold = index.keys() - _chosen(session, _NAME, index, most, touched)
    differ[[index[key] for key in untold]] = False
    return jobs.where(differ)


def lost_to_tell(session: Session) -> list[PodGroup]:
    """The PodGroups whose queue does not exist and whose shown status may change.

    If a session cannot update them all, those that show this already are left alone, even if other queues exist now.
    """
    view, most = session.view, session.policy.session.steps // TOLD + 1
    before: tuple[str, ...] = view.environment.left.get(_LOST, ())
    lost = view.lost
    if not view.bounded or len(lost) <= most:
        if before:
            session.actions_left[_LOST] = ()
        return lost
    pending = {record.job for record in view.records(np.flatnonzero(view.pods.state == PodState.Pending))}
    silent = {
        group.key: group
        for group in lost
        if (group.key in pending or group.status.phase in WAITING_PHASES) and not _says_that_it_is_lost(group)
    }
    numbers: dict[str, int] = {}
    of = np.array([numbers.setdefault(group.metadata.namespace, len(numbers)) for group in silent.values()], np.intp)
    keys = list(silent)
    in_turn = [keys[at] for at in np.argsort(places(of), kind="stable").tolist()]
    return [silent[key] for key in _chosen(session, _LOST, in_turn, most)]


def _says_that_it_is_lost(group: PodGroup) -> bool:
    """Whether a PodGroup shows that its queue does not exist, with or without a suggested name."""
    why = reasons.queue_not_found(group.spec.queue, ())
    said = f"{why.reason}: {why.message}"
    return any(
        each.status == "True" and each.message.startswith((f"{said}. ", f"{said} ("))
        for each in group.status.conditions
    )


def _chosen(
    session: Session, name: str, keys: Collection[str], most: int, touched: Sequence[str] = ()
) -> Sequence[str]:
    """The PodGroups, of some keys, whose statuses this session updates: those not updated before come first.

    `touched` are updated in addition.
    """
    before: tuple[str, ...] = session.view.environment.left.get(name, ())
    again = {key: None for key in before if key in keys}
    new = [key for key in keys if key not in again]
    chosen = [*new, *again][:most]
    untold = set(keys).difference(chosen)
    session.view.trace.untold |= untold
    session.actions_left[name] = (*(key for key in again if key in untold), *chosen, *touched)
    if len(new) > most:
        session.budget.unfinished.add(name)
    return chosen


def silent_to_tell(session: Session, rows: Rows) -> set[int]:
    """A few of the pods in some rows, in ascending order: beyond the session's budget, of jobs without a turn yet, and
    without a shown reason.
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
    """Which jobs differ from what their PodGroups show even if no decision changes them: what `phase` and
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
