"""drf: dominant shares of jobs and, in a hierarchy, of queues."""

from __future__ import annotations

from tests.builders import gang, node, pod_group, queue
from tests.plugins.sessions import decide, policy


def in_tree(name: str, path: str, weights: str, created: int = 0):
    made = queue(name, created=created)
    made.metadata.annotations.update({"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights})
    return made


def pods_per_queue(*queues, pods: dict[str, dict[str, str]], nodes: list) -> dict[str, int]:
    """How many pods of each queue are bound when every queue has more than enough, of one request each."""
    objects = []
    for name, request in pods.items():
        objects += [pod_group(name, queue=name), *gang(name, 20, **request)]
    session = decide(*nodes, *queues, *objects, by=policy("drf", enableHierarchy=True)).session
    counts = dict.fromkeys(pods, 0)
    for key in session.bound:
        counts[session.view.pods.records[_row(session, key)].job.partition("/")[2]] += 1
    return counts


def _row(session, key: str) -> int:
    return next(record.row for record in session.view.pods.records if record is not None and record.key == key)


def test_queues_get_shares_by_weight() -> None:
    one_cpu = {"cpu": "1", "memory": ""}
    counts = pods_per_queue(
        in_tree("a", "root/a", "1/3"),
        in_tree("b", "root/b", "1/1", created=1),
        pods={"a": one_cpu, "b": one_cpu},
        nodes=[node("n1", cpu="8")],
    )
    assert counts == {"a": 6, "b": 2}


def test_branches_share_before_their_queues_do() -> None:
    """To within the pod by which a queue may be ahead, since those that wait are not sorted again in between."""
    one_cpu = {"cpu": "1", "memory": ""}
    counts = pods_per_queue(
        in_tree("x", "root/team/x", "1/1/1"),
        in_tree("y", "root/team/y", "1/1/1", created=1),
        in_tree("z", "root/z", "1/1", created=2),
        pods={"x": one_cpu, "y": one_cpu, "z": one_cpu},
        nodes=[node("n1", cpu="32")],
    )
    assert sum(counts.values()) == 32
    assert abs(counts["z"] - 16) <= 1
    assert abs(counts["x"] - counts["y"]) <= 1


def test_a_queue_is_not_blamed_for_what_its_sibling_alone_can_use() -> None:
    """cpu is used up by x and z; y goes on with memory though team's sum is ahead, since x is saturated."""
    counts = pods_per_queue(
        in_tree("x", "root/team/x", "1/1/1"),
        in_tree("y", "root/team/y", "1/1/1", created=1),
        in_tree("z", "root/z", "1/1", created=2),
        pods={
            "x": {"cpu": "1", "memory": ""},
            "y": {"cpu": "", "memory": "1Gi"},
            "z": {"cpu": "1", "memory": ""},
        },
        nodes=[node("n1", cpu="4", memory="8Gi")],
    )
    assert counts == {"x": 2, "y": 8, "z": 2}


def test_without_hierarchy_queues_are_equal_and_jobs_are_not() -> None:
    session = decide(
        node("n1", cpu="4"),
        pod_group("big", created=1),
        pod_group("small", created=2),
        gang("big", 4, cpu="2", memory=""),
        gang("small", 4, cpu="1", memory=""),
        by=policy("drf"),
    ).session
    assert sorted(session.bound) == ["default/big-0", "default/small-0", "default/small-1"]
