"""LimitRanges as the API server applies them to what is created: what containers ask for that say nothing, and bounds.

What an API server has seen already (it has a uid or a node) is as it was admitted, and is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from msgspec.structs import replace

from stromboli.api import objects, requests
from stromboli.api.quantity import parse
from stromboli.api.resources import told_quantity
from stromboli.api.words import measured
from stromboli.simulation.forbidden import ForbiddenError
from stromboli.workloads.amounts import exact, formatted
from stromboli.workloads.paths import Object, items, mapping

#: the bounds of an item of a LimitRange
_BOUNDS = ("min", "max", "maxLimitRequestRatio")


@dataclass(frozen=True, slots=True)
class _Item:
    """Bounds and defaults of a LimitRange for one type, with the API server's defaults."""

    #: the key of the LimitRange
    of: str
    type: str
    #: limits and requests that containers get by default
    limits: Mapping[str, Any]
    requests: Mapping[str, Any]
    #: by the name of the bound and by resource
    bounds: Mapping[str, Mapping[str, Fraction]]

    @classmethod
    def read(cls, of: str, item: Object) -> _Item:
        limits, requested = mapping(item, "default"), mapping(item, "defaultRequest")
        if item.get("type") == "Container":
            limits = {**mapping(item, "max"), **limits}
            requested = {**mapping(item, "min"), **limits, **requested}
        return cls(
            of, item.get("type") or "", limits, requested, {each: exact(mapping(item, each)) for each in _BOUNDS}
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """Requests and limits of a container, a pod or a claim, by resource; `name` is its name in messages."""

    name: str
    requests: Mapping[str, Fraction]
    limits: Mapping[str, Fraction]


@dataclass(slots=True)
class LimitRanges:
    """The LimitRanges of all namespaces."""

    _items: dict[str, list[_Item]] = field(default_factory=dict)

    @classmethod
    def of(cls, manifests: Iterable[Object]) -> LimitRanges:
        """LimitRanges of some manifests; they apply in the order of their names."""
        out = cls()
        for manifest in sorted(manifests, key=lambda each: str(each["metadata"]["name"])):
            namespace = manifest["metadata"].get("namespace") or "default"
            key = f"{namespace}/{manifest['metadata']['name']}"
            read = [_Item.read(key, item) for _, item in items(manifest, "spec.limits")]
            out._items.setdefault(namespace, []).extend(read)
        return out

    def __bool__(self) -> bool:
        return bool(self._items)

    def applied(self, pod: objects.Pod) -> objects.Pod:
        """A pod with its default requests and limits. Raises ForbiddenError."""
        limits = self._items.get(pod.metadata.namespace or "default")
        if not limits or pod.metadata.uid or pod.spec.node_name:
            return pod
        for item in limits:
            if item.limits or item.requests:
                pod = replace(pod, spec=_defaulted(pod.spec, item))
        for item in limits:
            for asked in _of_pod(pod.spec, item.type):
                for problem in _problems(item, asked):
                    raise _forbidden(item.of, problem)
        return pod

    def check_claim(self, claim: Object) -> None:
        """Raises ForbiddenError for a PersistentVolumeClaim of a size that is out of bounds."""
        metadata = claim["metadata"]
        if metadata.get("uid"):
            return
        size = exact(mapping(claim, "spec.resources.requests"))
        # Of volumes only what is requested is bounded.
        asked = _Asked("it", size, size)
        for item in self._items.get(metadata.get("namespace") or "default", ()):
            for problem in _problems(item, asked) if item.type == "PersistentVolumeClaim" else ():
                raise _forbidden(item.of, problem)


def _defaulted(spec: objects.PodSpec, item: _Item) -> objects.PodSpec:
    """The spec with default requests and limits of containers."""
    both = (spec.containers, spec.init_containers)
    containers, init = (None if each is None else [_container(one, item) for one in each] for each in both)
    return replace(spec, containers=containers, init_containers=init)


def _container(container: objects.Container, item: _Item) -> objects.Container:
    own = container.resources or objects.ResourceRequirements()
    limits, asked = {**item.limits, **(own.limits or {})}, {**item.requests, **(own.requests or {})}
    return replace(container, resources=replace(own, limits=limits, requests=asked))


def _of_pod(spec: objects.PodSpec, type_: str) -> Iterator[_Asked]:
    """Requests and limits of a pod's containers, or of the pod as a whole."""
    if type_ == "Container":
        for container in (*(spec.init_containers or ()), *(spec.containers or ())):
            own = container.resources or objects.ResourceRequirements()
            yield _Asked(f"container {container.name}", exact(own.requests), exact(own.limits))
    elif type_ == "Pod":
        bare = replace(spec, overhead=None)
        yield _Asked("the pod", requests.total(bare, "requests", exact), requests.total(bare, "limits", exact))


def _problems(item: _Item, asked: _Asked) -> Iterator[str]:
    """Values that violate an item's bounds, or exceed their own limits after defaulting, in words."""
    for name, least in item.bounds["min"].items():
        if name not in asked.requests:
            yield f"{asked.name} has to request {_told(name, least)} at least"
        elif (given := min(asked.requests[name], asked.limits.get(name, asked.requests[name]))) < least:
            yield f"{asked.name} asks for {_told(name, given)}, less than the minimum of {_told(name, least)}"
    for name, most in item.bounds["max"].items():
        if name not in asked.limits:
            yield f"{asked.name} has to have a limit of {name}, {_told(name, most)} at most"
        elif (given := max(asked.limits[name], asked.requests.get(name, Fraction(0)))) > most:
            yield f"{asked.name} asks for {_told(name, given)}, more than the maximum of {_told(name, most)}"
    for name, most in item.bounds["maxLimitRequestRatio"].items():
        requested, limit = asked.requests.get(name), asked.limits.get(name)
        if not (requested and limit):
            yield f"{asked.name} has to request {name}, with a limit of at most {formatted(most)}x the request"
        elif limit / requested > most:
            ratio = f"more than {formatted(most)}x its request of {_told(name, requested)}"
            yield f"{asked.name} has a limit of {_told(name, limit)}, {ratio}"
    for name, requested in asked.requests.items() if item.type == "Container" else ():
        limit = asked.limits.get(name)
        if limit is not None and requested > limit and name in item.limits and parse(item.limits[name]) == limit:
            yield f"{asked.name} requests {_told(name, requested)}, above its default limit, {_told(name, limit)}"


def _forbidden(key: str, problem: str) -> ForbiddenError:
    return ForbiddenError(f"LimitRange {key}", problem, "change that, or have the LimitRange changed")


def _told(name: str, amount: Fraction) -> str:
    return measured(told_quantity(name, formatted(amount)), name)
