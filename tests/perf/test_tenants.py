"""What anybody may write into an object costs no more than in proportion, counted in calls of functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from stromboli import gate
from stromboli.api import objects
from stromboli.engine import Engine
from stromboli.state.cluster import ClusterState
from tests import builders

ENGINE = Engine(builders.policy("gang", "predicates nodeorder binpack"))
_FEW, _MANY = 60, 120
Fields = dict[str, Any]


def _affinity(terms: Any) -> Fields:
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _expressions(count: int, *values: str) -> list[Fields]:
    return [{"key": f"k{number}", "operator": "NotIn", "values": ["a", *values]} for number in range(count)]


def _containers(count: int, **fields: Any) -> list[Fields]:
    return [{"name": f"c{number}", "resources": {"requests": {"cpu": "1m"}}, **fields} for number in range(count)]


def _names(count: int) -> Fields:
    return {f"example.com/r{number}": "1" for number in range(count)}


#: by what a pod has many of: its spec, and the calls that one more may cost in an event and a session with it
SPECS: dict[str, tuple[Callable[[int], Fields], int]] = {
    "terms": (lambda n: _affinity({"nodeSelectorTerms": [{"matchExpressions": [e]} for e in _expressions(n)]}), 130),
    "expressions": (lambda n: _affinity({"nodeSelectorTerms": [{"matchExpressions": _expressions(n)}]}), 100),
    "values": (
        lambda n: _affinity({"nodeSelectorTerms": [{"matchExpressions": _expressions(1, *map(str, range(n)))}]}),
        10,
    ),
    "tolerations": (lambda n: {"tolerations": [{"key": f"k{at}", "operator": "Exists"} for at in range(n)]}, 60),
    "containers": (lambda n: {"containers": _containers(n)}, 80),
    "ports": (
        lambda n: {"containers": _containers(1, ports=[{"hostPort": at + 1, "containerPort": 1} for at in range(n)])},
        10,
    ),
    "resources": (lambda n: {"containers": _containers(1, resources={"requests": _names(n)})}, 40),
    "volumes": (
        lambda n: {
            "volumes": [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": f"c{at}"}} for at in range(n)]
        },
        150,
    ),
    "resource claims": (
        lambda n: {"resourceClaims": [{"name": f"c{at}", "resourceClaimName": f"c{at}"} for at in range(n)]},
        10,
    ),
    "scheduling gates": (lambda n: {"schedulingGates": [{"name": f"g{at}"} for at in range(n)]}, 5),
    "labels": (lambda n: {"labels": {f"l{at}": "x" for at in range(n)}}, 5),
    "annotations": (lambda n: {"annotations": {f"a{at}": "x" * 10_000 for at in range(n)}}, 5),
}


def calls(work: Callable[[], object]) -> int:
    """How many functions some work calls, those of C as well."""
    count = 0

    def counted(frame: Any, event: str, of: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def cluster() -> ClusterState:
    nodes = [builders.node(f"n{at}", taints=[{"key": f"t{at}", "effect": "NoSchedule"}]) for at in range(10)]
    return builders.state(nodes, builders.queue("default"), builders.pod_group("g"))


def cost(fields: Fields) -> int:
    """The calls of a pod's event and of a session with it."""
    fields = dict(fields)
    labels, annotations = fields.pop("labels", {}), fields.pop("annotations", {})
    pod: objects.Pod = builders.pod("p", "g", labels=labels, annotations=annotations, **fields)

    def event(state: ClusterState) -> None:
        gate.read("Pod", pod)
        state.upsert("Pod", pod)
        ENGINE.decide(state.snapshot(), now=builders.NOON)

    # What is read the first time only counts for nobody.
    event(cluster())
    state = cluster()
    return calls(lambda: event(state))


@pytest.mark.parametrize("what", SPECS)
def test_a_pod_with_many(what: str) -> None:
    fields, most = SPECS[what]
    few, many = cost(fields(_FEW)), cost(fields(_MANY))
    assert (many - few) / (_MANY - _FEW) <= most


def test_a_gang_that_wants_more_pods_than_there_are() -> None:
    def session(members: int) -> int:
        state = builders.state(builders.node("n0"), builders.queue("default"), builders.pod_group("g", members))
        state.upsert("Pod", builders.pod("p", "g"))
        ENGINE.decide(state.snapshot(), now=builders.NOON)
        return calls(lambda: ENGINE.decide(state.snapshot(), now=builders.NOON))

    assert session(100_000) <= session(100) + 10
