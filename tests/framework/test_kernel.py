"""The placement kernel against the plain way: one pod at a time, every node scored anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stromboli.api.resources import CPU, MEMORY, Mask, Vector, fits
from stromboli.engine import Engine
from stromboli.framework.cluster.nodes import NodeLedger, NodeView
from stromboli.framework.node_selection import boards, ranking
from stromboli.framework.node_selection.kernel import Kernel
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.plugin.causes import Filters
from stromboli.framework.runtime.points import Points
from stromboli.policy.model import PluginOption
from stromboli.simulation import synthetic
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord
from tests import builders


class ByAmounts(Plugin):
    """Scores that follow from amounts."""

    def by_amounts(self, pod: PodRecord) -> bool:
        return True


class Spread(ByAmounts):
    """Falling scores: the emptier a node, the better."""

    name = "spread"

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        return np.floor((nodes.allocatable[CPU] - nodes.used[CPU]) * 10 / nodes.allocatable[CPU])


class Pack(ByAmounts):
    """Rising scores: the fuller a node, the better."""

    name = "pack"

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        return np.floor(nodes.used[MEMORY] * 20 / nodes.allocatable[MEMORY])


class Hill(ByAmounts):
    """Scores that rise and then fall."""

    name = "hill"

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        part = nodes.used[CPU] / nodes.allocatable[CPU]
        return np.floor(10 * (1 - np.abs(part - 0.5)))


class Relative(Plugin):
    """Scores relative to the best of the nodes that are left."""

    name = "relative"

    def batch_node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        raw = nodes.rows % 5 + 1.0
        return np.floor(raw * 10 / raw.max())


class Third(Plugin):
    """Every third node is better than the fullness of others makes up for."""

    name = "third"

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        return np.where(nodes.rows % 3 == 2, 4.0, 0.0)


class Odd(Plugin):
    """Only odd nodes."""

    name = "odd"

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "even", nodes.rows % 2 == 1


def one_at_a_time(
    plugins: list[Plugin],
    ledger: NodeLedger,
    pod: PodRecord,
    request: Vector,
    count: int,
    *,
    others: Mapping[int, int] = MappingProxyType({}),
) -> list[int]:
    """The reference: for each pod, the first of the best of all nodes that have room now."""
    placed, nodes = [], ledger.nodes
    for turn in range(count):
        view = nodes.view(nodes.rows)
        feasible: Mask = fits(request, nodes.idle)
        for plugin in plugins:
            if type(plugin).predicate is not Plugin.predicate:
                for _cause, mask in plugin.predicate(pod, view):
                    feasible &= mask
        rows = np.flatnonzero(feasible)
        if not len(rows):
            break
        scores = np.zeros(len(rows))
        for plugin in plugins:
            if type(plugin).node_order is not Plugin.node_order:
                scores += plugin.node_order(pod, nodes.view(rows))
            if type(plugin).batch_node_order is not Plugin.batch_node_order:
                scores += plugin.batch_node_order(pod, nodes.view(rows))
        best = int(rows[np.argmax(scores)])
        take(ledger, best, pod, request, others.get(turn))
        placed.append(best)
    return placed


def in_turns(
    plugins: list[Plugin], ledger: NodeLedger, pod: PodRecord, request: Vector, count: int, *, others: dict[int, int]
) -> list[int]:
    """The kernel, asked for one pod after the other."""
    kernel = Kernel(
        ledger.nodes, Points([[(plugin, PluginOption(plugin.name)) for plugin in plugins]]), lambda _: request
    )
    placed: list[int] = []
    for turn in range(count):
        nodes = kernel.batch(pod, 1)
        if not nodes:
            break
        take(ledger, nodes[0], pod, request, others.get(turn))
        placed += nodes
    return placed


def take(ledger: NodeLedger, node: int, pod: PodRecord, request: Vector, other: int | None = None) -> None:
    """Put a pod on a node; or, by a number, one that counts differently, a larger one, nothing, or others as well."""
    own, same, larger = (node, 1, pod.pod_class.scoring_request), (node, 1, (7.0, 7.0)), (node, 2, (0.0, 0.0))
    elsewhere = (0, 3, (0.0, 0.0))
    for at, pods, scoring in [own] if other is None else ([same], [larger], [], [own, larger], [elsewhere, own])[other]:
        ledger.occupy(at, ledger.taken(pods * request, scoring), 1)


def in_batches(plugins: list[Plugin], ledger: NodeLedger, pod: PodRecord, request: Vector, count: int) -> list[int]:
    """The kernel, applied until it has no more nodes."""
    kernel = Kernel(
        ledger.nodes, Points([[(plugin, PluginOption(plugin.name)) for plugin in plugins]]), lambda _: request
    )
    placed: list[int] = []
    while len(placed) < count:
        batch = kernel.batch(pod, count - len(placed))
        if not batch:
            break
        for row in batch:
            ledger.occupy(row, ledger.taken(request, pod.pod_class.scoring_request), 1)
        placed += batch
    return placed


def placements(
    cluster: ClusterState, chosen: set[type[Plugin]], ways: Iterable[Callable[..., list[int]]], count: int, **more: Any
) -> Iterator[list[int]]:
    """Where each way puts so many of the cluster's pod."""
    plugins = [plugin() for plugin in sorted(chosen, key=lambda p: p.name)]
    for way in ways:
        snapshot = cluster.snapshot()
        record = cluster.record("default/p")
        assert record is not None
        request = snapshot.requests[record.pod_class.id]
        yield way(plugins, NodeLedger(snapshot.nodes), record, request, count, **more)


@given(
    cpus=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    used=st.lists(st.integers(0, 6), min_size=12, max_size=12),
    count=st.integers(1, 40),
    cpu=st.sampled_from(["500m", "1", "1500m", "3"]),
    chosen=st.sets(st.sampled_from([Spread, Pack, Hill, Third, Relative, Odd])),
)
def test_a_batch_places_as_one_at_a_time_does(
    cpus: list[int], used: list[int], count: int, cpu: str, chosen: set[type[Plugin]]
) -> None:
    cluster = builders.state(
        [builders.node(f"n{i}", cpu=str(c), memory=f"{2 * c}Gi") for i, c in enumerate(cpus)],
        [builders.pod(f"r{i}", node=f"n{i}", cpu=f"{u}") for i, u in enumerate(used[: len(cpus)])],
        builders.pod("p", cpu=cpu),
    )
    one, other = placements(cluster, chosen, (one_at_a_time, in_batches), count)
    assert one == other


@given(
    cpus=st.lists(st.integers(4, 12), min_size=1, max_size=12),
    cpu=st.sampled_from(["500m", "1"]),
    chosen=st.sets(st.sampled_from([Spread, Pack, Hill, Third, Odd])),
    others=st.dictionaries(st.integers(8, 20), st.integers(0, 4), min_size=2, max_size=8),
)
@example(cpus=[12] * 3, cpu="1", chosen={Spread}, others={10: 4})
@example(cpus=[12] * 3, cpu="1", chosen={Spread}, others={10: 1})
def test_pods_that_come_in_turns_are_placed_as_one_at_a_time(
    cpus: list[int], cpu: str, chosen: set[type[Plugin]], others: dict[int, int]
) -> None:
    cluster = builders.state(
        [builders.node(f"n{i}", cpu=str(c), memory=f"{2 * c}Gi") for i, c in enumerate(cpus)],
        builders.pod("p", cpu=cpu),
    )
    one, other = placements(cluster, chosen, (one_at_a_time, in_turns), 60, others=others)
    assert one == other


@given(
    cpus=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    chosen=st.sets(st.sampled_from([Spread, Pack, Hill, Third, Odd])),
    others=st.dictionaries(st.integers(0, 20), st.integers(0, 4), max_size=8),
)
def test_nodes_that_are_ranked_a_few_at_a_time_are_the_same(
    cpus: list[int], chosen: set[type[Plugin]], others: dict[int, int]
) -> None:
    cluster = builders.state([builders.node(f"n{i}", cpu=str(c)) for i, c in enumerate(cpus)], builders.pod("p"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "MOST_RANKED", 2)
        one, other = placements(cluster, chosen, (one_at_a_time, in_turns), 60, others=others)
    assert one == other


def test_plugins_are_asked_less_and_less_about_pods_that_come_in_turns() -> None:
    class Counted(Pack):
        name = "counted"
        asked = 0

        def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
            self.asked += 1
            return super().node_order(pod, nodes)

    cluster = builders.state([builders.node(f"n{i}", cpu="32") for i in range(8)], builders.pod("p"))
    snapshot, record, plugin = cluster.snapshot(), cluster.record("default/p"), Counted()
    assert record is not None
    request = snapshot.requests[record.pod_class.id]
    assert len(in_turns([plugin], NodeLedger(snapshot.nodes), record, request, 200, others={})) == 200
    assert plugin.asked < 60


def test_plugins_are_not_asked_again_about_the_same_amounts() -> None:
    cluster = builders.state(
        [builders.node(f"n{i}", cpu="8") for i in range(100)], builders.pod("a"), builders.pod("b", cpu="2")
    )
    snapshot = cluster.snapshot()
    ledger = NodeLedger(snapshot.nodes)
    kernel = Kernel(
        ledger.nodes,
        Points([[(Pack(), PluginOption(Pack.name))]]),
        lambda pod: snapshot.requests[pod.pod_class.id],
    )
    pods = [pod for pod in map(cluster.record, ("default/a", "default/b")) if pod is not None]
    kernel.board(pods[0]), kernel.board(pods[1])
    for turn in range(200):
        pod = pods[turn % 2]
        (node,) = kernel.batch(pod, 1)
        take(ledger, node, pod, snapshot.requests[pod.pod_class.id])
    scored_at_first = 2 * 100
    assert kernel.nodes_scored - scored_at_first < 30


def test_a_board_sees_what_others_placed() -> None:
    cluster = builders.state(
        [builders.node(f"n{i}", cpu="4") for i in range(8)], builders.pod("a"), builders.pod("b", cpu="2")
    )
    snapshot = cluster.snapshot()
    ledger = NodeLedger(snapshot.nodes)
    nodes = ledger.nodes
    kernel = Kernel(
        nodes,
        Points([[(Spread(), PluginOption("spread"))]]),
        lambda pod: snapshot.requests[pod.pod_class.id],
    )
    a, b = cluster.record("default/a"), cluster.record("default/b")
    assert a is not None
    assert b is not None
    assert kernel.best(a) == (0, True)
    assert kernel.best(b) == (0, True)
    taken = ledger.taken(snapshot.requests[b.pod_class.id], (0, 0))
    ledger.occupy(0, taken, 2)
    assert kernel.best(a) == (1, True)
    assert kernel.best(b) == (1, True)
    ledger.occupy(0, taken, -2)
    assert kernel.best(a) == (0, True)


def test_room_that_terminating_pods_leave_is_second_best() -> None:
    cluster = builders.state(
        builders.node("full", cpu="2"),
        builders.pod("going", node="full", cpu="2", deleted=True),
        builders.pod("waiting", cpu="2"),
    )
    snapshot = cluster.snapshot()
    ledger = NodeLedger(snapshot.nodes)
    kernel = Kernel(ledger.nodes, Points([]), lambda pod: snapshot.requests[pod.pod_class.id])
    waiting = cluster.record("default/waiting")
    assert waiting is not None
    assert kernel.batch(waiting, 1) == []
    assert kernel.best(waiting) == (0, False)


def test_boards_that_were_dropped_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = synthetic.cluster(16, 40, 8, synthetic.Shape.elastic)
    policy = synthetic.policy(synthetic.Shape.elastic)
    kept = Engine(policy).decide(cluster.snapshot(), now=0.0).session
    monkeypatch.setattr(boards, "MOST_KEPT", 40)
    dropped = Engine(policy).decide(cluster.snapshot(), now=0.0).session
    assert dropped.kernel.nodes_scored > kept.kernel.nodes_scored
    assert dropped.bound == kept.bound


def test_pods_unlike_all_others_leave_no_boards_behind() -> None:
    cluster = synthetic.cluster(200, 40, 4, synthetic.Shape.distinct)
    session = Engine().decide(cluster.snapshot(), now=0.0).session
    assert len(session.bound) == 40
    assert session.kernel.boards_kept <= 1
    elastic = synthetic.cluster(200, 40, 4, synthetic.Shape.elastic)
    assert Engine().decide(elastic.snapshot(), now=0.0).session.kernel.boards_kept == 4
