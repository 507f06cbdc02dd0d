"""Jobs that wait in a tree of queues: limits, guarantees, what is borrowed, and what may be taken back."""

from __future__ import annotations

from typing import Any

from tests.e2e.situations.site import Site, Situation

POLICY = """
actions: "enqueue, allocate, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: pdb}]
- plugins: [{name: predicates}, {name: capacity, enableHierarchy: true}, {name: nodeorder}]
"""


def team(site: Site, children: dict[str, dict[str, Any]], **spec: Any) -> None:
    """The queue of the situation, with children: `{}` is its name."""
    site.queue(site.name, parent="root", **spec)
    for child, of_child in children.items():
        site.queue(f"{site.name}-{child}", **{"parent": site.name, **of_child})


def train(site: Site, child: str, pods: int = 1, least: int | None = None, **each: Any) -> None:
    site.train(pods, least, group={"queue": f"{site.name}-{child}"}, **each)


def runs(site: Site, child: str, pods: int, on: str, least: int = 1, **each: Any) -> None:
    site.runs("runs", pods, on, least, group={"queue": f"{site.name}-{child}"}, **each)


def _halves(site: Site, least: int = 1, **of_b: Any) -> None:
    """Two queues that deserve half a node each, all of which the second holds."""
    labels = of_b.pop("labels", {})
    team(site, {"a": {"deserved": {"cpu": "2"}}, "b": {"deserved": {"cpu": "2"}, **of_b}})
    runs(site, "b", 4, site.node(cpu="4"), least, labels=labels)
    train(site, "a")


def parent_is_full(site: Site) -> None:
    team(site, {"dev": {"deserved": {"cpu": "1"}}, "prod": {"deserved": {"cpu": "3"}}}, capability={"cpu": "4"})
    runs(site, "prod", 3, site.node())
    train(site, "dev", 2)


def not_a_leaf(site: Site) -> None:
    team(site, {"dev": {}})
    site.node()
    site.train()


def parent_misspelt(site: Site) -> None:
    team(site, {"dev": {"parent": f"{site.name}s"}})
    site.node()
    train(site, "dev")


def closed_above(site: Site) -> None:
    team(site, {"dev": {}})
    site.node()
    site.close(site.name)
    train(site, "dev")


def kept_for_a_sibling(site: Site) -> None:
    kept = {"deserved": {"cpu": "4"}, "guarantee": {"resource": {"cpu": "4"}}}
    team(site, {"dev": {}, "prod": kept}, capability={"cpu": "4"}, deserved={"cpu": "4"})
    site.node()
    train(site, "dev")


def above_the_parent(site: Site) -> None:
    team(site, {"dev": {}}, capability={"cpu": "4"})
    site.node()
    train(site, "dev", 5)


def borrows_no_more(site: Site) -> None:
    team(site, {"dev": {"deserved": {"cpu": "2"}, "borrowingLimit": {"cpu": "1"}}})
    runs(site, "dev", 3, site.node())
    train(site, "dev")


def gives_nothing_back(site: Site) -> None:
    _halves(site, reclaimable=False)


def gang_of_victims(site: Site) -> None:
    _halves(site, 4)


def budget_of_victims(site: Site) -> None:
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "web"}}}}
    site.put("/apis/policy/v1/poddisruptionbudgets", budget)
    _halves(site, labels={"app": "web"})


def deserves_nothing(site: Site) -> None:
    team(site, {"a": {}, "b": {"deserved": {"cpu": "4"}}})
    runs(site, "b", 4, site.node(cpu="4"))
    train(site, "a")


def takes_back(site: Site) -> None:
    _halves(site)


FULL = "no node is available: Insufficient cpu"
#: what is made, and what all say of it
TREES: dict[str, Situation] = {
    "parent": Situation(
        parent_is_full,
        "QueueCapabilityExceeded",
        "wait",
        ("queue {} has no capacity left in cpu", "holds 3, 1 more", "may have 4", "{}/runs in queue {}-prod: 3 pods"),
        ("wait until {}/runs ends", "raise capability of queue {} to 5 cpu"),
    ),
    "no-leaf": Situation(
        not_a_leaf, "QueueNotALeaf", "user", ("queue {} has child queues",), ("set queue: {}-dev in PodGroup {}/train",)
    ),
    "orphan": Situation(
        parent_misspelt,
        "QueueMisconfigured",
        "admin",
        ("the parent of queue {}-dev, {}s, does not exist",),
        ("set parent: {} in queue {}-dev",),
    ),
    "shut": Situation(
        closed_above, "QueueNotOpen", "admin", ("queue {}-dev takes no new work", "queue {}"), ("open queue {}",)
    ),
    "kept": Situation(
        kept_for_a_sibling,
        "QueueCapabilityExceeded",
        "admin",
        (
            "holds 0, may have 0",
            "guarantees of other queues leave it less",
            "queue {}-prod holds 0 of 4 cpu, guaranteed 4",
        ),
        ("lower the guarantee of queue {}-prod to 3 cpu",),
        ("wait:",),
    ),
    "above": Situation(
        above_the_parent,
        "NeverFits",
        "user",
        ("queue {}-dev may ever hold in cpu", "asks for 5, the queue may have 4"),
        ("raise capability of queue {} to 5 cpu",),
    ),
    "borrows": Situation(
        borrows_no_more,
        "QueueCapabilityExceeded",
        "wait",
        ("holds 3, may have 3, of which it borrows 1", "{}/runs in queue {}-dev: 3 pods"),
        ("raise borrowingLimit of queue {}-dev to 2 cpu", "wait until {}/runs ends"),
    ),
    "keeps": Situation(
        gives_nothing_back,
        "Unschedulable",
        "wait",
        (FULL, "not reclaimable: {}-b"),
        ("set reclaimable: true in queue {}-b", "wait until {}/runs ends"),
    ),
    "gang": Situation(
        gang_of_victims,
        "Unschedulable",
        "wait",
        (FULL, "{}/runs would be left with 2 of the 4 pods that it starts with"),
        ("wait until {}/runs ends",),
    ),
    "covered": Situation(
        budget_of_victims,
        "Unschedulable",
        "wait",
        (FULL, "PodDisruptionBudget {}/web allows no disruption, and covers 4 of them", "queue {}-b holds 4 cpu and"),
        ("wait until {}/runs ends",),
    ),
    "poor": Situation(
        deserves_nothing,
        "Unschedulable",
        "wait",
        (FULL, "queue {}-a may not take from others", "holds 0, deserves 0", "{}/runs in queue {}-b: 4 pods"),
        ("wait until {}/runs ends",),
    ),
    "back": Situation(
        takes_back,
        "WaitingForRelease",
        "wait",
        ("gets its place on {}-n",),
        ("it will get its place without a change",),
    ),
}
