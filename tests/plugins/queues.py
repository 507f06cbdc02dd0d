"""What the tests of plugins that share a cluster among queues have in common. Every pod requests cpu alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stromboli.api.decisions import Evict
from stromboli.api.reasons import Reason
from stromboli.api.resources import CPU
from stromboli.engine import SessionResult
from stromboli.framework.diagnosis.explain import pending_reasons
from tests.builders import gang, pod_group

BOTH = pytest.mark.parametrize("compatibility", ["volcano", "strict"])


def wants(queue: str, count: int = 20, cpu: str = "1", **more: Any) -> list[Any]:
    """A job, named like its queue, of which pod by pod may start."""
    return [pod_group(queue, queue=queue, **more), *gang(queue, count, cpu=cpu, memory="")]


def holds(queue: str, count: int, on: str = "n", cpu: str = "1", **more: Any) -> list[Any]:
    """A job QUEUE-uses of a queue with so many running pods, of which every one may go."""
    name = f"{queue}-uses"
    return [pod_group(name, 0, queue=queue, phase="Running", **more), *gang(name, count, cpu=cpu, memory="", node=on)]


def asks(name: str, cpu: str | None, queue: str = "default", **more: Any) -> Any:
    """A PodGroup that waits to be admitted and is to start with so much cpu; None for no minResources."""
    return pod_group(name, queue=queue, **{"phase": "Pending"} | ({"minResources": {"cpu": cpu}} if cpu else {}) | more)


def bound(result: SessionResult) -> dict[str, int]:
    """How many pods of each job were bound."""
    return dict(Counter(key.partition("/")[2].rpartition("-")[0] for key in result.session.bound))


def evicted(result: SessionResult) -> dict[str, int]:
    """How many pods of each job were evicted."""
    return dict(Counter(d.name.rpartition("-")[0] for d in result.decisions if isinstance(d, Evict)))


def admitted(result: SessionResult) -> list[str]:
    """The jobs that may compete, in no order."""
    return sorted(job.name for job in result.session.view.jobs.values() if job.phase == "Inqueue")


def why(result: SessionResult, pod: str) -> Reason:
    """The reason that is shown for a pod that waits."""
    return pending_reasons(result.session)[f"default/{pod}"]


def refused(result: SessionResult, job: str) -> Reason:
    """The reason that is shown for a job."""
    view = result.session.view
    reason = view.reason(view.jobs[f"default/{job}"])
    assert reason is not None
    return reason


def cpus(result: SessionResult, amount: str) -> dict[str, float]:
    """An amount that is exported of queues, such as `deserved`, in CPUs."""
    gauges = result.session.report.gauges.items()
    return {name: queue.amounts[amount][CPU] / 1000 for name, queue in gauges if amount in queue.amounts}
