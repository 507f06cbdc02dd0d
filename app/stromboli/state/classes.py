"""Identity classes: pods whose scheduling-relevant spec is the same share one `PodClass`.

Feasibility and scores are computed once per class, so what tells two pods apart must be in the key, and what does not
matter (names, node, priority, the random volume of a service account) must not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from stromboli.api import objects, resources
from stromboli.api.resources import CPU, MEMORY, PODS, Dimensions, Matrix, Vector

#: pod annotations that a plugin reads to place the pod
PLACEMENT_ANNOTATIONS = frozenset(
    (
        "volcano.sh/preemptable",
        "volcano.sh/revocable-zone",
        "volcano.sh/numa-topology-policy",
        "volcano.sh/resource-strategy-scoring-type",
        "volcano.sh/resource-strategy-weight",
        "volcano.sh/template-uid",
        "volcano.sh/vgpu-mode",
        "volcano.sh/vgpu-use-gpuuuid",
        "volcano.sh/vgpu-nouse-gpuuuid",
        "volcano.sh/vgpu-podgroup-policy",
        "nvidia.com/use-gputype",
        "nvidia.com/nouse-gputype",
    )
)
#: what the scoring of kube-scheduler assumes for a container without requests: 100 milli-CPU, 200 MB
_DEFAULT_REQUEST = {CPU: 100.0, MEMORY: 200.0 * 1024 * 1024}


@dataclass(slots=True, eq=False)
class PodClass:
    """What the scheduler knows of a pod's spec; one object for all pods that share it."""

    #: index in `ClassTable.classes`
    id: int
    #: the typed spec that it was read from
    spec: objects.PodSpec
    #: request per dimension, `pods: 1` included
    request: Vector
    #: the same with kube-scheduler's defaults for containers without cpu or memory requests, for scoring: (cpu, memory)
    scoring_request: tuple[float, float]
    #: sum of limits per dimension
    limit: Vector
    #: requests nothing but its own existence
    best_effort: bool
    #: a scheduling gate holds it back
    gated: bool
    #: placement annotations, see PLACEMENT_ANNOTATIONS
    annotations: Mapping[str, str]
    #: set when the class depends on its namespace (affinity terms, claims), else empty
    namespace: str
    #: persistent volume claims it mounts
    claims: tuple[str, ...] = ()


class ClassTable:
    """Interns pod specs. Append-only: classes are shared between the state and its snapshots."""

    __slots__ = ("_by_key", "_encoder", "_requests", "classes", "dimensions")

    def __init__(self, dimensions: Dimensions) -> None:
        self.dimensions = dimensions
        self.classes: list[PodClass] = []
        self._by_key: dict[bytes, PodClass] = {}
        self._requests: Matrix = np.zeros((16, len(dimensions)))
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")

    def intern(self, spec: objects.PodSpec, namespace: str, annotations: Mapping[str, str] | None) -> PodClass:
        """The class of a pod with this spec.

        Raises InvalidQuantityError when a request is not a quantity.
        """
        placement = (
            {k: v for k, v in annotations.items() if k in PLACEMENT_ANNOTATIONS} if annotations else None
        ) or None
        claims = tuple(_claims(spec))
        local = namespace if _depends_on_namespace(spec, claims) else ""
        key = self._encoder.encode(
            (
                spec.containers,
                spec.init_containers,
                spec.overhead,
                spec.resources,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                spec.scheduling_gates,
                spec.resource_claims,
                spec.preemption_policy,
                claims,
                placement,
                local,
            )
        )
        found = self._by_key.get(key)
        if found is None:
            found = self._make(spec, placement or {}, claims, local)
            self._by_key[key] = found
        return found

    def _make(
        self, spec: objects.PodSpec, annotations: Mapping[str, str], claims: tuple[str, ...], namespace: str
    ) -> PodClass:
        request = pod_request(spec, self.dimensions)
        made = PodClass(
            id=len(self.classes),
            spec=spec,
            request=request,
            scoring_request=_scoring_request(spec, self.dimensions),
            limit=_pod_total(spec, self.dimensions, "limits"),
            best_effort=resources.is_empty(request),
            gated=bool(spec.scheduling_gates),
            annotations=annotations,
            namespace=namespace,
            claims=claims,
        )
        self.classes.append(made)
        self._reserve()
        self._requests[made.id, : len(request)] = request
        return made

    def requests(self) -> Matrix:
        """The requests of all classes, shape (classes, dimensions). Rows are only ever appended: a view stays true."""
        self._reserve()
        return self._requests[: len(self.classes)]

    def _reserve(self) -> None:
        rows, columns = self._requests.shape
        if len(self.classes) > rows or len(self.dimensions) > columns:
            bigger = np.zeros((max(rows, 2 * len(self.classes)), len(self.dimensions)))
            bigger[:rows, :columns] = self._requests
            self._requests = bigger


def pod_request(spec: objects.PodSpec, dimensions: Dimensions) -> Vector:
    """What a pod requests: containers and sidecars together or the largest init step, plus overhead and itself."""
    request = _pod_total(spec, dimensions, "requests")
    request[PODS] += 1
    return request


def _pod_total(spec: objects.PodSpec, dimensions: Dimensions, what: str) -> Vector:
    def of(container: objects.Container) -> Vector:
        return dimensions.vector(getattr(container.resources, what) if container.resources else None)

    total, sidecars, peak = dimensions.vector(None), dimensions.vector(None), dimensions.vector(None)
    for container in spec.containers or ():
        total = _add(total, of(container))
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            total = _add(total, of(container))
            sidecars = _add(sidecars, of(container))
            peak = _maximum(peak, sidecars)
        else:
            peak = _maximum(peak, _add(of(container), sidecars))
    total = _maximum(total, peak)
    return _add(total, dimensions.vector(spec.overhead))


def _scoring_request(spec: objects.PodSpec, dimensions: Dimensions) -> tuple[float, float]:
    """cpu and memory with the defaults that kube-scheduler assumes for each container that requests none."""

    def of(container: objects.Container, column: int) -> float:
        requests = (container.resources.requests if container.resources else None) or {}
        name = dimensions.names[column]
        return resources.amount(name, requests[name]) if name in requests else _DEFAULT_REQUEST[column]

    out = []
    for column in (CPU, MEMORY):
        total = sidecars = peak = 0.0
        for container in spec.containers or ():
            total += of(container, column)
        for container in spec.init_containers or ():
            if container.restart_policy == "Always":
                total += of(container, column)
                sidecars += of(container, column)
                peak = max(peak, sidecars)
            else:
                peak = max(peak, of(container, column) + sidecars)
        overhead = (spec.overhead or {}).get(dimensions.names[column])
        out.append(max(total, peak) + (resources.amount(dimensions.names[column], overhead) if overhead else 0))
    return out[0], out[1]


def _claims(spec: objects.PodSpec) -> list[str]:
    return [v.persistent_volume_claim.claim_name for v in spec.volumes or () if v.persistent_volume_claim]


def _depends_on_namespace(spec: objects.PodSpec, claims: tuple[str, ...]) -> bool:
    inter_pod = spec.affinity is not None and (spec.affinity.pod_affinity or spec.affinity.pod_anti_affinity)
    return bool(claims or inter_pod or spec.topology_spread_constraints or spec.resource_claims)


def _add(a: Vector, b: Vector) -> Vector:
    width = max(len(a), len(b))
    return resources.widened(a, width) + resources.widened(b, width)


def _maximum(a: Vector, b: Vector) -> Vector:
    width = max(len(a), len(b))
    return np.maximum(resources.widened(a, width), resources.widened(b, width))
