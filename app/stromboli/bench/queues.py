"""The specs of queues in trials, and the queue of each pod."""

from __future__ import annotations

from stromboli.bench.trial import Fields


def for_namespaces(number: int) -> Fields:
    """A queue for namespaces by label and name."""
    listed = ",".join(f"team-{number}-{each}" for each in range(20))
    selector = "kubernetes.io/metadata.name in (default),!closed"
    return {"annotations": {"stromboli.io/namespaces": listed, "stromboli.io/namespace-selector": selector}}


def of_users(number: int) -> Fields:
    """The group of one of a thousand users."""
    return {"annotations": {"stromboli.io/user": f"user-{number % 1_000}"}}


def in_tree(number: int) -> Fields:
    """A queue in one of ten parts of a tree."""
    path = f"root/part-{number % 10}/team-{number}"
    return {"annotations": {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": "1/2/8"}}


#: the node pools of trials, by a label of nodes
POOLS = [{"name": f"pool-{number}", "nodeSelector": {"pool": f"{number}"}} for number in range(8)]


def in_pools(number: int) -> Fields:
    """A group that may use two of the pools."""
    names = (f"pool-{(number + each) % len(POOLS)}" for each in (0, 3))
    return {"annotations": {"stromboli.io/pools": ",".join(names)}}


def of_pools(_: int) -> Fields:
    """A queue with shares in all pools."""
    cpus = {"deserved": {"cpu": "1000"}, "guarantee": {"resource": {"cpu": "10"}}, "capability": {"cpu": "1000000"}}
    return {"pools": [{"name": pool["name"], **cpus} for pool in POOLS]}


def deserving(_: int) -> Fields:
    """A queue that deserves a part of a large cluster."""
    return {"deserved": {"cpu": "80000"}}


def limited(_: int) -> Fields:
    """A queue that lends and borrows within limits."""
    cpus = {"deserved": "80000", "borrowingLimit": "200000", "lendingLimit": "80000"}
    return {field: {"cpu": amount} for field, amount in cpus.items()}
