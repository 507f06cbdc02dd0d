"""Bundles: what gangs can lose and still run, and what goes as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.actions.gangreclaim import bundle_value
from stromboli.eviction.first_fit import bundles, permitted
from stromboli.eviction.units import Unit
from stromboli.framework.session.session import Session
from tests.builders import decide, node, pod, pod_group, policy, queue, state

BOTH = pytest.mark.parametrize("compatibility", ["volcano", "strict"])


def session_of(*objs: Any, compatibility: Any = "strict") -> Session:
    cluster = state(queue("default"), [node("n1"), node("n2")], *objs)
    return decide(cluster, policy("priority gang", actions="enqueue"), compatibility=compatibility).session


def offered(session: Session, on: str = "n1") -> list[tuple[bool, list[str]]]:
    """The bundles that the pods of job j on a node make: whether they are whole, and their pods' names."""
    job = session.view.jobs["default/j"]
    candidates = [member for member in session.view.members(job) if member.node_name == on]
    found = bundles(session, job, candidates)
    return [(bundle.whole, sorted(p.name for p in bundle.pods)) for bundle in found]


def member(name: str, role: str = "", group: str = "", on: str = "n1", **more: Any) -> Any:
    annotations = {"volcano.sh/task-spec": role} if role else {}
    return pod(name, "j", node=on, annotations=annotations, labels={"group": group} if group else {}, **more)


@BOTH
def test_the_least_important_pods_are_spared_most_easily(compatibility: Any) -> None:
    members = [member(f"j-{i}", priority=priority) for i, priority in enumerate((30, 10, 20))]
    session = session_of(pod_group("j", 1), members, compatibility=compatibility)
    assert offered(session) == [(False, ["j-1", "j-2"]), (True, ["j-0"])]


@BOTH
def test_every_role_keeps_its_minimum(compatibility: Any) -> None:
    members = [member("j-m", "master", priority=1), *(member(f"j-w{i}", "worker", priority=2) for i in range(3))]
    least = {"minTaskMember": {"master": 1, "worker": 1}}
    session = session_of(pod_group("j", 2, **least), members, compatibility=compatibility)
    assert offered(session) == [(False, ["j-w0", "j-w1"]), (True, ["j-m", "j-w2"])]


@BOTH
def test_as_many_groups_as_are_needed_stay_complete(compatibility: Any) -> None:
    members = [member(f"j-{g}{i}", group=g, priority=1 + (g == "a")) for g in "abc" for i in range(2)]
    groups = [{"name": "s", "subGroupSize": 2, "minSubGroups": 2, "matchLabelKeys": ["group"]}]
    session = session_of(pod_group("j", 2, subGroupPolicy=groups), members, compatibility=compatibility)
    safe, _ = offered(session)
    assert safe == (False, ["j-b0", "j-b1"])


@BOTH
def test_best_effort_pods_that_wait_make_up_for_roles_under_volcanos_rules(compatibility: Any) -> None:
    waiting = pod("j-w", "j", cpu="", memory="", annotations={"volcano.sh/task-spec": "worker"})
    members = [member("j-0", "worker"), member("j-1", "other"), waiting]
    session = session_of(pod_group("j", 1, minTaskMember={"worker": 1}), members, compatibility=compatibility)
    assert offered(session)[0] == (False, ["j-0"] if compatibility == "volcano" else ["j-1"])


def test_a_whole_bundle_goes_as_it_is_or_not_at_all() -> None:
    session = session_of(pod_group("j", 1), [member("j-0"), member("j-1"), member("j-2")])
    job = session.view.jobs["default/j"]
    pods = session.view.members(job)
    safe, whole = Unit(job, pods[:2], whole=False), Unit(job, pods[1:], whole=True)

    def left(allowed: Any) -> list[Any]:
        return [(bundle.whole, bundle.pods) for bundle in permitted([safe, whole], allowed)]

    assert left(pods) == [(False, pods[:2]), (True, pods[1:])]
    assert left(pods[:1]) == [(False, pods[:1])]
    assert left([]) == []


def test_worth_is_what_is_needed_of_it_by_what_the_gang_loses() -> None:
    session = session_of(pod_group("j", 4), [member(f"j-{i}", memory="") for i in range(4)])
    job = session.view.jobs["default/j"]
    pods = session.view.members(job)
    need = session.view.vector({"cpu": "2"})
    assert bundle_value(session, Unit(job, pods[:1], whole=False), need) == float("inf")
    assert bundle_value(session, Unit(job, pods[:1], whole=True), need) == pytest.approx(0.25)
    assert bundle_value(session, Unit(job, pods, whole=True), need) == pytest.approx(0.5)
    assert bundle_value(session, Unit(job, pods, whole=True), session.view.vector({})) == float("inf")
