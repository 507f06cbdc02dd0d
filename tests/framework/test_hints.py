"""Hints for speed: what they say holds for subclasses, too, and never for methods that they were not written for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from stromboli.cli.plugins import markdown
from stromboli.discovery import discover
from stromboli.framework.plugin.base import DECLARED, HINTS, POINTS, Plugin
from stromboli.framework.plugin.combination import Combination
from stromboli.framework.plugin.definition import public_methods
from stromboli.framework.runtime.combiners import COMBINERS
from stromboli.framework.runtime.points import Points
from stromboli.plugins.binpack import Binpack
from stromboli.plugins.cdp import Cdp
from stromboli.plugins.drf import Drf
from stromboli.plugins.nodeorder import NodeOrder
from stromboli.plugins.priority import Priority
from stromboli.policy.model import PluginOption
from stromboli.state.pods import PodRecord


class Unsteady(Plugin):
    name = "unsteady"

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> None:
        return None


def points(*tiers: type[Plugin]) -> Points:
    """One plugin in each tier."""
    return Points([[(plugin(), PluginOption(plugin.name))] for plugin in tiers])


def subclass(plugin: type[Plugin], *overriding: str) -> type[Plugin]:
    """A plugin of one's own that overrides some methods, to do the same."""
    return type("Own", (plugin,), {name: _the_same(plugin, name) for name in overriding})


def _the_same(plugin: type[Plugin], name: str) -> Any:
    def method(self: Plugin, *subject: Any) -> Any:
        return getattr(plugin, name)(self, *subject)

    return method


class ByShare(Unsteady):
    by_share = True


@pytest.mark.parametrize("plugin", [Drf, Priority, subclass(Drf), subclass(Priority)])
def test_a_subclass_decides_for_lower_tiers_as_its_base_does(plugin: type[Plugin]) -> None:
    assert "preemptable_jobs" in plugin.taking_part
    assert points(plugin, Unsteady).steady("preemptable") == plugin.steady
    assert points(type("First", (plugin,), {"by_share": False}), ByShare).by_share("preemptable") is False


def test_a_subclass_that_overrides_victims_loses_the_hints_about_them() -> None:
    own = subclass(Priority, "preemptable")
    assert not points(own, Unsteady).steady("preemptable")
    assert not points(own).steady("preemptable")
    assert "preemptable_jobs" not in own.taking_part
    assert points(subclass(Cdp, "preemptable")).steady("reclaimable")


@pytest.mark.parametrize("plugin", [NodeOrder, Binpack])
def test_scores_that_are_overridden_are_not_known_by_amounts(plugin: type[Plugin]) -> None:
    assert "by_amounts" in subclass(plugin).taking_part
    assert "by_amounts" in subclass(plugin, "node_order", "by_amounts").taking_part
    assert "by_amounts" not in subclass(plugin, "node_order").taking_part


def test_each_point_declares_how_answers_become_one_and_the_page_says_so() -> None:
    life = {"open", "close", "leave"}
    assert {name for name, _ in public_methods(Plugin)} == {*POINTS, *life}
    page = markdown(discover())
    for name, declared in DECLARED.items():
        assert re.search(rf"^\| `{name}[`(]", page, re.MULTILINE)
        assert declared.combination.value in page
        assert declared.about == () or name in HINTS
    assert set(Combination) == {declared.combination for declared in DECLARED.values()}
    assert set(COMBINERS) < set(Combination)
