"""An observer of a state is told of every change, once it took effect, and of nothing else."""

from __future__ import annotations

from typing import Any

from stromboli.state.cluster import ClusterState
from stromboli.state.observer import Observer
from stromboli.state.pods import PodRecord
from tests import builders


class Heard(Observer):
    """Notes what it is told."""

    def __init__(self, state: ClusterState) -> None:
        self.state, self.told = state, list[tuple[Any, ...]]()
        state.observer = self

    def pod_put(self, before: PodRecord | None, now: PodRecord, state: int, *, stays: bool) -> None:
        assert self.state.record(now.key) is now
        self.told.append(("pod", now.name, before is None, stays))

    def pod_gone(self, row: int) -> None:
        self.told.append(("gone", row))

    def pod_assumed(self, row: int, node: str) -> None:
        self.told.append(("assumed", row, node))

    def pod_forgotten(self, row: int) -> None:
        self.told.append(("forgotten", row))

    def node_put(self, record: Any) -> None:
        assert self.state.nodes.record(record.name) is record
        self.told.append(("node", record.name))

    def object_put(self, kind: str, before: Any, now: Any) -> None:
        self.told.append((kind, before is not None))

    def object_gone(self, kind: str, key: str) -> None:
        self.told.append(("object gone", kind, key))

    def snapshot_taken(self, snapshot: Any) -> None:
        self.told.append(("snapshot", len(snapshot.pods.records)))


def test_each_change_is_told_once_it_took_effect() -> None:
    state = builders.state()
    heard = Heard(state)
    node, pod, group = builders.node("n"), builders.pod("p"), builders.pod_group("p", 1)
    for kind, obj in (("Node", node), ("Node", node), ("PodGroup", group), ("PodGroup", group), ("Pod", pod)):
        state.upsert(kind, obj)
    state.upsert("Pod", pod)
    state.assume("default/p", "n")
    state.assume("default/p", "n")
    state.forget("default/p")
    state.forget("default/p")
    state.fork().delete("Pod", "default/p")
    state.snapshot()
    for kind, key in (("Pod", "default/p"), ("Pod", "default/p"), ("Node", "n"), ("PodGroup", "default/p")):
        state.delete(kind, key)
    assert heard.told == [
        ("node", "n"),
        ("PodGroup", False),
        ("PodGroup", True),
        ("pod", "p", True, False),
        ("pod", "p", False, True),
        ("assumed", 0, "n"),
        ("forgotten", 0),
        ("snapshot", 1),
        ("gone", 0),
        ("object gone", "Node", "n"),
        ("object gone", "PodGroup", "default/p"),
    ]
