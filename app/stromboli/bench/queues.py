"""What queues say in trials, and whose pods they are."""

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


def limited(_: int) -> Fields:
    """A queue that lends and borrows within limits."""
    cpus = {"deserved": "80000", "borrowingLimit": "200000", "lendingLimit": "80000"}
    return {field: {"cpu": amount} for field, amount in cpus.items()}
