"""ResourceQuotas as the API server enforces them: names of resources, usage of pods, and scopes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from stromboli.api import objects, quantity
from stromboli.api.conditions import pod_terms
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.resources import ResourceAmounts, exact
from stromboli.state.pods import PodRecord

#: exact amounts by the quota's resource names, such as `requests.cpu`, `cpu` or `count/pods`
Amounts: TypeAlias = Mapping[str, Fraction]

#: resource names under which a pod counts as one
PODS = ("pods", "count/pods")
#: a pod without requests and limits of these is best effort
_OF_QUALITY = ("cpu", "memory")
#: resources whose limits a quota can cover
_LIMITED = ("cpu", "memory", "ephemeral-storage")


def common_name(resource: str) -> str:
    """`cpu` for `requests.cpu`, which is a synonym; other names are unchanged."""
    return resource.removeprefix("requests.")


def amounts(resources: ResourceAmounts | None) -> dict[str, Fraction]:
    """Exact amounts of a resource list, without invalid quantities."""
    out = {}
    for name, value in (resources or {}).items():
        try:
            out[name] = quantity.parse(value)
        except InvalidQuantityError:
            continue
    return out


def asked_for(resources: ResourceAmounts | None) -> dict[str, Fraction]:
    """Exact amounts by canonical names; the larger of two synonyms counts."""
    out: dict[str, Fraction] = {}
    for name, amount in amounts(resources).items():
        common = common_name(name)
        out[common] = max(amount, out.get(common, amount))
    return out


def used_by(pods: Iterable[PodRecord]) -> dict[str, Fraction]:
    """The usage of pods that have not ended, by canonical names."""
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
    """The limits of a quota: those in its status or, before a controller has seen it, in its spec."""
    found: ResourceAmounts = (
        (manifest.get("status") or {}).get("hard") or (manifest.get("spec") or {}).get("hard") or {}
    )
    return found


@dataclass(frozen=True, slots=True)
class Counted:
    """The fields that scopes look at, of a pod or of a PodGroup whose pods do not exist yet."""

    best_effort: bool
    terminating: bool
    priority_class: str
    #: whether it has terms of affinity or anti-affinity that name namespaces
    across_namespaces: bool

    @classmethod
    def of(cls, pod: PodRecord) -> Counted:
        """A pod that exists."""
        request, limit = pod.pod_class.request, pod.pod_class.limit
        best_effort = not any(request.get(name) or limit.get(name) for name in _OF_QUALITY)
        return cls(best_effort, pod.terminating, pod.priority_class_name, _across_namespaces(pod.pod_class.spec))

    @classmethod
    def made(cls, spec: objects.PodSpec, asked: Amounts) -> Counted:
        """A pod that is being created, by its spec and its usage of quotas."""
        best_effort = not any(asked.get(name) or asked.get(f"limits.{name}") for name in _OF_QUALITY)
        ends = spec.active_deadline_seconds is not None
        return cls(best_effort, ends, spec.priority_class_name or "", _across_namespaces(spec))

    @classmethod
    def expected(cls, asked: Amounts, priority_class: str) -> Counted:
        """Pods that do not exist yet, by their job's request in canonical names."""
        named = {name.removeprefix("limits.") for name, amount in asked.items() if amount}
        return cls(named.isdisjoint(_OF_QUALITY), False, priority_class, False)


def _across_namespaces(spec: objects.PodSpec) -> bool:
    return any(term.namespaces or term.namespace_selector is not None for term in pod_terms(spec))


def counts(manifest: Mapping[str, Any], what: Counted) -> bool:
    """Whether a quota covers such a pod: all its scopes have to match; unknown scopes never do."""
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
    "CrossNamespacePodAffinity": lambda what: what.across_namespaces,
}
