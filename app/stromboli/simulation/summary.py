"""The text of a run: queues with every resource that their pods request, and where the pods of each PodGroup are.

Everything fits 80 columns; names that are longer are folded, never cut.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace
from rich import box
from rich.table import Table

from stromboli.api.reasons import Actionable, Reason
from stromboli.api.resources import CPU, PODS, Vector, told
from stromboli.explain.answers import Answer
from stromboli.explain.doubts import too_small
from stromboli.explain.evictions import why_no_evictions
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.remedies import explained
from stromboli.explain.remedies.case import MOST_STEPS, taken
from stromboli.explain.running import held_up_together
from stromboli.explain.warnings import warnings
from stromboli.framework.cluster.job import Job, title_of
from stromboli.framework.diagnosis.explain import all_reasons, why_job
from stromboli.framework.reasons import column_name
from stromboli.framework.session.session import Session
from stromboli.simulation.run import Run
from stromboli.workloads.node_requests import nodes_asked_for

_FOLDED = frozenset(("queue", "resource", "PodGroup", "nodes"))
#: nodes of a PodGroup that are named
_MOST_NODES = 1
#: PodGroups for which what would help is tried
_MOST_HELPED = 5


def queues(name: str, run: Run) -> Table:
    """A row for each queue and resource: what its pods ask for and hold, and what the queue deserves."""
    view, report = run.session.view, run.session.report
    table = _table("queue", "state", ">weight", ">share", "resource", ">asked", ">held", ">deserved", title=name)
    asked_of, held_by = (
        view.by_queue(of_jobs) for of_jobs in (view.membership.requested(), view.membership.allocated_now())
    )
    for queue in view.queues.values():
        gauges = report.queue(queue.name)
        asked, held = asked_of[queue.name], held_by[queue.name]
        deserved = gauges.amounts.get("deserved")
        share = "-" if gauges.share is None else f"{gauges.share:.2f}"
        head = (queue.name, queue.state or "-", str(queue.spec.weight), share)
        for column in _shown(asked, held):
            resource = column_name(view.dimensions, column)
            cells = (_amount(resource, column, vector) for vector in (asked, held, deserved))
            table.add_row(*head, resource, *cells)
            head = ("", "", "", "")
    return table


def pod_groups(run: Run) -> Table:
    """A row for each PodGroup: how many of its pods have a place, where, and in one word why the others have none."""
    table = _table("PodGroup", "queue", "phase", ">pods", "nodes", *([">evicted"] if run.evicted else []), "why")
    session, reasons = run.session, all_reasons(run.session)
    placed = run.bindings | {r.key: r.node_name for r in session.view.pods.records if r is not None and r.node_name}
    unmade = _without_pods(session)
    for key, pods in sorted((dict.fromkeys(unmade, ()) | _members(session)).items()):
        job = session.view.jobs.get(key)
        there = [placed[pod] for pod in pods if pod in placed]
        evicted = sum(pod in run.evicted for pod in pods)
        words = dict.fromkeys(reasons[pod].reason for pod in pods if pod in reasons)
        words |= {unmade[key].reason: None} if key in unmade else {}
        if job is not None and words:
            words |= dict.fromkeys(f"{action}: {why.reason}" for action, why in why_no_evictions(session, job))
        table.add_row(
            key or "(none)",
            job.queue.name if job else "-",
            (job.phase if job else "") or "-",
            f"{len(there)}/{len(pods)}",
            _counted(there),
            *([str(evicted or "")] if run.evicted else []),
            "\n".join(words),
        )
    return table


def fair_shares(session: Session) -> Table:
    """A row for each queue and resource that it has anything to do with: how its fair share was found."""
    table = _table("queue", "resource", ">quota", ">limit", ">request", ">usage", "steps", ">fair share")
    for queue in session.view.queues.values():
        gauges = session.report.queue(queue.name)
        steps = gauges.steps() if gauges.steps and "fair_share" in gauges.amounts else []
        amounts = gauges.amounts
        for column in range(len(session.view.dimensions)):
            resource = column_name(session.view.dimensions, column)
            some = [amounts[key][column] for key in ("deserved", "request", "fair_share", "allocated")] if steps else []
            if column == PODS or not any(np.isfinite(amount) and amount for amount in some):
                continue
            table.add_row(
                queue.name,
                resource,
                *(told(resource, amounts[key][column]) for key in ("deserved", "capacity", "request")),
                f"{amounts['usage'][column]:.3g}",
                "\n".join(f"{step} {told(resource, share[column])}" for step, share in _changes(steps, column)),
                told(resource, amounts["fair_share"][column]),
            )
    return table


def _changes(steps: list[tuple[str, Vector]], column: int) -> list[tuple[str, Vector]]:
    """The steps that changed the share of one resource, and the first."""
    before = [None, *(share[column] for _, share in steps[:-1])]
    return [step for step, old in zip(steps, before, strict=True) if old is None or step[1][column] != old]


def explanations(session: Session, rehearsal: Rehearsal | None = None) -> Iterator[str]:
    """A paragraph for each PodGroup that waits, or has pods with a node that do not run: each reason once, with the
    number of pods that it stops. With a rehearsal the first of them say what would help.
    """
    reasons, unmade, helped, untried = all_reasons(session), _without_pods(session), 0, 0
    for key, pods in sorted((dict.fromkeys(unmade, ()) | _members(session)).items()):
        waits = [reasons[pod] for pod in pods if pod in reasons]
        job = session.view.jobs.get(key)
        held = "" if job is None else _doubtful(session, job)
        if not waits and not held and key not in unmade:
            continue
        found: Answer | None = None
        if (waits or key in unmade) and key and rehearsal is not None:
            tries = helped < _MOST_HELPED and taken(rehearsal) < MOST_STEPS
            found = explained(session, "job", key, rehearsal) if tries else None
            helped, untried = helped + tries, untried + (not tries)
        counts = Counter(_told(_as_tried(reason, found)) for reason in waits)
        said = [f"  {count} x {text}" for text, count in counts.items()] + ([f"  {held}"] if held else [])
        said += [f"  {_told(unmade[key])}"] if key in unmade else []
        said += [
            f"  {asked_for}" for asked_for in (nodes_asked_for(session.view.snapshot, key),) if counts and asked_for
        ]
        said += [] if job is None else [f"  {action}: {_told(why)}" for action, why in why_no_evictions(session, job)]
        yield "\n".join([f"{key or '(none)'}:", *said, *_helps(found)])
    if untried:
        yield f"What would help {untried} more was not tried: stromboli why job NAME -f FILE says it of one."


def _doubtful(session: Session, job: Job) -> str:
    """Why pods of a job that have nodes do not run, or will not."""
    told = held_up_together(session, job), too_small(session.view.members(job))
    return "; ".join(filter(None, told))


def _as_tried(reason: Reason, found: Answer | None) -> Reason:
    """A reason that says it may resolve only where `stromboli why` says so as well."""
    vain = found is not None and found.tried and reason.actionable is Actionable.Wait and found.who not in ("", "wait")
    return replace(reason, actionable=Actionable(found.who)) if vain and found else reason


def _helps(found: Answer | None) -> list[str]:
    """Remedies for a job, in the words of `stromboli why`."""
    told = [f"    {each.who}: {each.change} -> {each.effect}" for each in (found.remedies if found else ())]
    return ["  What would help (tried on a copy of the cluster)", *told] if told else []


def told_warnings(session: Session) -> Iterator[str]:
    """A paragraph for each queue and PodGroup with fields that have no effect."""
    for name, said in warnings(session).items():
        kind, _, key = name.partition(" ")
        who = title_of(session.view.jobs, key) if kind == "PodGroup" else name
        yield "\n".join([f"{who}:", *(f"  {word}: {message}" for word, message in said.items())])


def _table(*columns: str, title: str = "") -> Table:
    """`>` before the name of a column sets it to the right; names of objects are folded where they are long."""
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        number, whole = column[0] == ">", column not in _FOLDED
        table.add_column(column.lstrip(">"), justify="right" if number else "left", overflow="fold", no_wrap=whole)
    return table


def _shown(asked: Vector, held: Vector) -> list[int]:
    """CPU, and every other resource but pods that is requested or held."""
    some = (asked + held) > 0
    some[CPU], some[PODS] = True, False
    return np.flatnonzero(some).tolist()


def _amount(resource: str, column: int, vector: Vector | None) -> str:
    if vector is None:
        return "-"
    return told(resource, float(vector[column]) if column < len(vector) else 0.0)


def _members(session: Session) -> dict[str, Sequence[str]]:
    """The pods of each job, and under the empty key those that wait in none."""
    members: defaultdict[str, list[str]] = defaultdict(list)
    for record in session.view.pods.records:
        if record is not None and (record.job or not record.node_name):
            members[record.job].append(record.key)
    return dict(members)


def _without_pods(session: Session) -> dict[str, Reason]:
    """Why jobs without pods wait, by key."""
    found = ((job, why_job(session, job)) for job in session.view.jobs.values() if not job.size)
    return {job.key: why for job, why in found if why is not None}


def _counted(names: Iterable[str]) -> str:
    """`node-0 x4, node-1 x2, 3 more`."""
    counts = Counter(names)
    shown = [name if count == 1 else f"{name} x{count}" for name, count in sorted(counts.items())]
    more = len(shown) - _MOST_NODES
    return ", ".join(shown[:_MOST_NODES]) + (f", {more} more" if more > 0 else "")


def _told(reason: Reason) -> str:
    return f"{reason.stage.name}: {reason.in_full.told}"
