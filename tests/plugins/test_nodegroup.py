"""nodegroup: which queues run on which node groups, and how much."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from stromboli.plugins.nodegroup import NodeGroup
from tests.builders import gang, node, pod, pod_group, queue
from tests.plugins.sessions import bound, decide, policy

GROUP = "volcano.sh/nodegroup-name"
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)

TERMS = (REQUIRED, PREFERRED)


def grouped(name: str, group: str = "", **more: Any):
    return node(name, labels={GROUP: group} if group else {}, **more)


def with_affinity(name: str, affinity: dict | None = None, anti: dict | None = None, **more: Any):
    terms = {"nodeGroupAffinity": affinity, "nodeGroupAntiAffinity": anti}
    return queue(name, affinity={key: value for key, value in terms.items() if value}, **more)


def nodes_of(owner, *, arguments: dict[str, Any] | None = None, groups: tuple[str, ...] = ("a", "b", ""), **switches):
    """The nodes that pods of a queue get, one pod after the other on nodes for one pod each."""
    nodes = [grouped(f"{group or 'none'}-{i}", group, cpu="1") for i, group in enumerate(groups)]
    result = bound(
        *nodes,
        owner,
        pod_group("job", queue=owner.metadata.name),
        gang("job", len(groups)),
        by=policy("nodegroup", arguments, **switches),
    )
    return [result[f"job-{i}"].partition("-")[0] for i in range(len(result))]


@pytest.mark.parametrize(
    ("affinity", "anti", "expected"),
    [
        ({REQUIRED: ["b"]}, None, ["b"]),
        ({REQUIRED: ["b"], PREFERRED: ["a"]}, None, ["b", "a"]),
        ({PREFERRED: ["a"]}, {REQUIRED: ["a"]}, []),
        ({REQUIRED: ["a"]}, {PREFERRED: ["b"]}, ["a", "b"]),
    ],
)
def test_affinity_and_anti_affinity(affinity, anti, expected) -> None:
    assert nodes_of(with_affinity("q", affinity, anti)) == expected


def test_the_order_of_preferred_groups_counts_when_asked_for() -> None:
    owner = with_affinity("q", {PREFERRED: ["b", "a"]})
    assert nodes_of(owner, groups=("a", "b")) == ["a", "b"]
    assert nodes_of(owner, groups=("a", "b"), arguments={"enablePreferredOrder": True}) == ["b", "a"]


def test_a_queue_without_affinity_stays_off_groups() -> None:
    assert nodes_of(queue("q")) == []
    assert nodes_of(queue("q"), arguments={"strict": False}) == ["none"]


def test_affinity_is_inherited_in_a_hierarchy() -> None:
    parent = with_affinity("parent", {REQUIRED: ["a"]})
    child = queue("child", parent="parent")
    objects = [grouped("n1", "a"), queue("root"), parent, child, pod_group("job", queue="child"), *gang("job", 1)]
    assert bound(*objects, by=policy("nodegroup")) == {}
    assert bound(*objects, by=policy("nodegroup", enableHierarchy=True)) == {"job-0": "n1"}


def test_pods_alike_of_different_queues() -> None:
    queues = [with_affinity("qa", {REQUIRED: ["a"]}), with_affinity("qb", {REQUIRED: ["b"]})]
    jobs = [pod_group("ja", queue="qa"), pod_group("jb", queue="qb")]
    placed = bound(
        grouped("n1", "a"), grouped("n2", "b"), *queues, *jobs, gang("ja", 1), gang("jb", 1), by=policy("nodegroup")
    )
    assert placed == {"ja-0": "n1", "jb-0": "n2"}


def test_limits_of_a_group() -> None:
    owner = with_affinity("q", {REQUIRED: ["a", "b"]})
    owner.metadata.annotations["volcano.sh/nodegroup-resource-limits"] = json.dumps({"a": {"cpu": "2"}, "b": {}})
    running = pod("run-0", "run", node="n1")
    placed = bound(
        grouped("n1", "a"),
        grouped("n2", "b", cpu="2"),
        owner,
        pod_group("run", queue="q", phase="Running"),
        running,
        pod_group("job", queue="q"),
        gang("job", 4),
        by=policy("nodegroup"),
    )
    assert sorted(placed.values()) == ["n1", "n2", "n2"]


def test_limits_that_cannot_be_read_keep_the_queue_out() -> None:
    owner = with_affinity("q", {REQUIRED: ["a"]})
    owner.metadata.annotations["volcano.sh/nodegroup-resource-limits"] = "{"
    result = decide(grouped("n1", "a"), owner, pod_group("job", queue="q"), gang("job", 1), by=policy("nodegroup"))
    assert result.session.bound == {}
    (why,) = result.session.view.trace.pods.values()
    assert why.reason == "NoMatchingNode"
    assert "nodegroup-resource-limits" in str(why)


def test_groups_are_numbered_but_each_node_gets_what_its_label_says() -> None:
    chance = random.Random(4)
    for _ in range(40):
        labels = [{GROUP: chance.choice(("", "a", "b", "c", "d"))} if chance.random() < 0.8 else {} for _ in range(9)]
        likes, dislikes = ({where: chance.sample("abcd", chance.randrange(3)) for where in TERMS} for _ in range(2))
        nodes = [node(f"n{i}", labels=each) for i, each in enumerate(labels)]
        owner, ordered = with_affinity("q", likes, dislikes), chance.random() < 0.5
        result = decide(
            *(*nodes, owner, pod_group("job", queue="q"), gang("job", 1)),
            by=policy("nodegroup", {"enablePreferredOrder": ordered}),
        )
        session = result.session
        plugin = next(each for each in session.plugins if isinstance(each, NodeGroup))
        member, view = session.view.record(0), session.view.nodes.view(session.view.nodes.rows)
        passed = np.logical_and.reduce([mask for _, mask in plugin.predicate(member, view)])
        scores = plugin.node_order(member, view)
        if not any((*likes.values(), *dislikes.values())):
            assert scores is None
            continue
        for row, each in enumerate(labels):
            group, good = each.get(GROUP, ""), 100.0 * (each.get(GROUP, "") in likes[REQUIRED])
            allowed = group not in dislikes[REQUIRED] and group in (*likes[REQUIRED], *likes[PREFERRED])
            assert passed[row] == (group != "" and (group in dislikes[PREFERRED] or allowed))
            if group in likes[PREFERRED]:
                place = likes[PREFERRED].index(group) if ordered else 0
                good += 50.0 * (1 - place / len(likes[PREFERRED]))
            assert scores[row] == (-1.0 if group in dislikes[PREFERRED] else good if group else 0.0)
