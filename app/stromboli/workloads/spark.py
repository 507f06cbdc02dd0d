"""The driver and the executors of Spark: of spark-operator's kinds, or of a driver that spark-submit made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from stromboli.api import readers
from stromboli.workloads.gangs import Gang, Role, Workload, workload
from stromboli.workloads.model import WorkloadKind
from stromboli.workloads.paths import Object, at, count, items, labels, mapping, text

ROLE = "spark-role"
#: the role of the pod that a SparkConnect starts with
_SERVER = "connect-server"
#: the batch scheduler with which the operator makes a PodGroup that starts with the driver
_VOLCANO = "volcano"
#: least bytes that each pod requests besides its heap
_OVERHEAD = 384 * 2**20
#: fields that both a part of an application and the spec of its pods have
_OF_PODS = ("affinity", "hostNetwork", "priorityClassName", "schedulerName")
_LISTS_OF_PODS = ("initContainers", "tolerations")
#: where Spark's own configuration says how executors scale, by the field of an application
_SCALING: Mapping[str, str] = {
    "minExecutors": "spark.dynamicAllocation.minExecutors",
    "initialExecutors": "spark.dynamicAllocation.initialExecutors",
    "maxExecutors": "spark.dynamicAllocation.maxExecutors",
}
_SCALES = "spark.dynamicAllocation.enabled"
_INSTANCES = "spark.executor.instances"
#: the executors of Spark itself, where nothing says how many; spark-operator has one for an application
_OF_SPARK = 2


def spark_application(owner: Object, kind: WorkloadKind) -> Workload:
    """The driver alone, since it asks for the executors; of these the least number start together."""
    name = text(owner, "metadata.name")
    driver, executor = (_template(owner, role) for role in ("driver", "executor"))
    first, least, most = _executors_of(owner)
    executors = Role("executor", executor, first, least, f"{name}-exec")
    if text(owner, "spec.batchScheduler") == _VOLCANO:
        roles = Role("driver", driver, 1, 1, f"{name}-driver"), replace(executors, needed=0, later=True)
        return workload(owner, kind, Gang(roles, least=1, at_first=1, group_name=f"spark-{name}-pg"))
    return workload(owner, kind, _driver(name, driver), _executors(executors, most), part_label=ROLE)


def spark_connect(owner: Object, kind: WorkloadKind) -> Workload:
    """The server alone, which asks for the executors as a driver does; its template says what it requests."""
    name, server = text(owner, "metadata.name"), mapping(owner, "spec.server.template")
    first, least, most = _executors_of(owner, _OF_SPARK)
    executors = Role("executor", _template(owner, "executor"), first, least, f"{name}-exec")
    gang = Gang((Role(_SERVER, server, 1, 1, f"{name}-server"),), part=_SERVER, adjustable=False)
    return workload(owner, kind, gang, _executors(executors, most, after=_SERVER), part_label=ROLE)


def spark_driver(owner: Object, kind: WorkloadKind) -> Workload:
    """A driver pod, whose executors start one by one unless an annotation says how many start together."""
    if labels(owner).get(ROLE) != "driver":
        return Workload()
    executors = Role("executor", {}, 1, 1, f"{text(owner, 'metadata.name')}-exec")
    return workload(owner, kind, _executors(executors, readers.INT32), part_label=ROLE)


def _driver(name: str, template: Object) -> Gang:
    return Gang((Role("driver", template, 1, 1, f"{name}-driver"),), part="driver", adjustable=False)


def _executors(role: Role, most: int | None, after: str = "driver") -> Gang:
    """The executors of a driver, which asks for more of them while others wait, up to a number where it may."""
    return Gang((role,), part="executor", at_first=most, after=after)


def _executors_of(owner: Object, default: int = 1) -> tuple[int, int, int | None]:
    """Number of executors at first, the minimum and, where they scale, the maximum."""
    told = mapping(owner, "spec.sparkConf")
    instances = count(owner, owner, "spec.executor.instances", readers.count(str(told.get(_INSTANCES))))
    if not (at(owner, "spec.dynamicAllocation.enabled") is True or told.get(_SCALES) == "true"):
        instances = default if instances is None else instances
        return instances, instances, None
    least, initial, most = (
        count(owner, owner, f"spec.dynamicAllocation.{field}", readers.count(str(told.get(key))))
        for field, key in _SCALING.items()
    )
    first = max(least or 0, initial or 0, instances or 0)
    return first, least or 0, max(first, readers.INT32 if most is None else most)


def _template(owner: Object, part: str) -> Object:
    """The template of the pods of a part of an application: its own one, with the application's settings."""
    said = mapping(owner, f"spec.{part}")
    template = mapping(said, "template")
    spec, metadata = mapping(template, "spec"), mapping(template, "metadata")
    first, *others = [each for _, each in items(spec, "containers")] or [{"name": "spark"}]
    beside = [each for _, each in items(said, "sidecars")]
    spec = {**spec, "containers": [_container(owner, said, first), *others, *beside]}
    spec |= {key: said[key] for key in _OF_PODS if said.get(key)}
    if text(owner, "spec.batchScheduler"):
        spec["schedulerName"] = text(owner, "spec.batchScheduler")
    for key in _LISTS_OF_PODS:
        listed = [each for at_ in (spec, said) for _, each in items(at_, key)]
        spec |= {key: listed} if listed else {}
    selectors = (mapping(at_, "nodeSelector") for at_ in (spec, mapping(owner, "spec"), said))
    selector = {key: value for each in selectors for key, value in each.items()}
    spec |= {"nodeSelector": selector} if selector else {}
    noted = {key: {**mapping(metadata, key), **mapping(said, key)} for key in ("labels", "annotations")}
    return {"metadata": {**metadata, **noted}, "spec": spec}


def _container(owner: Object, said: Object, container: Object) -> Object:
    """The container that Spark runs in, with the cores, the memory and the cards that an application gives it."""
    cores = text(said, "coreRequest") or said.get("cores") or 1
    resources = mapping(container, "resources")
    requests = {**mapping(resources, "requests"), "cpu": cores, "memory": _memory(said, _factor(owner))}
    limits = {key: value for key, value in mapping(resources, "limits").items() if key not in ("cpu", "memory")}
    card, cards = text(said, "gpu.name"), at(said, "gpu.quantity")
    if card and cards:
        limits[card] = cards
    return {**container, "resources": {"requests": requests, **({"limits": limits} if limits else {})}}


def _memory(said: Object, factor: Fraction) -> str:
    """Memory request of pods: the heap and its overhead, which is at least 384 MiB and a share of it by default."""
    heap, overhead = (_bytes(text(said, key)) for key in ("memory", "memoryOverhead"))
    if heap is None:
        return text(said, "memory") or str(2**30 + max(_OVERHEAD, int(2**30 * factor)))
    return str(heap + (max(_OVERHEAD, int(heap * factor)) if overhead is None else overhead))


def _bytes(amount: str) -> int | None:
    """An amount of memory as Spark writes it, with binary units, MiB where there is none; None for another text."""
    found = re.fullmatch(r"([0-9]{1,18})([kmgtp]?)b?", amount.lower())
    return int(found[1]) * 1024 ** "_kmgtp".index(found[2] or "m") if found else None


def _factor(owner: Object) -> Fraction:
    """The share of the heap that pods request besides it: more for programs outside the JVM."""
    told = text(owner, "spec.memoryOverheadFactor")
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", told):
        return Fraction(told)
    return Fraction(4, 10) if text(owner, "spec.type") in ("Python", "R") else Fraction(1, 10)
