"""The summed requests of pods, in the form of a PodGroup's minResources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import msgspec
from msgspec.structs import replace

from stromboli.api import objects, requests
from stromboli.api.errors import misfit
from stromboli.api.quantity import parse
from stromboli.workloads.gangs import Role
from stromboli.workloads.paths import Object, mapping


def min_resources(spec: objects.PodSpec, pods: int) -> dict[str, str]:
    """Amounts that a resource quota would count for this many such pods. Raises InvalidQuantityError."""
    return total([(spec, pods)])


def total(specs: Iterable[tuple[objects.PodSpec, int]]) -> dict[str, str]:
    """Amounts that a resource quota would count for some pods of each spec. Raises InvalidQuantityError."""
    amounts: dict[str, Fraction] = {}
    for spec, pods in specs:
        if pods:
            for name, amount in usage(spec).items():
                of_all = amount if pods == 1 else amount * pods
                amounts[name] = amounts[name] + of_all if name in amounts else of_all
    return {name: formatted(amount) for name, amount in amounts.items()}


def of_roles(roles: Sequence[Role], pods: int, where: str) -> dict[str, str]:
    """Amounts that a quota would count for a number of pods of some roles, needed pods first.

    Empty for one role, or where one has no template. Raises InvalidObjectError, which names where the templates are.
    """
    if len(roles) < 2 or not all(role.template for role in roles):
        return {}
    taken: list[tuple[objects.PodSpec, int]] = []
    for needed in (True, False):
        for role in roles:
            number = min(pods, role.needed if needed else role.count - role.needed)
            taken.append((pod_spec(mapping(role.template, "spec"), where), number))
            pods -= number
    return total(taken)


def pod_spec(manifest: Object, where: str) -> objects.PodSpec:
    """The spec of pods of a template, with their requests. Raises InvalidObjectError."""
    try:
        spec = msgspec.convert(manifest, objects.PodSpec)
    except msgspec.ValidationError as error:
        raise misfit(error, where) from None
    return with_requests(spec)


def usage(spec: objects.PodSpec) -> dict[str, Fraction]:
    """Amounts that a resource quota counts for a pod, by the quota's names. Raises InvalidQuantityError."""
    used = {"count/pods": Fraction(1), "pods": Fraction(1)}
    for name, amount in requests.total(spec, "requests", exact).items():
        used[name] = used[f"requests.{name}"] = amount
    for name, amount in requests.total(spec, "limits", exact).items():
        if name in ("cpu", "memory", "ephemeral-storage"):
            used[f"limits.{name}"] = amount
    return used


def exact(listed: objects.ResourceList | None) -> dict[str, Fraction]:
    """A resource list by name. Raises InvalidQuantityError."""
    return {name: parse(amount) for name, amount in (listed or {}).items()}


def formatted(amount: Fraction) -> str:
    """An amount as a quantity: whole, or in thousandths, rounded up."""
    return str(amount.numerator) if amount.denominator == 1 else f"{ceil(amount * 1000)}m"


def with_requests(spec: objects.PodSpec) -> objects.PodSpec:
    """The spec with containers that request what they are limited to, where they say nothing else, and pods, too."""
    both = (spec.containers, spec.init_containers)
    if any(each.resources and each.resources.limits for containers in both for each in containers or ()):
        containers, init = (None if each is None else [_container(one) for one in each] for each in both)
        spec = replace(spec, containers=containers, init_containers=init)
    whole = spec.resources
    if whole is None or not (whole.limits or whole.requests):
        return spec
    return replace(spec, resources=_pod_level(spec, whole))


def _pod_level(spec: objects.PodSpec, whole: objects.ResourceRequirements) -> objects.ResourceRequirements:
    """Requests and limits of a pod as a whole.

    Its limits of huge pages are those of its containers. Where it has limits, it requests of cpu and memory what its
    containers do, and of what they do not request, its limits.
    """
    given, limits = whole.requests or {}, dict(whole.limits or {})
    for name, amount in requests.of_containers(spec, "limits", exact).items():
        if name.startswith("hugepages-") and name not in given:
            limits.setdefault(name, formatted(amount))
    if not limits:
        return whole
    requested = dict(given)
    for name, amount in requests.of_containers(spec, "requests", exact).items():
        if name in ("cpu", "memory"):
            requested.setdefault(name, formatted(amount))
    for name, value in limits.items():
        if requests.is_pod_level(name):
            requested.setdefault(name, value)
    return replace(whole, requests=requested, limits=limits)


def _container(container: objects.Container) -> objects.Container:
    resources = container.resources
    if resources is None or not resources.limits:
        return container
    requests = {**resources.limits, **(resources.requests or {})}
    return replace(container, resources=replace(resources, requests=requests))


def scaled(resources: Mapping[str, Any] | None, pods: int, before: int) -> dict[str, str] | None:
    """Amounts for `before` pods scaled to `pods` identical ones; None if unknown. Raises InvalidQuantityError."""
    if resources is None or before <= 0:
        return None
    return {name: formatted(parse(amount) * pods / before) for name, amount in resources.items()}
