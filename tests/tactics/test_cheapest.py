"""The cheapest victims, where a plugin looks again at the node that a pod gets."""

from __future__ import annotations

import pytest

from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.framework import Plugin, PodRecord, View
from stromboli.framework.registry import Registry
from tests.actions.evictions import nominated
from tests.builders import NOON, node, policy, queue, state
from tests.expectations.test_preemption import CLASSES, gone, job, wants


class Picky(Plugin):
    """Refuses a node to the pods of one job, as a plugin that gives out single devices may."""

    name = "picky"

    def open(self, view: View) -> None:
        self._refused = view.nodes.facts.index["b"]

    def refusal(self, pod: PodRecord, node: int) -> Reason | None:
        if node != self._refused or pod.job != "default/wants":
            return None
        return Reason(Stage.Placement, "Picky", "not this one", Actionable.User)


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_nobody_is_promised_a_node_that_a_plugin_refuses(action: str) -> None:
    """What the gang leaves on b would do for the second pod, but for the plugin: so the dearer one on c goes, too."""
    known = discover()
    registry = Registry(known.actions, known.plugins | {Picky.name: Picky})
    nodes = [node(name, cpu="1") for name in "abc"]
    cluster = [*nodes, *job("gang", "a", "b", least=2), *job("dear", "c", of="middle"), *wants(2)]
    text = policy("priority gang", "predicates picky", actions=f"enqueue, allocate, {action}")
    result = Engine(text, registry=registry).decide(state(CLASSES, queue("default"), *cluster).snapshot(), now=NOON)
    assert sorted(nominated(result).values()) == ["a", "c"]
    assert gone(result) == {"gang": 2, "dear": 1}
