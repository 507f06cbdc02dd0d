"""Host ports: two pods on one node cannot use the same port of the same address."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from stromboli.api.reasons import Passage
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.relations import Apart, same_node
from stromboli.kube.numbered import Numbered
from stromboli.kube.placed import PlacedPods
from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord

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


def ports_told(ports: frozenset[HostPort]) -> Passage:
    """The host ports that a pod asks for."""
    return Passage((), f"it asks for host port {', '.join(f'{p}/{protocol}' for protocol, p, _ in sorted(ports))}", "")


class PortIndex:
    """Sets of host ports, indexed by port."""

    def __init__(self) -> None:
        self._size = 0
        #: by protocol and port: the numbers of the sets that use them on one address, and on any
        self._claims: Numbered[HostPort] = Numbered()
        self._all: Numbered[tuple[str, int]] = Numbered()

    def extend(self, values: Sequence[frozenset[HostPort]]) -> None:
        first, self._size = self._size, self._size + len(values)
        for number, ports in enumerate(values, first):
            for protocol, port, address in ports:
                self._claims.add((protocol, port, address), number)
                self._all.add((protocol, port), number)

    def conflicting(self, wanted: frozenset[HostPort]) -> tuple[Rows, Vector]:
        """Weight 1 for each set that conflicts with some ports; an unspecified address conflicts with every address."""
        whole = ((protocol, port) for protocol, port, mine in wanted if mine == _ANY_ADDRESS)
        single = (
            (protocol, port, address)
            for protocol, port, mine in wanted
            if mine != _ANY_ADDRESS
            for address in (mine, _ANY_ADDRESS)
        )
        found = np.concatenate((self._all.of(whole, self._size), self._claims.of(single, self._size)))
        found = np.unique(found) if len(found) > 1 else found
        return found, np.ones(len(found))


class Ports:
    """The filter in one session."""

    def __init__(self, view: View, placed: PlacedPods) -> None:
        self._nodes = len(view.nodes)
        self._placed = placed

    def free(self, wanted: frozenset[HostPort]) -> Mask:
        """The nodes where host ports are free, shape (nodes,)."""
        conflicting = partial(self._placed.traits(host_ports).index(PortIndex).conflicting, wanted)
        counts = self._placed.with_traits(host_ports, wanted, conflicting)
        return np.ones(self._nodes, np.bool_) if counts is None else counts == 0

    def relations(self, pods: Sequence[PodRecord]) -> Iterator[Apart]:
        """The relations between some pods that follow from their host ports."""
        wanted = [host_ports(pod.pod_class) or frozenset() for pod in pods]
        users: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for at, ports in enumerate(wanted):
            for protocol, port, _ in ports:
                users[protocol, port].append(at)
        for (protocol, port), using in sorted(users.items()):
            conflicts = np.zeros((len(pods), len(pods)), np.bool_)
            addresses = {at: {a for p, number, a in wanted[at] if (p, number) == (protocol, port)} for at in using}
            for one in using:
                conflicts[one, using] = [_clash(addresses[one], addresses[other]) for other in using]
            yield Apart(f"host port {port}/{protocol}", conflicts, same_node(self._nodes))


def _clash(some: set[str], others: set[str]) -> bool:
    """Whether two sets of addresses cannot use the same port; an unspecified address conflicts with every address."""
    return _ANY_ADDRESS in some | others or not some.isdisjoint(others)
