"""Decisions about pods that depend on other pods: the same, however little is asked again for each."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.engine import Engine
from stromboli.framework.plugin.base import Plugin
from stromboli.plugin_kit.surroundings import registry_with
from stromboli.simulation.manifests import decode
from stromboli.state.pods import PodRecord
from tests import builders
from tests.fuzz import tried
from tests.kube import clusters
from tests.kube.oracle import World


class Anew(Plugin):
    """Has all nodes asked anew for every pod."""

    name = "anew"

    def varies(self, pod: PodRecord) -> bool:
        return True


@cache
def engine(more: str) -> Engine:
    policy = builders.policy("priority gang", f"predicates nodeorder {more}", actions="allocate, backfill, preempt")
    return Engine(policy, registry=registry_with(Anew))


def decided(world: World, gangs: list[tuple[dict[str, Any], int, int]], more: str) -> tuple[dict[str, str], ...]:
    """Where pods go and who is evicted: gangs of alike pods, of which so many make the gang ready."""
    objects: list[Any] = [decode("Node", node, "node") for node in world.nodes]
    for number, (pod, size, least) in enumerate(gangs):
        namespace = pod["metadata"]["namespace"]
        objects.append(builders.pod_group(f"g{number}", least, namespace=namespace, created=number))
        for at in range(size):
            each = copy.deepcopy(pod)
            each["metadata"]["name"] = f"g{number}-{at}"
            each["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": f"g{number}"}
            objects.append(decode("Pod", each, "pod"))
    objects += [decode("Pod", pod, "pod") for pod, _ in world.placed]
    cluster = builders.state(builders.queue("default"), objects)
    session = engine(more).decide(cluster.snapshot(), now=builders.NOON).session
    return session.bound, session.evicted


RULES = st.one_of(clusters.pod_rules, clusters.spread_rules)
GANGS = st.tuples(st.integers(1, 5), st.integers(1, 5)).map(lambda pair: (max(pair), min(pair)))


@pytest.mark.exhaustive
@tried(20)
@given(clusters.worlds(RULES), st.lists(st.tuples(clusters.worlds(RULES).map(lambda each: each[1]), GANGS), max_size=3))
def test_decisions_are_those_of_asking_all_nodes_anew_for_each_pod(
    case: tuple[World, dict[str, Any]], others: list[tuple[dict[str, Any], tuple[int, int]]]
) -> None:
    world, pod = case
    gangs = [(pod, 4, 2), *((kind, *sizes) for kind, sizes in others)]
    assert decided(world, gangs, "") == decided(world, gangs, "anew")
