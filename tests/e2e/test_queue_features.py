"""On a real API server: limits on lending and borrowing, topologies that are left if need be, trees without a root
queue, queues that namespaces name, and limits by user."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.test_shares_and_levels import ABOVE, PATCH, label, serve
from tests.e2e.world import CORE, World, pod, volcano

pytestmark = pytest.mark.e2e

CAPACITY = f"""actions: "enqueue, allocate, reclaim"
{ABOVE}
- plugins: [{{name: predicates}}, {{name: capacity}}]
"""
TREE = CAPACITY.replace("{name: capacity}", "{name: capacity, enableHierarchy: true}")
POOLED = f"""actions: "enqueue, allocate"
{ABOVE}
- plugins:
  - name: nodepools
    enableHierarchy: true
    arguments: {{pools: [{{name: fast, nodeSelector: {{pool: fast}}}}]}}
- plugins: [{{name: predicates}}, {{name: capacity, enableHierarchy: true}}]
"""
SOFT = f"""actions: "enqueue, allocate"
topology: {{levels: [{{nodeLabel: zone}}, {{nodeLabel: rack}}]}}
{ABOVE}
- plugins: [{{name: predicates}}, {{name: network-topology-aware}}]
"""
DEFAULTS = f"""actions: "enqueue, allocate"
queueRules:
- {{queue: "{{provided}}"}}
- {{queue: "{{label:team}}"}}
{ABOVE}
- plugins: [{{name: predicates}}, {{name: proportion}}]
"""
USERS = f"""actions: "enqueue, allocate"
{ABOVE}
- plugins:
  - name: userlimits
    arguments:
      limits: [{{queues: [labs], users: ["guest-*"], maxPods: 2}}, {{queues: [labs], resources: {{cpu: "3"}}}}]
- plugins: [{{name: predicates}}, {{name: proportion}}]
"""


def why(world: World, group: str) -> str:
    """Why a group waits."""
    return str(world.condition(group, "Unschedulable").get("message", ""))


def elastic(world: World, name: str, pods: int, queue: str) -> None:
    world.gang(name, pods, min_member=1, queue=queue)


def test_queues_lend_and_borrow_within_limits(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(1, cpu="8")
    world.queue("labs", deserved={"cpu": "2"}, borrowingLimit={"cpu": "1"})
    world.queue("board", deserved={"cpu": "4"}, lendingLimit={"cpu": "2"})
    world.queue("ops", deserved={"cpu": "2"})
    serve(start, tmp_path, CAPACITY)
    elastic(world, "sim", 5, "labs")
    eventually(lambda: world.bound() == {"sim": 3})
    elastic(world, "batch", 8, "ops")
    # Two of the four that the board deserves are lent to nobody.
    eventually(lambda: world.bound() == {"sim": 3, "batch": 3})
    world.gang("plan", 2, queue="board")
    eventually(lambda: world.bound() == {"sim": 3, "batch": 3, "plan": 2})
    world.gang("talk", 2, queue="board")
    eventually(lambda: world.bound() == {"sim": 2, "batch": 2, "plan": 2, "talk": 2}, 90)


def test_a_tree_needs_no_root_queue(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(1, cpu="4")
    world.queue("research", capability={"cpu": "3"})
    world.queue("vision", parent="research", deserved={"cpu": "1"})
    world.queue("speech", parent="research", deserved={"cpu": "1"})
    world.queue("alone")
    serve(start, tmp_path, TREE)
    elastic(world, "see", 3, "vision")
    eventually(lambda: world.bound() == {"see": 3})
    elastic(world, "hear", 2, "speech")
    # The parent holds all that it may: what is deserved below it is taken back within it.
    eventually(lambda: world.bound() == {"see": 2, "hear": 1}, 90)
    elastic(world, "other", 2, "alone")
    eventually(lambda: world.bound() == {"see": 2, "hear": 1, "other": 1})


def test_what_is_guaranteed_in_a_pool_is_there_within_the_limit_above(
    world: World, start: Start, tmp_path: Path
) -> None:
    world.nodes(1, cpu="8")
    label(world, "node-0", pool="fast")
    world.queue("team", pools=[{"name": "fast", "capability": {"cpu": "5"}}])
    world.queue("sure", parent="team", pools=[{"name": "fast", "guarantee": {"resource": {"cpu": "2"}}}])
    world.queue("rest", parent="team")
    serve(start, tmp_path, POOLED)
    elastic(world, "greedy", 6, "rest")
    eventually(lambda: world.bound() == {"greedy": 3})
    world.gang("late", 2, queue="sure")
    eventually(lambda: world.bound() == {"greedy": 3, "late": 2})
    world.gang("wide", 6, queue="rest")
    eventually(lambda: "node pool fast" in why(world, "wide"), 60)


def test_no_nodes_are_asked_for_what_a_user_or_a_pool_may_not_have(world: World, start: Start, tmp_path: Path) -> None:
    """More than there are nodes for, in a cluster whose autoscaler looks for the reason `Unschedulable`."""
    world.nodes(1, cpu="2")
    label(world, "node-0", pool="fast")
    world.queue("team", pools=[{"name": "fast", "capability": {"cpu": "2"}}])
    users = "{name: userlimits, arguments: {limits: [{users: [ann], maxPods: 2}]}}"
    serve(start, tmp_path, POOLED.replace("{name: predicates}", f"{{name: predicates}}, {users}"))
    notes = {"pooled": {"stromboli.io/pools": "fast"}, "hers": {"stromboli.io/user": "ann"}, "large": {}}
    for name, noted in notes.items():
        made = volcano("PodGroup", name, {"minMember": 3, "queue": "team" if name == "pooled" else "default"})
        made["metadata"]["annotations"] = noted
        world.create(world._groups, made)
        world.pods([pod(f"{name}-{number}", name, cpu="2") for number in range(3)])
    words = {"pooled": "NeverFits", "hers": "NeverFits", "large": "Unschedulable"}
    expected = {f"{name}-{number}": word for name, word in words.items() for number in range(3)}
    eventually(lambda: world.refused() == expected, 60)
    assert "node pool fast" in why(world, "pooled")
    assert "user ann" in why(world, "hers")


def test_a_level_that_is_soft_is_left_and_one_that_is_hard_is_not(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(5, cpu="1")
    for number, (zone, rack) in enumerate([("east", "a"), ("east", "a"), ("east", "b"), ("west", "c")]):
        label(world, f"node-{number}", zone=zone, rack=rack)
    serve(start, tmp_path, SOFT)
    world.group("pair", 2, networkTopology={"mode": "soft", "highestTierAllowed": 1})
    world.pods([pod(f"pair-{number}", "pair") for number in range(2)])
    eventually(lambda: world.bound() == {"pair": 2})
    assert sorted(world.placed().values()) == ["node-0", "node-1"]
    world.group("hard", 3, networkTopology={"mode": "hard", "highestTierName": "zone"})
    world.pods([pod(f"hard-{number}", "hard") for number in range(3)])
    eventually(lambda: "hard" in why(world, "hard"))
    # One of them has to go to the node that no level knows.
    world.group("soft", 3, networkTopology={"mode": "soft", "highestTierAllowed": 2})
    world.pods([pod(f"soft-{number}", "soft") for number in range(3)])
    eventually(lambda: world.bound() == {"pair": 2, "soft": 3})
    assert "node-4" in world.placed().values()
    world.delete_group("pair")
    for name in (f"{group}-{number}" for group, size in (("pair", 2), ("soft", 3)) for number in range(size)):
        world.api.delete(f"{world._pods}/{name}").raise_for_status()
    eventually(lambda: world.bound() == {"hard": 3}, 60)
    assert {"node-0", "node-1", "node-2"} == set(world.placed().values())


def test_namespaces_and_labels_name_the_queue_of_workloads_that_name_none(
    world: World, start: Start, tmp_path: Path
) -> None:
    world.nodes(1, cpu="8")
    for name in ("labs", "vision", "own"):
        world.queue(name)
    patch = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "labs"}}}
    world.api.patch(f"{CORE}/namespaces/{world.namespace}", json=patch, headers=PATCH).raise_for_status()
    serve(start, tmp_path, DEFAULTS)
    named, labelled, missing = pod("named"), pod("labelled"), pod("missing")
    named["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] = "own"
    labelled["metadata"]["labels"] = {"team": "vision"}
    missing["metadata"]["labels"] = {"team": "nowhere"}
    world.pods([pod("plain"), named, labelled, missing])

    def queues() -> dict[str, str]:
        return {
            owner["name"]: group["spec"].get("queue", "")
            for group in world.groups()
            for owner in group["metadata"].get("ownerReferences", ())
        }

    eventually(lambda: len(queues()) == 4)
    assert queues() == {"plain": "labs", "named": "own", "labelled": "labs", "missing": "labs"}
    eventually(lambda: len(world.placed()) == 4)
    patch = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}}
    world.api.patch(f"{CORE}/namespaces/{world.namespace}", json=patch, headers=PATCH).raise_for_status()
    later = [pod("seen"), pod("lost")]
    later[0]["metadata"]["labels"] = {"team": "vision"}
    later[1]["metadata"]["labels"] = {"team": "nowhere"}
    world.pods(later)
    eventually(lambda: queues().get("seen") == "vision")
    eventually(lambda: "seen" in world.placed() and world.refused().get("lost"))
    assert "nowhere" not in world.queues()
    told = [each for each in world.items(world._pods) if each["metadata"]["name"] == "lost"]
    messages = [each.get("message", "") for each in told[0]["status"].get("conditions", ())]
    assert any("there is no queue nowhere" in message for message in messages), messages


def test_what_a_user_may_hold_in_a_queue(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(1, cpu="16")
    world.queue("labs")
    world.queue("open")
    serve(start, tmp_path, USERS)
    for user, queue in (("guest-1", "labs"), ("alice", "labs"), ("guest-2", "open")):
        made = volcano("PodGroup", user, {"minMember": 1, "queue": queue})
        made["metadata"]["annotations"] = {"stromboli.io/user": user}
        world.create(world._groups, made)
        world.pods([pod(f"{user}-{number}", user) for number in range(4)])
    eventually(lambda: world.bound() == Counter({"guest-1": 2, "alice": 3, "guest-2": 4}))
    gang = volcano("PodGroup", "more", {"minMember": 2, "queue": "labs"})
    gang["metadata"]["annotations"] = {"stromboli.io/user": "alice"}
    world.create(world._groups, gang)
    world.pods([pod(f"more-{number}", "more") for number in range(2)])
    eventually(lambda: "alice" in why(world, "more"))
    for number in (0, 1):
        world.api.delete(f"{world._pods}/guest-1-{number}").raise_for_status()
    eventually(lambda: world.bound()["guest-1"] == 2)
    assert world.bound()["more"] == 0
