"""ResourceQuotas as the API server means them: what pods count for, under which names, and which pods count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.resources import ResourceAmounts, exact
from stromboli.state.pods import PodRecord

#: exact amounts by the names that a quota uses, such as `requests.cpu`, `cpu` or `count/pods`
Amounts: TypeAlias = Mapping[str, Fraction]

#: what each pod is one of
PODS = ("pods", "count/pods")
#: without requests or limits of these a pod is best effort
_OF_QUALITY = ("cpu", "memory")
#: resources whose limits can be in a quota
_LIMITED = ("cpu", "memory", "ephemeral-storage")


def common_name(resource: str) -> str:
    """`cpu` for `requests.cpu`, which are two names for one thing; other names are their own."""
    return resource.removeprefix("requests.")


def amounts(resources: ResourceAmounts | None) -> dict[str, Fraction]:
    """Exact amounts of a resource list, without what is not a quantity."""
    out = {}
    for name, value in (resources or {}).items():
        try:
            out[name] = quantity.parse(value)
        except InvalidQuantityError:
            continue
    return out


def asked_for(resources: ResourceAmounts | None) -> dict[str, Fraction]:
    """The same by common names; of a resource with both its names the larger amount counts."""
    out: dict[str, Fraction] = {}
    for name, amount in amounts(resources).items():
        common = common_name(name)
        out[common] = max(amount, out.get(common, amount))
    return out


def used_by(pods: Iterable[PodRecord]) -> dict[str, Fraction]:
    """What pods that have not ended count for, by common names."""
    out = dict.fromkeys(PODS, Fraction(0))
    for pod in pods:
        out["count/pods"] += 1
        for name, amount in pod.pod_class.request.items():
            out[name] = out.get(name, Fraction(0)) + quantity.parse(exact(name, amount))
        for name in _LIMITED:
            limit = pod.pod_class.limit.get(name, 0)
            out[f"limits.{name}"] = out.get(f"limits.{name}", Fraction(0)) + quantity.parse(exact(name, limit))
    return out


def hard_of(manifest: Mapping[str, Any]) -> ResourceAmounts:
    """The limits of a quota: those in force, or where no controller has seen it yet, those of its spec."""
    found: ResourceAmounts = (
        (manifest.get("status") or {}).get("hard") or (manifest.get("spec") or {}).get("hard") or {}
    )
    return found


@dataclass(frozen=True, slots=True)
class Counted:
    """What a quota's scopes look at: a pod, or the PodGroup of pods that are yet to be created."""

    best_effort: bool
    terminating: bool
    priority_class: str

    @classmethod
    def of(cls, asked: Amounts, priority_class: str, pod: PodRecord | None) -> Counted:
        """A job that asks for some amounts, by common names, and a pod of it if there is one."""
        if pod is None:
            named = {name.removeprefix("limits.") for name, amount in asked.items() if amount}
            return cls(named.isdisjoint(_OF_QUALITY), terminating=False, priority_class=priority_class)
        request, limit = pod.pod_class.request, pod.pod_class.limit
        best_effort = not any(request.get(name) or limit.get(name) for name in _OF_QUALITY)
        return cls(best_effort, pod.terminating, priority_class)


def counts(manifest: Mapping[str, Any], what: Counted) -> bool:
    """Whether a quota is about pods like these: all its scopes have to match, and those not known here match none."""
    spec = manifest.get("spec") or {}
    selector = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    return all(_matches(scope, what) for scope in (*scopes, *selector))


def _matches(scope: Mapping[str, Any], what: Counted) -> bool:
    name, operator, values = scope.get("scopeName"), scope.get("operator"), scope.get("values") or ()
    if name != "PriorityClass":
        matches = _SCOPES.get(str(name))
        return matches is not None and matches(what)
    match operator:
        case "In":
            return what.priority_class in values
        case "NotIn":
            return what.priority_class not in values
        case "DoesNotExist":
            return not what.priority_class
        case _:
            return bool(what.priority_class)


_SCOPES: Mapping[str, Callable[[Counted], bool]] = {
    "BestEffort": lambda what: what.best_effort,
    "NotBestEffort": lambda what: not what.best_effort,
    "Terminating": lambda what: what.terminating,
    "NotTerminating": lambda what: not what.terminating,
}
