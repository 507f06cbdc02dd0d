"""PodDisruptionBudgets, accounted for when an eviction asks: no controller keeps their status."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .errors import ApiError, disruption_budget
from .resources import Object
from .selectors import label_selector_matches


def check_budgets(pod: Object, budgets: Sequence[Object], pods: Sequence[Object]) -> None:
    """TooManyRequests (429) when a budget forbids the eviction; `pods` are those of the pod's namespace."""
    labels = pod["metadata"].get("labels") or {}
    covering = [b for b in budgets if label_selector_matches(b.get("spec", {}).get("selector"), labels)]
    if not covering or not _counts(pod):
        return
    if len(covering) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, "InternalError", message)
    budget = covering[0]
    expected = [p for p in pods if _selected(budget, p)]
    healthy = sum(1 for p in expected if _healthy(p))
    needed = _desired_healthy(budget["spec"], len(expected))
    if _healthy(pod) and healthy <= needed:
        name = budget["metadata"]["name"]
        raise disruption_budget(f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently")


def _selected(budget: Object, pod: Object) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return _counts(pod) and label_selector_matches(budget["spec"].get("selector"), labels)


def _counts(pod: Object) -> bool:
    """Finished and pending pods can always go: nothing is disrupted."""
    phase: str = pod.get("status", {}).get("phase", "")
    return phase == "Running"


def _healthy(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def _desired_healthy(spec: Object, expected: int) -> int:
    if "maxUnavailable" in spec:
        return max(0, expected - _scaled(spec["maxUnavailable"], expected))
    return _scaled(spec.get("minAvailable", 1), expected)


def _scaled(value: int | str, total: int) -> int:
    """An absolute number, or a percentage of `total`, rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * total / 100)
    return int(value)
