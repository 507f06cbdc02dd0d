"""How the tenants of a cluster share the work of sessions."""

from __future__ import annotations

import math

import pytest

from stromboli.engine import Engine, SessionResult, Successive
from stromboli.explain.rehearsal import advance
from stromboli.framework.environment import Environment
from stromboli.framework.explain import pending_reasons
from stromboli.state.cluster import ClusterState
from tests import builders

ACTIONS = "enqueue, allocate, backfill"


def engine(steps: int, compatibility: str = "strict") -> Engine:
    text = builders.policy("priority gang", "drf predicates proportion nodeorder", actions=ACTIONS)
    return Engine(f"{text}\ncompatibility: {compatibility}\nsession: {{steps: {steps}}}\n")


def mass(name: str, number: int, cpu: int, queue: str = "mass", **fields: object) -> list[object]:
    """Pods in PodGroups of their own, each with a request that no other has, in milli-CPUs from `cpu` on."""
    found: list[object] = []
    for at in range(number):
        key = f"{name}-{at:04}"
        found.append(builders.pod_group(key, 1, queue=queue, phase="Inqueue", **fields))
        found.append(builders.pod(key, group=key, cpu=f"{cpu + at}m"))
    return found
