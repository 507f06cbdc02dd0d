"""Child queues whose guarantees add up to more than their parent is guaranteed, or may have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from stromboli.api.crds.queues import PoolShare
from stromboli.api.resources import TOLERANCE, ResourceAmounts, amounts, told
from stromboli.api.words import measured
from stromboli.framework.cluster.job import Queue
from stromboli.framework.diagnosis.ignored import ignored_of_queue
from stromboli.framework.session.session import Session
from stromboli.plugins.nodepools import NodePools


def beyond_parents(session: Session) -> Iterator[tuple[str, str]]:
    """Each such guarantee, with its numbers and without."""
    queues = session.view.queues
    ignored = {name: ignored_of_queue(session, queue) for name, queue in queues.items()}
    below: defaultdict[str, list[Queue]] = defaultdict(list)
    for name, queue in queues.items():
        if "parent" not in ignored[name] and queue.parent in queues and queue.parent != "root":
            below[queue.parent].append(queue)
    plugin = next((each for each in session.points.plugins if isinstance(each, NodePools)), None)
    follows = plugin is not None and plugin.hierarchy
    pools = [pool.name for pool in plugin.arguments.pools] if plugin is not None and follows else []
    for parent, children in below.items():
        spec = queues[parent].spec
        given = [each.spec.guarantee.resource for each in children if "guarantee" not in ignored[each.name]]
        yield from _beyond(parent, "", given, {"guarantee": spec.guarantee.resource, "capability": spec.capability})
        for pool in pools:
            own, parts = _of(queues[parent], pool), [_of(each, pool) for each in children]
            most = {"guarantee": own.guarantee.resource, "capability": own.capability}
            yield from _beyond(parent, f" in node pool {pool}", [each.guarantee.resource for each in parts], most)


def _beyond(
    parent: str, where: str, given: Sequence[ResourceAmounts | None], most: Mapping[str, ResourceAmounts | None]
) -> Iterator[tuple[str, str]]:
    total: defaultdict[str, float] = defaultdict(float)
    for each in given:
        for name, value in amounts(each).items():
            total[name] += value
    for field, listed in most.items():
        for name, has in amounts(listed).items():
            if total[name] > has + TOLERANCE:
                together = measured(told(name, total[name]), name)
                problem = f"queues below queue {parent} are guaranteed {together}{where}, and its {field} is"
                cause = f"queues below queue {parent} are guaranteed more {name}{where} than its {field}"
                yield f"{problem} {told(name, has)}", cause


def _of(queue: Queue, pool: str) -> PoolShare:
    return next((each for each in queue.spec.pools if each.name == pool), PoolShare(name=pool))
