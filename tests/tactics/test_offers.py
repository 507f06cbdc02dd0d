"""Offers: bundles are looked at as far as they are needed, and decisions are those of looking at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.framework.plugin import Plugin
from stromboli.framework.registry import Registry
from stromboli.framework.session import Session
from stromboli.tactics import offers
from stromboli.tactics.bundles import bundles
from stromboli.tactics.offers import Offers
from tests.builders import NOON, node, pod, pod_group, policy, queue, state
from tests.fuzz import tried

TIERS = ("priority gang conformance {shares}", "predicates nodeorder unhurried")
KNOWN = discover()


class Unhurried(Plugin):
    """Has no opinion, and does not promise to judge in turn."""

    name = "unhurried"

    def reclaimable(self, pod: Any, candidates: Any) -> None:
        return None


class Hurried(Unhurried):
    name = "unhurried"
    in_turn = True


def engine(plugin: type[Plugin], shares: str, compatibility: Any = "strict") -> Engine:
    registry = Registry(KNOWN.actions, KNOWN.plugins | {"unhurried": plugin})
    text = policy(*(tier.format(shares=shares) for tier in TIERS), actions="allocate, gangreclaim")
    return Engine(text, registry=registry, compatibility=compatibility)


@st.composite
def clusters(draw: st.DrawFn) -> list[Any]:
    """A full cluster, and a gang that wants some of it back."""
    objs: list[Any] = [queue("a"), queue("b"), queue("c"), queue("d", reclaimable=draw(st.booleans()))]
    sizes = draw(st.lists(st.integers(1, 4), min_size=3, max_size=8))
    places = [f"n{number % 4}" for number in range(sum(sizes))]
    cpu = draw(st.sampled_from(("1", "2")))
    objs += [node(f"n{number}", cpu=str(int(cpu) * -(-len(places) // 4))) for number in range(4)]
    for number, size in enumerate(sizes):
        asks = {"volcano.sh/preemptable": draw(st.sampled_from(("true", "true", "true", "false")))}
        name, of = f"j{number}", draw(st.sampled_from(("a", "b", "d")))
        objs.append(pod_group(name, draw(st.integers(0, size + 1)), queue=of, phase="Running"))
        objs += [pod(f"{name}-{n}", name, cpu=cpu, node=places.pop(), annotations=asks) for n in range(size)]
    wanted = draw(st.integers(1, 5))
    objs.append(pod_group("wants", wanted, queue="c"))
    return [*objs, *(pod(f"wants-{n}", "wants", cpu=draw(st.sampled_from(("1", cpu)))) for n in range(wanted))]


@tried(25)
@given(clusters(), st.sampled_from(("proportion", "drf proportion")))
def test_looking_at_few_decides_as_looking_at_all(objs: list[Any], shares: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offers, "_FIRST", 1)
        few = engine(Hurried, shares).decide(state(*objs).snapshot(), now=NOON)
    assert few.decisions == engine(Unhurried, shares).decide(state(*objs).snapshot(), now=NOON).decisions


@tried(25)
@given(clusters(), st.sampled_from(("strict", "volcano")))
def test_the_order_is_that_of_all_bundles_sorted(objs: list[Any], compatibility: str) -> None:
    def check(self: Offers, order: Any) -> Any:
        session: Session = self._session
        made = [
            bundle
            for job in self._jobs.tolist()
            for bundle in bundles(session, session.view.jobs.at(job), session.view.records(self._rows_of(job)))
        ]
        made.sort(key=lambda bundle: (bundle.whole, order.key(bundle)))
        for bundle, expected in zip(sorted_as_needed(self, order), made, strict=True):
            assert (bundle.job, bundle.whole) == (expected.job, expected.whole)
            yield bundle

    sorted_as_needed = Offers._sorted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Offers, "_sorted", check)
        engine(Unhurried, "proportion", compatibility).decide(state(*objs).snapshot(), now=NOON)
