"""consolidation: running pods move closer together, so that one fits that fits nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.decisions import Evict
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.discovery import discover
from stromboli.engine import Engine, SessionResult
from stromboli.framework import Plugin, PodRecord, View
from stromboli.framework.cluster.environment import OFFLINE, Environment
from stromboli.framework.diagnosis.explain import all_reasons
from stromboli.framework.registry import Registry
from tests import builders
from tests.actions.evictions import evicted, nominated, running, starving
from tests.builders import NOON, gang, node, pod, pod_group, queue

POLICY = builders.policy(
    "priority gang conformance", "predicates proportion nodeorder", actions="enqueue, allocate, consolidation"
)
KNOWN = discover()
QUEUES = [queue("rich"), queue("poor")]
#: two nodes with room for two more CPUs each
NODES = [node("left", cpu="4"), node("right", cpu="4")]


def decide(*objs: Any, policy: str = POLICY, environment: Environment = OFFLINE, now: float = NOON) -> SessionResult:
    return Engine(policy).decide(builders.state(QUEUES, *objs).snapshot(), now=now, environment=environment)


def moved(result: SessionResult) -> dict[str, str]:
    """The node that each pod that moves is promised, by name."""
    session = result.session
    return {move.pods[0].name: session.view.nodes.name(move.nodes[0]) for move in session.outcome.moved.values()}


def test_a_pod_moves_where_there_is_room_so_that_another_fits() -> None:
    old, new = running("old", "left", cpu="2"), running("new", "right", cpu="2")
    result = decide(NODES, old, new, starving(cpu="3"))
    [eviction] = [d for d in result.decisions if isinstance(d, Evict)]
    assert (eviction.action, eviction.beneficiary) == ("consolidation", "default/wants")
    assert nominated(result) == {"wants-0": eviction.node}
    to = {"left": "right", "right": "left"}[eviction.node]
    assert moved(result) == {eviction.name: to}
    why = all_reasons(result.session)[f"default/{eviction.name}"]
    assert why.message == f"moved so that default/wants fits; its replacement gets a place on {to}"


def test_nobody_moves_without_need_or_without_another_place() -> None:
    busy = running("busy", "left", "right", cpu="2")
    assert evicted(decide(NODES, busy, starving(cpu="2"))) == []
    assert evicted(decide(NODES, busy, starving(cpu="5"))) == []
    assert evicted(decide(NODES, busy, starving(2, cpu="3"))) == []


class Picky(Plugin):
    """Refuses a node to the pods of one job, as a plugin that gives out single devices may."""

    name = "picky"
    node, job = "", ""

    def open(self, view: View) -> None:
        self._refused = view.nodes.facts.index[self.node]

    def refusal(self, pod: PodRecord, node: int) -> Reason | None:
        if node != self._refused or pod.job != self.job:
            return None
        return Reason(Stage.Placement, "Picky", "not this one", Actionable.User)


@pytest.mark.parametrize(("node", "job"), [("left", "default/wants"), ("right", "default/old")])
def test_no_pod_moves_for_or_to_a_node_that_a_plugin_refuses(node: str, job: str) -> None:
    """What is on the left would move; as a plugin refuses what would come of it, what is on the right does."""
    policy = POLICY.replace("nodeorder", "nodeorder\n  - name: picky")
    picky = type("Picky", (Picky,), {"node": node, "job": job})
    engine = Engine(policy, registry=Registry(KNOWN.actions, KNOWN.plugins | {"picky": picky}))
    old, new = running("old", "left", cpu="2"), running("new", "right", cpu="2")
    result = engine.decide(builders.state(QUEUES, NODES, old, new, starving(cpu="3")).snapshot(), now=NOON)
    assert moved(result) == {"new-0": "left"}


def test_the_pod_moves_that_has_another_place_and_the_others_stay() -> None:
    nodes = [node("left", cpu="4"), node("right", cpu="4")]
    big, two, one = running("big", "left", cpu="3"), running("two", "right", cpu="2"), running("one", "right", cpu="1")
    assert moved(decide(nodes, big, two, one, starving(cpu="2"))) == {"one-0": "left"}


def test_nobody_of_a_gang_that_moves_stays_alone() -> None:
    """One would do without its place, and the next takes all others with it: then the first goes, too."""
    nodes = [node("left", cpu="5"), node("middle", cpu="3"), node("right", cpu="3")]
    old = running("old", "left", "left", "left", "middle", least=3)
    result = decide(nodes, old, starving(cpu="4"))
    assert evicted(result) == ["old-0", "old-1", "old-2", "old-3"]
    assert nominated(result) == {"wants-0": "left"}


def test_a_gang_moves_whole_and_what_it_can_do_without_alone() -> None:
    nodes = [node("left", cpu="3"), node("right", cpu="3")]
    lain = ("left", "left", "right")
    whole = decide(nodes, running("gang", *lain, least=3), starving(cpu="3"))
    assert moved(whole) == {f"gang-{i}": "left" for i in range(3)}
    elastic = decide(nodes, running("gang", *lain, least=1), starving(cpu="3"))
    assert moved(elastic) == {"gang-2": "left"}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_sub_group_that_its_job_can_do_without_moves_whole(size: int) -> None:
    nodes = [node(name, cpu=str(size + 3)) for name in ("left", "right")]
    policy = {"name": "parts", "subGroupSize": size, "minSubGroups": 1, "matchLabelKeys": ["part"]}
    group = pod_group("parted", size, queue="rich", phase="Running", subGroupPolicy=[policy])
    parts = [
        pod(f"{part}-{i}", "parted", node=part, labels={"part": part})
        for part in ("left", "right")
        for i in range(size)
    ]
    placed = moved(decide(nodes, group, *parts, starving(cpu="4")))
    assert len(placed) == size
    assert len({name.partition("-")[0] for name in placed}) == 1


def test_all_pods_of_a_gang_find_places_or_nobody_moves() -> None:
    nodes = [node(name, cpu="4") for name in ("a", "b", "c", "d")]
    halves = [each for name in "abcd" for each in running(f"on-{name}", name, cpu="2")]
    assert len(moved(decide(nodes, halves, starving(2, cpu="4")))) == 2
    assert evicted(decide(nodes, halves, starving(3, cpu="4"))) == []


def test_who_must_not_be_evicted_or_may_not_come_back_stays() -> None:
    wants = starving(cpu="3")

    def both(**more: Any) -> list[Any]:
        return [*running("old", "left", cpu="2", **more), *running("new", "right", cpu="2", **more)]

    assert evicted(decide(NODES, both(), wants)) != []
    assert evicted(decide(NODES, both(annotations={"volcano.sh/preemptable": "false"}), wants)) == []
    assert evicted(decide(NODES, both(priority=2_000_000_000), wants)) == []
    assert evicted(decide(NODES, both(of="closed"), wants, queue("closed", state="Closed"))) == []
    assert evicted(decide(NODES, both(), starving(cpu="3", preemptionPolicy="Never"))) == []
    few = POLICY + "\nconfigurations: [{name: consolidation, arguments: {maxMovedPods: 1}}]"
    pairs = [*running("old", "left", "left"), *running("new", "right", "right")]
    assert len(evicted(decide(NODES, pairs, starving(cpu="4")))) == 2
    assert evicted(decide(NODES, pairs, starving(cpu="4"), policy=few)) == []


def test_priorities_have_no_say_but_labels_of_nodes_do() -> None:
    fast = [node("left", cpu="4", labels={"kind": "fast"}), node("right", cpu="4", labels={"kind": "slow"})]
    important = running("bound", "left", cpu="2", nodeSelector={"kind": "fast"}, priority=9)
    free = running("free", "right", cpu="2", priority=9)
    assert moved(decide(fast, important, free, starving(cpu="3"))) == {"free-0": "left"}


# -- what follows ------------------------------------------------------------------------------------------------------


def history(first: SessionResult, *objs: Any) -> SessionResult:
    """The session after pods were moved, which knows what the first one left."""
    return decide(*objs, environment=first.environment, now=NOON + 1)


def test_the_places_are_kept_until_all_have_come() -> None:
    """The replacement comes first in order, and nodeorder has it prefer the empty node: it may not have that."""
    old, new = running("old", "left", cpu="2"), running("new", "right", cpu="2")
    wants = starving(cpu="3")
    first = decide(NODES, old, new, wants)
    (name, to), left = next(iter(moved(first).items())), nominated(first)["wants-0"]
    stays = old if name == "new-0" else new
    again = [pod_group(name[:3], 0, queue="rich", phase="Pending"), pod("again", name[:3], cpu="2")]

    terminating = [again[0], pod(name, name[:3], cpu="2", node=left, deleted=True)]
    second = history(first, NODES, stays, terminating, wants)
    assert (second.session.bound, evicted(second)) == ({}, [])
    third = history(second, NODES, stays, again[0], wants)
    assert third.session.bound == {"default/wants-0": left}
    assert history(second, NODES, stays, terminating, again[1], wants).session.bound == {"default/again": to}
    both = history(second, NODES, stays, again, wants)
    assert both.session.bound == {"default/again": to, "default/wants-0": left}

    settled = [again[0], pod("again", name[:3], cpu="2", node=to), wants[0], pod("w", "wants", "3", node=left)]
    fourth = history(both, NODES, stays, settled)
    assert (fourth.session.bound, evicted(fourth), fourth.environment.reservations) == ({}, [], {})


def test_nobody_else_takes_what_is_kept_but_only_for_so_long() -> None:
    old, new = running("old", "left", cpu="2"), running("new", "right", cpu="2")
    wants, other = starving(cpu="3"), [pod_group("other", queue="poor"), *gang("other", 1, cpu="2", priority=9)]
    first = decide(NODES, old, new, wants)
    left = [*old, new[0]] if evicted(first) == ["new-0"] else [*new, old[0]]
    assert history(first, NODES, left, other, wants).session.bound == {"default/wants-0": nominated(first)["wants-0"]}
    late = decide(NODES, left, other, wants, environment=first.environment, now=NOON + 121)
    assert "default/other-0" in late.session.bound


def test_all_places_are_kept_when_more_pods_are_missing_than_were_moved() -> None:
    """Two pods were moved, and a user deletes another one."""
    third = node("third", cpu="2")
    old, stays = running("old", "left", "left", "third", "third", cpu="1"), running("stays", "right", cpu="2")
    wants, other = starving(cpu="4"), [pod_group("other", 0, queue="poor"), *gang("other", 4, cpu="1")]
    first = decide(NODES, third, old, stays, wants)
    assert moved(first) == {"old-0": "right", "old-1": "right"}
    second = history(first, NODES, third, old[0], old[3], stays, wants, other)
    assert sorted(second.session.bound.values()) == ["left", "third"]
