"""capacity: queues with amounts of their own, flat or as a tree."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.crds import Queue
from stromboli.engine import SessionResult
from tests import builders
from tests.builders import gang, node, pod_group, queue
from tests.plugins.queues import BOTH, admitted, asks, bound, cpus, evicted, holds, refused, wants, why


def schedule(
    *objs: Any,
    cpu: str = "8",
    actions: str = "allocate",
    compatibility: Any = "strict",
    hierarchy: bool = False,
    **arguments: Any,
) -> SessionResult:
    """One session on a node n."""
    capacity = {"name": "capacity", "enableHierarchy": hierarchy, "arguments": arguments}
    plugins = [{"name": "gang"}, {"name": "predicates"}, capacity]
    by = yaml.safe_dump({"actions": actions, "tiers": [{"plugins": plugins}]})
    return builders.decide(builders.state(node("n", cpu=cpu), *objs), by, compatibility=compatibility)


def of(
    name: str, deserved: str = "", most: str = "", least: str = "", parent: str = "", created: int = 0, **more: Any
) -> Queue:
    """A queue with what it deserves, may have and is guaranteed, in CPUs."""
    amounts: dict[str, Any] = {}
    if deserved:
        amounts["deserved"] = {"cpu": deserved}
    if most:
        amounts["capability"] = {"cpu": most}
    if least:
        amounts["guarantee"] = {"resource": {"cpu": least}}
    return queue(name, created=created, parent=parent, **amounts, **more)


# -- flat: what a queue may have and deserves -------------------------------------------------------------------------


@BOTH
def test_a_queue_may_have_more_than_it_deserves_while_others_leave_it(compatibility: Any) -> None:
    assert bound(schedule(of("a", "2"), *wants("a"), compatibility=compatibility)) == {"a": 8}


@BOTH
def test_a_queue_stops_at_its_capability(compatibility: Any) -> None:
    result = schedule(of("a", "2", most="5"), *wants("a"), compatibility=compatibility)
    assert bound(result) == {"a": 5}
    reason = why(result, "a-5")
    assert (reason.stage.name, reason.reason, reason.message, reason.actionable) == (
        "QueueShare",
        "QueueCapabilityExceeded",
        "queue a has no capacity left in cpu",
        "wait",
    )
    assert reason.detail == "cpu: holds 5, may have 5, 1 more requested"


@BOTH
def test_the_guarantees_of_others_are_kept_even_while_they_are_idle(compatibility: Any) -> None:
    """Of 8, 3 are guaranteed to another; its own guarantee a may use."""
    result = schedule(of("a", least="1"), of("idle", least="3"), *wants("a"), compatibility=compatibility)
    assert bound(result) == {"a": 5}
    assert cpus(result, "real_capacity") == {"a": 5, "idle": 7}


@BOTH
@pytest.mark.parametrize(
    ("amounts", "deserved"),
    [
        pytest.param({"deserved": "4"}, 4, id="as it says"),
        pytest.param({"deserved": "4", "most": "3"}, 3, id="not above its limit"),
        pytest.param({"deserved": "4", "least": "5"}, 5, id="not below its guarantee"),
        pytest.param({}, 0, id="nothing, unless it says so"),
    ],
)
def test_what_a_flat_queue_deserves(amounts: dict[str, str], deserved: float, compatibility: Any) -> None:
    result = schedule(of("a", **amounts), *wants("a"), compatibility=compatibility)
    assert cpus(result, "deserved") == {"a": deserved}


@BOTH
@pytest.mark.parametrize("state", ["Closed", "Closing", "Unknown", ""])
def test_a_queue_that_is_not_open_takes_nothing(compatibility: Any, state: str) -> None:
    result = schedule(of("a", state=state), *wants("a"), compatibility=compatibility)
    assert bound(result) == {}
    assert why(result, "a-0").reason == ("QueueNotOpen" if state else "QueueIsNew")


# -- flat: order ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "served"),
    [
        pytest.param({"deserved": "1"}, {"deserved": "4"}, "b", id="1 of 1 comes after 2 of 4"),
        pytest.param({"deserved": "4"}, {"deserved": "4"}, "a", id="1 of 4 comes before 2 of 4"),
        pytest.param({}, {"deserved": "1"}, "a", id="nothing of nothing is a share of 1"),
        pytest.param({}, {"deserved": "2"}, "b", id="among equals those that deserve something come first"),
        pytest.param({}, {"deserved": "1", "priority": 1}, "b", id="a priority outweighs the share"),
    ],
)
def test_the_queue_with_the_smallest_part_of_what_it_deserves_is_served_first(
    a: dict[str, Any], b: dict[str, Any], served: str
) -> None:
    """a holds 1, b 2; one CPU is free."""
    uses = [*holds("a", 1), *holds("b", 2), *wants("a"), *wants("b")]
    assert bound(schedule(of("a", **a), of("b", created=1, **b), *uses, cpu="4")) == {served: 1}


# -- flat: admission --------------------------------------------------------------------------------------------------


@BOTH
def test_jobs_are_admitted_up_to_the_capability(compatibility: Any) -> None:
    jobs = [asks(name, cpu, "a", created=i) for i, (name, cpu) in enumerate((("x", "3"), ("y", "2"), ("z", "1")))]
    result = schedule(of("a", most="4"), *jobs, actions="enqueue", compatibility=compatibility)
    assert admitted(result) == ["x", "z"]
    reason = refused(result, "y")
    assert (reason.stage.name, reason.reason) == ("Admission", "QueueCapabilityExceeded")
    assert reason.detail == "cpu: holds 0, 3 more claimed by admitted jobs, may have 4, 2 more requested"


@BOTH
@pytest.mark.parametrize(("least", "room"), [("4", []), ("1", ["next"])])
def test_what_a_job_holds_beyond_its_min_resources_stands_in_nobodys_way(
    compatibility: Any, least: str, room: list[str]
) -> None:
    used = holds("a", 4, minResources={"cpu": least})
    scene = [of("a", most="4"), *used, asks("next", "3", "a")]
    assert admitted(schedule(*scene, actions="enqueue", compatibility=compatibility)) == room


@BOTH
def test_without_min_resources_only_the_state_of_the_queue_counts(compatibility: Any) -> None:
    queues = [of("full", most="1"), of("closed", state="Closed")]
    jobs = [*holds("full", 1), asks("first", None, "full"), asks("second", None, "closed")]
    result = schedule(*queues, *jobs, actions="enqueue", compatibility=compatibility)
    assert admitted(result) == (["first"] if compatibility == "strict" else ["first", "second"])


# -- flat: taking back ------------------------------------------------------------------------------------------------


def reclaim(*objs: Any, **options: Any) -> dict[str, int]:
    """How many pods of each job give way."""
    return evicted(schedule(*objs, actions="reclaim", **options))


@BOTH
@pytest.mark.parametrize(
    ("rich", "gives"),
    [
        pytest.param({"deserved": "6"}, {"rich-uses": 2}, id="what it holds above what it deserves"),
        pytest.param({"deserved": "7"}, {}, id="nothing that it deserves"),
        pytest.param({"deserved": "5", "least": "6"}, {"rich-uses": 2}, id="down to its guarantee"),
        pytest.param({"least": "7"}, {}, id="nothing below its guarantee"),
        pytest.param({}, {"rich-uses": 2}, id="anything when it deserves nothing"),
        pytest.param({"reclaimable": False}, {}, id="nothing when it is not reclaimable"),
    ],
)
def test_what_a_queue_gives_back(rich: dict[str, Any], gives: dict[str, int], compatibility: Any) -> None:
    """It holds 8 CPUs; a gang of 2 wants what poor deserves."""
    scene = [of("rich", **rich), of("poor", "2"), *holds("rich", 8), *wants("poor", 2, min_member=2)]
    assert reclaim(*scene, compatibility=compatibility) == gives


@BOTH
@pytest.mark.parametrize(
    ("rich", "gives"), [({"deserved": "6"}, {"rich-uses": 1}), ({"deserved": "6", "least": "6"}, {})]
)
def test_a_large_pod_leaves_a_queue_its_guarantee_and_under_strict_rules_what_it_deserves(
    rich: dict[str, Any], gives: dict[str, int], compatibility: Any
) -> None:
    """It holds 8 CPUs with two pods."""
    gives = gives if compatibility == "volcano" else {}
    scene = [of("rich", **rich), of("poor", "2"), *holds("rich", 2, cpu="4"), *wants("poor", 1, cpu="2")]
    assert reclaim(*scene, compatibility=compatibility) == gives


@BOTH
@pytest.mark.parametrize(
    ("poor", "gives"),
    [
        pytest.param({"deserved": "2"}, {"rich-uses": 1}, id="within what it deserves"),
        pytest.param({"deserved": "1"}, {}, id="not beyond it"),
        pytest.param({"deserved": "2", "most": "1"}, {}, id="nor beyond its limit"),
        pytest.param({"deserved": "2", "state": "Closed"}, {}, id="nor when it is closed"),
    ],
)
def test_what_a_queue_takes_back(poor: dict[str, Any], gives: dict[str, int], compatibility: Any) -> None:
    """It holds one CPU and wants a second."""
    scene = [of("rich"), of("poor", **poor), *holds("rich", 7), *holds("poor", 1), *wants("poor", 1)]
    assert reclaim(*scene, compatibility=compatibility) == gives


@BOTH
@pytest.mark.parametrize(
    ("deserved", "gives"),
    [
        pytest.param({"cpu": "4", "example.com/gpu": "1"}, {"uses": 1}, id="of what it names it gives the rest"),
        pytest.param({"example.com/gpu": "4"}, {}, id="what it deserves of one kind it keeps"),
    ],
)
def test_each_resource_counts_by_itself(deserved: dict[str, str], gives: dict[str, int], compatibility: Any) -> None:
    assert _given_for_a_gpu(deserved, compatibility) == gives


@pytest.mark.parametrize(("compatibility", "gives"), [("volcano", {}), ("strict", {"uses": 1})])
def test_of_what_a_queue_does_not_name_it_deserves_nothing_where_another_does(
    compatibility: Any, gives: dict[str, int]
) -> None:
    assert _given_for_a_gpu({"cpu": "4"}, compatibility) == gives


def _given_for_a_gpu(deserved: dict[str, str], compatibility: Any) -> dict[str, int]:
    """What rich, which holds 2 pods of a CPU and a GPU each, gives to a queue that deserves a GPU."""
    gpu = {"example.com/gpu": "1"}
    queues = [queue("rich", deserved=deserved), queue("poor", deserved={"cpu": "1", **gpu})]
    uses = [pod_group("uses", 0, queue="rich", phase="Running"), *gang("uses", 2, memory="", resources=gpu, node="g")]
    job = [pod_group("job", queue="poor"), *gang("job", 1, memory="", resources=gpu)]
    host = node("g", cpu="2", resources={"example.com/gpu": "2"})
    return reclaim(host, *queues, *uses, *job, cpu="0", compatibility=compatibility)


# -- trees ------------------------------------------------------------------------------------------------------------


def tree(*objs: Any, root: dict[str, str] | None = None, **options: Any) -> SessionResult:
    """A session with `enableHierarchy` below a root."""
    return schedule(of("root", **(root or {})), *objs, hierarchy=True, **options)


@BOTH
@pytest.mark.parametrize(("sister", "gets", "full"), [(0, 2, "a"), (2, 1, "team"), (3, 0, "team")])
def test_a_pod_has_to_fit_into_its_queue_and_all_above(sister: int, gets: int, full: str, compatibility: Any) -> None:
    """a may have 2; team may have 3, of which a sister holds some."""
    queues = [of("team", most="3"), of("a", parent="team", most="2"), of("b", parent="team")]
    result = tree(*queues, *holds("b", sister), *wants("a", 3), compatibility=compatibility)
    assert bound(result).get("a", 0) == gets
    assert why(result, "a-2").message == f"queue {full} has no capacity left in cpu"


@BOTH
def test_a_limit_is_inherited(compatibility: Any) -> None:
    queues = [of("team", most="3"), of("a", parent="team")]
    result = tree(*queues, *wants("a"), compatibility=compatibility)
    assert bound(result) == {"a": 3}
    assert cpus(result, "real_capacity")["a"] == 3


@BOTH
def test_the_guarantees_of_siblings_are_kept(compatibility: Any) -> None:
    """team may have 6, of which 2 are for b."""
    queues = [of("team", most="6"), of("a", parent="team"), of("b", parent="team", least="2")]
    assert bound(tree(*queues, *wants("a"), compatibility=compatibility)) == {"a": 4}


@BOTH
def test_the_root_deserves_what_its_children_do(compatibility: Any) -> None:
    queues = [of("a", "2"), of("b", "3"), of("c", "4", parent="a")]
    deserved = cpus(tree(*queues, *wants("b"), compatibility=compatibility), "deserved")
    assert deserved == {"root": 5, "a": 2, "b": 3, "c": 4}


@BOTH
def test_admission_looks_at_all_above(compatibility: Any) -> None:
    queues = [of("team", most="3"), of("a", parent="team"), of("b", parent="team")]
    jobs = [asks("x", "2", "a"), asks("y", "2", "b", created=1)]
    result = tree(*queues, *jobs, actions="enqueue", compatibility=compatibility)
    assert admitted(result) == ["x"]
    assert refused(result, "y").message == "queue team has no capacity left in cpu"


def test_branches_are_compared_where_they_part() -> None:
    """north holds 3 of 6, south 1 of 4: south/b comes first, though it holds more of its own than north/a."""
    queues = [
        of("north", "6"), of("a", "9", parent="north"), of("x", parent="north"),
        of("south", "4"), of("b", "1", parent="south", created=1),
    ]  # fmt: skip
    uses = [*holds("x", 3), *holds("b", 1), *wants("a"), *wants("b")]
    assert bound(tree(*queues, *uses, cpu="5")) == {"b": 1}


@pytest.mark.parametrize(("compatibility", "share"), [("strict", 1.0), ("volcano", 0.25)])
def test_strictly_shares_of_parents_follow_placements(compatibility: Any, share: float) -> None:
    queues = [of("team", "4"), of("a", "4", parent="team")]
    result = tree(*queues, *holds("a", 1), *wants("a", 3), compatibility=compatibility)
    assert result.session.report.gauges["a"].share == 1.0
    assert result.session.report.gauges["team"].share == share


# -- trees that are broken --------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("queues", "word", "message"),
    [
        ([of("a", parent="nobody")], "QueueMisconfigured", "the parent of queue a, nobody, does not exist"),
        ([of("b", parent="a"), of("a", parent="b")], "QueueMisconfigured", "queue a is its own ancestor"),
        (
            [of("a"), of("child", parent="a")],
            "QueueNotALeaf",
            "queue a has child queues; jobs run in queues without children",
        ),
    ],
    ids=["no parent", "a circle", "jobs above a queue"],
)
def test_a_broken_queue_stands_still_and_with_volcano_everybody(
    queues: list[Queue], word: str, message: str, compatibility: Any
) -> None:
    result = tree(*queues, of("fine", created=9), *wants("a", 1), *wants("fine", 1), compatibility=compatibility)
    assert bound(result) == ({"fine": 1} if compatibility == "strict" else {})
    reason = why(result, "a-0")
    assert (reason.reason, reason.message) == (word, message)


@pytest.mark.parametrize(("compatibility", "placed"), [("strict", {"a": 1}), ("volcano", {})])
def test_without_a_root_everybody_stands_still_with_volcano(compatibility: Any, placed: dict[str, int]) -> None:
    result = schedule(of("a"), *wants("a", 1), hierarchy=True, compatibility=compatibility)
    assert bound(result) == placed
    if not placed:
        assert why(result, "a-0").message == "there is no queue root"


@st.composite
def trees(draw: st.DrawFn) -> list[Any]:
    """Queues in trees, and pods that those without children hold and want."""
    few, amount = st.integers(0, 3), st.sampled_from(["", "1", "2", "4"])
    parents = {name: draw(st.sampled_from(["", *"abcdef"[:at]])) for at, name in enumerate("abcdef")}
    objs: list[Any] = []
    for name, parent in parents.items():
        least = draw(st.sampled_from(["", "", "1"]))
        objs.append(of(name, draw(amount), most=draw(amount), least=least, parent=parent))
        if name not in parents.values():
            objs += [*holds(name, draw(few)), *wants(name, draw(few))]
    return objs


@given(trees(), st.sampled_from(["allocate", "allocate, reclaim"]))
def test_a_root_that_is_missing_is_implied_strictly(objs: list[Any], actions: str) -> None:
    without = schedule(*objs, hierarchy=True, actions=actions)
    with_root = tree(*objs, actions=actions)
    assert (bound(without), evicted(without)) == (bound(with_root), evicted(with_root))
    for amounts in ("deserved", "real_capacity", "allocated"):
        mine, its = cpus(without, amounts), cpus(with_root, amounts)
        assert mine == {name: amount for name, amount in its.items() if name != "root"}


def test_what_is_below_a_broken_queue_is_broken_with_its_reason() -> None:
    queues = [of("lost", parent="nobody"), of("a", parent="lost")]
    message = "the parent of queue lost, nobody, does not exist"
    assert why(tree(*queues, *wants("a", 1)), "a-0").message == message


# -- trees: taking back -----------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("level", "gives"), [(0, {}), (1, {"b-uses": 1})])
def test_a_queue_takes_back_what_its_parent_deserves(level: int, gives: dict[str, int], compatibility: Any) -> None:
    """a deserves nothing itself, and north has 1 of 4."""
    queues = [
        of("north", "4"), of("a", parent="north"),
        of("south", "4"), of("b", "1", parent="south"),
    ]  # fmt: skip
    scene = [*holds("a", 1), *holds("b", 7), *wants("a", 1)]
    result = tree(*queues, *scene, actions="reclaim", compatibility=compatibility, ancestorReclaimLevel=level)
    assert evicted(result) == gives


@BOTH
@pytest.mark.parametrize(("level", "gives"), [(0, {"b-uses": 1}), (1, {})])
def test_a_queue_gives_nothing_while_its_parent_lacks_something(
    level: int, gives: dict[str, int], compatibility: Any
) -> None:
    """b holds 5 and deserves 1; south, above it, deserves 7: with less than north, it would be served first."""
    gives = gives if compatibility == "volcano" else {}
    queues = [of("north", "4"), of("a", "4", parent="north"), of("south", "7"), of("b", "1", parent="south")]
    scene = [*holds("b", 5), *holds("a", 3), *wants("a", 1)]
    result = tree(*queues, *scene, actions="reclaim", compatibility=compatibility, ancestorReclaimLevel=level)
    assert evicted(result) == gives


@BOTH
@pytest.mark.parametrize(("sister", "gives"), [("", {}), ("1", {"b-uses": 1})])
def test_relatives_that_deserve_nothing_take_nothing_from_each_other(
    sister: str, gives: dict[str, int], compatibility: Any
) -> None:
    """team has 4 of 8: a may take on its behalf, but not from a sister that deserves as little as itself."""
    queues = [of("team", "8"), of("a", parent="team"), of("b", sister, parent="team"), of("rest", reclaimable=False)]
    scene = [*holds("b", 4), *holds("rest", 4), *wants("a", 1)]
    result = tree(*queues, *scene, actions="reclaim", compatibility=compatibility, ancestorReclaimLevel=1)
    assert evicted(result) == gives


@BOTH
def test_the_nearest_relatives_give_way_first(compatibility: Any) -> None:
    queues = [
        of("here"), of("a", "1", parent="here"), of("sister", parent="here"),
        of("there"), of("cousin", parent="there"),
    ]  # fmt: skip
    scene = [*holds("cousin", 4), *holds("sister", 4), *wants("a", 1)]
    assert evicted(tree(*queues, *scene, actions="reclaim", compatibility=compatibility)) == {"sister-uses": 1}


# -- what is exported -------------------------------------------------------------------------------------------------


@BOTH
def test_gauges_of_flat_queues(compatibility: Any) -> None:
    idle = of("idle", "1", most="2")
    admitted_before = pod_group("job", queue="a", minResources={"cpu": "3"})
    result = schedule(of("a", "2"), idle, *holds("a", 1), *wants("a", 2), admitted_before, compatibility=compatibility)
    assert cpus(result, "deserved") == {"a": 2, "idle": 1}
    assert cpus(result, "allocated") == {"a": 3, "idle": 0}
    assert cpus(result, "request") == {"a": 3, "idle": 0}
    assert cpus(result, "inqueue") == {"a": 3, "idle": 0}
    assert cpus(result, "capacity") == {"a": 0, "idle": 2}
    assert cpus(result, "real_capacity") == {"a": 8, "idle": 2}
    gauges = result.session.report.gauges
    assert (gauges["a"].share, gauges["a"].overused) == (1.5, True)
    assert (gauges["idle"].share, gauges["idle"].overused) == (None, None)


@BOTH
def test_gauges_of_parents_stay_at_what_the_session_found(compatibility: Any) -> None:
    result = tree(of("team"), of("a", parent="team"), *holds("a", 1), *wants("a", 2), compatibility=compatibility)
    assert cpus(result, "allocated") == {"root": 1, "team": 1, "a": 3}
    assert cpus(result, "request") == {"root": 3, "team": 3, "a": 3}
