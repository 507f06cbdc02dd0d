"""preempt: pods of a starving job evict pods of their own queue, under Volcano's rules and under strict ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api import objects
from stromboli.api.decisions import Evict
from stromboli.api.pod_state import PodState
from stromboli.api.resources import TOLERANCE
from stromboli.engine import SessionResult
from stromboli.state.cluster import ClusterState
from tests import builders
from tests.actions.evictions import BOTH, evicted, nominated
from tests.builders import gang, node, pod, pod_group, queue
from tests.fuzz import tried

ONE_TIER = builders.policy("priority gang conformance", actions="preempt")
TWO_TIERS = builders.policy("gang conformance", "drf", actions="preempt")


def classes() -> list[objects.PriorityClass]:
    return [
        objects.PriorityClass(metadata=objects.Metadata(name=name), value=value)
        for name, value in (("low", 10), ("middle", 50), ("high", 100))
    ]


def preempt(*objs: Any, policy: str = ONE_TIER, compatibility: Any = "strict") -> SessionResult:
    return builders.decide(builders.state(classes(), queue("default"), *objs), policy, compatibility=compatibility)


def running(group: str, on: str, cpu: str = "1", of: str = "low", **more: Any) -> list[Any]:
    """A group of the class `of` with one running pod that is called like the group."""
    return [pod_group(group, 0, phase="Running", priorityClassName=of), pod(group, group, cpu=cpu, node=on, **more)]


def starving(count: int = 1, cpu: str = "1", **more: Any) -> list[Any]:
    """A gang of the highest class that waits."""
    return [pod_group("wants", count, priorityClassName="high"), *gang("wants", count, cpu=cpu, **more)]


@BOTH
def test_the_least_important_pod_gives_way(compatibility: Any) -> None:
    scene = [node("n", cpu="2"), running("low", "n"), running("middle", "n", of="middle"), starving()]
    result = preempt(*scene, compatibility=compatibility)
    assert evicted(result) == ["low"]
    assert nominated(result) == {"wants-0": "n"}
    (decision,) = [d for d in result.decisions if isinstance(d, Evict)]
    assert (decision.action, decision.beneficiary, decision.node) == ("preempt", "default/wants", "n")


@BOTH
def test_a_gang_preempts_whole_or_not_at_all(compatibility: Any) -> None:
    result = preempt(node("n", cpu="2"), running("low", "n", cpu="2"), starving(3), compatibility=compatibility)
    assert evicted(result) == []
    assert not (result.session.view.pods.state == PodState.Pipelined).any()


@BOTH
@pytest.mark.parametrize(
    "protected",
    [
        pytest.param({"annotations": {"volcano.sh/preemptable": "false"}}, id="not preemptable"),
        pytest.param({"labels": {"volcano.sh/preemptable": "false"}}, id="not preemptable, by label"),
        pytest.param({"priority": 2_000_000_000}, id="critical"),
    ],
)
def test_some_are_never_victims(compatibility: Any, protected: dict[str, Any]) -> None:
    result = preempt(node("n", cpu="1"), running("low", "n", **protected), starving(), compatibility=compatibility)
    assert evicted(result) == []


@BOTH
def test_a_pod_that_may_not_preempt_does_not(compatibility: Any) -> None:
    polite = starving(preemptionPolicy="Never")
    assert evicted(preempt(node("n", cpu="1"), running("low", "n"), polite, compatibility=compatibility)) == []


@BOTH
def test_other_queues_are_left_alone(compatibility: Any) -> None:
    other = [
        queue("other"),
        pod_group("low", 0, queue="other", phase="Running", priorityClassName="low"),
        pod("low", "low", node="n"),
    ]
    assert evicted(preempt(node("n", cpu="1"), other, starving(), compatibility=compatibility)) == []


@BOTH
def test_the_pod_binds_once_the_victim_is_gone(compatibility: Any) -> None:
    policy = builders.policy("priority gang", actions="allocate, preempt")
    cluster = builders.state(classes(), queue("default"), node("n", cpu="1"), running("low", "n"), starving())
    first = builders.decide(cluster, policy, compatibility=compatibility)
    assert evicted(first) == ["low"]
    cluster.upsert("Pod", pod("low", "low", node="n", deleted=True))
    assert evicted(builders.decide(cluster, policy, compatibility=compatibility)) == []
    cluster.delete("Pod", "default/low")
    assert builders.decide(cluster, policy, compatibility=compatibility).session.bound == {"default/wants-0": "n"}


@BOTH
def test_pods_of_one_job_preempt_each_other_by_their_own_priority(compatibility: Any) -> None:
    result = preempt(
        node("n", cpu="1"),
        pod_group("job", 0, phase="Running", priorityClassName="low"),
        pod("runs", "job", node="n", priority=1),
        pod("waits", "job", priority=2),
        policy=builders.policy("priority", actions="preempt"),
        compatibility=compatibility,
    )
    assert evicted(result) == ["runs"]


@BOTH
def test_the_node_whose_victims_matter_least_can_be_asked_for(compatibility: Any) -> None:
    policy = builders.policy("priority gang", actions="preempt") + (
        "\nconfigurations:\n- name: preempt\n  arguments:\n"
        "    enableTopologyAwarePreemption: true\n    minCandidateNodesPercentage: 100"
    )
    scene = [[node("a", cpu="2"), node("b", cpu="2")], starving(cpu="2")]
    scene += [running("dear", "a", cpu="2", priority=20), running("cheap", "b", cpu="2", priority=10)]
    assert evicted(preempt(*scene, policy=policy, compatibility=compatibility)) == ["cheap"]


@BOTH
def test_a_gang_that_keeps_away_from_its_victims_takes_whole_nodes(compatibility: Any) -> None:
    """Each node gives up all of its pods for the first pod of the gang, and has room for more of them."""
    policy = builders.policy("priority gang predicates", actions="preempt") + (
        "\nconfigurations:\n- name: preempt\n  arguments:\n    enableTopologyAwarePreemption: true"
    )
    apart = {"labelSelector": {"matchLabels": {"app": "old"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    scene = [node(name, cpu="2", labels={"kubernetes.io/hostname": name}) for name in "abc"]
    for name in "abc":
        scene += [*running(f"{name}0", name, labels={"app": "old"}), *running(f"{name}1", name, labels={"app": "old"})]
    result = preempt(*scene, starving(4, affinity=affinity), policy=policy, compatibility=compatibility)
    assert len(evicted(result)) == 4
    assert (result.session.view.pods.state == PodState.Pipelined).sum() == 4


# -- where strict rules differ ---------------------------------------------------------------------------------------


def test_veto_a_critical_pod_is_a_victim_only_where_a_lower_tier_may_overrule() -> None:
    scene = [
        node("n", cpu="2"),
        pod_group("system", 0, phase="Running", priorityClassName="low"),
        gang("system", 2, node="n", priority=2_000_000_000),
        starving(),
    ]
    assert evicted(preempt(*scene, policy=TWO_TIERS, compatibility="volcano")) == ["system-1"]
    assert evicted(preempt(*scene, policy=TWO_TIERS, compatibility="strict")) == []


def test_whole_gang_a_gang_is_evicted_whole_and_not_in_part() -> None:
    scene = [
        [node("a", cpu="1"), node("b", cpu="1")],
        pod_group("both", 2, phase="Running", priorityClassName="low"),
        [pod("both-0", "both", node="a"), pod("both-1", "both", node="b")],
        starving(),
    ]
    assert evicted(preempt(*scene, compatibility="volcano")) == []
    assert evicted(preempt(*scene, policy=TWO_TIERS, compatibility="volcano")) == ["both-0"]
    assert evicted(preempt(*scene, compatibility="strict")) == ["both-0", "both-1"]


def test_whole_gang_what_is_above_the_minimum_goes_alone() -> None:
    scene = [
        [node("a", cpu="2"), node("b", cpu="1")],
        pod_group("some", 2, phase="Running", priorityClassName="low"),
        [pod("some-0", "some", node="a"), pod("some-1", "some", node="a"), pod("some-2", "some", node="b")],
        starving(),
    ]
    assert len(evicted(preempt(*scene))) == 1


def test_whole_gang_a_gang_with_a_protected_pod_stays_whole() -> None:
    scene = [
        [node("a", cpu="1"), node("b", cpu="1")],
        pod_group("both", 2, phase="Running", priorityClassName="low"),
        pod("both-0", "both", node="a"),
        pod("both-1", "both", node="b", annotations={"volcano.sh/preemptable": "false"}),
        starving(),
    ]
    assert evicted(preempt(*scene)) == []


def test_only_what_helps_pods_that_need_not_go_are_given_back() -> None:
    scene = [
        node("n", cpu="5"),
        running("small", "n", cpu="1"),
        running("large", "n", cpu="4", of="middle"),
        starving(cpu="4"),
    ]
    assert evicted(preempt(*scene, compatibility="volcano")) == ["large", "small"]
    assert evicted(preempt(*scene, compatibility="strict")) == ["large"]


def test_only_what_helps_fewer_victims_on_another_node_are_better() -> None:
    scene = [
        [node("a", cpu="2"), node("b", cpu="2")],
        *[running("a1", "a"), running("a2", "a"), running("b1", "b", cpu="2")],
        starving(cpu="2"),
    ]
    assert evicted(preempt(*scene, compatibility="volcano")) == ["a1", "a2"]
    assert evicted(preempt(*scene, compatibility="strict")) == ["b1"]


def test_only_what_helps_a_discarded_promise_nominates_nobody() -> None:
    """Volcano writes the node of a try that was taken back."""
    scene = [
        *[node("n", cpu="2"), running("low", "n", cpu="2")],
        pod_group("wants", 2, priorityClassName="high"),
        [pod("wants-0", "wants"), pod("wants-1", "wants", cpu="2")],
    ]
    for compatibility, names in (("volcano", ["wants-0"]), ("strict", [])):
        result = preempt(*scene, compatibility=compatibility)
        assert evicted(result) == []
        assert sorted(nominated(result)) == names


# -- what holds whatever the scene -----------------------------------------------------------------------------------


@tried(20)
@given(st.data())
def test_strict_no_gang_is_left_in_part_and_all_that_was_promised_fits(data: st.DataObject) -> None:
    nodes = [node(f"n{i}", cpu="4") for i in range(data.draw(st.integers(1, 3)))]
    room = {each.metadata.name: 4 for each in nodes}
    objs: list[Any] = [*nodes]
    for g in range(data.draw(st.integers(1, 4))):
        size = data.draw(st.integers(1, 4))
        priority = data.draw(st.sampled_from(["low", "middle", "high"]))
        objs.append(pod_group(f"g{g}", data.draw(st.integers(0, size)), phase="Running", priorityClassName=priority))
        for i in range(size):
            cpu, on = data.draw(st.integers(1, 2)), data.draw(st.sampled_from(sorted(room)))
            if room[on] >= cpu:
                room[on] -= cpu
                objs.append(pod(f"g{g}-{i}", f"g{g}", cpu=str(cpu), node=on))
            else:
                objs.append(pod(f"g{g}-{i}", f"g{g}", cpu=str(cpu)))
    objs += starving(data.draw(st.integers(1, 4)), cpu=str(data.draw(st.integers(1, 3))))
    session = preempt(*objs).session
    for job in session.view.jobs.values():
        held, gone = job.ready_count, sum(key.startswith(f"{job.key}-") for key in session.evicted)
        if gone:
            assert held == 0 or held >= job.min_available
    assert (session.view.nodes.future_idle() > -TOLERANCE).all()
    assert not session.evicted or session.outcome.promised


# -- pods in the way ---------------------------------------------------------------------------------------------------

APART = builders.policy("priority gang", "predicates nodeorder", actions="allocate, preempt")


def _apart(key: str, app: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _port(name: str, **more: Any) -> dict[str, Any]:
    ports = [{"containerPort": 80, "hostPort": 8080}]
    return {"containers": [{"name": name, "resources": {"requests": {"cpu": "1"}}, "ports": ports}], **more}


@pytest.mark.parametrize(
    ("in_the_way", "wants"),
    [
        (_port("main"), _port("main")),
        ({"labels": {"app": "web"}}, _apart("kubernetes.io/hostname", "web")),
        (_apart("kubernetes.io/hostname", "urgent"), {"labels": {"app": "urgent"}}),
    ],
)
def test_only_a_pod_that_is_in_the_way_goes_where_there_is_room(in_the_way: Any, wants: Any) -> None:
    result = preempt(
        node("n", cpu="8"),
        running("hinders", "n", **in_the_way),
        running("bystander", "n"),
        starving(**wants),
        policy=APART,
    )
    assert evicted(result) == ["hinders"]
    assert nominated(result) == {"wants-0": "n"}


def test_nobody_goes_for_a_pod_that_a_more_important_one_hinders() -> None:
    hinders = [
        pod_group("top", 0, phase="Running", priorityClassName="high"),
        pod("top", "top", node="n", **_port("main")),
    ]
    result = preempt(node("n", cpu="8"), hinders, running("bystander", "n"), starving(**_port("main")), policy=APART)
    assert evicted(result) == []


@pytest.mark.parametrize(("cpu", "room"), [("1", "8"), ("3", "4")])
def test_as_many_go_as_a_spread_constraint_takes(cpu: str, room: str) -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    labels = {"app": "web"}
    alone = [
        pod_group("top", 0, phase="Running", priorityClassName="high"),
        pod("top", "top", cpu="8", node="m", labels=labels),
    ]
    result = preempt(
        node("m", cpu="8"),
        node("n", cpu=room),
        alone,
        *[running(f"low-{i}", "n", labels=labels) for i in range(3)],
        starving(cpu=cpu, labels=labels, topologySpreadConstraints=[spread]),
        policy=APART,
    )
    assert len(evicted(result)) == 2
    assert nominated(result) == {"wants-0": "n"}


# -- beside kube-scheduler ---------------------------------------------------------------------------------------------


def beside(*objs: Any) -> ClusterState:
    """A state whose pods of the default scheduler kube-scheduler binds."""
    out = ClusterState(("stromboli",), ("default-scheduler",), builders.READS)
    for obj in objs:
        for each in obj if isinstance(obj, list) else [obj]:
            out.upsert(type(each).__name__, each)
    return out


def test_nobody_is_evicted_for_a_pod_for_which_kube_scheduler_does_so() -> None:
    scene = [*classes(), queue("default"), node("n", cpu="1"), running("low", "n")]
    own, its = starving(), starving(scheduler="default-scheduler")
    assert evicted(builders.decide(beside(*scene, own), ONE_TIER)) == ["low"]
    assert evicted(builders.decide(beside(*scene, its), ONE_TIER)) == []


@pytest.mark.parametrize(
    ("priority", "other", "bound"),
    [
        (100, {"group": "nominee", "scheduler": "default-scheduler"}, {"default/nominee": "n"}),
        (100, {"scheduler": "default-scheduler"}, {}),
        # What another scheduler nominates is nothing to kube-scheduler, or to us.
        (100, {"scheduler": "other"}, {"default/wants": "n"}),
        (1, {"group": "nominee", "scheduler": "default-scheduler"}, {"default/wants": "n"}),
    ],
)
def test_room_is_left_to_the_pod_that_kube_scheduler_made_it_for(
    priority: int, other: dict[str, str], bound: dict[str, str]
) -> None:
    nominee = pod("nominee", nominated="n", priority=priority, **other)  # type: ignore[arg-type]
    state = beside(
        classes(),
        queue("default"),
        node("n", cpu="1"),
        pod_group("nominee", 1, priorityClassName="high" if priority == 100 else "low"),
        nominee,
        pod_group("wants", 1, priorityClassName="middle"),
        pod("wants", "wants", priority=50),
    )
    assert builders.decide(state, APART).session.bound == bound


def test_room_is_free_again_when_a_nomination_is_taken_back() -> None:
    nominee, wants = pod("nominee", nominated="n", scheduler="default-scheduler"), pod("wants", "wants")
    state = beside(queue("default"), node("n", cpu="1"), nominee, pod_group("wants", 1), wants)
    assert builders.decide(state, APART).session.bound == {}
    state.upsert("Pod", pod("nominee", scheduler="default-scheduler"))
    assert builders.decide(state, APART).session.bound == {"default/wants": "n"}
    assert "default/nominee" not in state.pods.by_key


@pytest.mark.parametrize(("compatibility", "victims"), [("strict", ["low"]), ("volcano", [])])
def test_a_pod_that_requests_nothing_preempts_where_pods_are_in_its_way(compatibility: Any, victims: list[str]) -> None:
    """As kube-scheduler does for a pod of a daemon; Volcano has it preempt only pods that request nothing either."""
    full = [*running("low", "n"), *running("middle", "n", of="middle", cpu="2")]
    daemon = [pod_group("wants", priorityClassName="high"), *gang("wants", 1, cpu="", memory="")]
    result = preempt(node("n", pods="2"), full, daemon, compatibility=compatibility)
    assert evicted(result) == victims
    room = preempt(node("n", pods="3", cpu="1"), full, daemon, compatibility=compatibility)
    assert evicted(room) == []
