"""The past usage of queues for fairshare, from a Prometheus server that scrapes this service.

It is the average of `stromboli_queue_cluster_part` over the window: the part of the cluster that a queue uses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from stromboli.live.inputs import prometheus
from stromboli.plugins.fairshare import FairShareArguments
from stromboli.policy.model import Policy

#: by queue and resource, 0 to 1
Usage = Mapping[str, Mapping[str, float]]


async def follow(policy: Callable[[], Policy], tell: Callable[[Usage], None]) -> None:
    """Read usage at the policy's interval, while the policy asks for it, until cancelled."""
    await prometheus.follow("usage of queues", policy, _read, tell)


def _read(policy: Policy) -> Coroutine[Any, Any, Usage] | None:
    window = window_of(policy)
    return None if window is None else read(policy.metrics, window)


def window_of(policy: Policy) -> float | None:
    """The window in seconds over which the policy wants usage from Prometheus; None if it does not."""
    for tier in policy.tiers:
        for option in tier.plugins:
            arguments = option.arguments
            if isinstance(arguments, FairShareArguments) and arguments.usage_source == "prometheus":
                return arguments.usage_window
    return None


async def read(metrics: Mapping[str, str], window: float) -> Usage:
    """The average usage of each queue over the last `window` seconds. Raises the errors of `prometheus.query`."""
    expression = f"avg by (queue, resource) (avg_over_time(stromboli_queue_cluster_part[{window:.0f}s]))"
    (samples,) = await prometheus.query(metrics, expression)
    usage: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for labels, value in samples:
        usage[labels.get("queue", "")][labels.get("resource", "")] = max(0.0, value)
    return usage
