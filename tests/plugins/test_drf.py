"""drf: dominant shares of jobs and, in a hierarchy, of queues."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from stromboli.fairness.shares import dominant_share, share
from stromboli.plugins.drf import Drf
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


def plain(tree: Any, branch: Any, full: list[bool]) -> tuple[Any, dict[int, tuple[bool, float]]]:
    """What a branch counts as holding, and the rank of all branches below it, computed from the jobs."""
    held, part_full, ranks = [tree._allocated[job].copy() for job in branch.jobs], [full[j] for j in branch.jobs], {}
    for child in branch.children.values():
        below, found = plain(tree, child, full)
        held.append(below)
        part_full.append(found[id(child)][0])
        ranks |= found
    parts = [max(share(amounts, tree._total)) for amounts in held]
    hungry = [part for part, is_full in zip(parts, part_full, strict=True) if part > 0 and not is_full]
    total = np.zeros(len(tree._total))
    for amounts, part, is_full in zip(held, parts, part_full, strict=True):
        total += amounts * (min([1.0, *hungry]) / part) if part > 0 and not is_full else amounts
    ranks[id(branch)] = all(part_full), dominant_share(total, tree._total) / branch.weight
    return total, ranks


def test_only_the_way_up_from_a_change_is_computed_anew() -> None:
    chance = random.Random(3)
    paths = ["root/a", "root/a/b", "root/a/c", "root/d/e/f", "root/d/e/g", "root/h"]
    queues = [in_tree(f"q{i}", path, "1/2/1/3") for i, path in enumerate(paths)]
    jobs = [[pod_group(f"j{i}", queue=f"q{i % 6}"), *gang(f"j{i}", 2, cpu=f"{1 + i % 3}")] for i in range(12)]
    session = decide(node("n1", cpu="10"), *queues, *jobs, by=policy("drf", enableHierarchy=True)).session
    drf = next(plugin for plugin in session.plugins if isinstance(plugin, Drf))
    assert drf._tree is not None
    for _ in range(60):
        for job in chance.sample(list(session.view.jobs.values()), 3):
            at = drf._allocated[job.index]
            drf._hold(job, -at if chance.random() < 0.3 else np.array([1000.0 * chance.randrange(4), 2**20, 1.0]))
        drf._tree.refresh()
        scarce = drf._allocated.sum(axis=0) >= drf._total
        full = []
        for held, asked in zip(drf._allocated, drf._tree._requested, strict=True):
            named = held > 0
            named[:2] = True
            full.append(bool(((asked > 0) & named & ((held >= asked) & (held > 0) | scarce)).any()))
        _, ranks = plain(drf._tree, drf._tree._branches[0], full)
        for branch in drf._tree._branches:
            assert branch.rank[0] == ranks[id(branch)][0]
            assert branch.rank[1] == pytest.approx(ranks[id(branch)][1], rel=1e-12)
