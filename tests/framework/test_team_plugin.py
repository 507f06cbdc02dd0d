"""A pod of team X goes to the nodes of X: the ways to write such a plugin, and what is said of those that go wrong.

Team red has one node, team blue another; `red-0` and `blue-0` are pods of one gang that differ only in their team.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stromboli.framework import Filters, NodeView, Plugin, PodRecord, Queue, Reads, Vector
from stromboli.framework.plugin.definition import PluginDefinitionError
from stromboli.framework.reasons import plugin_failed
from stromboli.plugin_kit import decide

OBJECTS = """
{kind: Queue, metadata: {name: default}, spec: {weight: 1}}
---
{kind: PodGroup, metadata: {name: job, namespace: default}, spec: {minMember: 1, queue: default}}
""" + "".join(
    f"""
---
kind: Node
metadata: {{name: node-of-{team}, labels: {{team: {team}}}}}
status: {{allocatable: {{cpu: "8", memory: 8Gi, pods: "10"}}}}
---
kind: Pod
metadata:
  name: {team}-0
  namespace: default
  labels: {{team: {team}}}
  annotations: {{scheduling.k8s.io/group-name: job, example.com/team: {team}}}
spec:
  schedulerName: stromboli
  runtimeClassName: {team}
  containers: [{{name: main, resources: {{requests: {{cpu: "1"}}}}}}]
"""
    for team in ("red", "blue")
)
SEPARATED = {"default/red-0": "node-of-red", "default/blue-0": "node-of-blue"}


class ByLabel(Plugin):
    name = "team"
    reads = Reads(labels=("team",))

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) of other teams", nodes.label("team", pod.labels["team"])


class ByAnnotation(Plugin):
    name = "team"
    reads = Reads(annotations=("example.com/team",))

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) of other teams", nodes.label("team", pod.annotations["example.com/team"])


class ByScore(Plugin):
    name = "team"
    reads = Reads(labels=("team",))

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        return nodes.label("team", pod.labels["team"]) * 1_000.0


class ByName(Plugin):
    name = "team"
    reads = Reads(fields=("name",))

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) of other teams", nodes.label("team", pod.name.partition("-")[0])


class ByRuntimeClass(Plugin):
    name = "team"
    reads = Reads(fields=("runtime_class_name",))

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) of other teams", nodes.label("team", pod.pod_class.spec.runtime_class_name or "")


class ByIdentity(Plugin):
    """Who says what the answers depend on sees pods whole."""

    name = "team"

    def identity(self, pod: PodRecord) -> str | None:
        return pod.labels.get("team")

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) of other teams", nodes.label("team", pod.labels["team"])


@pytest.mark.parametrize("plugin", [ByLabel, ByAnnotation, ByScore, ByName, ByRuntimeClass, ByIdentity])
def test_each_team_gets_its_nodes(plugin: type[Plugin]) -> None:
    assert decide(plugin, OBJECTS).session.bound == SEPARATED


class Undeclared(Plugin):
    name = "team"

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) of other teams", nodes.label("team", pod.labels["team"])


class UndeclaredAnnotation(Plugin):
    name = "team"

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) of other teams", nodes.label("team", pod.annotations["example.com/team"])


class UndeclaredForOnePod(Plugin):
    """`allocatable` sees the pod itself, but of annotations only those that a plugin declares are kept."""

    name = "team"

    def allocatable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, None]:
        return (count if pod.annotations.get("example.com/team") else 0), None


class Returning(Plugin):
    name = "team"
    reads = Reads(labels=("team",))

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Any:
        return nodes.label("team", pod.labels["team"])


class ReturningNothing(Plugin):
    name = "team"

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Any:
        return None


class MaskOfNumbers(Plugin):
    name = "team"

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) of other teams", np.ones(len(nodes))  # type: ignore[misc]


class WrongLength(Plugin):
    name = "team"

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        return np.zeros(1)


class NotANumber(Plugin):
    name = "team"

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector:
        return np.full(len(nodes), np.nan)


class RaisingMidway(Plugin):
    name = "team"

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        yield "node(s) of other teams", np.ones(len(nodes), np.bool_)
        raise LookupError("no such team")


@pytest.mark.parametrize(
    ("plugin", "says"),
    [
        (
            Undeclared,
            "the label 'team' of pods is read but not declared: add `reads = Reads(labels=('team',))` to class",
        ),
        (UndeclaredAnnotation, "add `reads = Reads(annotations=('example.com/team',))` to class UndeclaredAnnotation"),
        (UndeclaredForOnePod, "add `reads = Reads(annotations=('example.com/team',))` to the plugin's class"),
        (Returning, "predicate() should return pairs of a cause and a mask of shape (2,), one by one with yield"),
        (ReturningNothing, "one by one with yield, but returned None"),
        (MaskOfNumbers, "a mask of shape (2,) and type bool with each cause, but returned an array of shape (2,)"),
        (RaisingMidway, "LookupError: no such team"),
    ],
)
def test_what_is_wrong_is_the_reason_of_the_job(plugin: type[Plugin], says: str) -> None:
    session = decide(plugin, OBJECTS).session
    assert session.bound == {}
    reason = session.view.reason(session.view.jobs["default/job"])
    assert reason is not None
    assert reason.reason == "PluginFailed"
    [failure] = session.failures
    assert says in plugin_failed(failure.plugin, failure.error).in_full.told
    # The job's owner is told no more than what kind of error it is.
    assert reason.message == f"plugin team failed: {type(failure.error).__name__}"


@pytest.mark.parametrize(
    ("plugin", "says"),
    [
        (WrongLength, "node_order() should return scores of shape (2,) or None, but returned an array of shape (1,)"),
        (NotANumber, "node_order() should return scores that are numbers, not NaN or infinite"),
    ],
)
def test_wrong_scores_are_left_out_and_named(plugin: type[Plugin], says: str) -> None:
    session = decide(plugin, OBJECTS).session
    assert set(session.bound) == {"default/blue-0", "default/red-0"}
    [failure] = session.failures
    assert (failure.plugin, failure.point) == ("team", "node_order")
    assert says in str(failure.error)


def test_a_misspelt_method_is_named_when_the_class_is_made() -> None:
    with pytest.raises(
        PluginDefinitionError, match=r"'predicat' of class .* is no extension point; did you mean 'predicate'"
    ):

        class Misspelt(Plugin):
            name = "team"

            def predicat(self, pod: PodRecord, nodes: NodeView) -> Filters:
                yield "node(s) of other teams", nodes.label("team", pod.labels["team"])


def test_a_wrong_signature_is_named_when_the_class_is_made() -> None:
    with pytest.raises(PluginDefinitionError, match=r"method 'predicate' of class .* should take \(self, pod, nodes\)"):

        class Narrow(Plugin):
            name = "team"

            def predicate(self, pod: PodRecord) -> Filters:  # type: ignore[override]
                yield "node(s) of other teams", np.ones(2, np.bool_)


def test_what_cannot_be_declared_is_named() -> None:
    with pytest.raises(ValueError, match=r"labels should be a collection of texts, such as \('team',\), not 'team'"):
        Reads(labels="team")
    with pytest.raises(ValueError, match="there is no field 'labels' to read; there are name, namespace"):
        Reads(fields=("labels",))
