"""What is kept for a moved pod counts for its queue until another pod replaces it, under each plugin of shares."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import Engine
from stromboli.framework.cluster.environment import OFFLINE
from tests import builders
from tests.actions.evictions import evicted, running, starving
from tests.builders import NOON, gang, node, pod, pod_group, queue

ACTIONS = "enqueue, allocate, consolidation, backfill"
#: left has the pod that moves, and two nodes have room for two more CPUs
NODES = [node("left", cpu="4"), node("right", cpu="4"), node("third", cpu="3")]
FULL = {"capability": {"cpu": "4"}}
#: of the cluster's eleven CPUs eight are for all others
KEPT = {"guarantee": {"resource": {"cpu": "3"}}}
FLAT = [queue("poor"), queue("sibling"), queue("kept")]
TREE = [queue("root"), queue("parent", parent="root", **FULL), queue("poor", parent="root")]
CHILDREN = [queue(name, parent="parent") for name in ("rich", "sibling")]
#: its fair share is more than it asks for
RICH = queue("rich", weight=9)
#: by the shares, the plugin, the queues and the queue of the other pod
LIMITS: dict[str, tuple[str, list[Any], str]] = {
    "proportion": ("proportion", [*FLAT, queue("rich", **FULL)], "rich"),
    "capacity": ("capacity", [*FLAT, queue("rich", **FULL)], "rich"),
    "capacity tree": ("capacity tree", [*TREE, *CHILDREN], "sibling"),
    "fairshare": ("fairshare", [*FLAT, queue("rich", **FULL)], "rich"),
    "fairshare tree": ("fairshare", [*TREE, *CHILDREN], "sibling"),
    "proportion's guarantees": ("proportion", [*FLAT[:2], queue("kept", **KEPT), RICH], "sibling"),
    "capacity's guarantees": ("capacity", [*FLAT[:2], queue("kept", **KEPT), RICH], "sibling"),
}


class Moving:
    """A cluster in which the pod of `old` moves, in queue rich, beside `stays`, so that `wants` starts."""

    def __init__(self, plugin: str, queues: list[Any], *more: Any) -> None:
        name, _, tree = plugin.partition(" ")
        policy = builders.policy("gang conformance", f"predicates {name}", actions=ACTIONS)
        self._engine = Engine(policy + "\n    enableHierarchy: true" if tree else policy)
        stays = running("stays", "right", cpu="2", annotations={"volcano.sh/preemptable": "false"})
        self._always = [*NODES, *queues, *stays, *more]
        self._now, self._environment = NOON, OFFLINE
        self.decide(running("old", "left", cpu="2"), starving(cpu="4"))

    def decide(self, *objs: Any) -> dict[str, str]:
        """Where a session binds pods that were not there before."""
        state = builders.state(*self._always, *objs)
        result = self._engine.decide(state.snapshot(), now=self._now, environment=self._environment)
        assert evicted(result) == (["old-0"] if self._environment is OFFLINE else [])
        self._environment, self._now = result.environment, self._now + 1
        return result.session.bound


#: once it is gone, and before another comes
WANTS = [pod_group("wants", queue="poor", phase="Running"), pod("wants-0", "wants", cpu="4", node="left")]
BETWEEN = [pod_group("old", queue="rich", phase="Running"), *WANTS]


def other(of: str) -> list[Any]:
    return [pod_group("other", queue=of), *gang("other", 1, cpu="2")]


@pytest.mark.parametrize("shares", LIMITS)
def test_nobody_takes_the_share_of_a_pod_that_comes_back(shares: str) -> None:
    plugin, queues, of = LIMITS[shares]
    moving = Moving(plugin, queues)
    assert moving.decide(BETWEEN, other(of)) == {}
    assert list(moving.decide(BETWEEN, other(of), pod("again", "old", cpu="2"))) == ["default/again"]


@pytest.mark.parametrize("shares", LIMITS)
def test_its_share_is_not_counted_twice(shares: str) -> None:
    """Where the queues may have as much as the other pod asks for beside it, that pod starts, whenever it comes."""
    plugin, queues, of = LIMITS[shares]
    wider = [each.model_copy(deep=True) for each in queues]
    for each in wider:
        if each.spec.capability:
            each.spec.capability["cpu"] = "6"
        if each.spec.guarantee.resource:
            each.spec.guarantee.resource["cpu"] = "1"
    moving = Moving(plugin, wider)
    assert list(moving.decide(BETWEEN, other(of))) == ["default/other-0"]
    moving = Moving(plugin, wider)
    both = moving.decide(BETWEEN, other(of), pod("again", "old", cpu="2"))
    assert sorted(both) == ["default/again", "default/other-0"]


def test_the_order_of_queues_counts_it() -> None:
    """Of two queues that want the last room, the one with the smaller share is served first."""
    queues = [queue("rich"), queue("poor"), queue("sibling")]
    for each in queues:
        each.metadata.annotations["volcano.sh/hierarchy"] = f"root/{each.metadata.name}"
    moving = Moving("drf tree", queues, node("fourth", cpu="3"), *running("large", "fourth", cpu="3", of="sibling"))
    second = [pod_group("second", queue="sibling", created=9), pod("second-0", "second", cpu="2")]
    assert list(moving.decide(BETWEEN, other("rich"), second)) == ["default/second-0"]
