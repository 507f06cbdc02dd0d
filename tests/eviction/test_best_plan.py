"""Evicting for a gang whose pods find places only all at once: what it costs where there are none."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.decisions import Evict
from stromboli.engine import DEFAULT_POLICY, Engine
from stromboli.eviction import best_plan
from stromboli.eviction.min_cost import MinCostSearch
from stromboli.explain.evictions import why_no_evictions
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.expectations.world import CLASSES

#: amounts that three nodes of 6 CPUs and 6Gi take, though not the largest first, and amounts that only four take
TIGHT = [(5, 2), (2, 2), (4, 4), (3, 4), (3, 1)]
NEVER = [(4, 4), (4, 4), (4, 4), (4, 4), (1, 1)]


def cluster(*gangs: list[tuple[int, int]], **spec: Any) -> list[Any]:
    objs = [*CLASSES, queue("default"), pod_group("low", 1, phase="Running")]
    for number in range(3):
        objs.append(node(f"n{number}", cpu="6", memory="6Gi"))
        objs += [pod(f"low-{number}-{at}", "low", node=f"n{number}", priority=1) for at in range(6)]
    objs += [node("n3", cpu="6", memory="6Gi"), pod_group("keep", 1, phase="Running", priorityClassName="high")]
    objs.append(pod("keep-0", "keep", cpu="5", memory="5Gi", node="n3", priority=9))
    for number, amounts in enumerate(gangs):
        name = f"g{number}"
        objs.append(pod_group(name, len(amounts), created=number, priorityClassName="high"))
        objs += [
            pod(f"{name}-{at}", name, cpu=f"{cpu}", memory=f"{gi}Gi", priority=9, **spec)
            for at, (cpu, gi) in enumerate(amounts)
        ]
    return objs


def _policy(action: str) -> str:
    return DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}")


def evicted(action: str, objs: list[Any], more: str = "") -> int:
    engine = Engine(_policy(action) + more)
    decisions = engine.decide(state(objs).snapshot(), now=NOON).decisions
    return sum(isinstance(each, Evict) for each in decisions)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that are searched for in any order."""
    found, read = list[str](), best_plan.read

    def counting(session: Any, job: Any, *arguments: Any, **more: Any) -> Any:
        found.append(job.name)
        return read(session, job, *arguments, **more)

    monkeypatch.setattr(best_plan, "read", counting)
    return found


@pytest.fixture
def victims(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs for whose pods victims are looked for."""
    found, run = list[str](), MinCostSearch.run

    def counting(search: Any) -> int:
        found.append(search._job.name)
        return run(search)

    monkeypatch.setattr(MinCostSearch, "run", counting)
    return found


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
class TestInVain:
    def test_equal_gangs_are_searched_for_once(self, action: str, searches: list[str]) -> None:
        assert evicted(action, cluster(NEVER, NEVER, NEVER)) == 0
        assert searches == ["g0"]

    def test_what_cannot_be_packed_is_looked_for_again_once_there_is_more_room(
        self, action: str, victims: list[str], searches: list[str]
    ) -> None:
        objs, engine = cluster(NEVER), Engine(_policy(action))
        # On the empty cluster there would be places: a pod that is not evicted holds one of them.
        objs.append(node("n4", cpu="6", memory="6Gi"))
        objs.append(pod("keep-1", "keep", cpu="5", memory="5Gi", node="n4", priority=9))
        first = engine.decide(state(objs).snapshot(), now=NOON)
        assert victims
        assert searches
        victims.clear()
        searches.clear()
        again = engine.decide(state(objs).snapshot(), now=NOON + 1, environment=first.environment)
        assert victims == searches == []
        assert again.environment.left == first.environment.left
        objs = [each for each in objs if each.metadata.name != "keep-1"]
        changed = engine.decide(state(objs).snapshot(), now=NOON + 2, environment=again.environment)
        assert any(isinstance(each, Evict) for each in changed.decisions)

    def test_without_a_budget_nothing_is_searched(self, action: str, searches: list[str]) -> None:
        assert evicted(action, cluster(TIGHT), "session: {search: 0}\n") == 0
        assert searches == []
        assert evicted(action, cluster(TIGHT)) == sum(cpu for cpu, _ in TIGHT)

    def test_amounts_that_are_not_there_are_not_searched_for(self, action: str, searches: list[str]) -> None:
        assert evicted(action, cluster([*TIGHT, (4, 5)])) == 0
        assert searches == []

    def test_no_victims_are_looked_for_where_their_amounts_are_not_enough(
        self, action: str, victims: list[str]
    ) -> None:
        assert evicted(action, cluster([*TIGHT, (4, 5)])) == 0
        assert victims == []
        assert evicted(action, cluster(TIGHT)) > 0
        assert victims != []

    def test_no_victims_are_looked_for_where_an_empty_cluster_would_not_do(
        self, action: str, victims: list[str]
    ) -> None:
        objs = cluster(TIGHT, ports=[{"containerPort": 80, "hostPort": 80}])
        assert evicted(action, objs) == 0
        assert victims == []
        session = Engine(_policy(action)).decide(state(objs).snapshot(), now=NOON).session
        # That it cannot be placed says all, and no other text that victims are kept.
        assert list(why_no_evictions(session, session.view.jobs["default/g0"])) == []
