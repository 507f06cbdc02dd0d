"""The cheapest victims: where a plugin looks again at the node that a pod gets, and what is kept of what was asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.decisions import Evict
from stromboli.api.pod_state import HELD
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import fits
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.eviction import context
from stromboli.eviction.held_amounts import CostBounds, HeldAmounts
from stromboli.eviction.ordering import NO_VICTIMS, ascending
from stromboli.eviction.pod_index import PodIndex
from stromboli.framework import Plugin, PodRecord, View
from stromboli.framework.registry import Registry
from stromboli.state.pods import PREEMPTABLE
from tests.actions.evictions import nominated
from tests.builders import NOON, node, pod, pod_group, policy, queue, state
from tests.expectations.test_preemption import CLASSES, gone, job, wants
from tests.fuzz import tried

KNOWN = discover()


def decided(cluster: list[Any], plugin: type[Plugin] | None, text: str) -> Any:
    registry = KNOWN if plugin is None else Registry(KNOWN.actions, KNOWN.plugins | {plugin.name: plugin})
    return Engine(text, registry=registry).decide(state(CLASSES, queue("default"), *cluster).snapshot(), now=NOON)


class Picky(Plugin):
    """Refuses a node to the pods of one job, as a plugin that gives out single devices may."""

    name = "picky"

    def open(self, view: View) -> None:
        self._refused = view.nodes.facts.index["b"]

    def refusal(self, pod: PodRecord, node: int) -> Reason | None:
        if node != self._refused or pod.job != "default/wants":
            return None
        return Reason(Stage.Placement, "Picky", "not this one", Actionable.User)


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_no_pod_is_promised_a_node_that_a_plugin_refuses(action: str) -> None:
    """What the gang leaves on b would do for the second pod, but for the plugin: so the dearer one on c goes, too."""
    nodes = [node(name, cpu="1") for name in "abc"]
    cluster = [*nodes, *job("gang", "a", "b", least=2), *job("dear", "c", of="middle"), *wants(2)]
    text = policy("priority gang", "predicates picky", actions=f"enqueue, allocate, {action}")
    result = decided(cluster, Picky, text)
    assert sorted(nominated(result).values()) == ["a", "c"]
    assert gone(result) == {"gang": 2, "dear": 1}


class OneEach(Plugin):
    """Refuses a node to a second pod of a job."""

    name = "one-each"

    def open(self, view: View) -> None:
        self._view = view

    def refusal(self, pod: PodRecord, node: int) -> Reason | None:
        others = self._view.records(np.flatnonzero(self._view.pods.node == node))
        if all(other.job != pod.job for other in others):
            return None
        return Reason(Stage.Placement, "OneEach", "one of the job is there", Actionable.User)


def test_a_node_may_refuse_pods_after_it_took_one() -> None:
    """Both could have their place on a, where room is for two: the second goes to b, whatever is given back then."""
    cluster = [
        node("a", cpu="2"),
        node("b", cpu="1"),
        *job("cheap", "a", "a"),
        *job("dear", "b", of="middle"),
        *wants(2),
    ]
    result = decided(
        cluster, OneEach, policy("priority gang", f"predicates {OneEach.name}", actions="allocate, preempt")
    )
    assert sorted(nominated(result).values()) == ["a", "b"]
    assert gone(result) == {"cheap": 1, "dear": 1}


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize(("sizes", "wanted", "victim"), [((1, 4, 1, 1, 1), 4, "j-1"), ((3, 2, 2), 3, "j-0")])
def test_one_large_pod_is_given_back_rather_than_small_ones_that_come_first(
    action: str, sizes: tuple[int, ...], wanted: int, victim: str
) -> None:
    """Small pods that are asked about first use up what their queue may give, in the second case in vain."""
    kept = sum(sizes) - wanted
    cluster = [
        node("a", cpu=f"{sum(sizes)}"),
        *(queue("mine", weight=wanted), queue("theirs", weight=kept)),
        pod_group("j", 1, "theirs", "Running"),
        *(pod(f"j-{at}", "j", cpu=f"{cpu}", memory="", node="a") for at, cpu in enumerate(sizes)),
        *(pod_group("wants", 1, "mine"), pod("wants-0", "wants", cpu=f"{wanted}", memory="")),
    ]
    text = policy("priority gang conformance", "predicates proportion", actions=f"allocate, {action}")
    decisions = decided(cluster, None, text).decisions
    assert [each.name for each in decisions if isinstance(each, Evict)] == [victim]


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_a_pod_that_its_gang_can_spare_is_given_back_rather_than_a_gang_that_comes_first(action: str) -> None:
    """The last two jobs are asked about first, and use up what their queue may give."""
    cluster = [node("a", cpu="4"), queue("mine"), queue("theirs")]
    for number, least in enumerate((0, 1, 1, 1)):
        cluster.append(pod_group(f"j{number}", least, "theirs", "Running", created=number))
        cluster.append(pod(f"j{number}-0", f"j{number}", memory="", node="a"))
    cluster += [pod_group("wants", 1, "mine", created=9), pod("wants-0", "wants", memory="")]
    text = policy("priority gang conformance", "predicates proportion", actions=f"allocate, {action}")
    decisions = decided(cluster, None, text).decisions
    assert [each.name for each in decisions if isinstance(each, Evict)] == ["j0-0"]


@st.composite
def clusters(draw: st.DrawFn) -> list[Any]:
    """Nodes full of jobs, and a few others that are more important than some of them."""
    few, priority = st.integers(1, 3), st.sampled_from(("low", "low", "middle", "high"))
    names = [f"n{number}" for number in range(draw(st.integers(2, 5)))]
    objs: list[Any] = [node(name, cpu=str(draw(st.integers(2, 4)))) for name in names]
    for number in range(draw(st.integers(3, 6))):
        on = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4))
        more = {"cpu": str(draw(few)), "annotations": {PREEMPTABLE: draw(st.sampled_from(("true", "true", "false")))}}
        objs += job(f"j{number}", *on, of=draw(priority), least=draw(st.integers(0, len(on))), **more)
    for number in range(draw(few)):
        count, cpu = draw(st.integers(1, 4)), str(draw(few))
        objs.append(pod_group(f"w{number}", draw(st.integers(1, count)), priorityClassName=draw(priority)))
        objs += [pod(f"w{number}-{n}", f"w{number}", cpu=cpu, memory="") for n in range(count)]
    return objs


@tried(15)
@given(clusters(), st.sampled_from(("preempt", "gangpreempt")), st.sampled_from(("", "drf", "pdb")))
def test_what_is_kept_of_earlier_purchases_decides_as_asking_anew(cluster: list[Any], action: str, more: str) -> None:
    text = policy(f"priority gang conformance {more}", "predicates nodeorder binpack", actions=f"allocate, {action}")
    kept = decided(cluster, None, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "_MOST_KINDS", 0)
        anew = decided(cluster, None, text)
    assert kept.decisions == anew.decisions


@tried(15)
@given(clusters(), st.data())
def test_bounds_follow_evictions_and_are_those_of_a_plain_loop(cluster: list[Any], data: st.DataObject) -> None:
    session = decided(cluster, None, policy("priority", "predicates", actions="enqueue")).session
    view, pod_index, request = session.view, PodIndex(session, HELD), np.array([1500.0, 0, 1])
    request = np.concatenate([request, np.zeros(len(view.dimensions) - 3)])
    candidates = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(pod_index.rows), max_size=len(pod_index.rows))), np.bool_
    )
    bounds = CostBounds(session, HeldAmounts(session, pod_index, candidates), request)
    for row in data.draw(st.lists(st.sampled_from(pod_index.rows.tolist()), max_size=4, unique=True)):
        statement = session.statement()
        statement.evict(view.record(row), "preempt")
        bounds.refresh()
        if data.draw(st.booleans()):
            statement.discard()
            bounds.refresh()
    for node_row in range(len(view.nodes)):
        at = [n for n in np.flatnonzero(candidates & pod_index.alive()).tolist() if pod_index.node[n] == node_row]
        ranks, room = [NO_VICTIMS], view.nodes.future_idle(node_row)
        for number in sorted(at, key=lambda n: pod_index.ranks.rank[n]):
            if fits(request, room):
                break
            room = room + view.request(view.record(int(pod_index.rows[number])))
            ranks.append(int(pod_index.ranks.rank[number]))
        expected = ranks[-1] if fits(request, room) else np.iinfo(np.intp).max
        assert bounds.level[node_row] == expected


@tried(15)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99)), max_size=80))
def test_entries_of_columns_are_a_heap(known: list[tuple[int, int]]) -> None:
    assert ascending(*np.array(known, np.intp).reshape(-1, 2).T) == sorted(known)
