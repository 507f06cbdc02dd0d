"""The most that jobs may ever hold, by what their queues may in all pools that they may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Matrix, Vector
from stromboli.api.resources import told as amount_told
from stromboli.api.words import by_number
from stromboli.framework.cluster.job import lineage
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.relations import Rationed
from stromboli.framework.reasons import column_name
from stromboli.plugins.nodepools.accounts import Account, Accounts, capabilities, pools_of_nodes
from stromboli.plugins.nodepools.arguments import NodePool, listed, named_by


def ceilings(view: View, pools: Sequence[NodePool], *, hierarchy: bool) -> Mapping[str, tuple[Vector, str]]:
    """The summed limits of their pools for jobs that request more than that, with words, by key."""
    names = [pool.name for pool in pools]
    if not any(each.name in names for queue in view.queues.values() for each in queue.spec.pools):
        return {}
    jobs, queues = view.jobs, list(view.queues.values())
    asked = np.maximum(view.job_requested, jobs.min_resources)
    waiting = np.flatnonzero(jobs.count(PodState.Pending) > 0)
    said, number_of = jobs.said("node pools", named_by)
    pairs, pair_of = np.unique(np.stack([jobs.queue, number_of])[:, waiting], axis=1, return_inverse=True)
    may_leave = bool((pools_of_nodes(pools, view.nodes.facts) < 0).any()) or not len(view.nodes)
    most_of = capabilities(view, names)
    found: dict[str, tuple[Vector, str]] = {}
    for at, (number, text) in enumerate(pairs.T.tolist()):
        usable, queue = listed(said[text]), queues[number]
        if (may_leave and not usable) or not set(usable) <= set(names):
            continue
        usable = usable or names
        line = [*lineage(queue, view.queues)] if hierarchy else [queue]
        columns = [names.index(name) for name in usable]
        together = reduce(np.minimum, [most_of[each.name] for each in line])[columns].sum(axis=0)
        of_pair = waiting[pair_of.reshape(-1) == at]
        beyond = of_pair[(asked[of_pair] > together).any(axis=1)]
        alone = (each for each in line if (most_of[each.name][columns].sum(axis=0) <= together).all())
        who = f"queue {queue.name}"
        if (limiting := next(alone, queue)) is not queue:
            who = f"queue {limiting.name} above {who}"
        words = f"starts with more than {who} may ever hold in {told(usable)},"
        found |= dict.fromkeys(jobs.keys_of(beyond), (together, words))
    return found


def rations(view: View, accounts: Accounts, account: Account, requests: Matrix) -> Iterator[Rationed]:
    """Limits in each pool on pods with some requests, shape (pods, dimensions), by their queue and those above it."""
    for pool, name in enumerate(accounts.names):
        nodes = accounts.of_node == pool
        for each in account.path:
            limited = np.isfinite(each.capability[pool]) & (requests > 0).any(axis=0)
            for column in np.flatnonzero(limited).tolist():
                most, resource = float(each.capability[pool, column]), column_name(view.dimensions, column)
                words = f"what queue {each.queue.name} may have in {told([name])}"
                free, said = most - float(each.held[pool, column]), f"{resource}: {amount_told(resource, most)}"
                yield Rationed(words, requests[:, column], nodes, free, most, said, grows=False)


def told(pools: Sequence[str]) -> str:
    """The names of alternative pools, in words."""
    return f"node {by_number(len(pools), 'pool', 'pools')} {' or '.join(pools)}"
