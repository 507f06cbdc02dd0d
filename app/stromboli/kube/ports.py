"""Host ports: two pods on one node may not claim the same port of the same address."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Mask
from stromboli.framework.session import Session
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


def conflict(a: frozenset[HostPort], b: frozenset[HostPort]) -> bool:
    """Whether two pods cannot share a node; an unspecified address stands for all of them."""
    return any(
        mine[:2] == theirs[:2] and (mine[2] == theirs[2] or _ANY_ADDRESS in (mine[2], theirs[2]))
        for mine in a
        for theirs in b
    )


class Ports:
    """The rule in one session."""

    def __init__(self, session: Session, placed: PlacedPods) -> None:
        self._nodes = len(session.nodes)
        self._placed = placed

    def free(self, wanted: frozenset[HostPort]) -> Mask:
        """The nodes where host ports are free, shape (nodes,)."""
        out = np.ones(self._nodes, np.bool_)
        placed = self._placed.by_trait(host_ports)
        for claimed, index in self._placed.traits(host_ports).values.items():
            if index in placed and conflict(wanted, claimed):
                out &= placed[index] == 0
        return out
