"""How the work of a session grows with nodes, placed pods and members, in calls of functions instead of seconds."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from stromboli.bench import FEATURES, Cluster, Trial, measure
from stromboli.cli import make_app
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.framework.diagnosis.explain import why_job
from tests.perf.test_work import RANGES, check

pytestmark = pytest.mark.exhaustive

_EVICTING = {"preempt", "reclaim", "gangpreempt", "gangreclaim"}


class Calls:
    """Calls of functions, counted."""

    def __init__(self) -> None:
        self.made = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        def count(_frame: Any, event: str, _function: Any) -> None:
            self.made += event in ("call", "c_call")

        before = sys.getprofile()
        # What other tests left is not cleared away at this one's cost.
        gc.disable()
        sys.setprofile(count)
        try:
            yield
        finally:
            sys.setprofile(before)
            gc.enable()


def calls(trial: Trial, nodes: int, more: str = "") -> dict[str, int]:
    """Calls of a session that places pods, of one in vain, and of one with a single pod; each is the second alike.

    `more` is added to the policy.
    """
    cluster = Cluster(trial, nodes, Engine(f"{trial.policy()}\n{more}", registry=discover()))
    waves: dict[str, tuple[int, int, str]] = {
        "success": (trial.pods, trial.groups, ""),
        "vain": (trial.pods, trial.groups, "" if trial.always_vain else "64"),
        "tick": (1, 1, ""),
    }
    out = {}
    for name, (pods, groups, cpu) in waves.items():
        with cluster.wave(pods, groups, cpu):
            decide, counter = cluster.successive(), Calls()
            decide()
            with counter.counted():
                decide()
            out[name] = counter.made
    return out


@pytest.mark.parametrize("feature", ["attach limits, none placed", "vGPU, distinct", "anti-affinity of its own"])
def test_gangs_too_large_for_the_cluster_take_as_many_steps_if_their_pods_differ(feature: str) -> None:
    usual, unlike = (calls(FEATURES[name].trial, 16)["vain"] for name in ("default, gang", feature))
    assert unlike <= 1.5 * usual


@pytest.mark.one_in(5)
@pytest.mark.parametrize("feature", RANGES["growth"]["features"])
def test_more_nodes_and_placed_pods_take_no_more_steps(feature: str) -> None:
    few, many = (
        calls(replace(FEATURES[feature].trial, pods=6, groups=1, queues=1, per_node=2), nodes)
        for nodes in RANGES["growth"]["nodes"]
    )
    check(RANGES["growth"]["ratio"], {wave: many[wave] / few[wave] for wave in few}, f"{feature}: {few} became {many}")


@pytest.mark.parametrize("feature", RANGES["changed"]["features"])
def test_one_changed_object_takes_no_more_steps_on_more_nodes(feature: str) -> None:
    counts = []
    for nodes in RANGES["changed"]["nodes"]:
        trial = FEATURES[feature].trial
        cluster, counter = Cluster(trial, nodes, Engine(trial.policy(), registry=discover())), Calls()
        with cluster.wave(1, 1):
            decide = cluster.successive()
            decide()
            cluster.change()
            with counter.counted():
                decide()
        counts.append(counter.made)
    few, many = counts
    check(RANGES["changed"]["ratio"], {"tick": many / few}, f"{feature}: {few} became {many}")


@pytest.mark.one_in(5)
@pytest.mark.parametrize("feature", RANGES["own"]["features"])
def test_a_pod_unlike_all_others_takes_so_many_steps(feature: str) -> None:
    few, many = (
        calls(replace(FEATURES[feature].trial, pods=pods, per_node=2), 64)["success"] for pods in RANGES["own"]["pods"]
    )
    more = RANGES["own"]["pods"][1] - RANGES["own"]["pods"][0]
    check(RANGES["own"]["calls"], {"success": (many - few) / more}, f"{feature}: {(many - few) / more:.0f} for a pod")


@pytest.mark.parametrize("feature", RANGES["mass"]["features"])
def test_a_pod_that_the_budget_does_not_reach_takes_so_many_steps(feature: str) -> None:
    def vain(pods: int) -> int:
        trial = replace(FEATURES[feature].trial, pods=pods)
        text = f"{trial.policy()}\nsession: {{steps: {RANGES['mass']['steps']}}}\n"
        cluster, counter = Cluster(trial, 16, Engine(text, registry=discover())), Calls()
        with cluster.wave(pods, pods):
            decide = cluster.successive()
            decide()
            with counter.counted():
                decide()
        return counter.made

    least, most = RANGES["mass"]["pods"]
    more = (vain(most) - vain(least)) / (most - least)
    check(RANGES["mass"]["calls"], {"pod": more}, f"{feature}: {more:.0f} for a pod")


@pytest.mark.parametrize("steps", [0, 10**12], ids=["no budget", "more than enough"])
def test_a_turn_takes_no_steps_for_what_no_pod_uses(steps: int) -> None:
    ranges, counts = RANGES["turns"], []
    for pods in ranges["pods"]:
        elastic = replace(FEATURES["default, elastic"].trial, pods=pods, groups=4)
        alone = replace(elastic, groups=pods)
        more = f"session: {{steps: {steps}}}"
        counts.append(
            {
                "success": calls(elastic, ranges["nodes"], more)["success"],
                "vain": calls(alone, ranges["nodes"], more)["vain"],
            }
        )
    few, many = counts
    number = ranges["pods"][1] - ranges["pods"][0]
    of_turn = {wave: (many[wave] - few[wave]) / number for wave in few}
    check(ranges["calls"], of_turn, f"{of_turn}")


@pytest.mark.parametrize("feature", RANGES["on_node"]["features"])
def test_alike_pods_that_depend_on_pods_of_their_node_ask_no_other_node_again(feature: str) -> None:
    trial = FEATURES[feature].trial
    cluster = Cluster(replace(trial, pod=lambda _: trial.pod(0)), 64, Engine(trial.policy(), registry=discover()))
    with cluster.wave(20, 1):
        kernel = cluster.successive()().session.kernel
    counts = {"nodes_scored": kernel.nodes_scored, "nodes_rescored": kernel.nodes_rescored}
    check(RANGES["on_node"]["counts"], counts, f"{feature}: {counts}")


def test_nodes_are_not_scored_for_pods_that_none_has_room_for() -> None:
    trial = FEATURES["default, distinct, no pod fits"].trial
    cluster = Cluster(trial, 16, Engine(trial.policy(), registry=discover()))
    with cluster.wave(20, 20):
        session = cluster.successive()().session
    assert len(session.view.trace.pods) == 20
    assert session.kernel.nodes_scored == 0


@pytest.mark.parametrize("feature", [name for name in FEATURES if "unlike pods that" in name and "not fit" in name])
def test_gangs_that_were_searched_for_in_vain_cost_nothing_while_nothing_changes(feature: str) -> None:
    check_in_vain(feature, "Unschedulable")


def test_a_gang_that_never_fits_costs_nothing_while_nothing_changes() -> None:
    check_in_vain("64 unlike pods that never fit", "CannotBePlacedTogether")


def check_in_vain(feature: str, reason: str) -> None:
    """Gangs wait for a reason, and a search says so once."""
    trial = FEATURES[feature].trial
    gangs = min(trial.groups_in_vain, 5)
    cluster = Cluster(trial, 100, Engine(trial.policy(), registry=discover()).unbounded())
    with cluster.wave(64 * gangs, gangs):
        decide = cluster.successive()
        first, again = decide().session, decide().session
        whys = [why_job(again, again.view.jobs[f"default/new-{number}"]) for number in range(gangs)]
    assert first.kernel.steps > 0
    assert again.kernel.steps == 0
    assert {why.reason for why in whys if why is not None} == {reason}


def test_placed_pods_that_stay_are_not_counted_again() -> None:
    trial = FEATURES["default, gang"].trial
    cluster = Cluster(trial, 16, Engine(trial.policy(), registry=discover()))
    decide = cluster.successive()
    decide()
    with cluster.wave(3, 1):
        assert decide().session.view.membership.looked_at == 3
        assert decide().session.view.membership.looked_at == 0
    assert decide().session.view.membership.looked_at == 0


#: trials whose queues deserve more than few nodes have, so that none takes anything back there
_LARGE = {"reclaim under capacity", "reclaim, limits on borrowing and lending"}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "feature",
    [
        name
        for name, each in FEATURES.items()
        if _EVICTING & {*each.trial.actions.split(", ")} and not each.trial.always_vain and name not in _LARGE
    ],
)
def test_of_pods_that_evict_others_all_get_places(feature: str) -> None:
    trial = FEATURES[feature].trial
    cluster = Cluster(trial, 64, Engine(trial.policy(), registry=discover()).unbounded())
    with cluster.wave(trial.pods, trial.groups):
        assert len(cluster.successive()().session.evicted) == trial.pods


@pytest.mark.one_in(5)
@pytest.mark.parametrize("feature", RANGES["evictions"]["features"])
def test_more_full_nodes_take_no_more_steps(feature: str) -> None:
    trial = replace(FEATURES[feature].trial, pods=6, groups=2)
    few, many = (calls(trial, nodes) for nodes in RANGES["evictions"]["nodes"])
    check(RANGES["evictions"]["ratio"], {wave: many[wave] / few[wave] for wave in few}, f"{few} became {many}")


def test_a_queue_at_its_limit_takes_no_more_steps_where_more_could_go() -> None:
    full = FEATURES["preempt"].trial

    def placed(number: int) -> dict[str, Any]:
        return {**full.placed(number), "started": f"2020-01-01T00:{number // 60:02}:{number % 60:02}Z"}

    def trial(nodes: int) -> Trial:
        limit = {"capability": {"cpu": str(16 * nodes)}}
        return replace(full, placed=placed, queue=lambda _: limit, pods=6, groups=2, per_node=4)

    few, many = (calls(trial(nodes), nodes)["success"] for nodes in RANGES["limited"]["nodes"])
    check(RANGES["limited"]["ratio"], {"success": many / few}, f"{few} became {many}")


def test_more_racks_for_sub_groups_take_no_more_steps() -> None:
    trial = replace(FEATURES["hard topology with sub groups"].trial, pods=64, groups=1, per_node=2)
    few, many = (calls(trial, nodes)["success"] for nodes in RANGES["racks"]["nodes"])
    check(RANGES["racks"]["ratio"], {"success": many / few}, f"{few} became {many}")


@pytest.mark.parametrize("feature", RANGES["members"])
def test_more_pods_of_a_job_take_more_steps_in_proportion(feature: str) -> None:
    ranges = dict(RANGES["members"][feature])
    least, most = ranges.pop("pods")
    trial = replace(FEATURES[feature].trial, per_node=2)
    trial = replace(trial, queues=min(trial.queues, least), groups=min(trial.groups, least))
    few, many = (calls(replace(trial, pods=pods), 40)["success"] / pods for pods in (least, most))
    check(ranges, {"ratio": many / few}, f"{few:.0f} calls for a pod became {many:.0f}")


@pytest.mark.parametrize("feature", RANGES["preemptors"]["features"])
def test_more_pods_for_which_none_may_be_evicted_take_more_steps_in_proportion(feature: str) -> None:
    def vain(pods: int) -> int:
        return calls(replace(FEATURES[feature].trial, pods=pods, groups=pods), 16)["vain"]

    least, most = RANGES["preemptors"]["pods"]
    middle = (least + most) // 2
    few, many = ((vain(more) - vain(less)) / (more - less) for less, more in ((least, middle), (middle, most)))
    check(RANGES["preemptors"]["ratio"], {"vain": many / few}, f"{few:.0f} calls for a pod became {many:.0f}")


@pytest.mark.parametrize("feature", RANGES["queues"]["features"])
def test_a_queue_more_takes_so_many_steps_while_nothing_changes(feature: str) -> None:
    def idle(number: int) -> int:
        trial = replace(FEATURES[feature].trial, queues=number)
        decide = Cluster(trial, 16, Engine(trial.policy(), registry=discover())).successive()
        decide()
        counter = Calls()
        with counter.counted():
            decide()
        return counter.made

    least, most = RANGES["queues"]["number"]
    more = (idle(most) - idle(least)) / (most - least)
    check(RANGES["queues"]["calls"], {"queue": more}, f"{feature}: {more:.0f} for a queue")


@pytest.mark.exhaustive
def test_the_figures_of_a_feature() -> None:
    figures = measure(replace(FEATURES["preempt"].trial, pods=16, groups=2), 4, 1)
    assert figures.evicted == 16
    assert figures.success > 0
    assert figures.vain > 0
    assert figures.mebibytes > 10


def test_features_are_chosen_by_a_part_of_their_names() -> None:
    refused = CliRunner().invoke(make_app(), ["bench", "matrix", "--feature", "host prot"])
    assert refused.exit_code == 2
    assert "no such feature" in refused.output


@pytest.mark.perf
def test_one_json_object_for_each_feature() -> None:
    name = "a host port of its own"
    result = CliRunner().invoke(make_app(), ["bench", "matrix", "--feature", name, "--nodes", "4", "--json"])
    assert json.loads(result.output)["feature"] == name
