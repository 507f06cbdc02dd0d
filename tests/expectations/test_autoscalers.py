"""Cluster autoscalers see of our pods what makes them add the right number of nodes: here a stand-in of their loop.

Like Cluster Autoscaler it takes pods with the reason `Unschedulable` in their condition, puts those that fit on nodes
which are there or were asked for, and asks for nodes for the others.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from stromboli.api.crds import NODE_POOLS
from stromboli.api.decisions import RequestNodes, SetPodUnscheduled
from stromboli.engine import Engine, Successive
from stromboli.explain.rehearsal import advance
from stromboli.framework.cluster.environment import Admitted, Environment
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, gang, node, pod, pod_group, queue, state
from tests.plugins.sessions import policy

CPUS = 4
ADMITTING = policy("overcommit", {"overcommit-factor": 1.0}, actions="enqueue, allocate, backfill")
POLICIES = [policy("proportion"), policy("capacity"), policy("drf"), ADMITTING]


class Cluster:
    """Sessions, and an autoscaler that asks for nodes which come one at a time."""

    def __init__(self, by: str, *objs: Any, slow: int = 3) -> None:
        """A node comes `slow` sessions after it was asked for."""
        self.state: ClusterState = state(queue("default"), *objs)
        self._sessions = Successive(Engine(by), Environment(admitted=Admitted()))
        self._slow = slow
        self._marked: dict[str, float] = {}
        #: sessions after which each node comes
        self._coming: list[int] = []
        self.asked = self.now = 0
        self.marks: list[set[str]] = []

    def run(self, sessions: int) -> Cluster:
        for _ in range(sessions):
            self._session()
            self._autoscale()
            self._coming = [left - 1 for left in self._coming]
            while 0 in self._coming:
                self._coming.remove(0)
                self.state.upsert("Node", node(f"new-{self.now}-{len(self._coming)}", cpu=str(CPUS)))
        return self

    @property
    def placed(self) -> int:
        return sum(1 for record in self.state.pods.records if record is not None and record.node_name)

    def _session(self) -> None:
        self.now += 1
        decisions = self._sessions.decide(self.state.snapshot(), now=NOON + self.now).decisions
        told = [each for each in decisions if isinstance(each, SetPodUnscheduled)]
        for each in told:
            record = self.state.record(each.key)
            assert record is not None
            self._marked.pop(each.key, None)
            if each.reason == "Unschedulable":
                self._marked[each.key] = record.pod_class.request["cpu"] / 1000
        self.marks.append(set(self._marked))
        advance(self.state, decisions, NOON + self.now)

    def _autoscale(self) -> None:
        free = [*self._free(), *([CPUS] * len(self._coming))]
        for key, cpu in sorted(self._marked.items()):
            record = self.state.record(key)
            if record is None or record.node_name:
                continue
            at = next((at for at, room in enumerate(free) if room >= cpu), None)
            if at is None:
                if cpu > CPUS:
                    continue
                at = len(free)
                free.append(CPUS)
                self._coming.append(self._slow + len(self._coming))
                self.asked += 1
            free[at] -= cpu

    def _free(self) -> list[float]:
        nodes = self.state.snapshot().nodes
        row = list(self.state.dimensions.names).index("cpu")
        found: list[float] = ((nodes.allocatable[row] - nodes.used[row]) / 1000).tolist()
        return found


def wanted(name: str, count: int, cpu: int, phase: str = "Pending", **spec: Any) -> list[Any]:
    group = pod_group(name, count, phase=phase, minResources={"cpu": str(count * cpu)}, **spec)
    return [group, *gang(name, count, cpu=str(cpu), memory="")]


@pytest.mark.parametrize("by", POLICIES)
@pytest.mark.parametrize("there", [0, 1, 4])
@pytest.mark.one_in(5)
def test_a_gang_that_needs_ten_nodes_gets_ten(by: str, there: int) -> None:
    nodes = [node(f"n{number}", cpu=str(CPUS)) for number in range(there)]
    cluster = Cluster(by, *nodes, *wanted("train", 10, CPUS)).run(40)
    assert (cluster.asked, cluster.placed) == (10 - there, 10)


@pytest.mark.parametrize("by", POLICIES)
def test_all_pods_of_a_gang_are_marked_at_once(by: str) -> None:
    """Also those for which there is room: a node too few would be asked for without them."""
    cluster = Cluster(by, node("n", cpu=str(CPUS)), *wanted("train", 3, CPUS)).run(1)
    assert [len(marked) for marked in cluster.marks] == [3]


@pytest.mark.parametrize("by", POLICIES)
def test_gangs_share_the_nodes_that_come(by: str) -> None:
    gangs = (each for name in "abc" for each in wanted(name, 4, 2))
    cluster = Cluster(by, node("n", cpu=str(CPUS)), *gangs).run(40)
    assert (cluster.asked, cluster.placed) == (5, 12)


def test_no_nodes_come_for_what_a_queue_may_not_have() -> None:
    limited = queue("small", capability={"cpu": "4"})
    cluster = Cluster(policy("capacity"), node("n", cpu="4"), limited, *wanted("big", 3, CPUS, queue="small")).run(10)
    assert (cluster.asked, cluster.marks[-1]) == (0, set())


TREE = policy("capacity").replace("name: capacity", "name: capacity\n    enableHierarchy: true")
_LINE = {"top": "root", "small": "top"}
BOUNDED: dict[str, list[Any]] = {
    "above": [queue("top", parent="root", capability={"cpu": "4"}), queue("small", parent="top")],
    "above, with more below": [
        queue("top", parent="root", capability={"cpu": "4"}),
        queue("small", parent="top", capability={"cpu": "100"}),
    ],
    "borrowed": [queue("small", parent="root", deserved={"cpu": "3"}, borrowingLimit={"cpu": "1"})],
    "borrowed above": [
        queue("top", parent="root", deserved={"cpu": "3"}, borrowingLimit={"cpu": "1"}),
        queue("small", parent="top"),
    ],
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("by", "bounded"),
    [
        *((TREE, each) for each in BOUNDED),
        *((policy("fairshare"), each) for each in BOUNDED if each[:5] == "above" and "shared" not in each),
    ],
)
def test_no_nodes_come_for_what_specs_do_not_allow_whoever_says_it(by: str, bounded: str, whole: bool) -> None:
    sizes = [3] if whole else [1, 1, 1]
    jobs = [each for at, size in enumerate(sizes) for each in wanted(f"big-{at}", size, CPUS, queue="small")]
    cluster = Cluster(by, node("n", cpu="4"), queue("root"), *BOUNDED[bounded], *jobs).run(10)
    assert (cluster.asked, cluster.marks[-1]) == (0, set())


@pytest.mark.parametrize("by", POLICIES[:2])
def test_a_queue_that_may_have_as_much_as_there_is_gets_no_nodes_beyond_that(by: str) -> None:
    jobs = [each for at in range(3) for each in wanted(f"big-{at}", 1, CPUS, queue="small")]
    cluster = Cluster(by, node("n", cpu="4"), queue("small", capability={"cpu": "4"}), *jobs).run(10)
    assert (cluster.asked, cluster.placed, cluster.marks[-1]) == (0, 1, set())


def test_no_nodes_come_for_what_a_queue_above_divides_among_others() -> None:
    top = queue("top", parent="root", capability={"cpu": "9"})
    kept = queue("kept", parent="top", deserved={"cpu": "4"}, guarantee={"resource": {"cpu": "4"}})
    jobs = [each for at in range(2) for each in wanted(f"big-{at}", 1, CPUS, queue="small")]
    objects = [node("n", cpu="9"), queue("root"), top, kept, queue("small", parent="top"), *jobs]
    cluster = Cluster(TREE, *objects).run(10)
    assert (cluster.asked, cluster.placed, cluster.marks[-1]) == (0, 1, set())


@pytest.mark.parametrize("above", ["top", "small"])
def test_no_nodes_come_for_gangs_of_closed_queues_however_large(above: str) -> None:
    queues = [queue(name, state="Closed" if name == above else "Open", parent=of) for name, of in _LINE.items()]
    cluster = Cluster(TREE, node("n", cpu="4"), queue("root"), *queues, *wanted("big", 3, CPUS, queue="small")).run(10)
    assert (cluster.asked, cluster.marks[-1]) == (0, set())


def _with(plugin: str, base: str, **arguments: Any) -> str:
    """A policy with a plugin in front of its others."""
    first = json.dumps({"plugins": [{"name": plugin, "arguments": arguments}]})
    return base.replace("tiers:", f"tiers:\n- {first}", 1)


_POOLS = [{"name": name, "nodeSelector": {"pool": name}} for name in "ab"]
_SMALL = queue("small", pools=[{"name": name, "capability": {"cpu": "5"}} for name in "ab"])
OTHER_LIMITS: dict[str, tuple[str, dict[str, Any]]] = {
    "pods of a user": ("userlimits", {"limits": [{"maxPods": 2}]}),
    "amounts of a user": ("userlimits", {"limits": [{"users": ["ann"]}, {"resources": {"cpu": "8"}}]}),
    "a node pool": ("nodepools", {"pools": _POOLS}),
}


@pytest.mark.parametrize("by", POLICIES)
@pytest.mark.parametrize("limited", OTHER_LIMITS)
@pytest.mark.parametrize("there", [0, 1, 3])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.one_in(7)
def test_no_nodes_come_for_what_other_limits_do_not_allow(by: str, limited: str, there: int, begun: bool) -> None:
    """A gang larger than the limit, or than what it leaves; also where the cluster, or the queue's share, is full."""
    plugin, arguments = OTHER_LIMITS[limited]
    group, *members = wanted("train", 2 if begun else 3, CPUS, queue="small")
    more = [pod_group("own", queue="small", phase="Running"), pod("own-0", "own", cpu="4", node="n0")]
    if plugin == "nodepools":
        for each in (group, more[0]):
            each.metadata.annotations[NODE_POOLS] = "a" if begun else "a,b"
    nodes = [node(f"n{number}", cpu=str(CPUS), labels={"pool": "ab"[number % 2]}) for number in range(there)]
    if begun and not nodes:
        return
    full = [pod_group("full", phase="Running"), *gang("full", 1, cpu="4", node="n1")] if there > 1 else []
    objects = [*nodes, _SMALL, *full, group, *members, *(more if begun else ())]
    cluster = Cluster(_with(plugin, by, **arguments), *objects).run(10)
    assert (cluster.asked, cluster.marks[-1]) == (0, set())


@pytest.mark.parametrize("by", POLICIES)
@pytest.mark.parametrize("limited", OTHER_LIMITS)
@pytest.mark.parametrize("sizes", [(1, 4, 4), (2, 3, 5), (6, 1, 1), (5, 3), (5, 1)], ids=str)
@pytest.mark.parametrize("held", [0, 1, 4])
@pytest.mark.one_in(7)
def test_nodes_come_for_unlike_pods_as_far_as_limits_leave_room_for_all(
    by: str, limited: str, sizes: tuple[int, ...], held: int
) -> None:
    """Also where one of them is larger than any node."""
    plugin, arguments = OTHER_LIMITS[limited]
    amount = sum(sizes)
    group = pod_group("train", len(sizes), phase="Pending", minResources={"cpu": str(amount)}, queue="small")
    members = [pod(f"train-{at}", "train", cpu=str(cpu), memory="") for at, cpu in enumerate(sizes)]
    running = pod_group("own", queue="small", phase="Running")
    for each in (group, running):
        each.metadata.annotations[NODE_POOLS] = "a"
    own = [running, pod("own-0", "own", cpu=str(held), memory="", node="n0")] if held else []
    first = node("n0", cpu=str(CPUS), labels={"pool": "a"})
    cluster = Cluster(_with(plugin, by, **arguments), first, _SMALL, group, *members, *own).run(1)
    room = {
        "pods of a user": len(sizes) + bool(held) <= 2,
        "amounts of a user": amount + held <= 8,
        "a node pool": amount + held <= 5,
    }[limited]
    assert bool(cluster.marks[0]) == room


def test_what_the_smallest_pods_of_a_gang_ask_for_counts_where_it_needs_no_others() -> None:
    for sizes, marked in (((5, 3, 6), True), ((5, 4, 6), False)):
        group = pod_group("train", 2, phase="Pending", queue="small")
        members = [pod(f"train-{at}", "train", cpu=str(cpu), memory="") for at, cpu in enumerate(sizes)]
        limits = [{"resources": {"cpu": "8"}}]
        cluster = Cluster(_with("userlimits", POLICIES[2], limits=limits), node("n", cpu="2"), _SMALL, group, *members)
        assert bool(cluster.run(1).marks[0]) == marked


def test_no_nodes_come_for_a_gang_whose_pods_are_not_all_there() -> None:
    group, *members = wanted("train", 4, CPUS)
    cluster = Cluster(policy("proportion"), node("n", cpu="4"), group, *members[:3]).run(10)
    assert cluster.asked == 0


@pytest.mark.parametrize("by", POLICIES)
def test_no_nodes_come_for_a_gang_that_cannot_start_though_no_node_is_large_enough(by: str) -> None:
    """It lacks a pod, or one of them has a gate: nodes for the others would stand idle."""
    group, *members = wanted("train", 3, CPUS + 1)
    gated = pod("train-2", "train", cpu=str(CPUS + 1), memory="", schedulingGates=[{"name": "example.com/later"}])
    for objs in ((group, *members[:2]), (group, *members[:2], gated)):
        for nodes in ((), (node("n", cpu="4"),)):
            cluster = Cluster(by, *nodes, *objs).run(2)
            assert (cluster.asked, cluster.marks[-1]) == (0, set())


@pytest.mark.parametrize("by", POLICIES)
@pytest.mark.parametrize("cpu", [CPUS, CPUS + 1])
def test_no_nodes_come_for_a_gang_that_lacks_a_role_or_a_sub_group_however_large(by: str, cpu: int) -> None:
    """It has as many pods as it starts with, but none that leads them, or too few sub groups."""
    labels = {"volcano.sh/task-spec": "w"}
    workers = [pod(f"train-{at}", "train", cpu=str(cpu), memory="", labels=labels) for at in range(3)]
    policies = [{"name": "w", "minSubGroups": 2, "matchLabelKeys": ["group"], "subGroupSize": 3}]
    for lacking in ({"minTaskMember": {"m": 1, "w": 2}}, {"subGroupPolicy": policies}):
        group = pod_group("train", 3, phase="Pending", minResources={"cpu": str(3 * cpu)}, **lacking)
        cluster = Cluster(by, node("n", cpu="4"), group, *workers).run(3)
        assert (cluster.asked, cluster.marks[-1]) == (0, set()), lacking


REQUESTING = policy("drf") + "provisioning: {class: check-capacity.autoscaling.x-k8s.io, retry: 5m}\n"


def test_nodes_of_whole_gangs_are_requested_where_the_policy_says_so() -> None:
    """Their pods are not what autoscalers look for one by one; lone pods are."""
    alone = [pod_group("alone", 1), *gang("alone", 1, cpu="4", memory="")]
    running = [pod_group("part", 3), *gang("part", 1, cpu="1", node="n", memory="")]
    more = [pod(f"part-{number}", "part", cpu=cpu, memory="") for number, cpu in enumerate(("2", "2", "3"), 1)]
    objs = (node("n", cpu="1"), *wanted("train", 3, CPUS, "Inqueue"), *alone, *running, *more)
    decisions = Engine(REQUESTING).decide(state(queue("default"), *objs).snapshot(), now=NOON).decisions
    words = {each.name: each.reason for each in decisions if isinstance(each, SetPodUnscheduled)}
    assert {name: word for name, word in words.items() if word == "Unschedulable"} == {"alone-0": "Unschedulable"}
    requests = {each.name: each for each in decisions if isinstance(each, RequestNodes)}
    assert {name: each.pods for name, each in requests.items()} == {
        "train": (("train-0", 3),),
        "part": (("part-1", 2),),
    }
    assert (requests["train"].class_name, requests["train"].retry) == ("check-capacity.autoscaling.x-k8s.io", 300.0)


def asked_for(*members: Any) -> tuple[list[int], set[str]]:
    """How many pods of each kind are asked for, and the words of those that wait."""
    objs = (queue("default"), node("n", cpu="1"), pod_group("train", len(members)), *members)
    decisions = Engine(REQUESTING).decide(state(*objs).snapshot(), now=NOON).decisions
    requests = [each for each in decisions if isinstance(each, RequestNodes)]
    words = {each.reason for each in decisions if isinstance(each, SetPodUnscheduled)}
    return [count for each in requests for _, count in each.pods], words


def test_pods_with_volumes_of_their_own_are_one_kind_where_there_are_too_many() -> None:
    """A ProvisioningRequest is for 32 kinds at most."""

    def members(count: int) -> list[Any]:
        names = [f"p-{number}" for number in range(count)]
        own = ([{"name": "disk", "persistentVolumeClaim": {"claimName": name}}] for name in names)
        return [pod(name, "train", volumes=volumes) for name, volumes in zip(names, own, strict=True)]

    assert asked_for(*members(32)) == ([1] * 32, {"NodesRequested"})
    assert asked_for(*members(40)) == ([40], {"NodesRequested"})


def test_a_gang_of_more_kinds_than_a_request_may_be_for_asks_as_lone_pods_do() -> None:
    members = [pod(f"p-{number}", "train", cpu=f"{number + 1}m") for number in range(33)]
    assert asked_for(*members, pod("large", "train", cpu="2")) == ([], {"Unschedulable"})
