"""How much work is done, in counts instead of seconds; `ranges.yaml` says how much is right."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.cli.bench import measurements
from stromboli.engine import Engine, Successive
from stromboli.framework.cluster.environment import Environment
from stromboli.simulation import synthetic
from stromboli.simulation.synthetic import Shape
from tests import builders
from tests.extender.questions import by_name, client, published
from tests.live.cluster import SCHEDULING, Cluster
from tests.live.conftest import StartService, until
from tests.perf.writes import Write

RANGES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("ranges.yaml").read_text())

_GANGS, _PODS_PER_GANG = 10, 20
_PODS = _GANGS * _PODS_PER_GANG


def check(ranges: Mapping[str, list[float]], counts: Mapping[str, float], detail: str = "") -> None:
    """Fail with all counts that are out of their range."""
    outside = {
        name: f"{counts[name]} is not in [{least}, {most}]"
        for name, (least, most) in ranges.items()
        if not least <= counts[name] <= most
    }
    assert not outside, detail


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", RANGES["sessions"])
def test_a_session_looks_at_no_more_nodes_than_it_needs(name: str) -> None:
    ranges = dict(RANGES["sessions"][name])
    size = ranges.pop("cluster")
    shape = Shape(size.pop("shape"))
    state = synthetic.cluster(**size, shape=shape)
    check(ranges, next(measurements(Engine(synthetic.policy(shape)).unbounded(), state, 1)))


@pytest.mark.parametrize("name", RANGES["extender"])
async def test_answers_to_kube_scheduler_are_short(name: str) -> None:
    names = [f"node-{number:05}" for number in range(1_000)]
    pods = builders.gang("train", 2)
    group = builders.pod_group("train", 2 if name == "decided" else 3)
    cluster = builders.state([builders.node(each) for each in names], builders.queue("default"), group, pods)
    question, counts = by_name(pods[0], names), {}
    async with client(published(cluster, synthetic.policy(Shape.gang))) as http:
        for verb in RANGES["extender"][name]:
            counts[verb] = len((await http.post(f"/{verb}", content=question)).content)
    check(RANGES["extender"][name], counts)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", RANGES["service"])
async def test_little_is_written_beside_bindings(
    name: str, writes: list[Write], cluster: Cluster, start: StartService
) -> None:
    for number in range(8):
        cluster.node(f"large-{number}", cpu="32")
    if name == "waiting":
        await _create(cluster)
    begin = time.monotonic()
    # With the usual rate Events would be dropped, and it would take a time to tell them.
    await start(lambda _: Successive(Engine(), Environment()), events_per_second=10_000)
    if name == "arriving":
        await _create(cluster)
    await until(lambda: _shown(cluster))
    await _quiet(writes)
    kinds = Counter(f"{write.method} {write.kind}" for write in writes)
    of_queues = sum(kinds[kind] for kind in kinds if kind.partition(" ")[2].startswith("queues"))
    # A queue's counts are written once a second while they change, so a slow machine sees more of them.
    seconds = time.monotonic() - begin
    counts = {
        "writes": (len(writes) - of_queues) / _PODS,
        "queue_writes_per_second": of_queues / (seconds + 2),
        "bindings": kinds["POST pods/binding"] / _PODS,
        "binding_bytes": _longest(writes, "pods/binding"),
        "status_bytes": _longest(writes, "podgroups/status"),
    }
    check(RANGES["service"][name], counts, str(kinds))


async def _create(cluster: Cluster) -> None:
    for number in range(_GANGS):
        await asyncio.to_thread(cluster.gang, f"gang-{number}", _PODS_PER_GANG)


def _shown(cluster: Cluster) -> bool:
    """Whether statuses say that everything runs."""
    groups = cluster.items(f"{SCHEDULING}/podgroups")
    if [(group.get("status") or {}).get("running") for group in groups] != [_PODS_PER_GANG] * _GANGS:
        return False
    status = cluster.get(f"{SCHEDULING}/queues/default")["status"]
    root = cluster.get(f"{SCHEDULING}/queues/root")["status"]
    return (status.get("running"), root.get("allocated", {}).get("pods")) == (_GANGS, str(_PODS))


async def _quiet(writes: list[Write]) -> None:
    """Return when nothing has been written for a while."""
    before = -1
    while before != len(writes):
        before = len(writes)
        await asyncio.sleep(0.3)


def _longest(writes: list[Write], kind: str) -> int:
    return max(len(write.body) for write in writes if write.kind == kind)
