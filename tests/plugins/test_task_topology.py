"""task-topology: roles that belong together or apart."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
import yaml

from stromboli.api.resources import fits
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.registry import Registry
from stromboli.plugins.task_topology import Bucket, Roles, TaskTopology
from tests import builders
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


class PlainBuckets:
    """Compares all buckets for each pod, role by role."""

    def __init__(self, roles: Roles, nodes: int) -> None:
        self.buckets: list[Bucket] = []
        self._roles = roles
        self._nodes = nodes
        self._of: list[Counter[str]] = []

    def attraction(self, role: str, there: Counter[str]) -> int:
        number = self._roles.number
        return sum(count * int(self._roles.attraction[number[role], number[other]]) for other, count in there.items())

    def add(self, pod: Any, where: int, request: Any) -> int:
        """The index of the bucket that a pod belongs into."""
        fitting = [at for at, bucket in enumerate(self.buckets) if bucket.nodes[where]]
        if where < 0:
            order = [(-self.attraction(_role(pod), of), self.buckets[at].load, at) for at, of in enumerate(self._of)]
            fitting = [at for attraction, _, at in sorted(order) if attraction <= 0]
        if not fitting:
            fitting = [len(self.buckets)]
            self.buckets.append(Bucket(fitting[0], np.zeros_like(request)))
            self._of.append(Counter())
        bucket = self.buckets[fitting[0]]
        self._of[bucket.index][_role(pod)] += 1
        if where < 0:
            bucket.request += request
        else:
            bucket.nodes[where] += 1
        return bucket.index


class PlainTaskTopology(TaskTopology):
    """Has all nodes asked anew for each pod, and counts everything anew, node by node."""

    def open(self, view: Any) -> None:
        super().open(view)
        #: roles of the pods that were placed, by job and node
        self._there: defaultdict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        for key in self._planned:
            plan, _ = self._bucket(next(iter(view.members(view.jobs[key]))))
            assert plan is not None
            plain = PlainBuckets(plan.roles, len(view.nodes))
            for row, old in plan.bucket_of.items():
                where = int(view.pods.node[row])
                assert plain.add(view.record(row), where, view.request(view.record(row))) == old.index
        #: the pods that wait, by job and bucket
        self._rows: dict[tuple[str, int], list[int]] = {}
        for job, plan in self._plans.items():
            assert plan is not None
            for row, bucket in plan.bucket_of.items():
                if view.pods.node[row] < 0:
                    self._rows.setdefault((job, bucket.index), []).append(row)

    def varies(self, pod: Any) -> bool:
        return self.varies_on_node(pod)

    def batch_node_order(self, pod: Any, nodes: Any) -> Any:
        return None

    def node_order(self, pod: Any, nodes: Any) -> Any:
        plan, bucket = self._bucket(pod)
        if plan is None or bucket is None:
            return None
        waiting = self._rows[pod.job, bucket.index]
        scores = []
        for row in nodes.rows.tolist():
            room = self._view.nodes.idle[:, row] + self._view.nodes.releasing[:, row]
            score, left = float(len(waiting)), bucket.request.copy()
            for other in waiting:
                if fits(left, room):
                    break
                if other != pod.row:
                    left -= self._view.request(self._view.record(other))
                    score -= 1
            score += bucket.nodes[row]
            number = plan.roles.number
            score -= sum(
                count * plan.roles.apart[number[_role(pod)], number[role]]
                for role, count in self._there[pod.job, row].items()
                if role in number
            )
            scores.append(score * (self.arguments.weight * 100.0 / plan.largest))
        return np.array(scores)

    def on_allocate(self, operation: Operation) -> None:
        super().on_allocate(operation)
        for member, where in zip(operation.pods, operation.nodes, strict=True):
            self._there[member.job, where][_role(member)] += 1
            _, bucket = self._bucket(member)
            if bucket is not None:
                self._rows[member.job, bucket.index].remove(member.row)

    def on_deallocate(self, operation: Operation) -> None:
        super().on_deallocate(operation)
        for member, where in zip(operation.pods, operation.nodes, strict=True):
            self._there[member.job, where][_role(member)] -= 1
            _, bucket = self._bucket(member)
            if bucket is not None:
                self._rows[member.job, bucket.index].append(member.row)


def _role(pod: Any) -> str:
    return pod.annotations.get("volcano.sh/task-spec", "")


@pytest.mark.parametrize("others", [[], ["nodeorder", "binpack"]], ids=["alone", "with others"])
@pytest.mark.parametrize("seed", range(8))
def test_columns_place_pods_as_plain_loops_do(seed: int, others: list[str]) -> None:
    chance = random.Random(seed)
    roles = ["ps", "worker", "chief"]
    made: list[Any] = [node(f"n{i}", cpu=str(chance.randrange(2, 9))) for i in range(6)]
    for name in ("job", "more"):
        annotations = {"volcano.sh/task-topology-affinity": "ps,worker;chief", "volcano.sh/task-spec": ""}
        if chance.random() < 0.7:
            annotations["volcano.sh/task-topology-anti-affinity"] = chance.choice(("ps", "ps,chief", "worker"))
        made.append(pod_group(name, min_member=chance.choice((1, 4, 12, 14))))
        made[-1].metadata.annotations.update(annotations)
        for i in range(14):
            where = f"n{chance.randrange(6)}" if chance.random() < 0.2 else ""
            role, cpu = chance.choice(roles) if i > 2 else roles[i], str(chance.choice((1, 1, 2)))
            made.append(pod(f"{name}-{i}", name, cpu=cpu, node=where, annotations={"volcano.sh/task-spec": role}))
    known = discover()
    plain = Registry(known.actions, {**known.plugins, "task-topology": PlainTaskTopology})
    by = yaml.safe_load(policy("task-topology", {"task-topology.weight": 10 if not others else 1}))
    by["tiers"][0]["plugins"] += [{"name": name} for name in others]
    results = []
    for registry in (known, plain):
        cluster = builders.state(builders.queue("default"), *made)
        session = Engine(yaml.safe_dump(by), registry=registry).decide(cluster.snapshot(), now=builders.NOON).session
        assert not session.failures
        results.append(session.bound)
    assert results[0] == results[1]
