"""Resources that pods request besides cpu, memory and storage, whether or not a node has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from stromboli.api.resources import UNKNOWN, Vector, is_device
from stromboli.explain.overview import Amounts
from stromboli.framework.cluster.view import View
from stromboli.state.pods import PodRecord


def cards(view: View, asked: Vector, pods: Callable[[], Iterable[PodRecord]]) -> Amounts:
    """The cards in what some pods ask for; the pods are asked for only where no node offers some of it."""
    names = view.dimensions
    found = {name: float(asked[at]) / 1000 for at, name in enumerate(names) if asked[at] and is_device(name)}
    if UNKNOWN in names and asked[names.index(UNKNOWN)]:
        unoffered: Counter[str] = Counter()
        for pod in pods():
            unoffered.update({name: each for name, each in pod.pod_class.request.items() if name not in names})
        found |= {name: number / 1000 for name, number in unoffered.items() if is_device(name)}
    return found
