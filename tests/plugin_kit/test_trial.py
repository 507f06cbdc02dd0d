"""What a trial on random clusters finds wrong with plugins, and that it finds nothing wrong with ours."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest

from stromboli.discovery import discover
from stromboli.framework import Filters, Job, NodeView, Operation, Plugin, PodRecord, Queue, Reads, Vector, View
from stromboli.plugin_kit import try_plugin
from stromboli.plugin_kit.clusters import made_up


def problems(plugin: type[Plugin], *, clusters: int = 4, nodes: int = 0) -> dict[str, str]:
    """The first problem of each check that failed."""
    found = try_plugin(plugin, clusters=clusters, nodes=nodes)
    return {finding.check: finding.problems[0] for finding in found if finding.problems}


class WrongLength(Plugin):
    name = "tried"

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        return np.zeros(len(nodes) + 1)


class Keyless(Plugin):
    name = "tried"

    def job_order(self, job: Job) -> object:  # type: ignore[override]
        return object()


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


class Tidy(Plugin):
    """Takes away what it has seen."""

    name = "tried"

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        for record in nodes.facts.records:
            record.labels.pop("zone", None)
        yield "node(s) of others", np.ones(len(nodes), np.bool_)


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


class Partial(Plugin):
    """Prefers every third node, and says that amounts are all that it looks at."""

    name = "tried"

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        return (nodes.rows % 3 == 0) * 100.0

    def by_amounts(self, pod: PodRecord) -> bool:
        return True


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    ("plugin", "check", "problem"),
    [
        (WrongLength, "answers have the right type and shape", "node_order() should return scores of shape ("),
        (Keyless, "keys compare with each other", "but returned object <object> (cluster 0 and"),
        (Raising, "answers have the right type and shape", "ZeroDivisionError: division by zero in job_order(), line"),
        (Mixed, "keys compare with each other", "job_order() should return keys that compare with each other"),
        (Undeclared, "only declared keys are read", "add `reads = Reads(labels=('team',))` to class Undeclared"),
        (Tidy, "arguments are not modified", "Node node-0 was changed: plugins must not modify objects of the state"),
        (Moody, "two runs are equal", "two runs on the same objects decided differently"),
        (Follower, "pods are placed in batches as one by one", ": see `varies`"),
        (Partial, "pods are placed in batches as one by one", "scores nodes with equal amounts differently"),
    ],
)
def test_what_is_wrong_is_found(plugin: type[Plugin], check: str, problem: str) -> None:
    assert problem in problems(plugin)[check]


class Company(Plugin):
    """Keeps away from where pods are that have something in common with nodes; `_of` says what."""

    name = "tried"

    def open(self, view: View) -> None:
        self._common = np.asarray(self._of(view))
        self._taken = np.zeros(len(view.nodes), np.int_)

    def _of(self, view: View) -> Any:
        raise NotImplementedError

    def on_allocate(self, operation: Operation) -> None:
        np.add.at(self._taken, list(operation.nodes), 1)

    def on_deallocate(self, operation: Operation) -> None:
        np.subtract.at(self._taken, [node for node in operation.nodes if node >= 0], 1)

    def _has_company(self, nodes: NodeView) -> Any:
        return np.isin(self._common, self._common[self._taken > 0])[nodes.rows] & (self._common >= 0)[nodes.rows]


class Filter(Company):
    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) with company", ~self._has_company(nodes)


class Score(Company):
    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        return self._has_company(nodes) * -1.0


class OfHostNetwork(Company):
    reads = Reads(fields=("host_network",))

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        if pod.host_network:
            yield "node(s) with company", ~self._has_company(nodes)


CARDS = "example.com/card"


def cards(self: Plugin, view: View) -> Any:
    return (
        view.nodes.allocatable[view.dimensions.index(CARDS)] if CARDS in view.dimensions else -np.ones(len(view.nodes))
    )


def _of_records(read: Any) -> Any:
    return lambda self, view: [read(record) for record in view.nodes.facts.records]


COMMON = {
    "a label": lambda self, view: view.nodes.facts.label("example.com/rack"),
    "a label of a record": _of_records(lambda record: len(record.labels.get("rack", "")) - 1),
    "an annotation": _of_records(lambda record: len(record.annotations.get("example.com/owner", "")) - 1),
    "a taint": _of_records(lambda record: any(taint.key == "example.com/worn" for taint in record.taints) - 1),
    "an amount": lambda self, view: view.nodes.allocatable[0],
    "an amount of its own": cards,
}


def of(kind: type[Plugin], common: str, **more: Any) -> type[Plugin]:
    return type("Tried", (kind,), {"_of": COMMON[common], "__module__": __name__, **more})


@pytest.mark.parametrize(
    ("kind", "common"),
    [
        *((Filter, common) for common in COMMON if common != "a taint"),
        (Score, "a label"),
        pytest.param(Filter, "a taint", marks=pytest.mark.exhaustive),
        pytest.param(OfHostNetwork, "an amount of its own", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.one_in(7)
def test_a_plugin_that_depends_on_other_pods_has_to_say_so(kind: type[Plugin], common: str) -> None:
    """Clusters have what its code names, be it of nodes or of pods."""
    found = problems(of(kind, common), clusters=12 if common in ("a taint", "an amount of its own") else 4)
    assert set(found) == {"pods are placed in batches as one by one"}


@pytest.mark.exhaustive
def test_one_that_says_so_holds() -> None:
    def varies(self: Plugin, pod: PodRecord) -> bool:
        return pod.host_network

    assert problems(of(OfHostNetwork, "an amount", varies=varies)) == {}


def test_what_follows_from_the_pods_of_a_node_alone_has_to_be_said() -> None:
    class Alone(Plugin):
        """One pod on each node, read from what the node holds."""

        name = "tried"

        def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
            yield "node(s) that are not empty", nodes.used[0] == 0

    assert "on it: see `varies_on_node`" in problems(Alone)["pods are placed in batches as one by one"]


@pytest.mark.exhaustive
def test_what_is_declared_may_be_read() -> None:
    declared = type("Declared", (Undeclared,), {"reads": Reads(labels=("team",)), "predicate": _of_team})
    assert problems(declared) == {}


def _of_team(self: Plugin, pod: PodRecord, nodes: NodeView) -> Filters:
    if "team" in pod.labels:
        yield "node(s) of others", nodes.label("team", pod.labels["team"])


def test_points_that_nobody_asked_about_are_named() -> None:
    class Quiet(Plugin):
        name = "tried"

        def gang_preemptable(self, job: Job, candidates: Any) -> Any:
            return candidates

    note = try_plugin(Quiet, clusters=1, nodes=0)[0].note
    assert note == "0 calls in 1 clusters; never asked: gang_preemptable"


@pytest.mark.exhaustive
def test_what_fails_on_a_large_cluster_only_is_found_too() -> None:
    class Small(Plugin):
        name = "tried"

        def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
            return np.zeros(min(len(nodes), 40))

    assert "should return scores of shape (50,)" in problems(Small, clusters=1, nodes=50)["cost at 50 nodes"]


@pytest.mark.parametrize("kind", ["job", "queue"])
def test_what_a_plugin_reads_of_podgroups_and_queues_is_there(kind: str) -> None:
    class Ranked(Plugin):
        name = "tried"

        def job_order(self, job: Job) -> int:
            return int(job.pod_group.metadata.annotations.get("example.com/rank", "0")) if kind == "job" else 0

        def queue_order(self, queue: Queue) -> int:
            return int(queue.resource.metadata.labels.get("example.com/rank", "0")) if kind == "queue" else 0

    found = problems(Ranked, clusters=6)["answers have the right type and shape"]
    assert "invalid literal for int() with base 10: '" in found
    assert f"in {kind}_order()" in found


def test_jobs_are_in_namespaces_that_a_plugin_names() -> None:
    objects = made_up(Random(1), Reads(), ["research-team", "Not a name"])
    assert {obj.metadata.namespace for kind, obj in objects if kind == "Pod"} <= {"default", "research-team"}
    drawn = [made_up(Random(seed), Reads(), ["research-team"]) for seed in range(5)]
    assert any(obj.metadata.namespace == "research-team" for each in drawn for kind, obj in each if kind == "Pod")


def test_the_clusters_of_a_seed_are_the_same() -> None:
    reads = Reads(labels=("team",))
    one, same, other = (repr(made_up(Random(seed), reads)) for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize("clusters", [1, pytest.param(4, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", sorted(discover().plugins))
@pytest.mark.one_in(9)
def test_a_built_in_plugin_holds(name: str, clusters: int) -> None:
    assert problems(discover().plugins[name], clusters=clusters) == {}
