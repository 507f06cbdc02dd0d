"""Trials of gangs for which running pods are evicted."""

from __future__ import annotations

from typing import Any

from stromboli.bench.trial import NOW, Fields, Objects, Trial, container
from stromboli.simulation.manifests import decode
from stromboli.state.pods import timestamp

FULL = {"containers": [container({"cpu": "4", "memory": "4Gi"})]}


def _classes(_: int) -> Objects:
    for name, value in (("low", 10), ("high", 1_000)):
        yield "PriorityClass", _decoded("PriorityClass", {"metadata": {"name": name}, "value": value})


def _decoded(kind: str, manifest: dict[str, Any]) -> Any:
    return decode(kind, manifest, manifest["metadata"]["name"])


def _evictable(number: int) -> Fields:
    return {
        **FULL,
        "annotations": {"volcano.sh/preemptable": "true"},
        "labels": {"app": f"app-{number % 1_000}"},
        "priority": 10,
        "priorityClassName": "low",
    }


def _above_others(_: int) -> Fields:
    return {**FULL, "priority": 1_000, "priorityClassName": "high"}


def _as_others(_: int) -> Fields:
    return {**FULL, "priority": 10, "priorityClassName": "low"}


def unlike_others(number: int) -> Fields:
    requests = {"cpu": f"{3_000 + number % 1_000}m", "memory": f"{1_024 + number}Mi"}
    return {**_above_others(number), "containers": [container(requests)]}


def unwilling(number: int) -> Fields:
    return {**_evictable(number), "annotations": {"volcano.sh/preemptable": "false"}}


def important(_: int) -> Fields:
    return {"priorityClassName": "high"}


def budgets(nodes: int) -> Objects:
    yield from _classes(nodes)
    for number in range(1_000):
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": f"app-{number}"}}}
        status = {"disruptionsAllowed": 5, "currentHealthy": 6, "desiredHealthy": 1, "expectedPods": 6}
        metadata = {"name": f"budget-{number}", "namespace": "default"}
        yield "PodDisruptionBudget", {"metadata": metadata, "spec": spec, "status": status}


def for_a_minute(number: int) -> Fields:
    return {**_evictable(number), "started": timestamp(NOW - 60)}


def evicting(action: str, *, vain: bool = False, queues: int = 1, **more: Any) -> Trial:
    """Eight running pods fill each node; gangs of eight want their places.

    Those of another queue want to take back what is theirs; in vain they are no more important than the running pods,
    or none of these agrees to be evicted.
    """
    reclaiming = "reclaim" in action
    queues = max(queues, 1 + reclaiming)
    unwilling = vain and reclaiming

    def group(number: int) -> Fields:
        queue = {"queue": f"queue-{1 + number % (queues - 1)}"} if reclaiming else {}
        return {"priorityClassName": "low" if vain else "high", **queue}

    usual: dict[str, Any] = {
        "pod": _as_others if vain else _above_others,
        "placed": lambda number: {**_evictable(number), **({"annotations": {}} if unwilling else {})},
        "group": group,
        "queue": lambda number: {"reclaimable": number > 0 or not unwilling},
        # It would protect pods of jobs that hold less than the new ones get.
        "without": "drf",
        "always_vain": vain,
        "objects": _classes,
        "per_group": 8,
        "running_group": lambda _: {"priorityClassName": "low", "queue": "queue-0"},
    }
    return Trial(
        actions=f"enqueue, allocate, {action}",
        queues=queues,
        per_node=8,
        pods=64,
        groups=8,
        **{**usual, **more},
    )
