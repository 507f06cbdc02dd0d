"""The standing of a queue: what it deserves and why, what it and its ancestors hold, and its ignored fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from stromboli.api.resources import PODS, TOLERANCE, UNKNOWN, Vector, exact, listed, told, told_quantity
from stromboli.api.words import measured
from stromboli.explain.answers import Level, QueueAnswer, Round
from stromboli.explain.competitors import in_jobs, jobs_below
from stromboli.explain.places import UNLIMITED, amounts, limited, share
from stromboli.explain.shares import kept_of, limiting_in_pools, undivided
from stromboli.explain.warnings import of_queue
from stromboli.fairness import shares
from stromboli.fairness.obstacles import ROOT
from stromboli.fairness.queue_tree import QueueTree
from stromboli.framework.cluster.job import Queue, lineage
from stromboli.framework.diagnosis.explain import may_wait, why_job
from stromboli.framework.diagnosis.ignored import CONDITION as FIELD_IGNORED
from stromboli.framework.diagnosis.ignored import ignored_of_queue
from stromboli.framework.plugin.report import QueueGauges
from stromboli.framework.reasons import queue_not_open
from stromboli.framework.session.session import Session

#: the number of rounds shown, including the last
_MOST_ROUNDS = 6
#: queues that are named with their weights
_MOST_NAMED = 10


def explain_queue(session: Session, name: str) -> QueueAnswer | None:
    """The standing of a queue; None if there is none of that name."""
    queue = session.view.queues.get(name)
    if queue is None:
        return None
    gauges = session.report.gauges.get(name, QueueGauges())
    jobs = jobs_below(session, queue)
    columns = [c for c in range(len(session.view.dimensions)) if c != PODS or session.view.counts_pods]
    waiting = [job for job in jobs if may_wait(job)]
    in_pools = limiting_in_pools(session, queue)
    return QueueAnswer(
        name=name,
        state=queue.state,
        parent=queue.parent,
        divided_by=gauges.plugin,
        weight=queue.spec.weight,
        share=gauges.share,
        overused=gauges.gets_nothing_more,
        words=list(_words(session, queue, gauges)),
        levels=[
            level
            for each in lineage(queue, session.view.queues)
            for level in (*_levels(session, each), *(_levels_in_pools(session, each) if each in in_pools else ()))
        ],
        rounds=_rounds(session, gauges),
        ignored=ignored_of_queue(session, queue),
        jobs=dict(sorted(Counter(job.phase or "Pending" for job in jobs).items())),
        waiting=dict(Counter(why.reason for job in waiting if (why := why_job(session, job))).most_common()),
        holders=in_jobs(session, jobs, columns),
    )


def _levels(session: Session, queue: Queue) -> Iterator[Level]:
    """Requests, holdings and limits of a queue, by resource; `held` and `requested` include all descendants."""
    view = session.view
    gauges = session.report.gauges.get(queue.name, QueueGauges())
    held = view.by_queue(view.membership.allocated_now())[queue.name]
    requested = view.by_queue(view.membership.requested())[queue.name]
    ends = view.membership.terminating()
    ending = view.vector(None) if ends is None else view.by_queue(ends)[queue.name]
    guarantee = view.vector(queue.spec.guarantee.resource)
    known = {name: gauges.amounts.get(name) for name in ("inqueue", "deserved")}
    # The root is what is divided: it has a share only under a plugin with a tree.
    divided = known["deserved"] if known["deserved"] is not None else view.vector(None)
    for column, resource in enumerate(view.dimensions):
        told = [
            vector[column] for vector in (held, ending, requested, guarantee, *known.values()) if vector is not None
        ]
        if (column == PODS and not view.counts_pods) or resource == UNKNOWN or not any(told):
            continue
        yield Level(
            queue=queue.name,
            resource=resource,
            requested=exact(resource, requested[column]),
            held=exact(resource, held[column]),
            terminating=exact(resource, ending[column]) if ending[column] else "",
            inqueue=_share(resource, column, known["inqueue"]),
            deserved=_share(resource, column, known["deserved"]) if queue.name != ROOT or divided[column] else "",
            guarantee=exact(resource, guarantee[column]) if guarantee[column] else "",
            limit="" if (limit := limited(gauges, column)) is None else share(resource, limit),
        )


def _levels_in_pools(session: Session, queue: Queue) -> Iterator[Level]:
    """Holdings and limits of a queue in each node pool, by resource, if it declares or holds anything there."""
    view = session.view
    for name, pool in (session.report.pools(queue) if session.report.pools is not None else {}).items():
        some = np.any([pool.held, pool.terminating, pool.claimed, pool.deserved, pool.guarantee], axis=0)
        for column, resource in enumerate(view.dimensions):
            said = pool.limit[column] < UNLIMITED or pool.deserved[column] or pool.guarantee[column]
            counts = (column != PODS or view.counts_pods or said) and resource != UNKNOWN
            if not counts or not (some[column] or pool.limit[column] < UNLIMITED):
                continue
            yield Level(
                queue=queue.name,
                resource=resource,
                pool=name,
                requested="",
                held=exact(resource, pool.held[column]),
                terminating=exact(resource, pool.terminating[column]) if pool.terminating[column] else "",
                inqueue=exact(resource, pool.claimed[column]),
                deserved=exact(resource, pool.deserved[column]) if pool.deserved[column] else "",
                guarantee=exact(resource, pool.guarantee[column]) if pool.guarantee[column] else "",
                limit=share(resource, pool.limit[column]) if pool.limit[column] < UNLIMITED else "",
            )


def _share(resource: str, column: int, vector: Vector | None) -> str:
    return "" if vector is None else share(resource, vector[column])


def _rounds(session: Session, gauges: QueueGauges) -> list[Round]:
    told = [(step, amounts(session, np.floor(share))) for step, share in (gauges.steps() if gauges.steps else ())]
    steps = [step for at, step in enumerate(told) if not at or step[1] != told[at - 1][1]]
    if len(steps) > _MOST_ROUNDS:
        steps = [*steps[: _MOST_ROUNDS - 1], steps[-1]]
    return [Round(step=step, amounts=share) for step, share in steps]


def _words(session: Session, queue: Queue, gauges: QueueGauges) -> Iterator[str]:
    """Sentences on how the share of a queue was found, and on what follows from it."""
    if not queue.open:
        yield queue_not_open(queue).message
    if queue.tenants is not None:
        yield f"takes jobs only of {queue.tenants.told}{_said_by(queue, queue.tenants.queue)}"
    yield from (message for word, message in of_queue(session, queue).items() if word != FIELD_IGNORED)
    guaranteed, kept = session.view.vector(queue.spec.guarantee.resource), kept_of(session, queue.name)
    if gauges.kept is not None and (kept < guaranteed - TOLERANCE).any():
        told = ", ".join(f"{amount} {name}" for name, amount in amounts(session, kept).items())
        yield f"of its guarantee {told or 'nothing'} is reserved for it: other queues may use the rest"
    deserved = gauges.amounts.get("deserved")
    if gauges.plugin == "proportion" and deserved is not None:
        yield from _by_weight(session, queue, gauges, deserved)
    elif gauges.plugin == "capacity" and deserved is not None:
        entitled = shares.entitled(queue)
        if queue.name != ROOT or entitled:
            yield f"deserves what its spec says: {listed(entitled)}"
        if queue.spec.borrowing_limit:
            yield f"borrows no more than {listed(queue.spec.borrowing_limit)}"
        if queue.spec.lending_limit:
            yield f"lends no more than {listed(queue.spec.lending_limit)}"
        yield from _left_by_others(session, queue, gauges)
    elif queue.name == ROOT:
        yield "is what the other queues share: all of the cluster"
    elif not gauges.plugin and not queue.has_jobs:
        below = any(each.parent == queue.name for each in session.view.queues.values())
        yield f"has no jobs{' of its own' if below else ''}, so it gets no share"
    elif not gauges.plugin:
        yield undivided(session)
    if not queue.open or queue.name == ROOT:
        return
    if deserved is not None and not np.delete(deserved, PODS).any():
        yield from _deserving_nothing(session, queue, gauges)
    elif gauges.gets_nothing_more and gauges.plugin == "capacity":
        yield "holds all that it deserves: what it holds or gets beyond that is borrowed from others"
    elif gauges.gets_nothing_more:
        asked = gauges.amounts.get("request")
        if asked is not None and deserved is not None and (asked <= deserved + TOLERANCE).all():
            yield "holds all that its jobs ask for"
        else:
            yield "holds all that it deserves: it gets nothing more until others want less or its share grows"


def _left_by_others(session: Session, queue: Queue, gauges: QueueGauges) -> Iterator[str]:
    """The resources that a queue wants but cannot get more of, since guarantees or lending limits keep the rest."""
    if gauges.bound is None:
        return
    bound, held = gauges.bound(), gauges.amounts["allocated"]
    wanted = session.view.by_queue(session.view.membership.requested())[queue.name]
    above = {each.parent for each in session.view.queues.values()} | {ROOT}
    for column in np.flatnonzero((wanted > held) & (bound < held + TOLERANCE)).tolist():
        resource = session.view.dimensions[column]
        keeping = ", ".join(
            f"queue {each.name} keeps {told(resource, kept)}"
            for each in session.view.queues.values()
            if each is not queue and each.name not in above and (kept := float(kept_of(session, each.name)[column])) > 0
        )
        rest = f": {keeping}" if keeping else ""
        most = measured(told(resource, bound[column]), resource)
        yield f"gets no more than {most}, as others hold the rest or keep it{rest}"


def _said_by(queue: Queue, name: str) -> str:
    return "" if name == queue.name else f", as queue {name} above it says"


def _deserving_nothing(session: Session, queue: Queue, gauges: QueueGauges) -> Iterator[str]:
    """The consequences for a queue that deserves nothing, depending on what it holds and whether it gets more."""
    held = session.view.by_queue(session.view.membership.allocated_now())[queue.name]
    borrows = bool((np.delete(held, PODS) > 0).any())
    if not gauges.gets_nothing_more and gauges.plugin != "capacity":
        # Other plugins divide by requests: none of the queue's jobs takes part yet.
        return
    if not gauges.gets_nothing_more:
        what = "all that it holds is" if borrows else "what it gets is"
        yield f"deserves nothing, so that its share counts as {gauges.share or 0:.0f}: {what} borrowed from others"
        return
    if borrows:
        yield "deserves nothing, and all that it holds is borrowed: it gets nothing more"
        return
    share = f" though its share is {gauges.share:.0f}" if gauges.share is not None and gauges.share < 1 else ""
    yield f"deserves nothing, so it counts as overused{share}: nothing is placed in it"


def _by_weight(session: Session, queue: Queue, gauges: QueueGauges, deserved: Vector) -> Iterator[str]:
    """For each resource which of weight, limit, request and guarantee settles what a queue deserves."""
    asked = {name: each.amounts.get("request") for name, each in session.report.gauges.items()}
    sharing = [each for each in session.view.queues.values() if (of := asked.get(each.name)) is not None and of.any()]
    weights = sum(each.spec.weight for each in sharing)
    if weights and queue in sharing:
        names = [f"{each.name} {each.spec.weight}" for each in sharing[:_MOST_NAMED]]
        names += [f"{len(sharing) - _MOST_NAMED} more"] if len(sharing) > _MOST_NAMED else []
        yield f"weight {queue.spec.weight} of {weights} ({', '.join(names)})"
    guarantee, request = kept_of(session, queue.name), gauges.amounts["request"]
    others = idle = session.view.vector(None)
    for each in session.view.queues.values():
        kept_there = kept_of(session, each.name)
        others = others + kept_there if each is not queue else others
        idle = idle if each.has_jobs else idle + kept_there
    for column, resource in enumerate(session.view.dimensions):
        uncounted = (column == PODS and not session.view.counts_pods) or resource == UNKNOWN
        if uncounted or not (request[column] or deserved[column]):
            continue
        amount = float(deserved[column])
        limit = float(gauges.limit[column]) if gauges.limit is not None else np.inf
        if amount >= request[column] - TOLERANCE:
            why = "all that it requests"
        elif abs(amount - limit) <= 1:
            capability = (queue.spec.capability or {}).get(resource)
            kept = f"what guarantees of others leave: {told(resource, others[column])} are kept"
            why = f"its limit: capability {told_quantity(resource, capability)}" if capability else kept
        elif guarantee[column] and abs(amount - guarantee[column]) <= 1:
            why = "its guarantee, above its part by weight"
        else:
            why = f"its part by weight of {told(resource, session.view.total[column])}"
            why += f", of which idle queues keep {told(resource, idle[column])} guaranteed" if idle[column] else ""
        yield f"deserves {measured(told(resource, amount), resource)}: {why}"


def in_tree(parents: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Each queue after its parent, with its depth; queues whose parents form a cycle come last.

    `parents` has the name of each queue's parent, empty or that of no queue for those at the top.
    """
    tree = QueueTree.of(parents)
    return ((tree.names[row], depth) for row, depth in tree.in_order())
