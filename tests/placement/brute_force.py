"""Every way to place the gang of a small cluster, as the rules are documented and without any of the package's code.

Each pod gets one of the nodes or none. What no further pod can mend, as a node that is full, ends a branch at once.
What depends on the order, affinity and spread, is asked in the end: is there an order in which each pod may go to its
node when it comes?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.placement.small_clusters import ZONE, Cluster, SmallPod

#: by number of a pod of the gang that has a place, the number of its node
Placed = Mapping[int, int]
#: a pod that has a place, and where
There = Sequence[tuple[SmallPod, int]]


def possible(cluster: Cluster) -> bool:
    """Whether some of the gang's pods, in some order and on some nodes, are what it starts with."""
    return _Every(cluster).somehow(dict(cluster.held), 0)


def may_share(cluster: Cluster, number: int, on: int, placed: Placed) -> bool:
    """Whether a pod of the gang may be on a node beside others of it, by all that does not depend on an order."""
    return _Every(cluster)._may_share(number, on, placed)


def lawful(cluster: Cluster, placed: Placed) -> bool:
    """Whether the gang may have its pods on those nodes, and start like that."""
    every = _Every(cluster)
    beside = ({other: at for other, at in placed.items() if other != number} for number in placed)
    alone = all(map(every._may_share, placed, placed.values(), beside))
    return alone and every._suffices(placed) and every._has_order(placed, frozenset(cluster.held), set())


class _Every:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: large pods first: they end branches early
        waiting = set(range(len(cluster.pods))) - set(cluster.held)
        self._order = sorted(waiting, key=lambda number: -cluster.pods[number].cpu)

    def somehow(self, placed: dict[int, int], depth: int) -> bool:
        """Whether the pods from `depth` on can be given nodes so that the gang may start."""
        cluster, left = self._cluster, len(self._order) - depth
        if len(placed) + left < cluster.least or not self._enough_room(placed, depth):
            return False
        if not left:
            return self._suffices(placed) and self._has_order(placed, frozenset(cluster.held), set())
        number = self._order[depth]
        tried = set[object]()
        for on in range(len(cluster.nodes)):
            looks = self._looks(placed, on)
            if looks not in tried and self._may_share(number, on, placed):
                tried.add(looks)
                if self.somehow({**placed, number: on}, depth + 1):
                    return True
        return self.somehow(placed, depth + 1)

    def _enough_room(self, placed: Placed, depth: int) -> bool:
        """Whether the smallest of the pods that are left, as many as are missing, have room on all nodes together."""
        cluster = self._cluster
        sizes = sorted(cluster.pods[number].cpu for number in self._order[depth:])
        free = sum(each.cpu for each in cluster.nodes) - sum(pod.cpu for pod, _ in self._there(placed))
        return sum(sizes[: max(0, cluster.least - len(placed))]) <= free

    def _looks(self, placed: Placed, on: int) -> object:
        """Nodes of which this is the same are alike for all pods that follow."""
        here = sorted(map(repr, (pod for pod, where in self._there(placed) if where == on)))
        return self._cluster.nodes[on], tuple(here)

    def _there(self, placed: Placed) -> There:
        return [*self._cluster.running, *((self._cluster.pods[number], on) for number, on in placed.items())]

    # -- what no other pod can mend ----------------------------------------------------------------------------------

    def _may_share(self, number: int, on: int, placed: Placed) -> bool:
        cluster = self._cluster
        mine, node, there = cluster.pods[number], cluster.nodes[on], self._there(placed)
        here = [*(pod for pod, where in there if where == on), mine]
        if sum(pod.cpu for pod in here) > node.cpu or sum(pod.memory for pod in here) > node.memory:
            return False
        if mine.volumes and node.attaches is not None and sum(pod.volumes for pod in here) > node.attaches:
            return False
        if mine.disk and mine.disk != node.disk:
            return False
        ports = [port for pod in here for port in pod.ports]
        if len(ports) > len(set(ports)):
            return False
        for other, where in there:
            if any(other.app == app and self._same(key, on, where) for key, app in mine.far):
                return False
            if any(mine.app == app and self._same(key, on, where) for key, app in other.far):
                return False
        return self._within_queues(mine, placed) and self._within_network(mine, on, placed)

    def _within_queues(self, mine: SmallPod, placed: Placed) -> bool:
        cluster = self._cluster
        own = mine.cpu + sum(cluster.pods[number].cpu for number in placed)
        others = sum(pod.cpu for pod, _ in cluster.running)
        return (cluster.capability is None or own <= cluster.capability) and (
            cluster.above is None or own + others <= cluster.above
        )

    def _within_network(self, mine: SmallPod, on: int, placed: Placed) -> bool:
        cluster, rack = self._cluster, self._cluster.nodes[on].rack
        for number, where in placed.items():
            other = cluster.nodes[where].rack
            if cluster.tier == 1 and other != rack:
                return False
            if cluster.tier == 2 and other // 2 != rack // 2:
                return False
            if cluster.parts and cluster.parts.hard and cluster.pods[number].part == mine.part and other != rack:
                return False
        return True

    def _same(self, key: str, one: int, other: int) -> bool:
        return self._domain(key, one) == self._domain(key, other)

    def _domain(self, key: str, on: int) -> str:
        return self._cluster.nodes[on].zone if key == ZONE else str(on)

    # -- what the gang starts with -----------------------------------------------------------------------------------

    def _suffices(self, placed: Placed) -> bool:
        """Whether these are enough, of each role and in whole sub groups; what is left of others stays as it is."""
        cluster = self._cluster
        roles = Counter(cluster.pods[number].role for number in placed)
        if len(placed) < cluster.least or any(roles[role] < least for role, least in cluster.by_role.items()):
            return False
        if cluster.parts is None:
            return True
        parts = Counter(cluster.pods[number].part for number in placed)
        whole = {part for part, count in parts.items() if count >= cluster.parts.size}
        return (
            len(whole) >= cluster.parts.least
            and {cluster.pods[number].part for number in placed if number not in cluster.held} <= whole
        )

    # -- what depends on the order -----------------------------------------------------------------------------------

    def _has_order(self, placed: Placed, came: frozenset[int], failed: set[frozenset[int]]) -> bool:
        """Whether those that have not come yet can come one by one."""
        if len(came) == len(placed):
            return True
        if came in failed:
            return False
        there = self._there({number: placed[number] for number in came})
        for number, on in placed.items():
            comes = number not in came and self._may_come(self._cluster.pods[number], on, there)
            if comes and self._has_order(placed, came | {number}, failed):
                return True
        failed.add(came)
        return False

    def _may_come(self, mine: SmallPod, on: int, there: There) -> bool:
        return self._joins(mine, on, there) and all(self._spreads(mine, on, there, *each) for each in mine.spread)

    def _joins(self, mine: SmallPod, on: int, there: There) -> bool:
        """All terms together select the pods to join; where there are none, the first may be one of them itself."""
        if not mine.near:
            return True
        selected = [where for other, where in there if all(other.app == app for _, app in mine.near)]
        if not selected:
            return all(mine.app == app for _, app in mine.near)
        return all(any(self._same(key, on, where) for where in selected) for key, _ in mine.near)

    def _spreads(self, mine: SmallPod, on: int, there: There, key: str, app: str, skew: int) -> bool:
        """Only nodes that the pod's selector allows count."""
        nodes = self._cluster.nodes
        eligible = [at for at, node in enumerate(nodes) if not mine.disk or node.disk == mine.disk]
        counts = {self._domain(key, at): 0 for at in eligible}
        for other, where in there:
            if other.app == app and where in eligible:
                counts[self._domain(key, where)] += 1
        return counts[self._domain(key, on)] + (mine.app == app) - min(counts.values()) <= skew
