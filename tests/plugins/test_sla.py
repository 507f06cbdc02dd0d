"""sla: jobs that have waited long enough."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.decisions import Evict
from stromboli.api.errors import PolicyError
from stromboli.engine import Engine
from tests import builders
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.expectations.world import CLASSES
from tests.plugins.sessions import decide, policy

#: seconds since the epoch of PodGroups that the builders create at 0
CREATED = 1_704_067_200.0


def group(name: str, waiting_time: str = "", **spec: object):
    made = pod_group(name, phase="Pending", minResources={"cpu": "8"}, **spec)
    made.metadata.annotations.update({"sla-waiting-time": waiting_time} if waiting_time else {})
    return made


def admitted(*groups, now: float, arguments=None) -> set[str]:
    """The jobs that are admitted though the cluster is full."""
    text = policy("overcommit", actions="enqueue").replace(
        "- name: gang\n", "- name: gang\n  - name: sla\n" + _arguments(arguments)
    )
    full = node("n1", cpu="8"), pod("alien", scheduler="other", node="n1", cpu="8")
    session = decide(*full, *groups, by=text, now=now).session
    return {job.name for job in session.view.jobs.values() if job.phase == "Inqueue"}


def _arguments(arguments) -> str:
    if arguments is None:
        return ""
    return "    arguments:\n" + "".join(f"      {key}: {value}\n" for key, value in arguments.items())


def test_an_overdue_job_is_admitted_against_lower_tiers() -> None:
    assert admitted(group("old", "10m"), now=CREATED + 599) == set()
    assert admitted(group("old", "10m"), now=CREATED + 600) == {"old"}


def test_the_annotation_outweighs_the_argument() -> None:
    jobs = [group("own", "1h"), group("usual")]
    assert admitted(*jobs, now=CREATED + 120, arguments={"sla-waiting-time": "1m30s"}) == {"usual"}


@pytest.mark.parametrize("written", ["soon", "-5m", "0"])
def test_an_annotation_that_cannot_be_used_is_none(written: str) -> None:
    assert admitted(group("odd", written), now=CREATED + 10**6) == set()
    assert admitted(group("odd", written), now=CREATED + 10**6, arguments={"sla-waiting-time": "1s"}) == {"odd"}


def test_the_earliest_deadline_comes_first() -> None:
    late, early, none = pod_group("a-late"), pod_group("b-early"), pod_group("0-none")
    late.metadata.annotations["sla-waiting-time"] = "2h"
    early.metadata.annotations["volcano.sh/sla-waiting-time"] = "1h"
    pods = [pod(name, name.rpartition("-")[0]) for name in ("a-late-0", "b-early-0", "0-none-0")]
    session = decide(node("n1", cpu="1"), late, early, none, *pods, by=policy("sla")).session
    assert list(session.bound) == ["default/b-early-0"]


def test_an_argument_that_is_no_duration_is_an_error() -> None:
    with pytest.raises(PolicyError, match=r"sla-waiting-time: 'tomorrow' is not a duration"):
        decide(by=policy("sla", {"sla-waiting-time": "tomorrow"}), now=NOON)


# -- places that are kept --------------------------------------------------------------------------------------------


def places_of_late_job(tiers: tuple[str, ...], now: float, rules: Any = "strict") -> dict[str, str]:
    """The pods that are bound where a gang of two has one place of two, and a job that came later wants it."""
    late, other = pod_group("late", 2), pod_group("other", 1, created=60)
    late.metadata.annotations["sla-waiting-time"] = "10m"
    pods = [pod("late-0", "late", cpu="2"), pod("late-1", "late", cpu="2"), pod("other-0", "other", cpu="2")]
    full = node("full", cpu="2"), pod("alien", scheduler="other", node="full", cpu="2")
    cluster = state(queue("default"), node("n", cpu="2"), *full, late, other, *pods)
    by = builders.policy(*tiers)
    return dict(Engine(by, compatibility=rules).decide(cluster.snapshot(), now=now).session.bound)


@pytest.mark.parametrize("tiers", [("priority gang sla", "predicates"), ("sla", "gang predicates")])
def test_an_overdue_gang_keeps_the_places_that_it_finds(tiers: tuple[str, ...]) -> None:
    assert set(places_of_late_job(tiers, CREATED + 599)) == {"default/other-0"}
    assert places_of_late_job(tiers, CREATED + 600) == {}


def test_under_volcanos_rules_it_keeps_them_from_a_tier_above_only() -> None:
    assert places_of_late_job(("gang sla", "predicates"), CREATED + 600, "volcano")
    assert not places_of_late_job(("sla", "gang predicates"), CREATED + 600, "volcano")


def test_a_policy_in_which_sla_is_not_heard_says_so() -> None:
    assert Engine(builders.policy("gang sla", "overcommit predicates")).notes == []
    lines = Engine(builders.policy("gang overcommit", "sla predicates")).notes
    assert [line.partition(":")[0] for line in lines] == ["tiers[1].plugins[0]"] * 2
    assert "what sla permits at job_pipelined is not heard where gang rejects" in lines[1]
    assert len(Engine(builders.policy("gang sla"), compatibility="volcano").notes) == 1


def test_an_overdue_gang_starts_where_it_has_places_in_another_order() -> None:
    late = pod_group("late", 2)
    late.metadata.annotations["sla-waiting-time"] = "10m"
    nodes = node("large", cpu="4"), node("small", cpu="2")
    pods = pod("late-0", "late", cpu="2"), pod("late-1", "late", cpu="4")
    cluster = state(queue("default"), *nodes, late, *pods)
    engine = Engine(builders.policy("gang sla", "predicates"))
    bound = engine.decide(cluster.snapshot(), now=CREATED + 600).session.bound
    assert bound == {"default/late-0": "small", "default/late-1": "large"}


@pytest.mark.parametrize(
    "tiers", [("priority gang sla", "predicates capacity"), ("sla", "priority gang predicates capacity")]
)
@pytest.mark.parametrize("action", ["preempt", "gangpreempt", "reclaim", "gangreclaim"])
@pytest.mark.parametrize("spared", [1, 2])
def test_an_overdue_gang_evicts_others_only_to_start(tiers: tuple[str, ...], action: str, spared: int) -> None:
    """The gang needs two of three places; of these as many can be had as `spared` pods hold."""
    theirs = "theirs" if "reclaim" in action else "mine"
    late = pod_group("late", 2, "mine", created=60, priorityClassName="high")
    late.metadata.annotations["sla-waiting-time"] = "10m"
    objs: list[Any] = [*CLASSES, node("n", cpu="3"), late, pod_group("low", 1, theirs, "Running")]
    objs += [queue("mine", deserved={"cpu": "3"}), queue("theirs", deserved={"cpu": "0"})]
    objs += [pod(f"low-{number}", "low", node="n") for number in range(spared)]
    objs += [pod(f"alien-{number}", scheduler="other", node="n") for number in range(3 - spared)]
    objs += [pod("late-0", "late", priority=100), pod("late-1", "late", priority=100)]
    by = builders.policy(*tiers, actions=f"allocate, {action}")
    decisions = Engine(by).decide(state(objs).snapshot(), now=CREATED + 3600).decisions
    assert sum(isinstance(each, Evict) for each in decisions) == (2 if spared == 2 else 0)


@pytest.mark.parametrize("sizes", [("1", "3"), ("2", "3"), ("3", "2"), ("1", "1", "3"), ("1",) * 5])
@pytest.mark.parametrize("actions", ["allocate", "allocate, backfill", "allocate, allocate"])
@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_an_overdue_gang_that_borrows_starts_as_a_whole(sizes: tuple[str, ...], actions: str, plugin: str) -> None:
    """It keeps places within its queue's share, and is lent the rest, which the other queue cannot use."""
    late, large = pod_group("late", len(sizes), "mine"), pod_group("large", 1, "theirs")
    late.metadata.annotations["sla-waiting-time"] = "10m"
    half = {"cpu": "2500m"}
    objs: list[Any] = [node("n", cpu="5"), late, large, pod("large-0", "large", cpu="4")]
    objs += [queue("mine", priority=1, deserved=half), queue("theirs", deserved=half)]
    objs += [pod(f"late-{number}", "late", cpu=cpu) for number, cpu in enumerate(sizes)]
    engine = Engine(builders.policy("priority gang sla", f"predicates {plugin}", actions=actions))
    bound = engine.decide(state(objs).snapshot(), now=CREATED + 600).session.bound
    assert len(bound) == len(sizes)
