"""Names that people know from Volcano's documents work."""

from __future__ import annotations

import pytest

from stromboli.api.errors import PolicyError
from stromboli.engine import Engine
from tests.builders import decide, gang, node, pod_group, policy, queue, state

ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize("written", ["numaaware", "numa-aware"])
def test_numa_aware(written: str) -> None:
    options = Engine(policy(f"gang {written}")).policy.tiers[0].plugins
    assert [option.name for option in options] == ["gang", "numa-aware"]
    assert options[1].arguments is not None


def test_two_spellings_of_one_plugin_are_one_plugin() -> None:
    with pytest.raises(PolicyError, match="'numa-aware' is listed twice"):
        Engine(policy("numaaware numa-aware"))


@pytest.mark.parametrize("action", ["allocate", "backfill", "preempt", "reclaim"])
@pytest.mark.parametrize("written", ["enablePredicateErrorCache", "predicateErrorCacheEnable"])
def test_the_cache_of_predicate_errors(action: str, written: str) -> None:
    text = policy("gang", actions=action) + f"\nconfigurations: [{{name: {action}, arguments: {{{written}: false}}}}]"
    assert action in Engine(text).policy.action_arguments
    with pytest.raises(PolicyError, match=written):
        Engine(text.replace("false", "perhaps"))


def spread(weight: int, zones: str = "    ") -> list[str]:
    """Where four pods go on four nodes that binpack would fill one after the other; a letter for each node's zone."""
    nodes = [node(f"n{i}", labels={ZONE: zone} if zone.strip() else {}) for i, zone in enumerate(zones)]
    text = policy("gang predicates binpack nodeorder") + f"\n    arguments: {{selectorspread.weight: {weight}}}"
    return sorted(decide(state(queue("default"), nodes, pod_group("x", 4), gang("x", 4)), text).session.bound.values())


def test_selector_spread() -> None:
    """It is off unless it is asked for. Zones count twice as much as nodes."""
    assert len(set(spread(0))) < 4
    assert spread(10) == ["n0", "n1", "n2", "n3"]
    assert [name in ("n0", "n1", "n2") for name in spread(10, "aaab")].count(True) == 2
