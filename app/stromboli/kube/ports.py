"""Host ports: two pods on one node may not claim the same port of the same address."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Mask
from stromboli.framework.session import Session
from stromboli.kube.placed import PlacedPods
from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord

_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared with, never bound

#: (protocol, port) -> addresses
HostPorts = dict[tuple[str, int], set[str]]


def host_ports(pod_class: PodClass) -> HostPorts:
    """The host ports of a class's containers and sidecars."""
    spec = pod_class.spec
    sidecars = [c for c in spec.init_containers or () if c.restart_policy == "Always"]
    out: HostPorts = {}
    for container in (*(spec.containers or ()), *sidecars):
        for port in container.ports or ():
            if port.host_port:
                addresses = out.setdefault((port.protocol or "TCP", port.host_port), set())
                addresses.add(port.host_ip or _ANY_ADDRESS)
    return out


def has_host_ports(pod_class: PodClass) -> bool:
    """Whether pods of a class claim host ports."""
    return any(
        port.host_port
        for containers in (pod_class.spec.containers, pod_class.spec.init_containers)
        for container in containers or ()
        for port in container.ports or ()
    ) and bool(host_ports(pod_class))


def conflict(a: HostPorts, b: HostPorts) -> bool:
    """Whether two pods cannot share a node; an unspecified address stands for all of them."""
    return any(
        addresses & b[port] or _ANY_ADDRESS in addresses | b[port] for port, addresses in a.items() if port in b
    )


class Ports:
    """The rule in one session."""

    def __init__(self, session: Session, placed: PlacedPods) -> None:
        self._nodes = len(session.nodes)
        self._classes = session.snapshot.classes
        self._placed = placed

    def free(self, pod: PodRecord) -> Mask:
        """The nodes where the pod's host ports are free, shape (nodes,)."""
        wanted = host_ports(pod.pod_class)
        out = np.ones(self._nodes, np.bool_)
        for class_id, counts in self._placed.of_classes(has_host_ports).items():
            if conflict(wanted, host_ports(self._classes[class_id])):
                out &= counts == 0
        return out
