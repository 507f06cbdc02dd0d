"""Which namespaces may use a queue, as annotations of it say: Volcano's definition of queues keeps those, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np

from stromboli.api.resources import Mask
from stromboli.api.validation import shown
from stromboli.api.words import by_number
from stromboli.framework.cluster.job import Queue, lineage
from stromboli.framework.cluster.jobs import Jobs
from stromboli.state.selectors import NOTHING, Selector, parsed

#: annotation of a queue: names of namespaces, separated by commas
NAMESPACES: Final = "stromboli.io/namespaces"
#: annotation of a queue: a selector by labels of namespaces, as kubectl takes it
SELECTOR: Final = "stromboli.io/namespace-selector"
_KEYS = frozenset((NAMESPACES, SELECTOR))
#: every namespace has its name in this label
_NAME_LABEL = "kubernetes.io/metadata.name"


@dataclass(slots=True, eq=False)
class Tenants:
    """The namespaces that may use a queue and those below it: named or selected ones."""

    #: the queue whose annotations name them
    queue: str
    names: frozenset[str]
    #: an unreadable selector selects nothing: a typo must not open the queue to everyone
    selector: Selector
    #: content of the queue's annotations, in words
    told: str
    #: the known Namespace objects, by name
    _known: Mapping[str, Any]
    _found: dict[str, bool] = field(default_factory=dict)

    def include(self, namespace: str) -> bool:
        """Whether a namespace is one of them."""
        found = self._found.get(namespace)
        if found is None:
            # Pods may be seen before their namespace, whose labels are not known then: a cluster has namespaces, and
            # only a file may have none.
            labels = (self._known.get(namespace) or {}).get("metadata", {}).get("labels") or {}
            seen = namespace in self._known or not self._known
            found = namespace in self.names or (seen and self.selector.matches({_NAME_LABEL: namespace, **labels}))
            self._found[namespace] = found
        return found


def restrict(queues: Mapping[str, Queue], namespaces: Mapping[str, Any]) -> bool:
    """Set which namespaces may use each queue; a queue that names none inherits from its nearest ancestor that does.

    Returns whether any queue is restricted.
    """
    said = {
        name: Tenants(name, *_read(notes.get(NAMESPACES, ""), notes.get(SELECTOR, "")), namespaces)
        for name, queue in queues.items()
        if (notes := queue.resource.metadata.annotations) and not _KEYS.isdisjoint(notes)
    }
    for queue in queues.values() if said else ():
        queue.tenants = next((said[each.name] for each in lineage(queue, queues) if each.name in said), None)
    return bool(said)


def strangers(jobs: Jobs, queues: Iterable[Queue]) -> Mask:
    """Mask of jobs in a queue that their namespace may not use, shape (jobs,)."""
    out = np.zeros(len(jobs), np.bool_)
    for queue in queues:
        if queue.tenants is None or not queue.has_jobs:
            continue
        namespaces, numbers = jobs.said("namespace", lambda group: group.metadata.namespace)
        of_queue = numbers[queue.indices]
        outside = [number for number in np.unique(of_queue).tolist() if not queue.tenants.include(namespaces[number])]
        out[queue.indices] = np.isin(of_queue, outside)
    return out


@lru_cache(maxsize=4_096)
def _read(listed: str, written: str) -> tuple[frozenset[str], Selector, str]:
    names = [*filter(None, map(str.strip, listed.split(",")))]
    selector = parsed(written) if written else NOTHING
    told = [f"{by_number(len(names), 'namespace', 'namespaces')} {', '.join(names)}"] if names else []
    if written:
        unread = f"{shown(written)}, which cannot be read and selects none"
        told.append(f"namespaces with {written if selector else unread}")
    return frozenset(names), selector or NOTHING, " and ".join(told) or "no namespace"
