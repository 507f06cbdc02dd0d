"""Validation as by the API server: values out of bounds, and fields that are missing or incompatible.

The models read what is there, also in clusters with other definitions. A manifest that no API server has admitted is
checked against the generated CustomResourceDefinitions, and against what Kubernetes and the webhooks of controllers
refuse in the fields that scheduling reads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import resources
from typing import Any, TypeAlias

import msgspec

from stromboli.api import crd_schema, crds, objects, quantity
from stromboli.api.documents import read_yaml
from stromboli.api.errors import InvalidObjectError
from stromboli.api.patterns import compiled
from stromboli.api.requests import is_pod_level, of_containers, pod_level
from stromboli.api.resources import ResourceAmounts, amount, is_scheduled, told_quantity
from stromboli.api.structural import Schema, problems
from stromboli.api.validation import did_you_mean, field_path, shown
from stromboli.simulation.defaults import SYSTEM_PRIORITIES
from stromboli.workloads.amounts import exact, formatted, with_requests
from stromboli.workloads.misspelt import meant
from stromboli.workloads.paths import mapping

#: pairs of a field path and what is wrong there
Problems: TypeAlias = Iterator[tuple[str, str]]

_ROOT = "root"
#: the most that a PriorityClass may have which is not the system's
_MOST_PRIORITY = 1_000_000_000
_DATA = resources.files(__package__).joinpath("kubernetes_bounds.yaml")
_NO_RESOURCE = "is not a resource: all but cpu, memory, ... have a domain, such as nvidia.com/gpu"
_NO_POD_LEVEL = "cannot be requested for a pod as a whole: only cpu, memory and hugepages-... can"
#: prefixes of names that only quotas know
_OF_QUOTAS = ("requests.", "limits.", "count/")
#: resources of containers without a domain
_NATIVE = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.+")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LONGEST_NAME = 253 + 1 + 63
_QUALIFIED = re.compile(rf"(?!requests\.){_DOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")


def check(type_: str, manifest: dict[str, Any], obj: Any, where: str, before: dict[str, Any] | None = None) -> None:
    """Raise InvalidObjectError for the first thing that the API server would refuse of a manifest.

    `type_` is its kind, or for workloads the type in the schema; `obj` what was read of a custom resource. What was
    wrong `before` already passes.
    """
    new = _found(type_, manifest, obj)
    if before is not None:
        had = set(_found(type_, before, crds.KINDS[type_].parse(before) if type_ in crds.KINDS else None))
        new = (each for each in new if each not in had)
    for path, problem in new:
        raise InvalidObjectError(where, path, problem)


def _found(type_: str, manifest: dict[str, Any], obj: Any) -> Problems:
    yield from _misspelt(manifest)
    schema = _schema(type_)
    if schema is None:
        return
    for path, problem in problems(manifest, schema, nulls=False):
        yield path, problem.replace(f"{path} in body ", "")
    yield from _RULES.get(type_, _no_rules)(obj if type_ in crds.KINDS else manifest)
    if type_ not in crds.KINDS:
        whole = manifest.get("spec") or {}
        for path, spec in [("spec", whole)] if type_ == "Pod" else _within(whole, "spec"):
            if "containers" in spec:
                yield from _of_pod_spec(spec, path)


def _misspelt(manifest: dict[str, Any]) -> Problems:
    """Annotations and labels under whose names nothing is read, and something under one that is much like it."""
    for what in ("annotations", "labels"):
        for key, value in mapping(manifest, f"metadata.{what}").items():
            if near := meant(key):
                told = f"unknown field, with the value {shown(value)}, did you mean {near!r}?"
                yield field_path(("metadata", what, key)), told


@cache
def _schema(type_: str) -> Schema | None:
    return crd_schema.open_api_schema(crds.KINDS[type_]) if type_ in crds.KINDS else _kubernetes().get(type_)


@cache
def _kubernetes() -> Mapping[str, Schema]:
    """Schemas of what the API server validates in kinds without a generated definition."""
    kinds: Mapping[str, Schema] = next(read_yaml(_DATA.read_text()))["kinds"]
    return kinds


def _no_rules(_: Any) -> Problems:
    return iter(())


def _of_queue(queue: crds.Queue) -> Problems:
    spec = queue.spec
    if spec.parent == queue.metadata.name:
        yield "spec.parent", "a queue cannot be its own parent"
    if spec.parent and queue.metadata.name == _ROOT:
        yield "spec.parent", f"the root queue has no parent, not {spec.parent!r}"
    guarantee = spec.guarantee.resource
    named = {"spec.capability": spec.capability, "spec.deserved": spec.deserved, "spec.guarantee.resource": guarantee}
    named |= {"spec.borrowingLimit": spec.borrowing_limit, "spec.lendingLimit": spec.lending_limit}
    for at, pool in enumerate(spec.pools):
        named |= {f"spec.pools[{at}].{word}": amounts for word, amounts in pool.amounts.items()}
        yield from _above(f"spec.pools[{at}].deserved", pool.deserved, "capability", pool.capability)
        yield from _above(
            f"spec.pools[{at}].guarantee.resource", pool.guarantee.resource, "capability", pool.capability
        )
    for path, amounts in named.items():
        yield from _no_resources(path, amounts)
    yield from _above("spec.deserved", spec.deserved, "capability", spec.capability)
    yield from _above("spec.guarantee.resource", guarantee, "deserved", spec.deserved)
    yield from _above("spec.lendingLimit", spec.lending_limit, "deserved", spec.deserved)
    yield from _above("spec.guarantee.resource", guarantee, "capability", spec.capability)


def _no_resources(path: str, amounts: ResourceAmounts | None) -> Problems:
    """Names of nothing that a node could have, which the API server accepts: what is said of them has no effect."""
    for name in amounts or ():
        if not (is_scheduled(name) or name.startswith(_OF_QUOTAS)):
            yield field_path((name,), path), f"{shown(name)} {_NO_RESOURCE}"


def _above(path: str, amounts: ResourceAmounts | None, limit: str, limits: ResourceAmounts | None) -> Problems:
    """Amounts that are above the limit of the same resource, where there is one."""
    for name, value in (amounts or {}).items():
        most = (limits or {}).get(name)
        if most is not None and amount(name, value) > amount(name, most):
            told = told_quantity(name, value), told_quantity(name, most)
            yield field_path((name,), path), f"must not be above {limit}, but {told[0]} is above {told[1]}"


def _of_pod_group(group: crds.PodGroup) -> Problems:
    spec = group.spec
    topologies = [("spec.networkTopology", spec.network_topology)]
    for number, policy in enumerate(spec.sub_group_policy):
        topologies.append((f"spec.subGroupPolicy[{number}].networkTopology", policy.network_topology))
    for path, topology in topologies:
        if topology is not None and topology.highest_tier_allowed is not None and topology.highest_tier_name:
            yield path, "only one of highestTierAllowed and highestTierName may be given"


def _of_hyper_node(hyper_node: crds.HyperNode) -> Problems:
    for number, member in enumerate(hyper_node.spec.members):
        match = member.selector.regex_match
        if match is None:
            continue
        try:
            compiled(match.pattern)
        except ValueError as error:
            yield f"spec.members[{number}].selector.regexMatch.pattern", str(error)


def _of_node(manifest: dict[str, Any]) -> Problems:
    status = manifest.get("status") or {}
    for what in ("allocatable", "capacity"):
        yield from _no_resources(f"status.{what}", status.get(what))


def _of_priority_class(manifest: dict[str, Any]) -> Problems:
    name, value = manifest["metadata"]["name"], manifest.get("value") or 0
    known = SYSTEM_PRIORITIES.get(name)
    if known is None and name.startswith("system-"):
        yield "metadata.name", f"names that begin with system- are Kubernetes' own, not {name!r}"
    elif known is None and value > _MOST_PRIORITY:
        yield "value", f"must not be above {_MOST_PRIORITY}, but is {value}"
    elif known is not None and value != known:
        yield "value", f"should be {known} in this class, not {value}"


def _of_budget(manifest: dict[str, Any]) -> Problems:
    spec = manifest.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield "spec", "only one of minAvailable and maxUnavailable may be given"


def _of_volcano_job(manifest: dict[str, Any]) -> Problems:
    spec = manifest.get("spec") or {}
    tasks = spec.get("tasks") or ()
    pods = [1 if task.get("replicas") is None else task["replicas"] for task in tasks]
    needed = [("spec", spec, sum(pods)), *((f"spec.tasks[{at}]", task, pods[at]) for at, task in enumerate(tasks))]
    for path, part, most in needed:
        if (part.get("minAvailable") or 0) > most:
            yield f"{path}.minAvailable", f"must not be above replicas, but {part['minAvailable']} is above {most}"
    names = Counter(task["name"] for task in tasks if task.get("name"))
    for name, times in names.items():
        if times > 1:
            yield "spec.tasks", f"{times} tasks have the name {shown(name)}"
    for at, task in enumerate(tasks):
        for name in (task.get("dependsOn") or {}).get("name") or ():
            if name not in names:
                yield f"spec.tasks[{at}].dependsOn.name", f"there is no task {shown(name)}{did_you_mean(name, names)}"
    try:
        TopologicalSorter(
            {task["name"]: (task.get("dependsOn") or {}).get("name") or () for task in tasks if task.get("name")}
        ).prepare()
    except CycleError as error:
        yield "spec.tasks", f"tasks wait for each other: {', '.join(map(str, reversed(error.args[1])))}"
    paths: set[object] = set()
    for at, volume in enumerate(spec.get("volumes") or ()):
        path, mounted = f"spec.volumes[{at}]", volume.get("mountPath")
        if mounted in paths:
            yield f"{path}.mountPath", f"another volume is mounted at {shown(mounted)}"
        paths.add(mounted)
        # Both are there in a Job that the controller has seen, which writes the name of the claim that it made.
        if not (volume.get("volumeClaimName") or volume.get("volumeClaim")):
            yield path, "needs volumeClaimName, of a claim that exists, or volumeClaim, by which one is made"


def _of_kubeflow_job(manifest: dict[str, Any]) -> Problems:
    if not any(key.endswith("ReplicaSpecs") for key in manifest.get("spec") or ()):
        yield "spec", "needs the replicas of its roles, such as pytorchReplicaSpecs"


_RULES: Mapping[str, Callable[[Any], Problems]] = {
    "Queue": _of_queue,
    "PodGroup": _of_pod_group,
    "HyperNode": _of_hyper_node,
    "Node": _of_node,
    "PriorityClass": _of_priority_class,
    "PodDisruptionBudget": _of_budget,
    "VolcanoJob": _of_volcano_job,
    "KubeflowJob": _of_kubeflow_job,
}


# -- pods ------------------------------------------------------------------------------------------------------------


def _within(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A value and all in it that are mappings, each after its path."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _within(item, f"{path}[{number}]")
    elif isinstance(value, dict):
        yield path, value
        for key, item in value.items():
            if isinstance(item, (dict, list)):
                yield from _within(item, field_path((key,), path))


def _of_pod_spec(spec: dict[str, Any], path: str) -> Problems:
    for kind in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(kind) or ()):
            yield from _of_resources(container.get("resources") or {}, f"{path}.{kind}[{number}].resources")
    if spec.get("resources"):
        yield from _of_pod_level(spec, f"{path}.resources")
    for number, toleration in enumerate(spec.get("tolerations") or ()):
        if not toleration.get("key") and toleration.get("operator") != "Exists":
            yield f"{path}.tolerations[{number}].operator", "should be Exists where no key is given"
    for kind in ("affinity", "topologySpreadConstraints"):
        for place, each in _within(spec.get(kind), f"{path}.{kind}"):
            yield from _of_requirement(each.get("operator"), each.get("values") or [], place)


def _of_pod_level(spec: dict[str, Any], path: str) -> Problems:
    """The problems with pod-level requests."""
    for what in ("limits", "requests"):
        for name in spec["resources"].get(what) or ():
            if not is_pod_level(name):
                yield field_path((name,), f"{path}.{what}"), _NO_POD_LEVEL
    yield from _of_resources(spec["resources"], path)
    asking = {key: spec.get(key) for key in ("containers", "initContainers", "resources")}
    full = with_requests(msgspec.convert(asking, objects.PodSpec))
    if full.resources is not None:
        yield from _above(f"{path}.requests", full.resources.requests, "limits", full.resources.limits)
    together = of_containers(full, "requests", exact)
    for name, value in pod_level(full, "requests").items():
        if together.get(name, 0) > quantity.parse(value):
            told = told_quantity(name, value), told_quantity(name, formatted(together[name]))
            yield (
                field_path((name,), f"{path}.requests"),
                f"must not be below what containers request, {told[1]}, but is {told[0]}",
            )


def unlimited(pods: Iterable[objects.Pod]) -> Iterator[str]:
    """A line for each first pod that requests cards or huge pages without a limit, which no API server has seen."""
    told = set[tuple[str, str]]()
    for pod in pods:
        for container in pod.spec.containers or () if not pod.metadata.uid else ():
            given = container.resources or objects.ResourceRequirements()
            for name in (given.requests or {}).keys() - (given.limits or {}).keys():
                if (_NATIVE.fullmatch(name) and not name.startswith("hugepages-")) or (name, container.name) in told:
                    continue
                told.add((name, container.name))
                yield (
                    f"Pod {pod.metadata.key}: container {container.name} requests {name} and has no limit of it, for "
                    "which an API server refuses it: set the limit to what is requested"
                )


def _of_requirement(operator: str | None, values: list[str], path: str) -> Problems:
    """The problems with the values of a selector's requirement."""
    if operator in ("In", "NotIn") and not values:
        yield f"{path}.values", f"{operator} needs some"
    elif operator in ("Exists", "DoesNotExist") and values:
        yield f"{path}.values", f"{operator} takes none, not {shown(values)}"
    elif operator in ("Gt", "Lt") and not (len(values) == 1 and _INTEGER.fullmatch(values[0])):
        yield f"{path}.values", f"{operator} needs one whole number, not {shown(values)}"


def _of_resources(given: dict[str, Any], path: str) -> Problems:
    for what in ("limits", "requests"):
        for name, value in (given.get(what) or {}).items():
            at = field_path((name,), f"{path}.{what}")
            if _NATIVE.fullmatch(name):
                continue
            if len(name) > _LONGEST_NAME or not _QUALIFIED.fullmatch(name):
                yield at, f"{shown(name)} {_NO_RESOURCE}"
            elif "kubernetes.io/" not in name and quantity.parse(value).denominator != 1:
                yield at, f"should be a whole number, not {shown(value)}"
    yield from _above(f"{path}.requests", given.get("requests"), "limits", given.get("limits"))
