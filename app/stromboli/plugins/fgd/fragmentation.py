"""Fragmentation: the part of nodes' free cards that is of no use to the usual pods, whichever plugin places them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stromboli.api.resources import CPU, Rows, Vector, is_device
from stromboli.devices.holdings import Holdings
from stromboli.devices.vgpu import CORES, MEMORY, NUMBER, Request, Virtual
from stromboli.framework.cluster.view import View
from stromboli.plugins.fgd.stock import CARD, Kind, Stock, Wanted, wanted
from stromboli.plugins.fgd.typical import Worth, pods_seen, typical_pods
from stromboli.state.pods import PodRecord

#: resources that are parts of cards
_SHARED = frozenset((NUMBER, MEMORY, CORES))


@dataclass(frozen=True, slots=True, eq=False)
class Fragments:
    """The free cards of one resource on each node, in cards, shape (nodes,)."""

    resource: str
    free: Vector
    #: the part of them that a typical pod cannot use
    fragments: Vector


def fragments(view: View) -> Iterator[Fragments]:
    """The fragments of each kind of card that nodes have, as the plugin fgd counts them for shared ones.

    Typical pods are those of the cluster that wait or run. Cards that are not shared are free or in use as a whole.
    """
    if NUMBER in view.dimensions:
        yield _of_shared(view)
    for column, name in enumerate(view.dimensions):
        if is_device(name) and name not in _SHARED and view.nodes.allocatable[column].any():
            yield _of_whole(view, name, column)


def _of_shared(view: View) -> Fragments:
    sharing = Virtual("", repaired=True)
    stock = Stock(view, sharing, Holdings(view, sharing))
    typical = typical_pods(pods_seen(view, lambda pod: wanted(pod, sharing, view.request(pod))))
    worth = Worth(typical, stock.kinds, stock.there.shape[1])
    return _counted(view, NUMBER, worth, stock.kind, stock.left)


def _of_whole(view: View, name: str, column: int) -> Fragments:
    def asked(pod: PodRecord) -> Wanted:
        request = view.request(pod)
        cards = -(-int(request[column]) // CARD)
        return Wanted(float(request[CPU]), Request(cards, 0, None, 0) if cards else None, share=CARD)

    nodes = view.nodes
    untouched = np.clip((nodes.allocatable[column] - nodes.used[column]) // CARD, 0, None)
    most = int(untouched.max(initial=0))
    left: Rows = CARD * (np.arange(max(most, 1)) < untouched[:, None]).astype(np.intp)
    worth = Worth(typical_pods(pods_seen(view, asked)), [Kind(name, 0)], left.shape[1])
    return _counted(view, name, worth, np.zeros(len(untouched), np.intp), left)


def _counted(view: View, name: str, worth: Worth, kind: Rows, left: Rows) -> Fragments:
    cpu = view.nodes.allocatable[CPU] - view.nodes.used[CPU]
    return Fragments(name, left.sum(axis=1) / CARD, worth.fragments(kind, cpu, left) / CARD)
