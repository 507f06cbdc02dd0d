"""Replays recorded calls of KAI-Scheduler's functions through the plugin's own, and compares what they answer.

The cases in `cases` are inputs of our own with what KAI answered. Amounts are as KAI has them: milli-CPU, bytes, GPUs;
-1 is unlimited. KAI walks maps in a random order: where outcomes varied, all that were seen are right.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from stromboli.api.resources import Matrix, Vector
from stromboli.fairness.queue_tree import TOP
from stromboli.plugins.fairshare import capacity, division, order, reclaim
from stromboli.plugins.fairshare.tree import DivisionTree, parting

RESOURCES = ("cpu", "memory", "gpu")
CASES = Path(__file__).parent / "cases"
#: by which numbers may differ, relative; and what is nothing but a rounding error
_TOLERANCE, _NOTHING = 1e-9, 1e-12

Case = Mapping[str, Any]


def cases(folders: Sequence[Path]) -> Iterator[tuple[Path, Case]]:
    """The cases of all files below some folders."""
    for folder in folders:
        for path in sorted(folder.rglob("*.json")):
            for case in json.loads(path.read_text()):
                yield path, case


def difference(case: Case) -> str | None:
    """In which way our answer is none that was recorded; None when it agrees."""
    got = _ANSWERS[case["kind"]](case["input"])
    varied = case["expect"].get("_mapOrder", {}).get("variants", ())
    expected = [case["expect"], *(variant["expect"] for variant in varied)]
    if any(_agrees(outcome, got) for outcome in expected):
        return None
    return f"{expected[0]} is {got}"


def _agrees(expected: Any, got: Any) -> bool:
    """Whether everything is as recorded; messages are KAI's own words."""
    if isinstance(expected, Mapping):
        return all(
            key in got and _agrees(value, got[key])
            for key, value in expected.items()
            if key not in ("_mapOrder", "message")
        )
    if isinstance(expected, bool | str):
        return bool(expected == got)
    if isinstance(expected, int | float):
        return math.isclose(expected, got, rel_tol=_TOLERANCE, abs_tol=_NOTHING)
    return bool(expected == list(got))


# -- reading -----------------------------------------------------------------------------------------------------------


def amounts(of: Mapping[str, float]) -> Vector:
    """A vector of the resources, -1 as infinite."""
    vector = np.array([of[name] for name in RESOURCES], np.float64)
    return np.where(vector == -1, np.inf, vector)


def tree_of(queues: Sequence[Mapping[str, Any]], *, flat: bool = False) -> DivisionTree:
    """The recorded queues; `flat` leaves their parents out."""
    queues = sorted(queues, key=lambda queue: queue["uid"])
    row = {queue["uid"]: number for number, queue in enumerate(queues)}

    def matrix(field: str) -> Matrix:
        return np.array([amounts({name: queue[name][field] for name in RESOURCES}) for queue in queues])

    tree = DivisionTree(
        names=[queue["uid"] for queue in queues],
        parent=np.array([TOP if flat else row.get(queue["parent"], TOP) for queue in queues], np.intp),
        priority=np.array([queue["priority"] for queue in queues], np.float64),
        created=np.array([_time(queue["creationTimestamp"]) for queue in queues]),
        quota=matrix("quota"),
        limit=matrix("limit"),
        weight=np.array([[queue[name]["overQuotaWeight"] for name in RESOURCES] for queue in queues], np.float64),
        usage=matrix("usage"),
        request=matrix("request"),
        allocated=matrix("allocated"),
        non_preemptible=matrix("allocatedNonPreemptible"),
        unit=np.ones(len(RESOURCES)),
    )
    tree.fair_share = matrix("fairShare")
    return tree


def _time(value: str | None) -> float:
    return -np.inf if value is None else datetime.fromisoformat(value).timestamp()


# -- answers -----------------------------------------------------------------------------------------------------------


def _divide(given: Case) -> dict[str, Any]:
    k = max(0.0, given["kValue"])
    total, function = amounts(given["total"]), given["fn"]
    tree = tree_of(given["queues"], flat=function != "setFairShare")
    if function in ("setFairShare", "SetResourcesShare"):
        division.divide_tree(tree, total, k)
        return {"fairShare": _by_queue(tree)}
    column = RESOURCES.index(given["resource"])
    rows = np.arange(len(tree))
    pools = np.tile(np.arange(len(RESOURCES)), (len(tree), 1))
    claims = division.claims_of(tree, rows, pools, rows)
    if function == "setResourceShare":
        divided = division.divide(claims, total, k)
    else:
        divided = division.Division(tree.fair_share.ravel().copy(), total.copy())
        division.divide_over_quota(claims, divided, k)
    tree.fair_share[:, column] = divided.share.reshape(-1, len(RESOURCES))[:, column]
    return {"fairShare": _by_queue(tree), "remaining": max(0.0, divided.rest[column])}


def _by_queue(tree: DivisionTree) -> dict[str, dict[str, float]]:
    return {
        name: dict(zip(RESOURCES, row.tolist(), strict=True))
        for name, row in zip(tree.names, tree.fair_share, strict=True)
    }


def _order(given: Case) -> dict[str, Any]:
    total = amounts(given["total"])
    trees = [tree_of([given[f"{side}Queue"]]) for side in "lr"]
    keys = [
        order.key(
            tree,
            0,
            total,
            amounts(given[f"{side}Job"]["request"]),
            sum((amounts(victim) for victim in given[f"{side}Victims"]), np.zeros(len(RESOURCES))),
        )
        for side, tree in zip("lr", trees, strict=True)
    ]
    ages = [float(tree.created[0]) for tree in trees]
    result, step = _first_of(keys, ages)
    swapped_result, swapped_step = _first_of(keys[::-1], ages[::-1])
    return {
        "result": result,
        "step": step,
        "swappedResult": swapped_result,
        "swappedStep": swapped_step,
        "lDominantShareWithJob": keys[0][4],
        "rDominantShareWithJob": keys[1][4],
        "lDominantShare": keys[0][5],
        "rDominantShare": keys[1][5],
    }


def _first_of(keys: list[order.Key], ages: list[float]) -> tuple[int, str]:
    """-1 when the left queue goes first, else 1; and what decided."""
    left, right = keys
    for number, step in enumerate(order.STEPS):
        if left[number] != right[number]:
            return (-1 if left < right else 1), step
    return (-1 if ages[0] < ages[1] else 1), "creationTime"


def _reclaim(given: Case) -> dict[str, Any]:
    function = given["fn"]
    if function.endswith("Strategy"):
        return {"verdict": _strategy(function, given)}
    tree, reclaimer = tree_of(given["queues"]), given["reclaimer"]
    leaf, required = tree.names.index(reclaimer["queue"]), amounts(reclaimer["required"])
    able = reclaim.can_reclaim(tree, leaf, required, preemptible=reclaimer["preemptible"])
    if function == "CanReclaimResources":
        return {"verdict": able}
    stage, leveled = _stage(tree, leaf, required, given)
    return {"verdict": stage == "ok", "stage": stage, "canReclaim": able, "leveled": leveled}


def _stage(tree: DivisionTree, leaf: int, required: Vector, given: Case) -> tuple[str, dict[str, list[str]]]:
    taking = reclaim.Reclaim(
        tree,
        leaf,
        required,
        preemptible=given["reclaimer"]["preemptible"],
        multiplier=given["saturationMultiplier"],
    )
    stage, leveled = "", {}
    for queue, victims in sorted(given["reclaimees"].items()):
        row = tree.names.index(queue)
        leveled[queue] = [tree.names[each] for each in parting(tree, leaf, row)]
        for victim in victims:
            if not taking.may_take(row):
                stage = "strategies"
            taking.take(row, amounts(victim))
    return stage or ("ok" if taking.within_boundaries() else "boundaries"), leveled


def _strategy(function: str, given: Case) -> bool:
    queues = [given["reclaimerQueue"] | {"uid": "a"}, given["reclaimeeQueue"] | {"uid": "b"}]
    tree, remaining = tree_of(queues, flat=True), amounts(given["reclaimeeRemaining"])
    if function == "MaintainFairShareStrategy":
        return reclaim.exceeds_fair_share(tree, 1, remaining)
    return reclaim.exceeds_quota_of_the_deprived(tree, 0, 1, amounts(given["required"]), remaining)


def _capacity(given: Case) -> dict[str, Any]:
    if "queue" in given:
        return _one_queue(given)
    tree = tree_of(given["queues"])
    path, preemptible = tree.path(tree.names.index(given["job"]["queue"])), given["job"]["preemptible"]
    if "tasks" in given:
        requested = sum((amounts(task) for task in given["tasks"]), np.zeros(len(RESOURCES)))
    else:
        requested = amounts(given["requested"])

    def outcome(violation: capacity.Violation | None) -> dict[str, Any]:
        if violation is None:
            return {"schedulable": True, "reason": ""}
        reason = "NonPreemptibleOverQuota" if violation.is_quota else "OverLimit"
        return {"schedulable": False, "reason": reason, "queue": tree.names[violation.row]}

    limit = outcome(capacity.over_limit(tree, path, requested))
    quota = outcome(None if preemptible else capacity.over_quota(tree, path, requested))
    both = outcome(capacity.over_capacity(tree, path, requested, preemptible=preemptible))
    outcomes = {
        "IsJobOverQueueCapacity": both,
        "IsTaskAllocationOnNodeOverCapacity": both,
        "IsNonPreemptibleJobOverQuota": quota,
        "resultsOverLimit": limit,
        "resultsWithNonPreemptibleOverQuota": quota,
    }
    return outcomes if given["fn"] == "all" else outcomes[given["fn"]]


def _one_queue(given: Case) -> dict[str, Any]:
    tree = tree_of([given["queue"]], flat=True)
    check = capacity.over_limit if given["fn"] == "isOverLimit" else capacity.over_quota
    violation = check(tree, tree.path(0), amounts(given["requested"]))
    return {"over": violation is not None, "resource": RESOURCES[violation.columns[0]] if violation else ""}


_ANSWERS = {"division": _divide, "order": _order, "reclaim": _reclaim, "capacity": _capacity}
