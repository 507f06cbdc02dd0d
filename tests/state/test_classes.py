"""Identity classes: which pods share one, and what the spec of a class shows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stromboli.api import objects
from stromboli.api.resources import Dimensions
from stromboli.state.classes import ClassTable
from stromboli.state.reads import IN_SPEC, Reads
from tests import builders

PLAIN = builders.pod("a")
#: values of all fields of a spec that do not tell classes apart
VARYING: dict[str, Any] = {
    "scheduler_name": "other",
    "node_name": "n1",
    "priority": 7,
    "priority_class_name": "high",
    "scheduling_group": objects.SchedulingGroup(),
    "host_network": True,
    "host_users": False,
    "runtime_class_name": "gvisor",
    "active_deadline_seconds": 60,
}


def table(reads: Reads | None = None) -> ClassTable:
    return ClassTable(Dimensions(), reads or Reads())


def but(**changes: Any) -> objects.Pod:
    """A pod whose spec differs in some fields."""
    return msgspec.structs.replace(PLAIN, spec=msgspec.structs.replace(PLAIN.spec, **changes))


@pytest.mark.parametrize("field", VARYING)
def test_the_spec_of_a_class_is_the_same_whichever_pod_came_first(field: str) -> None:
    odd = but(**{field: VARYING[field]})
    classes, reverse = table(), table()
    first, second = classes.acquire(PLAIN), classes.acquire(odd)
    assert first is second
    assert reverse.acquire(odd).spec == first.spec


@pytest.mark.parametrize("read", IN_SPEC)
def test_what_is_declared_tells_classes_apart_and_is_in_their_specs(read: str) -> None:
    field = IN_SPEC[read]
    classes = table(Reads(fields=(read,)))
    plain, odd = classes.acquire(PLAIN), classes.acquire(but(**{field: VARYING[field]}))
    assert plain is not odd
    assert getattr(odd.spec, field) == VARYING[field]
    assert getattr(plain.spec, field) == getattr(PLAIN.spec, field)


def test_users_apart_on_the_host_network_tell_classes_apart() -> None:
    classes = table()
    odd = classes.acquire(but(host_network=True, host_users=False))
    assert odd is not classes.acquire(PLAIN)
    assert odd.spec.isolates_users_on_host_network


def test_every_field_of_a_spec_tells_classes_apart_or_is_in_none() -> None:
    """A field that is new has to be one or the other; volumes count by what they stand for."""
    shown = {name for name in PLAIN.spec.__struct_fields__ if name not in VARYING}
    assert shown == {
        *("containers", "init_containers", "overhead", "resources", "node_selector", "affinity", "tolerations"),
        *("topology_spread_constraints", "volumes", "resource_claims", "scheduling_gates", "preemption_policy"),
    }
