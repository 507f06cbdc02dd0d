"""gangpreempt: a gang evicts others of its queue to get all its places at once, under both sets of rules."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api import objects
from stromboli.api.decisions import Evict
from stromboli.api.resources import TOLERANCE
from stromboli.engine import Engine, SessionResult
from tests import builders
from tests.actions.evictions import BOTH, evicted, nominated
from tests.builders import gang, node, pod, pod_group, queue, racks
from tests.fuzz import tried

TIERS = ("priority gang conformance", "predicates binpack network-topology-aware")
POLICY = builders.policy(*TIERS, actions="gangpreempt")
ONE_RACK = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}


def classes() -> list[objects.PriorityClass]:
    return [
        objects.PriorityClass(metadata=objects.Metadata(name=name), value=value)
        for name, value in (("low", 10), ("middle", 50), ("high", 100))
    ]


def preempt(*objs: Any, policy: str = POLICY, compatibility: Any = "strict", **arguments: Any) -> SessionResult:
    """One session; `arguments` are the action's."""
    if arguments:
        policy += f"\nconfigurations: [{{name: gangpreempt, arguments: {json.dumps(arguments)}}}]"
    return builders.decide(builders.state(classes(), queue("default"), *objs), policy, compatibility=compatibility)


def running(group: str, *on: str, least: int = 1, of: str = "low", created: int = 0, **more: Any) -> list[Any]:
    """A group of the class `of` with a running pod on each of some nodes."""
    pods = [pod(f"{group}-{i}", group, node=name, **more) for i, name in enumerate(on)]
    return [pod_group(group, least, phase="Running", priorityClassName=of, created=created), *pods]


def starving(count: int = 1, cpu: str = "1", spec: dict[str, Any] | None = None, **more: Any) -> list[Any]:
    """A gang of the highest class that waits."""
    return [pod_group("wants", count, priorityClassName="high", **(spec or {})), *gang("wants", count, cpu=cpu, **more)]


@BOTH
def test_all_pods_of_a_gang_get_their_places_together(compatibility: Any) -> None:
    scene = [node("a", cpu="1"), node("b", cpu="1"), running("low", "a", "b", least=0)]
    result = preempt(*scene, starving(2), compatibility=compatibility)
    assert evicted(result) == ["low-0", "low-1"]
    assert sorted(nominated(result).values()) == ["a", "b"]
    decisions = [d for d in result.decisions if isinstance(d, Evict)]
    assert {(d.action, d.beneficiary) for d in decisions} == {("gangpreempt", "default/wants")}


@pytest.mark.parametrize("low", [1, 2, 3])
def test_a_job_that_runs_gets_all_its_places_or_none(low: int) -> None:
    """Without the plugin gang it starves while any of its pods waits."""
    policy = builders.policy("priority", "predicates", actions="gangpreempt")
    scene = [node("a", cpu=str(1 + low)), running("low", *"a" * low, least=0)]
    wants = [pod_group("wants", 1, phase="Running", priorityClassName="high"), *gang("wants", 1, node="a")]
    waits = [pod(f"wants-{number}", "wants", priority=100) for number in (1, 2)]
    assert len(evicted(preempt(*scene, wants, waits, policy=policy))) == (2 if low >= 2 else 0)


@BOTH
def test_nobody_is_evicted_in_vain(compatibility: Any) -> None:
    scene = [node("a", cpu="1"), node("b", cpu="1"), running("low", "a", "b", least=0)]
    assert evicted(preempt(*scene, starving(3), compatibility=compatibility)) == []
    assert evicted(preempt(*scene, starving(1, cpu="2"), compatibility=compatibility)) == []


@BOTH
def test_pods_that_request_nothing_are_part_of_their_gang(compatibility: Any) -> None:
    scene = [node("n", cpu="1"), running("low", "n", least=0)]
    wants = [
        pod_group("wants", 2, priorityClassName="high"),
        pod("w-0", "wants"),
        pod("w-1", "wants", cpu="", memory=""),
    ]
    assert evicted(preempt(*scene, wants, compatibility=compatibility)) == ["low-0"]


@pytest.mark.parametrize("spec", [{}, ONE_RACK])
@pytest.mark.parametrize(("pods", "victims"), [("2", 2), ("3", 1), ("4", 0)])
def test_a_gang_that_requests_nothing_gets_the_places_of_as_many_pods_as_it_lacks(
    spec: dict[str, Any], pods: str, victims: int
) -> None:
    """And backfill binds its pods once the victims are gone; Volcano evicts none for them."""
    rack = builders.hyper_node("rack", 1, "Node", ["n"])
    scene = [node("n", pods=pods), rack, running("low", "n", "n", least=0)]
    wants = [pod_group("wants", 2, priorityClassName="high", **spec), *gang("wants", 2, cpu="", memory="")]
    assert evicted(preempt(*scene, wants, compatibility="volcano")) == []
    state = builders.state(classes(), queue("default"), *scene, wants)
    bound, gone = dict[str, str](), list[str]()
    for _ in range(2):
        result = builders.decide(state, builders.policy(*TIERS, actions="gangpreempt, backfill, allocate"))
        bound |= result.session.bound
        for name in evicted(result):
            state.delete("Pod", f"default/{name}")
            gone.append(name)
    assert len(gone) == victims
    assert bound == {"default/wants-0": "n", "default/wants-1": "n"}


@BOTH
@pytest.mark.parametrize("of", ["low", "high"])
def test_only_less_important_jobs_give_way(compatibility: Any, of: str) -> None:
    scene = [node("n", cpu="1"), running("uses", "n", of=of, least=0), starving()]
    assert evicted(preempt(*scene, compatibility=compatibility)) == (["uses-0"] if of == "low" else [])


@pytest.mark.parametrize(
    ("compatibility", "priority", "first"),
    [
        ("volcano", "middle", "elastic-0"),
        ("strict", "low", "elastic-1"),
        # Under strict rules nothing outweighs priority.
        ("strict", "middle", "tight-0"),
    ],
)
def test_what_a_gang_can_spare_goes_before_a_whole_gang(compatibility: Any, priority: str, first: str) -> None:
    tight, elastic = running("tight", "n"), running("elastic", "n", "n", of=priority)
    result = preempt(node("n", cpu="3"), tight, elastic, starving(), compatibility=compatibility)
    assert evicted(result) == [first]
    result = preempt(node("n", cpu="3"), tight, elastic, starving(3), compatibility=compatibility)
    assert evicted(result) == ["elastic-0", "elastic-1", "tight-0"]


@BOTH
def test_whole_gangs_are_left_alone_when_the_policy_says_so(compatibility: Any) -> None:
    scene = [node("n", cpu="2"), running("tight", "n", "n", least=2), starving()]
    assert evicted(preempt(*scene, compatibility=compatibility)) == ["tight-0", "tight-1"]
    assert evicted(preempt(*scene, compatibility=compatibility, allowWholeBundle=False)) == []


@BOTH
@pytest.mark.parametrize("whose", ["the job's", "the pods'"])
def test_who_does_not_agree_stays(compatibility: Any, whose: str) -> None:
    group, *pods = running("uses", "n", "n", least=0)
    no = {"volcano.sh/preemptable": "false"}
    if whose == "the job's":
        group.metadata.annotations.update(no)
    else:
        _, *pods = running("uses", "n", "n", annotations=no)
    assert evicted(preempt(node("n", cpu="2"), group, pods, starving(), compatibility=compatibility)) == []


@BOTH
def test_a_gang_of_one_rack_makes_room_in_one(compatibility: Any) -> None:
    scene = [*racks(1, 1), running("a", "r0-0", "r1-0", least=0), running("b", "r0-0", "r1-0", least=0, of="middle")]
    result = preempt(*scene, starving(2, spec=ONE_RACK), compatibility=compatibility)
    assert len({name.partition("-")[0] for name in nominated(result).values()}) == 1
    assert evicted(preempt(*scene, starving(3, spec=ONE_RACK), compatibility=compatibility)) == []


def test_no_more_racks_are_tried_than_the_policy_says() -> None:
    scene = [*racks(1, 1), running("fixed", "r0-0", "r0-0", of="high"), running("low", "r1-0", "r1-0", least=0)]
    scene.append(starving(2, spec=ONE_RACK))
    assert evicted(preempt(*scene)) == ["low-0", "low-1"]
    assert evicted(preempt(*scene, maxDomains=1)) == []
    assert evicted(preempt(*scene, maxDomains=0)) == ["low-0", "low-1"]


@BOTH
def test_a_job_that_runs_gets_more_places(compatibility: Any) -> None:
    """Priority alone lets it starve while any of its pods waits."""
    policy = builders.policy("priority", "gang predicates", actions="gangpreempt")
    group = pod_group("wants", 1, phase="Running", priorityClassName="high")
    more = [pod("wants-0", "wants", node="n"), pod("wants-1", "wants")]
    scene = [node("n", cpu="2"), running("low", "n", least=0), group, more]
    assert evicted(preempt(*scene, policy=policy, compatibility=compatibility)) == ["low-0"]


# -- where strict rules differ ---------------------------------------------------------------------------------------


def test_whole_gang_nothing_is_left_of_it_elsewhere() -> None:
    scene = [*racks(1, 1, cpu="1"), running("tight", "r0-0", "r1-0", least=2), starving(spec=ONE_RACK)]
    assert len(evicted(preempt(*scene, compatibility="volcano"))) == 1
    assert evicted(preempt(*scene, compatibility="strict")) == ["tight-0", "tight-1"]


def test_whole_gang_one_that_cannot_go_whole_stays() -> None:
    group, *pods = running("tight", "r0-0", "r1-0", least=2)
    pods[1] = pod("tight-1", "tight", node="r1-0", annotations={"volcano.sh/preemptable": "false"})
    scene = [*racks(1, 1, cpu="1"), group, pods, starving(spec=ONE_RACK)]
    assert evicted(preempt(*scene, compatibility="volcano")) == ["tight-0"]
    assert evicted(preempt(*scene, compatibility="strict")) == []


def test_whole_gang_one_below_its_minimum_is_not_taken_apart() -> None:
    scene = [node("n", cpu="2"), running("broken", "n", "n", least=3), pod("broken-2", "broken", cpu="9"), starving()]
    no_whole = {"allowWholeBundle": False}
    assert evicted(preempt(*scene, compatibility="volcano", **no_whole)) == ["broken-0", "broken-1"]
    assert evicted(preempt(*scene, compatibility="strict", **no_whole)) == []


def test_only_what_helps_bundles_are_opened() -> None:
    scene = [node("n", cpu="4"), running("uses", *["n"] * 4, least=0), starving(2)]
    assert len(evicted(preempt(*scene, compatibility="volcano"))) == 4
    assert len(evicted(preempt(*scene, compatibility="strict"))) == 2


def test_only_what_helps_a_later_victim_spares_the_earlier_ones() -> None:
    small = running("small", "n", "n", "n", least=0)
    scene = [node("n", cpu="5"), small, running("large", "n", least=0, of="middle", cpu="2"), starving(cpu="4")]
    assert evicted(preempt(*scene)) == ["large-0", "small-1", "small-2"]


def test_only_what_helps_nobody_goes_where_there_is_room() -> None:
    scene = [node("n", cpu="2"), running("uses", "n", least=0), starving()]
    assert evicted(preempt(*scene, compatibility="volcano")) == ["uses-0"]
    result = preempt(*scene, compatibility="strict")
    assert evicted(result) == []
    # the place is for allocate to give
    assert result.session.view.jobs["default/wants"].waiting_count == 0


def test_only_what_helps_the_rack_whose_pods_matter_least() -> None:
    scene = [
        *racks(1, 1, cpu="1"), running("matters", "r0-0", least=0, priority=50), running("low", "r1-0", least=0),
        starving(spec=ONE_RACK),
    ]  # fmt: skip
    assert evicted(preempt(*scene, compatibility="volcano")) == ["matters-0"]
    assert evicted(preempt(*scene, compatibility="strict")) == ["low-0"]


def test_veto_a_budget_protects_from_gangs_too() -> None:
    policy = builders.policy("priority gang pdb", "predicates", actions="gangpreempt")
    budget = {
        "metadata": {"name": "budget", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster = builders.state(
        classes(), queue("default"), node("n", cpu="1"), running("uses", "n", least=0, labels={"app": "db"}), starving()
    )
    cluster.upsert("PodDisruptionBudget", budget)
    assert evicted(builders.decide(cluster, policy, compatibility="volcano")) == ["uses-0"]
    assert evicted(builders.decide(cluster, policy, compatibility="strict")) == []


def test_veto_a_pod_that_may_not_preempt_does_not() -> None:
    scene = [node("n", cpu="1"), running("uses", "n", least=0), starving(preemptionPolicy="Never")]
    assert evicted(preempt(*scene, compatibility="volcano")) == ["uses-0"]
    assert evicted(preempt(*scene, compatibility="strict")) == []


@pytest.mark.parametrize(("compatibility", "expected"), [("strict", {"r0", "r1"}), ("volcano", {"r1"})])
def test_nominations_the_next_session_places_the_gang_where_room_was_made(
    compatibility: Any, expected: set[str]
) -> None:
    """Room is made in two racks. When the victims have gone, one of the racks has room for the whole gang."""
    engine = Engine(builders.policy(*TIERS, actions="allocate, gangpreempt"), compatibility=compatibility)
    low = [each for i in range(2) for each in running(f"low{i}", f"r{i}-0", least=0)]
    high = [each for i in range(2) for each in running(f"high{i}", f"r{i}-0", of="high")]
    spec = {"networkTopology": {"mode": "hard", "highestTierAllowed": 2}}
    cluster = builders.state(classes(), queue("default"), *racks(1, 1), low, high, starving(2, spec=spec))
    made = engine.decide(cluster.snapshot(), now=builders.NOON)
    assert evicted(made) == ["low0-0", "low1-0"]
    for name in ("low0-0", "low1-0", "high1-0"):
        cluster.delete("Pod", f"default/{name}")
    for name, on in nominated(made).items():
        cluster.upsert("Pod", pod(name, "wants", nominated=on))
    taken = engine.decide(cluster.snapshot(), now=builders.NOON, environment=made.environment)
    assert {on.partition("-")[0] for on in taken.session.bound.values()} == expected


@tried(15)
@given(st.data())
def test_strict_no_gang_is_left_in_part_and_the_whole_beneficiary_fits(data: st.DataObject) -> None:
    objs: list[Any] = list(racks(*data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=3)), cpu="4"))
    room = {each.metadata.name: 4 for each in objs if isinstance(each, objects.Node)}
    for g in range(data.draw(st.integers(1, 4))):
        size, of = data.draw(st.integers(1, 4)), data.draw(st.sampled_from(["low", "middle", "high"]))
        objs.append(pod_group(f"g{g}", data.draw(st.integers(0, size)), phase="Running", priorityClassName=of))
        for i in range(size):
            cpu, on = data.draw(st.integers(1, 2)), data.draw(st.sampled_from(sorted(room)))
            held = room[on] >= cpu
            room[on] -= cpu if held else 0
            objs.append(pod(f"g{g}-{i}", f"g{g}", cpu=str(cpu), node=on if held else ""))
    spec = data.draw(st.sampled_from([{}, ONE_RACK]))
    objs.append(starving(data.draw(st.integers(1, 4)), cpu=str(data.draw(st.integers(1, 3))), spec=spec))
    session = preempt(*objs).session
    for job in session.view.jobs.values():
        gone = sum(key.startswith(f"{job.key}-") for key in session.evicted)
        if gone:
            assert job.ready_count == 0 or job.ready_count >= job.min_available
    assert (session.view.nodes.future_idle() > -TOLERANCE).all()
    assert not session.evicted or session.outcome.promised
    for job in session.view.jobs.values():
        assert job.waiting_count == 0 or job.waiting_count + job.ready_count >= job.min_available
