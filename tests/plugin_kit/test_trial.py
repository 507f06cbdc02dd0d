"""What a trial on random clusters finds wrong with plugins, and that it finds nothing wrong with ours."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest

from stromboli.discovery import discover
from stromboli.framework import Filters, Job, NodeView, Operation, Plugin, PodRecord, Reads, Vector
from stromboli.plugin_kit import try_plugin
from stromboli.plugin_kit.clusters import made_up


def problems(plugin: type[Plugin], *, clusters: int = 6, nodes: int = 0) -> dict[str, str]:
    """The first problem of each check that failed."""
    found = try_plugin(plugin, clusters=clusters, nodes=nodes)
    return {finding.check: finding.problems[0] for finding in found if finding.problems}


class WrongLength(Plugin):
    name = "tried"

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        return np.zeros(len(nodes) + 1)


class Raising(Plugin):
    name = "tried"

    def job_order(self, job: Job) -> float:
        return 1 / 0


class Mixed(Plugin):
    name = "tried"

    def job_order(self, job: Job) -> Any:
        return job.key if job.min_available > 1 else job.min_available


class Undeclared(Plugin):
    name = "tried"

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) of others", nodes.label("team", pod.labels["team"])


class Moody(Plugin):
    """Answers differently each time that it is made."""

    name = "tried"
    made = itertools.count()

    def __init__(self, arguments: Any = None, *, hierarchy: bool = False) -> None:
        super().__init__(arguments, hierarchy=hierarchy)
        self._mood = next(self.made)

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        return (nodes.rows + self._mood) % 3 * 100.0


class Follower(Plugin):
    """Prefers the node of the last pod, and says neither `varies` nor `one_by_one`."""

    name = "tried"
    last = -1

    def on_allocate(self, operation: Operation) -> None:
        self.last = operation.nodes[-1]

    def on_deallocate(self, operation: Operation) -> None:
        self.last = -1

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        return (nodes.rows == self.last) * 1000.0


@pytest.mark.parametrize(
    ("plugin", "check", "problem"),
    [
        (WrongLength, "answers have the right type and shape", "node_order() should return scores of shape ("),
        (Raising, "answers have the right type and shape", "ZeroDivisionError: division by zero in job_order(), line"),
        (Mixed, "keys compare with each other", "job_order() should return keys that compare with each other"),
        (Undeclared, "only what is declared is read", "add `reads = Reads(labels=('team',))` to class Undeclared"),
        (Moody, "two runs are alike", "the same objects were decided differently"),
        (Follower, "pods are placed together as one by one", "see `varies`, `one_by_one`"),
    ],
)
def test_what_is_wrong_is_found(plugin: type[Plugin], check: str, problem: str) -> None:
    assert problem in problems(plugin)[check]


def test_what_is_declared_may_be_read() -> None:
    declared = type("Declared", (Undeclared,), {"reads": Reads(labels=("team",)), "predicate": _of_team})
    assert problems(declared) == {}


def _of_team(self: Plugin, pod: PodRecord, nodes: NodeView) -> Filters:
    if "team" in pod.labels:
        yield "node(s) of others", nodes.label("team", pod.labels["team"])


def test_points_that_nobody_asked_about_are_named() -> None:
    class Quiet(Plugin):
        name = "tried"

        def victim_queue_order(self, queue: Any, reclaimer: Any) -> int:
            return 0

    note = try_plugin(Quiet, clusters=1, nodes=0)[0].note
    assert note == "0 calls in 1 clusters; never asked: victim_queue_order"


def test_what_fails_on_a_large_cluster_only_is_found_too() -> None:
    class Small(Plugin):
        name = "tried"

        def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
            return np.zeros(min(len(nodes), 40))

    assert "should return scores of shape (50,)" in problems(Small, clusters=1, nodes=50)["cost at 50 nodes"]


def test_the_clusters_of_a_seed_are_the_same() -> None:
    reads = Reads(labels=("team",))
    one, same, other = (repr(made_up(Random(seed), reads)) for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize("name", sorted(discover().plugins))
def test_a_built_in_plugin_holds(name: str) -> None:
    assert problems(discover().plugins[name], clusters=4) == {}
