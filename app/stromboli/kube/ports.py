"""Host ports: two pods on one node may not claim the same port of the same address."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from stromboli.api.resources import Mask
from stromboli.framework.view import View
from stromboli.kube.placed import PlacedPods
from stromboli.state.classes import PodClass

_ANY_ADDRESS = "0.0.0.0"

#: protocol, port, address
HostPort = tuple[str, int, str]


def host_ports(pod_class: PodClass) -> frozenset[HostPort] | None:
    """The host ports of a class's containers and sidecars; None without any."""
    spec = pod_class.spec
    containers = spec.containers or []
    if spec.init_containers:
        containers = containers + [c for c in spec.init_containers if c.restart_policy == "Always"]
    ports = [
        (port.protocol or "TCP", port.host_port, port.host_ip or _ANY_ADDRESS)
        for container in containers
        for port in container.ports or ()
        if port.host_port
    ]
    return frozenset(ports) if ports else None


class PortIndex:
    """Sets of host ports by what they claim."""

    def __init__(self) -> None:
        self._size = 0
        #: by protocol and port: addresses and the numbers of the sets that claim them
        self._claims: defaultdict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)

    def extend(self, values: Sequence[frozenset[HostPort]]) -> None:
        for number, ports in enumerate(values, self._size):
            for protocol, port, address in ports:
                self._claims[protocol, port].append((address, number))
        self._size += len(values)

    def conflicting(self, wanted: frozenset[HostPort]) -> set[int]:
        """The sets that cannot share a node with this one; an unspecified address stands for all of them."""
        return {
            number
            for protocol, port, mine in wanted
            for theirs, number in self._claims.get((protocol, port), ())
            if mine == theirs or _ANY_ADDRESS in (mine, theirs)
        }


class Ports:
    """The rule in one session."""

    def __init__(self, view: View, placed: PlacedPods) -> None:
        self._nodes = len(view.nodes)
        self._placed = placed

    def free(self, wanted: frozenset[HostPort]) -> Mask:
        """The nodes where host ports are free, shape (nodes,)."""
        out = np.ones(self._nodes, np.bool_)
        claimed = self._placed.traits(host_ports)
        for number in sorted(claimed.index(PortIndex).conflicting(wanted)):
            counts = self._placed.with_trait(host_ports, number)
            if counts is not None:
                out &= counts == 0
        return out
