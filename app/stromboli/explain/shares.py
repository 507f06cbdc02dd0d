"""Sentences about what queues hold and deserve, next to what a job of one of them lacks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np

from stromboli.api.resources import PODS, TOLERANCE, Vector, listed, told
from stromboli.api.words import measured
from stromboli.explain.places import amounts, limited
from stromboli.framework.cluster.job import Queue, lineage
from stromboli.framework.reasons import column_name
from stromboli.framework.session.session import Session
from stromboli.plugins.nodepools import NodePools
from stromboli.state.pods import PodRecord

#: number of queues that are named among those that hold the rest of the shared capacity
_MOST_QUEUES = 3
#: a queue by name, and what it holds, deserves and keeps of its guarantee
_Other: TypeAlias = tuple[str, Vector, Vector, Vector]


def undivided(session: Session) -> str:
    """The words used if there is no share of the cluster."""
    if session.report.pools is not None:
        return "its shares are those of node pools"
    return "no plugin of the policy divides the cluster between queues"


def queue_share(session: Session, queue: Queue) -> str:
    """Amounts that a queue holds and may have, in a sentence."""
    gauges = session.report.gauges.get(queue.name)
    if gauges is None or "deserved" not in gauges.amounts:
        return f"queue {queue.name}: {undivided(session)}"
    held, deserved = gauges.amounts["allocated"], gauges.amounts["deserved"]
    parts = []
    for column, name in enumerate(session.view.dimensions):
        counts = column != PODS or session.view.counts_pods
        if column < len(held) and counts and (held[column] or deserved[column]):
            limit = limited(gauges, column)
            most = "" if limit is None else f", may have {told(name, limit)}"
            parts.append(f"{told(name, held[column])} of {measured(told(name, deserved[column]), name)}{most}")
    return (
        f"queue {queue.name} holds, of what it deserves, {'; '.join(parts)}"
        if parts
        else f"queue {queue.name} holds and deserves nothing"
    )


def shares_of_others(session: Session, queue: Queue, waiting: Sequence[PodRecord]) -> str:
    """The queues that hold most of the rest of the requested resources, with the amounts that they hold and deserve."""
    gauges = session.report.gauges
    mine = gauges.get(queue.name)
    if not waiting or mine is None or "deserved" not in mine.amounts:
        return ""
    line = {each.name for each in lineage(queue, session.view.queues)}
    parents = {each.parent for each in session.view.queues.values()}
    none = session.view.vector(None)
    others = [
        (name, each.amounts.get("allocated", none), each.amounts.get("deserved", none), kept_of(session, name))
        for name, each in gauges.items()
        if name not in line | parents
    ]
    said = []
    for column in [c for c in np.flatnonzero(session.view.request(waiting[0]) > 0).tolist() if c != PODS]:
        resource = column_name(session.view.dimensions, column)
        if float(mine.amounts["allocated"][column]) < float(mine.amounts["deserved"][column]) - TOLERANCE:
            continue
        if not any(each[2][column] + each[3][column] for each in others) and not mine.amounts["deserved"][column]:
            # Nothing says how this resource is divided.
            continue
        holding = [each for each in others if _taken(each, column)]
        holding.sort(key=lambda each: (-_nearness(session, line, each[0]), -_taken(each, column)))
        said += [_holding(each, resource, column) for each in holding[:_MOST_QUEUES]]
        said += [f"{len(holding) - _MOST_QUEUES} more hold some"] if len(holding) > _MOST_QUEUES else []
    return f"; of the rest, {'; '.join(said)}" if said else ""


def _nearness(session: Session, line: Collection[str], name: str) -> int:
    """Number of queues in `line` among a queue and its ancestors."""
    queue = session.view.queues.get(name)
    return sum(each.name in line for each in lineage(queue, session.view.queues)) if queue is not None else 0


def _taken(other: _Other, column: int) -> float:
    """Amount that a queue holds or reserves."""
    return max(float(other[1][column]), float(other[3][column]))


def _holding(other: _Other, resource: str, column: int) -> str:
    name, held, deserved, kept = other
    guaranteed = f", guaranteed {told(resource, kept[column])}" if kept[column] else ""
    share = max(float(deserved[column]), float(kept[column]))
    holds = f"queue {name} holds {told(resource, held[column])} of {measured(told(resource, share), resource)}"
    return f"{holds}{guaranteed}"


def kept_of(session: Session, queue: str) -> Vector:
    """The part of a queue's guarantee that is kept for it."""
    gauges = session.report.gauges.get(queue)
    return session.view.vector(None) if gauges is None or gauges.kept is None else gauges.kept


def claims(session: Session, queue: Queue) -> str:
    """The amounts that count against a queue's limit besides what its pods hold."""
    gauges = session.report.gauges.get(queue.name)
    inqueue = gauges.amounts.get("inqueue") if gauges else None
    if gauges is None or inqueue is None or not inqueue.any():
        return ""
    held, claimed = amounts(session, gauges.amounts["allocated"]), amounts(session, inqueue)
    return (
        f"; pods of the queue hold {listed(held)}, jobs that were admitted and do not run yet claim {listed(claimed)}"
    )


def limiting_in_pools(session: Session, queue: Queue) -> list[Queue]:
    """The queues whose limits in node pools count for a queue: itself, and those above it where these are followed."""
    follows = any(plugin.hierarchy for plugin in session.points.plugins if isinstance(plugin, NodePools))
    return [*lineage(queue, session.view.queues)] if follows else [queue]
