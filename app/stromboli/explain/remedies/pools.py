"""Remedies for jobs that are kept out of node pools: other pools, and amounts of queues in single pools."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from stromboli.api.crds import NODE_POOLS
from stromboli.api.crds.queues import PoolShare
from stromboli.api.resources import Vector, listed
from stromboli.api.validation import nearest
from stromboli.explain.evictions import RECLAIMING
from stromboli.explain.places import amounts
from stromboli.explain.remedies.case import MOST_ALIKE, Candidate, Case
from stromboli.explain.remedies.changes import group_of, set_queue
from stromboli.explain.remedies.shares import exact_amounts, needs
from stromboli.explain.shares import limiting_in_pools
from stromboli.framework.cluster.job import Job, Queue, lineage
from stromboli.framework.plugin.report import PoolGauges
from stromboli.plugins.nodepools import NodePools
from stromboli.plugins.nodepools.arguments import listed as names_in
from stromboli.plugins.nodepools.arguments import named_by
from stromboli.state.cluster import ClusterState
from stromboli.workloads.names import said_by

#: reasons of queues that may have no more in pools
_LIMITING = ("NodePoolLimitReached", "NeverFits")


def others(case: Case) -> Iterator[Candidate]:
    """Further pools that a job may use, and pools in the place of those that the policy does not name."""
    plugin = next((plugin for plugin in case.session.points.plugins if isinstance(plugin, NodePools)), None)
    named = [] if case.job is None else names_in(named_by(case.job.pod_group))
    if plugin is None or not named or case.reason in ("QueueNotOpen", "NamespaceNotAllowed"):
        return
    where = said_by(case.job.pod_group) if case.job is not None else f"PodGroup {case.key}"
    pools = [pool.name for pool in plugin.arguments.pools]
    known = [name for name in named if name in pools]
    meant = list(dict.fromkeys(name if name in pools else nearest(name, pools) or "" for name in named))
    tried = [list(filter(None, meant)), known] if len(known) < len(named) else []
    for names in filter(None, [*tried, *([*known, name] for name in pools if name not in known)][:MOST_ALIKE]):
        words = f"set the annotation {NODE_POOLS}: {','.join(names)} on {where}"
        yield Candidate(words, "user", partial(_use, key=case.key, pools=",".join(names)))
    words = f"drop the annotation {NODE_POOLS} of {where}, so that all nodes may be used"
    yield Candidate(words, "user", partial(_use, key=case.key, pools=""))


def _use(state: ClusterState, key: str, pools: str) -> None:
    group = group_of(state, key)
    metadata = group.metadata
    annotations = {**metadata.annotations, NODE_POOLS: pools}
    state.upsert(
        "PodGroup", group.model_copy(update={"metadata": metadata.model_copy(update={"annotations": annotations})})
    )


def limits(case: Case) -> Iterator[Candidate]:
    """A limit in a pool, raised to what is held and requested there, in the queue and its ancestors."""
    if case.job is None or case.reason not in _LIMITING:
        return
    for name, wanted in _wanted(case, case.job):
        raised: list[tuple[str, dict[str, str]]] = []
        for queue in limiting_in_pools(case.session, case.job.queue):
            most = case.session.view.vector(_share(queue, name).capability, np.inf)
            needed = _gauges(case, queue)[name].held + wanted
            short = np.flatnonzero((wanted > 0) & (needed > most)).tolist()
            if short:
                raised.append((queue.name, exact_amounts(case, needed, short)))
        if raised:
            words = "; ".join(
                f"raise capability of queue {queue} in node pool {name} to {listed(most)}" for queue, most in raised
            )
            yield Candidate(words, "admin", partial(_raise, pool=name, field="capability", amounts=raised))


def deserved(case: Case) -> Iterator[Candidate]:
    """The deserved amount of a queue in a pool, raised to what is held and requested there."""
    at_stake = case.stage == "QueueShare" or case.reason == "Unschedulable"
    if case.job is None or not at_stake or not set(RECLAIMING) & set(case.session.policy.actions):
        return
    queue = case.job.queue
    for name, wanted in _wanted(case, case.job):
        named = case.session.view.vector(_share(queue, name).deserved) > 0
        columns = np.flatnonzero((wanted > 0) & (named | ~named.any())).tolist()
        due = amounts(case.session, _gauges(case, queue)[name].held + wanted, columns)
        words = f"raise what queue {queue.name} deserves in node pool {name} to {listed(due)}"
        yield Candidate(words, "admin", partial(_raise, pool=name, field="deserved", amounts=[(queue.name, due)]))


def kept_by_others(case: Case) -> Iterator[Candidate]:
    """The unused guarantee of another queue in a pool, lowered by as much as is needed."""
    if case.job is None or case.reason not in _LIMITING:
        return
    view = case.session.view
    line = {queue.name for queue in lineage(case.job.queue, view.queues)}
    own = _gauges(case, case.job.queue)
    lacking = (
        (name, np.maximum(wanted - (own[name].limit - own[name].held), 0)) for name, wanted in _wanted(case, case.job)
    )
    for name, wanted in (each for each in lacking if each[1].any()):
        for queue in [queue for queue in view.queues.values() if queue.name not in line]:
            said, gauges = _share(queue, name).guarantee, _gauges(case, queue)[name]
            idle = np.flatnonzero((wanted > 0) & (gauges.guarantee > gauges.held)).tolist()
            if idle:
                less = exact_amounts(case, np.maximum(gauges.guarantee - wanted, gauges.held), idle)
                guarantee = said.model_copy(update={"resource": {**(said.resource or {}), **less}})
                words = f"lower the guarantee of queue {queue.name} in node pool {name} to {listed(less)}"
                yield Candidate(words, "admin", partial(_set, queue=queue.name, pool=name, guarantee=guarantee))


def _wanted(case: Case, job: Job) -> Iterator[tuple[str, Vector]]:
    """The pools that a job may use, with its request beyond what its queue may take of the others, and in all."""
    if case.session.report.pools is None:
        return
    gauges, asked = _gauges(case, job.queue), needs(case)
    usable = [name for name in names_in(named_by(job.pod_group)) or gauges if name in gauges]
    for name in usable:
        free = [np.maximum(gauges[other].limit - gauges[other].held, 0) for other in usable if other != name]
        rest = np.maximum(asked - np.sum([np.zeros_like(asked), *free], axis=0), 0)
        if (rest > 0).any() and (rest < asked).any():
            yield name, rest
        yield name, asked


def _gauges(case: Case, queue: Queue) -> dict[str, PoolGauges]:
    pools = case.session.report.pools
    return {} if pools is None else pools(queue)


def _share(queue: Queue, pool: str) -> PoolShare:
    """The settings of a queue for a pool."""
    return next((each for each in queue.spec.pools if each.name == pool), PoolShare(name=pool))


def _raise(state: ClusterState, pool: str, field: str, amounts: list[tuple[str, dict[str, str]]]) -> None:
    for name, most in amounts:
        said = next((each for each in state.queues[name].spec.pools if each.name == pool), PoolShare(name=pool))
        _set(state, name, pool, **{field: {**(getattr(said, field) or {}), **most}})


def _set(state: ClusterState, queue: str, pool: str, **said: object) -> None:
    """Change a queue's entry for a pool."""
    pools = state.queues[queue].spec.pools
    share = next((each for each in pools if each.name == pool), PoolShare(name=pool)).model_copy(update=said)
    set_queue(queue, pools=[*(each for each in pools if each.name != pool), share])(state)
