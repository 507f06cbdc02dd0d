"""Compares an outcome with what was recorded of Volcano's scheduler.

A recorded field is there only when it was the same in all recorded runs: what is absent is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: fields of pods by place: their mapping, the set of pods, their number, and numbers by PodGroup and queue
_PLACES = {"bindings": "bound", "pipelined": "pipelined", "evicted": "evicted"}


def differences(expect: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """What differs, a line each; empty when the outcome agrees."""
    recorded = expect.get("oracle", expect)
    return [*_pods(recorded, got), *_pod_groups(recorded, got), *_queues(recorded, got)]


def _pods(recorded: dict[str, Any], got: dict[str, Any]) -> Iterator[str]:
    for field in ("bindings", "pipelined", "allocated"):
        if field in recorded and recorded[field] != got[field]:
            yield f"{field}: {recorded[field]} is {got[field]}"
        if field not in recorded and field not in recorded["unstable"] and got[field]:
            yield f"{field}: nothing is {got[field]}"
        pods = recorded.get(f"{field}Pods")
        if pods is not None and sorted(pods) != sorted(got[field]):
            yield f"{field}Pods: {pods} is {sorted(got[field])}"
    if "evicted" in recorded and sorted(recorded["evicted"]) != sorted(got["evicted"]):
        yield f"evicted: {recorded['evicted']} is {got['evicted']}"
    for field in ("nominated", "annotations", "nodeShard"):
        if field in recorded and field in got and recorded[field] != got[field]:
            yield f"{field}: {recorded[field]} is {got[field]}"
    for field, name in _PLACES.items():
        total = len(got[field])
        if recorded.get(f"{name}Total", total) != total:
            yield f"{name}Total: {recorded[f'{name}Total']} is {total}"
        low, high = recorded.get(f"{name}TotalRange", (total, total))
        if not low <= total <= high:
            yield f"{name}Total: {low} to {high} is {total}"
        for of, suffix in (("jobs", "PerPodGroup"), ("perQueue", "PerQueue")):
            for key, number in recorded.get(name + suffix, {}).items():
                if key in got[of] and got[of][key][name] != number:
                    yield f"{name} of {key}: {number} is {got[of][key][name]}"
    if "cycles" in recorded and got["cycles"] and recorded["cycles"] != got["cycles"]:
        yield f"cycles: {recorded['cycles']} is {got['cycles']}"


def _pod_groups(recorded: dict[str, Any], got: dict[str, Any]) -> Iterator[str]:
    for key, fields in recorded["podGroups"].items():
        pod_group = got["podGroups"].get(key)
        if pod_group is None:
            continue
        for field, wanted in fields.items():
            have = pod_group[field]
            if field == "conditions":
                have = sorted(have, key=lambda condition: condition["type"])
            if have != wanted:
                yield f"podGroup {key}: {field}: {wanted} is {have}"


def _queues(recorded: dict[str, Any], got: dict[str, Any]) -> Iterator[str]:
    for name, fields in recorded["queues"].items():
        for field, wanted in fields.items():
            have = got["queues"].get(name, {}).get(field)
            if field != "statusAllocated" and have is not None and not _close(wanted, have):
                yield f"queue {name}: {field}: {wanted} is {have}"


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return all(_close(a.get(key, 0), b.get(key, 0)) for key in a.keys() | b.keys())
    if isinstance(a, int | float) and isinstance(b, int | float):
        return bool(abs(a - b) <= 1e-6 * max(1, abs(a), abs(b)))
    return bool(a == b) or (not a and not b)
