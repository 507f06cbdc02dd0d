"""Each compatibility rule: a recorded scenario whose outcome is another when that rule alone is strict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.discovery import discover
from stromboli.simulation.outcome import outcome
from stromboli.simulation.scenario import Scenario

SCENARIOS = Path(__file__).parent / "scenarios"
SHOWN_BY = {
    "veto": "pdb-9004-budget-zero-in-a-lower-tier",
    "begun_first": "backfill-0012",
    "whole_gang_eviction": "preempt-0020",
    "evict_only_what_helps": "nominated-9003-nominated-node-gone-stops-preempt",
    "nominations": "gangnominate-0016",
    "readiness": "worked-0066-best-effort-counts-for-gang",
    "closed_queue": "backfill-0004",
    "deserved": "priority-0018",
    "tolerance": "priority-0018",
    "broken_queue": "worked-0058-hierarchy-without-root-queue",
    "admission": "worked-0069-phase-running-loses-pods",
    "predicate_cache": "predcache-9000-template-uid-shares-the-answer",
    "budgets": "pdb-9001-pod-without-labels-is-never-a-victim",
    "ancestor_shares": "hiercap-9000-from-the-other-parent",
    "volume_limits": "volumes-9001-unbound-local-volume-counts-as-csi-volume",
    "local_volumes": "volumes-9003-unbound-local-volume-with-proportion",
    "devices": "deviceshare-9010-vgpu-spread-gives-no-node-score",
    "extender_errors": "extender-9004-prioritize-answers-nothing",
    "missing_claims": "dra-0006",
    "shared_claims": "dra-9004-shared-claim-one-pod-per-session",
}
REGISTRY = discover()


def scenario(rule: str) -> dict[str, Any]:
    """The one that shows a rule."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document: dict[str, Any] = yaml.load((SCENARIOS / f"{SHOWN_BY[rule]}.yaml").read_text(), Loader=loader)
    return document


def run(document: dict[str, Any], config: str) -> dict[str, Any]:
    """The outcome of a scenario under Volcano's rules with another policy text."""
    return outcome(Scenario.parse(document | {"config": config}).run("volcano", registry=REGISTRY))


@pytest.mark.parametrize("rule", SHOWN_BY)
def test_a_rule_makes_the_difference(rule: str) -> None:
    document = scenario(rule)
    config = document["config"].rstrip()
    assert run(document, config) != run(document, f"{config}\nrules: {{{rule}: strict}}\n")


def test_where_gangs_are_evicted_whole_victims_are_searched_at_the_least_cost() -> None:
    document = scenario("whole_gang_eviction")
    config = document["config"].rstrip()
    whole = run(document, f"{config}\nrules: {{whole_gang_eviction: strict}}\n")
    both = run(document, f"{config}\nrules: {{whole_gang_eviction: strict, evict_only_what_helps: strict}}\n")
    assert whole["evicted"] == both["evicted"]
