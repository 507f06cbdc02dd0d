"""ResourceQuotas as the API server applies them to new objects.

Objects that an API server has admitted already (with a uid, or pods on a node) are part of the usage if the status of a
quota does not give it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stromboli.api import objects, requests
from stromboli.api.resources import told_quantity
from stromboli.kube.quotas import Amounts, Counted, amounts, counts
from stromboli.simulation.forbidden import ForbiddenError
from stromboli.workloads.amounts import exact, formatted, usage
from stromboli.workloads.paths import Object, mapping, text

#: fields that every container has to set of resources that a quota limits
_TO_BE_SAID = [*("cpu", "memory"), *(f"{what}.{name}" for what in ("requests", "limits") for name in ("cpu", "memory"))]
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Asked:
    """Something that is created, or was: its namespace, its usage by the quotas' names, and the pod that it is."""

    namespace: str
    usage: Amounts
    pod: objects.Pod | None = None
    counted: Counted | None = None

    @classmethod
    def by_pod(cls, pod: objects.Pod) -> Asked:
        """A pod with all its requests."""
        used = usage(pod.spec)
        return cls(pod.metadata.namespace or "default", used, pod, Counted.made(pod.spec, used))

    @classmethod
    def by_claim(cls, claim: Object) -> Asked:
        """A PersistentVolumeClaim."""
        size = exact(mapping(claim, "spec.resources.requests")).get("storage", Fraction(0))
        used = {"persistentvolumeclaims": Fraction(1), "requests.storage": size}
        if class_ := text(claim, "spec.storageClassName"):
            used |= {f"{class_}.storageclass.storage.k8s.io/{name}": amount for name, amount in used.items()}
        used["count/persistentvolumeclaims"] = Fraction(1)
        return cls(text(claim, "metadata.namespace") or "default", used)

    @classmethod
    def by_object(cls, manifest: Object, plural: str) -> Asked:
        """An object that a quota only counts."""
        group, slash, _ = text(manifest, "apiVersion").partition("/")
        name = f"count/{plural}.{group}" if slash else f"count/{plural}"
        return cls(text(manifest, "metadata.namespace") or "default", {name: Fraction(1)})


class _Quota:
    """A quota, and its usage so far, by the names of its limits."""

    def __init__(self, manifest: Object, there: Iterable[Asked]) -> None:
        spec, status = mapping(manifest, "spec.hard"), mapping(manifest, "status")
        self._manifest = manifest
        self.name = f"ResourceQuota {text(manifest, 'metadata.namespace')}/{text(manifest, 'metadata.name')}"
        self._hard = amounts(spec or status.get("hard"))
        held: Counter[str] = Counter()
        for each in there:
            held.update(self._of(each))
        self._used = {name: Fraction(held[name]) for name in self._hard} | amounts(status.get("used"))

    def _of(self, asked: Asked) -> dict[str, Fraction]:
        """Usage of a new object that the quota counts."""
        if not self._covers(asked):
            return {}
        return {name: amount for name, amount in asked.usage.items() if amount and name in self._hard}

    def _covers(self, asked: Asked) -> bool:
        if asked.counted is not None:
            return counts(self._manifest, asked.counted)
        return not any(mapping(self._manifest, "spec").get(key) for key in ("scopes", "scopeSelector"))

    def check(self, asked: Asked) -> None:
        """Raises ForbiddenError for something that it does not let through."""
        more, spec = self._of(asked), asked.pod.spec if asked.pod is not None else None
        if spec is not None and self._covers(asked) and (unsaid := "; ".join(_unsaid(spec, self._hard))):
            remedy = "say it, or have a LimitRange give it"
            raise ForbiddenError(self.name, f"{unsaid}, which the quota limits", remedy)
        exceeded = "; ".join(
            f"{name}: {_told(name, self._used[name])} of {_told(name, self._hard[name])} used, "
            f"{_told(name, amount)} more requested"
            for name, amount in more.items()
            if self._used[name] + amount > self._hard[name]
        )
        if exceeded:
            raise ForbiddenError(self.name, exceeded, "ask for less, or have the quota raised")

    def charge(self, asked: Asked) -> None:
        """Count something that is created."""
        for name, amount in self._of(asked).items():
            self._used[name] += amount

    def manifest(self) -> Object:
        """The quota as its controller would have it."""
        hard, used = ({name: formatted(amount) for name, amount in each.items()} for each in (self._hard, self._used))
        return {**self._manifest, "status": {"hard": hard, "used": used}}


class ResourceQuotas:
    """The quotas of all namespaces, which count new objects."""

    def __init__(self, manifests: Iterable[Object], there: Iterable[Asked]) -> None:
        """`there` are the objects created before."""
        known: defaultdict[str, list[Asked]] = defaultdict(list)
        for each in there:
            known[each.namespace].append(each)
        self._quotas: defaultdict[str, list[_Quota]] = defaultdict(list)
        for manifest in sorted(manifests, key=lambda each: text(each, "metadata.name")):
            namespace = text(manifest, "metadata.namespace") or "default"
            self._quotas[namespace].append(_Quota(manifest, known[namespace]))

    def __bool__(self) -> bool:
        return bool(self._quotas)

    def create(self, asked: Asked) -> None:
        """Count something that is created. Raises ForbiddenError, and counts it nowhere then."""
        quotas = self._quotas.get(asked.namespace, ())
        for quota in quotas:
            quota.check(asked)
        for quota in quotas:
            quota.charge(asked)

    def manifests(self) -> Iterator[tuple[str, Object]]:
        """The quotas as their controller would have them, with their kind."""
        for quotas in self._quotas.values():
            yield from (("ResourceQuota", quota.manifest()) for quota in quotas)


def is_there(manifest: Object | objects.Pod) -> bool:
    """Whether an object was created before, and uses something that its quotas count."""
    if not isinstance(manifest, objects.Pod):
        return bool(text(manifest, "metadata.uid"))
    return bool(manifest.metadata.uid or manifest.spec.node_name)


def has_ended(pod: objects.Pod) -> bool:
    """Whether a pod uses nothing any longer."""
    return pod.status.phase in _ENDED


def _unsaid(spec: objects.PodSpec, hard: Mapping[str, Any]) -> Iterator[str]:
    """Containers without the requests or limits that a quota demands, in words."""
    for name in _TO_BE_SAID:
        said, _, resource = name.rpartition(".")
        what: requests.What = "limits" if said == "limits" else "requests"
        if name not in hard or resource in requests.pod_level(spec, what):
            continue
        silent = [
            each.name
            for each in (*(spec.containers or ()), *(spec.init_containers or ()))
            if resource not in (getattr(each.resources, what, None) or {})
        ]
        if silent:
            yield f"{', '.join(silent)} has no {what}.{resource}"


def _told(name: str, amount: Fraction) -> str:
    return told_quantity(name, formatted(amount))
