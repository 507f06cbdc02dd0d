"""How much memory pods take, in bytes that are counted; `ranges.yaml` says how much is right."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from stromboli.bench import FEATURES, Cluster, Trial
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.kube import storage
from stromboli.kube.dra import objects
from tests import builders
from tests.perf.test_work import RANGES, check

_PER_NODE = 20


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def with_sessions(trial: Trial, nodes: int) -> int:
    """Bytes of a cluster and its last session."""
    before = held()
    cluster = Cluster(trial, nodes, Engine(trial.policy(), registry=discover()))
    with cluster.wave(1, 1):
        decide = cluster.successive()
        results = [decide() for _ in range(2)]
        del results[0]
        return held() - before


@pytest.mark.exhaustive
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("feature", RANGES["memory"]["placed"])
def test_a_placed_pod_takes_little_with_all_that_it_names(feature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if there were many more pods than objects of which it is kept what was read.
    for module in (storage, objects):
        monkeypatch.setattr(module, "_MOST_READ", 50)
    trial, sizes = replace(FEATURES[feature].trial, per_node=_PER_NODE), RANGES["memory"]["nodes"]
    # What is made only once is made before.
    _, few, many = (with_sessions(trial, nodes) for nodes in (1, *sizes))
    each = (many - few) / (_PER_NODE * (sizes[1] - sizes[0]))
    check({"bytes": RANGES["memory"]["placed"][feature]}, {"bytes": each}, f"{each:.0f} bytes")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("traced")
def test_classes_of_pods_that_are_gone_leave_nothing_behind() -> None:
    cluster, sizes = builders.state(builders.queue("default"), builders.node("n"), builders.pod_group("g")), []
    for first in (0, 1_100):
        for number in range(first, first + 1_100):
            volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": f"claim-{number}"}}]
            cluster.upsert("Pod", builders.pod("p", "g", nodeSelector={"for": f"{number}"}, volumes=volumes))
            if number % 250 == 0:
                builders.decide(cluster, builders.policy("predicates nodeorder", actions="allocate"))
        cluster.delete("Pod", "default/p")
        sizes.append(held())
    each = (sizes[1] - sizes[0]) / 1_100
    check(RANGES["memory"]["gone"], {"bytes": each}, f"{each:.0f} bytes")
