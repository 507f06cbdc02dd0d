"""Pods as they are written: what one has in common with others once, and of one that goes on where it stands."""

from __future__ import annotations

from typing import Any, TypeAlias

from stromboli.api.pod_state import PodState
from stromboli.journal import redaction, wire
from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord

#: the fields of an item after its tag
Fields: TypeAlias = tuple[Any, ...]

_POD, _STATUS = wire.tag(wire.Pod), wire.tag(wire.PodStatus)
_BINDING, _PENDING = int(PodState.Binding), int(PodState.Pending)


def class_of(pod_class: PodClass) -> wire.Class:
    """Properties shared by pods of one class."""
    return wire.Class(pod_class.id, redaction.spec(pod_class.spec))


def whole_of(record: PodRecord, state: int) -> Fields:
    """A `wire.Pod`: the whole pod, in a state that follows from the API server's object."""
    return (
        *_standing(_POD, record, state),
        record.namespace,
        record.name,
        record.uid,
        record.pod_class.id,
        record.created,
        record.spec_priority,
        record.scheduler_name,
        record.labels,
        record.annotations,
    )


def status_of(record: PodRecord, state: int) -> Fields:
    """A `wire.PodStatus`: where a pod stands."""
    return _standing(_STATUS, record, state)


def _standing(tag: str, record: PodRecord, state: int) -> Fields:
    """The fields of a `wire.PodStatus`, with which a `wire.Pod` begins."""
    return (
        tag,
        record.row,
        _PENDING if state == _BINDING else int(state),
        record.node_name,
        record.nominated_node,
        record.started,
        redaction.conditions(record.conditions),
        record.claim_names,
    )


def is_same(before: PodRecord, now: PodRecord) -> bool:
    """Whether a pod differs from before only in its state and node."""
    return (
        before.pod_class is now.pod_class
        and before.uid == now.uid
        and before.labels == now.labels
        and before.annotations == now.annotations
        and before.spec_priority == now.spec_priority
        and before.scheduler_name == now.scheduler_name
        and before.created == now.created
    )


def stands_alike(before: PodRecord, now: PodRecord) -> bool:
    """Whether a pod whose state and node are what they were stands where it stood."""
    return (
        before.nominated_node == now.nominated_node
        and before.started == now.started
        and before.claim_names == now.claim_names
        and redaction.conditions(before.conditions) == redaction.conditions(now.conditions)
    )
