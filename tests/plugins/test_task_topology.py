"""task-topology: roles that belong together or apart."""

from __future__ import annotations

from collections import Counter

from tests.builders import node, pod, pod_group
from tests.plugins.sessions import bound, policy


def group(**annotations: str):
    made = pod_group("job", min_member=1)
    prefix = "volcano.sh/task-topology-"
    made.metadata.annotations.update({prefix + key.replace("_", "-"): value for key, value in annotations.items()})
    return made


def members(**counts: int) -> list:
    return [
        pod(f"job-{role}-{i}", "job", annotations={"volcano.sh/task-spec": role}, cpu="1")
        for role, count in counts.items()
        for i in range(count)
    ]


def per_node(placed: dict[str, str]) -> list[str]:
    """The roles on each node, such as `ps worker worker`, sorted."""
    nodes: dict[str, list[str]] = {}
    for name, where in placed.items():
        nodes.setdefault(where, []).append(name.split("-")[1])
    return sorted(" ".join(sorted(roles)) for roles in nodes.values())


def test_roles_that_attract_each_other_share_nodes() -> None:
    nodes = [node(f"n{i}", cpu="3") for i in range(2)]
    placed = bound(
        *nodes,
        group(affinity="ps,worker", anti_affinity="ps"),
        members(ps=2, worker=4),
        by=policy("task-topology", {"task-topology.weight": 10}),
    )
    assert per_node(placed) == ["ps worker worker", "ps worker worker"]


def test_roles_that_repel_themselves_are_spread() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    placed = bound(*nodes, group(anti_affinity="ps"), members(ps=3), by=policy("task-topology"))
    assert Counter(placed.values()) == {"n0": 1, "n1": 1, "n2": 1}
    without = bound(*nodes, group(), members(ps=3), by=policy("task-topology"))
    assert Counter(without.values()) == {"n0": 3}


def test_a_running_pod_draws_its_bucket_to_its_node() -> None:
    running = pod("job-ps-0", "job", node="n1", annotations={"volcano.sh/task-spec": "ps"})
    objects = [node("n0"), node("n1"), running, *members(worker=2)]
    placed = bound(*objects, group(affinity="ps,worker"), by=policy("task-topology"))
    assert placed == {"job-worker-0": "n1", "job-worker-1": "n1"}


def test_the_order_of_roles_decides_who_is_placed_first() -> None:
    objects = [node("n0", cpu="2"), *members(a=2, b=2)]
    for order, first in (("b,a", {"job-b-0", "job-b-1"}), ("a,b", {"job-a-0", "job-a-1"})):
        topology = group(affinity="a,b", task_order=order)
        assert set(bound(*objects, topology, by=policy("task-topology"))) == first


def test_annotations_that_name_unknown_roles_mean_nothing() -> None:
    placed = bound(node("n0"), node("n1"), group(anti_affinity="ps,ghost"), members(ps=2), by=policy("task-topology"))
    assert set(placed.values()) == {"n0"}
