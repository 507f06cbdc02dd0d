"""drf: dominant shares of jobs and, in a hierarchy, of queues."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from stromboli.fairness.shares import dominant_share, share
from stromboli.plugins.drf import Drf
from stromboli.plugins.drf.hierarchy import Branch, Shares, Tree
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


def plain(tree: Tree, branch: Branch, full: list[bool]) -> tuple[Any, dict[int, tuple[bool, float]]]:
    """What a branch counts as holding, and the rank of all branches from it down, computed from the jobs."""
    held, part_full, ranks = [tree.allocated[job].copy() for job in branch.jobs], [full[j] for j in branch.jobs], {}
    for child in branch.children.values():
        below, found = plain(tree, child, full)
        held.append(below)
        part_full.append(found[child.at][0])
        ranks |= found
    parts = [max(share(amounts, tree.total)) for amounts in held]
    hungry = [part for part, is_full in zip(parts, part_full, strict=True) if part > 0 and not is_full]
    total = np.zeros(len(tree.total))
    for amounts, part, is_full in zip(held, parts, part_full, strict=True):
        total += amounts * (min([1.0, *hungry]) / part) if part > 0 and not is_full else amounts
    ranks[branch.at] = all(part_full), dominant_share(total, tree.total) / branch.weight
    return total, ranks


def ranks_of(tree: Tree) -> dict[int, tuple[bool, float]]:
    """The ranks of all branches of a tree, from the plain loop."""
    scarce = tree.allocated.sum(axis=0) >= tree.total
    full = []
    for held, asked in zip(tree.allocated, tree.requested, strict=True):
        named = held > 0
        named[:2] = True
        full.append(bool(((asked > 0) & named & ((held >= asked) & (held > 0) | scarce)).any()))
    return plain(tree, tree.branches[0], full)[1]


def in_six_queues(jobs: int) -> Drf:
    """The plugin after a session with six queues of three depths and jobs of two pods."""
    paths = ["root/a", "root/a/b", "root/a/c", "root/d/e/f", "root/d/e/g", "root/h"]
    queues = [in_tree(f"q{i}", path, "1/2/1/3") for i, path in enumerate(paths)]
    waiting = [[pod_group(f"j{i}", queue=f"q{i % 6}"), *gang(f"j{i}", 2, cpu=f"{1 + i % 3}")] for i in range(jobs)]
    session = decide(node("n1", cpu="10"), *queues, *waiting, by=policy("drf", enableHierarchy=True)).session
    return next(plugin for plugin in session.plugins if isinstance(plugin, Drf))


def test_only_the_way_up_from_a_change_is_computed_anew() -> None:
    """What is kept while other resources are used up is right again when they are."""
    chance, drf = random.Random(3), in_six_queues(12)
    tree, seen = drf._tree, set()
    assert tree is not None
    for _ in range(60):
        for job in chance.sample(list(drf._view.jobs.values()), 3):
            at = drf._allocated[job.index]
            drf._hold(job, -at if chance.random() < 0.3 else np.array([1000.0 * chance.randrange(4), 2**20, 1.0]))
        found = tree.shares().ranks
        seen.add(id(tree.shares()))
        for at, (saturated, rank) in ranks_of(tree).items():
            assert found[at] == (saturated, pytest.approx(rank, rel=1e-12))
        assert Shares(tree, tree.shares()._scarce).ranks == found
    assert len(seen) > 1


def test_a_resource_that_is_used_up_and_given_back_has_not_all_shares_computed_again() -> None:
    drf = in_six_queues(12)
    tree, job = drf._tree, next(iter(drf._view.jobs.values()))
    assert tree is not None
    rest, asked = tree.total - tree.allocated.sum(axis=0), []
    for _ in range(5):
        for amount in (rest, -rest):
            drf._hold(job, amount)
            asked.append(tree.shares())
    assert len(set(map(id, asked))) == 2
    assert asked[0] is not asked[1]


@pytest.mark.exhaustive
def test_whoever_gives_back_is_found_as_if_each_were_asked_alone() -> None:
    """A candidate goes when its branch, with one pod less, still comes after the own one with one more."""
    chance, drf = random.Random(5), in_six_queues(24)
    view, tree = drf._view, drf._tree
    assert tree is not None
    pods = [record for record in view.pods.records if record is not None]
    answers = Counter[bool]()
    for _ in range(20):
        moved = chance.choice(list(view.jobs.values()))
        drf._asking = None
        drf._hold(moved, np.array([1000.0 * chance.randrange(3), 2**20, 1.0]))
        asking, expected = chance.choice(pods), []
        for candidate in pods:
            own, its = view.jobs[asking.job], view.jobs[candidate.job]
            drf._hold(own, view.request(asking))
            drf._hold(its, -view.request(candidate))
            ranks = ranks_of(tree)
            branches = zip(tree.path(own.queue), tree.path(its.queue), strict=False)
            pairs = [(ranks[mine.at], ranks[other.at]) for mine, other in branches if mine is not other]
            mine, other = next(
                (pair for pair in pairs if pair[0] != pytest.approx(pair[1])), ((True, 0.0), (True, 0.0))
            )
            if mine < other:
                expected.append(candidate)
            drf._hold(its, view.request(candidate))
            drf._hold(own, -view.request(asking))
        assert drf.reclaimable(asking, pods) == expected
        assert drf.reclaimable(asking, list(reversed(pods))) == list(reversed(expected))
        answers.update([bool(expected)])
    assert answers[True]
    assert answers[False]
