"""Hard topology is hard with the policy that is shipped, and a policy that heeds a field as little as that says so."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.crds import HyperNode
from stromboli.api.decisions import Evict
from stromboli.engine import SessionResult
from stromboli.policy.document import DEFAULT_POLICY
from tests.builders import decide, gang, node, pod, pod_group, policy, queue, racks, state
from tests.plugins.queues import bound, refused

WITHOUT = DEFAULT_POLICY.replace("  - name: network-topology-aware\n", "")
CAPACITY = DEFAULT_POLICY.replace("- name: proportion\n", "- name: capacity\n")
HARD = [
    pytest.param({"mode": "hard"}, id="of any tier"),
    pytest.param({"mode": "hard", "highestTierAllowed": 1}, id="tier 1"),
]


def run(*objs: Any, by: str = DEFAULT_POLICY, rules: Any = "strict") -> SessionResult:
    return decide(state(queue("default"), *objs), by, compatibility=rules)


def job(count: int, topology: dict[str, Any] | None, **more: Any) -> list[Any]:
    """A gang of pods of one CPU that have to be close together."""
    spec = {"networkTopology": topology} if topology else {}
    return [pod_group("x", count, **spec, **more), *gang("x", count, memory="")]


def used(result: SessionResult) -> set[str]:
    """The racks in which pods were bound."""
    return {name.partition("-")[0] for name in result.session.bound.values()}


@pytest.mark.parametrize("topology", HARD)
def test_a_gang_stays_in_one_rack(topology: dict[str, Any]) -> None:
    """Racks of 4 CPUs; binpack alone would begin with the first rack, in which 2 are in use."""
    busy = [pod_group("busy", 1, phase="Running"), *gang("busy", 2, memory="", node="r0-0")]
    result = run(*racks(2, 2), *busy, *job(4, topology))
    assert (bound(result), used(result)) == ({"x": 4}, {"r1"})


@pytest.mark.parametrize("topology", HARD)
def test_a_gang_that_no_rack_has_room_for_waits(topology: dict[str, Any]) -> None:
    result = run(*racks(2, 2, per_spine=1), *job(5, topology))
    assert bound(result) == {}
    assert refused(result, "x").reason == "NoHyperNodeFits"


def test_the_last_pod_that_a_gang_lacks_does_not_leave_its_rack() -> None:
    """A search for places of unlike pods finds one in the other rack, and no other pod is needed there."""
    group = pod_group("x", 2, phase="Running", networkTopology={"mode": "hard", "highestTierAllowed": 1})
    port = [{"containerPort": 80, "hostPort": 80}]
    cpus = {"x-1": "1", "x-2": "500m"}
    wait = [pod(name, "x", cpu=cpu, memory="", ports=port) for name, cpu in cpus.items()]
    result = run(*racks(1, 1, per_spine=1), group, pod("x-0", "x", memory="", node="r0-0", ports=port), *wait)
    assert bound(result) == {}
    assert refused(result, "x").reason == "CannotBePlacedTogether"


def test_without_a_tier_a_spine_will_do_where_no_rack_does() -> None:
    assert bound(run(*racks(2, 2), *job(5, {"mode": "hard"}))) == {"x": 5}
    assert bound(run(*racks(2, 2), *job(5, {"mode": "hard", "highestTierAllowed": 1}))) == {}


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        ({"mode": "hard", "highestTierName": "pod"}, "there is no HyperNode of tier pod"),
        ({"mode": "hard", "highestTierAllowed": 0}, "there is no HyperNode up to tier 0"),
    ],
)
def test_a_tier_that_does_not_exist_is_not_ignored(topology: dict[str, Any], message: str) -> None:
    result = run(*racks(2, 2), *job(2, topology))
    assert bound(result) == {}
    why = refused(result, "x")
    assert (why.reason, why.message, why.actionable) == ("NoHyperNode", message, "admin")


def test_the_whole_cluster_is_a_hyper_node_for_those_only_whose_tier_is_above_all_others() -> None:
    result = run(node("n"), *job(2, {"mode": "hard"}))
    assert bound(result) == {}
    assert refused(result, "x").message == "there is no HyperNode"
    assert bound(run(*racks(2, 2, per_spine=1), *job(5, {"mode": "hard", "highestTierAllowed": 3}))) == {"x": 5}


@pytest.mark.parametrize("topology", [None, {"mode": "soft"}, {"mode": "soft", "highestTierAllowed": 1}])
def test_soft_topology_holds_nobody_up(topology: dict[str, Any] | None) -> None:
    assert bound(run(*racks(2, 2), *job(8, topology))) == {"x": 8}
    assert bound(run(node("n"), *job(8, topology))) == {"x": 8}


# -- fields that are not heeded --------------------------------------------------------------------------------------


def of_pod_group(result: SessionResult) -> list[tuple[str, str]]:
    conditions = result.session.view.jobs["default/x"].conditions
    return [(c.status, c.message) for c in conditions if c.type == "FieldIgnored"]


def of_queue(result: SessionResult, name: str = "q") -> str:
    condition = result.session.report.queue_conditions.get(name, {}).get("FieldIgnored")
    return condition.message if condition is not None else ""


@pytest.mark.parametrize("topology", [{"mode": "hard"}, {"mode": "soft"}])
@pytest.mark.parametrize(
    "by", [WITHOUT, WITHOUT + "  - {name: network-topology-aware, enabledHyperNodeGradient: false}\n"]
)
def test_a_policy_that_knows_no_topology_says_so_on_the_pod_group(topology: dict[str, Any], by: str) -> None:
    result = run(*racks(2, 2, per_spine=1), *job(5, topology), by=by)
    reader = "it is read by the plugin network-topology-aware"
    message = f"spec.networkTopology has no effect under this policy: {reader}"
    assert (bound(result), of_pod_group(result)) == ({"x": 5}, [("True", message)])
    assert of_pod_group(run(*racks(2, 2), *job(2, topology))) == []
    assert of_pod_group(run(*racks(2, 2), *job(2, None), by=by)) == []


def test_a_tier_that_is_preferred_and_that_no_hyper_node_is_of_is_named() -> None:
    named = {"mode": "soft", "highestTierName": "rakc"}
    tiers = [*racks(2, 2, per_spine=1)]
    for each in tiers:
        if isinstance(each, HyperNode) and each.spec.tier == 1:
            each.spec.tier_name = "rack"
    result = run(*tiers, *job(5, named))
    told = "has no effect: there is no HyperNode of tier rakc, did you mean 'rack'?"
    message = f"spec.networkTopology.highestTierName {told}"
    assert (bound(result), of_pod_group(result)) == ({"x": 5}, [("True", message)])
    assert of_pod_group(run(*tiers, *job(5, named | {"highestTierName": "rack"}))) == []
    policies = [{"name": "part", "matchLabelKeys": ["part"], "networkTopology": named}]
    group = pod_group("x", 2, subGroupPolicy=policies)
    field = "spec.subGroupPolicy[*].networkTopology.highestTierName"
    assert of_pod_group(run(*tiers, group, *gang("x", 2, memory=""))) == [("True", f"{field} {told}")]


def test_the_condition_is_over_when_the_policy_heeds_it() -> None:
    group, *pods = job(2, {"mode": "hard"})
    group.status.conditions = run(*racks(2, 2), group, *pods, by=WITHOUT).session.view.jobs["default/x"].conditions
    assert of_pod_group(run(*racks(2, 2), group, *pods)) == [("False", "")]


@pytest.mark.parametrize(
    ("spec", "proportion", "capacity", "hierarchy"),
    [
        ({"deserved": {"cpu": "1"}}, "deserved", "", ""),
        ({"parent": "default"}, "parent", "parent", ""),
        ({"dequeueStrategy": "fifo"}, "", "", ""),
        ({"affinity": {"nodeGroupAffinity": {}}}, "affinity", "affinity", "affinity"),
        ({"parent": "root", "dequeueStrategy": "traverse", "weight": 1}, "", "", ""),
        ({"weight": 3}, "", "weight", "weight"),
        ({"reclaimable": False}, "reclaimable", "reclaimable", "reclaimable"),
        ({"capability": {"cpu": "1"}, "guarantee": {"resource": {"cpu": "1"}}}, "", "", ""),
    ],
)
def test_a_queue_is_told_which_of_its_fields_are_ignored(
    spec: dict[str, Any], proportion: str, capacity: str, hierarchy: str
) -> None:
    tree = CAPACITY.replace("- name: capacity\n", "- name: capacity\n    enableHierarchy: true\n")
    for by, field in ((DEFAULT_POLICY, proportion), (CAPACITY, capacity), (tree, hierarchy)):
        said = of_queue(run(node("n"), queue("root"), queue("q", **spec), by=by))
        assert said.partition(" ")[0] == (f"spec.{field}" if field else ""), by


def test_without_any_shares_limits_are_ignored() -> None:
    limited = queue("q", capability={"cpu": "1"}, guarantee={"resource": {"cpu": "1"}})
    said = of_queue(run(node("n"), limited, by=policy("gang predicates")))
    assert said.count("has no effect") == 2


def test_volcano_says_nothing() -> None:
    result = run(node("n"), queue("q", deserved={"cpu": "1"}), *job(2, {"mode": "hard"}), by=WITHOUT, rules="volcano")
    assert (of_queue(result), of_pod_group(result)) == ("", [])


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize("count", [2, 3])
def test_nobody_is_evicted_in_another_rack_than_where_a_job_waits_for_room(action: str, count: int) -> None:
    """Its first pod waits for one that terminates in the first rack, and only the second one has victims."""
    order = CAPACITY.replace("allocate, backfill", f"allocate, {action}, backfill")
    queues = [queue("mine", deserved={"cpu": "8"}), queue("theirs", deserved={"cpu": "0"})]
    group = pod_group("x", 1, "mine", networkTopology={"mode": "hard", "highestTierAllowed": 1})
    victims = [pod_group("v", 1, "theirs", "Running"), *gang("v", 1, memory="", cpu="2", node="r1-0")]
    ends = [pod_group("e", 1, "mine", "Running"), *gang("e", 1, memory="", cpu="2", node="r0-0", deleted=True)]
    waiting = gang("x", count, memory="", cpu="2")
    result = run(*racks(1, 1, per_spine=1), *queues, *victims, *ends, group, *waiting, by=order)
    assert [each for each in result.decisions if isinstance(each, Evict)] == []
