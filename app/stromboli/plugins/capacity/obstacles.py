"""Why a queue gets no devices."""

from __future__ import annotations

from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.framework.cluster.job import Queue
from stromboli.kube.dra.quota import Shortage


def no_devices(queue: Queue, stage: Stage, shortage: Shortage) -> Reason:
    """It, or an ancestor, is limited in the devices that claims hold."""
    return Reason(
        stage,
        "QueueCapabilityExceeded",
        f"queue {queue.name} has no capacity left in {shortage.resource}",
        Actionable.Wait,
        shortage.detail,
    )
