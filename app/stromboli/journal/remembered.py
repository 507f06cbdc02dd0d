"""Writing and reading the inputs of sessions besides the cluster."""

from __future__ import annotations

import numpy as np

from stromboli.framework.cluster.churn import Churn
from stromboli.framework.cluster.environment import Admitted, Environment, ExtenderTransport
from stromboli.framework.registry import Registry
from stromboli.journal import wire
from stromboli.journal.plain import NotPlainError, plain, value_of
from stromboli.journal.wire import JournalError


def written(environment: Environment, registry: Registry) -> wire.Remembered:
    """Inputs of a session as recorded; what a plugin left and cannot be recorded is named."""
    left, lost = {}, []
    for name, value in environment.left.items():
        try:
            left[name] = plain(value, _types(registry, name))
        except NotPlainError:
            lost.append(name)
    churn = environment.churn
    return wire.Remembered(
        node_usage=dict(environment.node_usage),
        queue_usage={queue: dict(usage) for queue, usage in environment.queue_usage.items()},
        sharding=environment.sharding,
        nominated_hyper_nodes=dict(environment.nominated_hyper_nodes),
        admitted=None if environment.admitted is None else list(environment.admitted),
        reservations=dict(environment.reservations),
        churn=None
        if churn is None
        else [wire.Eviction(job, queue, history) for (job, queue), history in churn.histories.items()],
        left=left,
        lost=lost,
    )


def known(remembered: wire.Remembered, registry: Registry, extender: ExtenderTransport | None) -> Environment:
    """Inputs of a session from a record. Raises JournalError."""
    try:
        left = {name: value_of(content, _types(registry, name)) for name, content in remembered.left.items()}
    except NotPlainError as error:
        raise JournalError(f"what plugins remember cannot be read: {wire.told(error)}") from None
    admitted, evictions = remembered.admitted, remembered.churn
    return Environment(
        node_usage=remembered.node_usage,
        extender=extender,
        sharding=remembered.sharding,
        queue_usage=remembered.queue_usage,
        nominated_hyper_nodes=remembered.nominated_hyper_nodes,
        admitted=None if admitted is None else Admitted(admitted, np.ones(len(admitted), np.bool_)),
        reservations=remembered.reservations,
        churn=None if evictions is None else Churn({(each.job, each.queue): each.history for each in evictions}),
        left=left,
    )


def _types(registry: Registry, name: str) -> tuple[type, ...]:
    """The types of the state left under a name."""
    plugin = registry.plugins.get(name)
    return plugin.left_types if plugin is not None else ()
