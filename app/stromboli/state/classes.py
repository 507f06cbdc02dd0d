"""Identity classes: pods whose scheduling-relevant spec is the same share one `PodClass`.

Feasibility and scores are computed once per class, so everything that distinguishes two pods must be in the key, and
what does not matter (names, node, priority, the random volume of a service account) must not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from stromboli.api import conditions, objects, requests
from stromboli.api.resources import Dimensions, Matrix, Vector, amounts
from stromboli.state.reads import IN_SPEC, NOTHING_ELSE, ClassReads, Reads
from stromboli.state.rows import RowNumbers

#: amounts that kube-scheduler's scoring assumes for a container without requests: 100 milli-CPU, 200 MB
_DEFAULT_REQUEST = {"cpu": 100, "memory": 200 * 1024 * 1024}
_NO_LIMIT: Mapping[str, int] = {}
#: a scheduling gate that keeps pods of a gang from kube-scheduler until the whole gang is decided
GANG_GATE = "stromboli.io/gang"
#: bytes that tell classes apart, whatever serialised the specs
_DIGEST = 20


@dataclass(slots=True, eq=False)
class PodClass:
    """The scheduling-relevant part of a pod's spec; one object for all pods that share it."""

    #: index in `ClassTable.classes`; when no pod has the class any longer, another gets it
    id: int
    #: what all its pods have in common of their specs, with the requests by which a pod that is resized counts; fields
    #: that may differ between them, such as the priority, are as if they were not set
    spec: objects.PodSpec
    #: requests of each resource, `pods: 1` included, without zeros
    request: Mapping[str, int]
    #: with kube-scheduler's defaults for containers without cpu or memory requests, for scoring: (cpu, memory)
    scoring_request: tuple[float, float]
    #: the limits of each resource, added up
    limit: Mapping[str, int]
    #: requests nothing but its own existence
    best_effort: bool
    #: a scheduling gate holds it back, other than that of its gang
    gated: bool
    #: of labels, annotations and other fields those that plugins declare to read, see `Reads`
    reads: ClassReads
    #: set when the class depends on its namespace (affinity terms, claims), else empty
    namespace: str
    #: equal for classes whose selectors, node affinity and tolerations are: what they say of nodes is the same
    terms: bytes
    #: the number of conditions that its affinity and spread put on other pods
    conditions: int = 0
    #: persistent volume claims it mounts, those of its ephemeral volumes included
    claims: tuple[str, ...] = ()
    #: those of its ephemeral volumes, which are made for the pod and are of use to no other
    ephemeral_claims: tuple[str, ...] = ()
    #: its volumes that name a disk themselves, without their own names
    disks: tuple[objects.Volume, ...] = ()
    #: parts shared with other classes, kept as long as one of them is
    shape: _Shape | None = None
    #: for rules: what they derive from the class alone, by a key of their own
    cache: dict[object, object] = field(default_factory=dict)

    @property
    def waits_for_gang(self) -> bool:
        """Whether only the gate of its gang holds it back; it is lifted when its node is decided."""
        return bool(self.spec.scheduling_gates) and not self.gated

    def needs_claims(self, claimed: frozenset[str]) -> bool:
        """Whether it names resource claims, or requests resources that are served by a claim created for the pod."""
        return bool(self.spec.resource_claims) or (bool(claimed) and not claimed.isdisjoint(self.request))


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Shape:
    """The part shared by classes that differ only in their volumes and in what plugins read."""

    spec: objects.PodSpec
    amounts: _Amounts
    terms: bytes
    conditions: int


def _shared(spec: objects.PodSpec, other: objects.PodSpec, names: Sequence[str]) -> objects.PodSpec:
    """A copy of a spec with some fields taken from another."""
    return msgspec.structs.replace(spec, **{name: getattr(other, name) for name in names})


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Amounts:
    """The part shared by shapes with the same containers."""

    spec: objects.PodSpec
    request: Mapping[str, int]
    scoring_request: tuple[float, float]
    limit: Mapping[str, int]


#: fields of the spec that a class has for itself
_OF_CLASS = ("volumes", "resource_claims")
#: those that say what it asks for
_OF_AMOUNTS = ("containers", "init_containers", "overhead", "resources")
#: the others that tell shapes apart
_OF_SHAPE = (
    "node_selector",
    "affinity",
    "tolerations",
    "topology_spread_constraints",
    "scheduling_gates",
    "preemption_policy",
)
#: those that count only together, where they do
_OF_USERS = ("host_users", "host_network")

#: a spec without any field
_UNSET = objects.PodSpec()
#: stands where no class is
_VACANT = PodClass(
    -1,
    objects.PodSpec(),
    {},
    (0.0, 0.0),
    {},
    best_effort=True,
    gated=True,
    reads=ClassReads({}, {}, {}),
    namespace="",
    terms=b"",
)


class ClassTable:
    """Interns pod specs, and forgets them with the last pod. The classes themselves are shared with snapshots."""

    __slots__ = (
        "_amounts",
        "_by_key",
        "_dimensions",
        "_encoder",
        "_keys",
        "_numbers",
        "_own",
        "_pods",
        "_reads",
        "_requests",
        "_shapes",
        "_shown",
        "classes",
    )

    def __init__(self, dimensions: Dimensions, reads: Reads = NOTHING_ELSE) -> None:
        """`reads` declares further fields that distinguish classes."""
        self._dimensions = dimensions
        self._reads = reads
        self._own = (*_OF_CLASS, *(IN_SPEC[name] for name in sorted(reads.fields & IN_SPEC.keys())))
        self.classes: list[PodClass] = []
        self._by_key: dict[bytes, PodClass] = {}
        self._shapes: WeakValueDictionary[bytes, _Shape] = WeakValueDictionary()
        self._amounts: WeakValueDictionary[bytes, _Amounts] = WeakValueDictionary()
        #: by class id: its key, and how many pods have it
        self._keys: list[bytes] = []
        self._pods: list[int] = []
        self._numbers = RowNumbers()
        self._requests: Matrix = np.zeros((16, len(dimensions)))
        self._shown: tuple[Sequence[PodClass], Matrix] | None = None
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")

    def copy(self) -> ClassTable:
        """An independent copy."""
        out = ClassTable(self._dimensions, self._reads)
        out.classes, out._keys, out._pods = self.classes.copy(), self._keys.copy(), self._pods.copy()
        out._by_key, out._numbers, out._requests = self._by_key.copy(), self._numbers.copy(), self._requests.copy()
        return out

    def acquire(self, pod: objects.Pod) -> PodClass:
        """The class of a pod, for one more pod."""
        pod = requests.counted(pod)
        spec, namespace, read = pod.spec, pod.metadata.namespace or "default", self._reads.of_class(pod)
        mounts = _mounts(pod.metadata.name, spec.volumes) if spec.volumes else _NO_MOUNTS
        local = namespace if _depends_on_namespace(spec, mounts.claims) else ""
        amounts = self._encoder.encode([getattr(spec, name) for name in _OF_AMOUNTS])
        shape = amounts + self._encoder.encode(
            [*(getattr(spec, name) for name in _OF_SHAPE), spec.isolates_users_on_host_network, spec.image_volumes]
        )
        own = self._encoder.encode((spec.resource_claims, mounts, read.labels, read.annotations, read.fields, local))
        # For a class with a single pod, the encoded text would take most of the memory.
        key = blake2b(shape + own, digest_size=_DIGEST).digest()
        found = self._by_key.get(key)
        if found is None:
            of_shape = self._shape(shape, amounts, spec)
            found = _make(self._numbers.take(), of_shape, _shared(of_shape.spec, spec, self._own), read, mounts, local)
            self._add(found, key)
        self._pods[found.id] += 1
        return found

    def _shape(self, text: bytes, of_amounts: bytes, spec: objects.PodSpec) -> _Shape:
        """The shape shared by all specs with the same encoding."""
        key = blake2b(text, digest_size=_DIGEST).digest()
        found = self._shapes.get(key)
        if found is None:
            amounts = self._amounts_of(of_amounts, spec)
            affinity = spec.affinity.node_affinity if spec.affinity else None
            terms = self._encoder.encode((spec.node_selector, affinity, spec.tolerations))
            fields = (*_OF_SHAPE, *_OF_USERS) if spec.isolates_users_on_host_network else _OF_SHAPE
            of_shape = _shared(_shared(_UNSET, amounts.spec, _OF_AMOUNTS), spec, fields)
            found = self._shapes[key] = _Shape(of_shape, amounts, terms, conditions.on_pods(spec))
        return found

    def _amounts_of(self, text: bytes, spec: objects.PodSpec) -> _Amounts:
        """The amounts shared by all specs with the same container requests."""
        key = blake2b(text, digest_size=_DIGEST).digest()
        found = self._amounts.get(key)
        if found is None:
            request, limit = pod_request(spec), +Counter(requests.total(spec, "limits", amounts)) or _NO_LIMIT
            found = self._amounts[key] = _Amounts(spec, request, _scoring_request(spec), limit)
        return found

    def release(self, pod_class: PodClass) -> None:
        """Take note that one pod of a class is gone."""
        number = pod_class.id
        self._pods[number] -= 1
        if self._pods[number]:
            return
        self._shown = None
        del self._by_key[self._keys[number]]
        self.classes[number], self._keys[number] = _VACANT, b""
        self._numbers.give_back(number)
        for column in (self.classes, self._keys, self._pods):
            del column[self._numbers.size :]

    def _add(self, made: PodClass, key: bytes) -> None:
        self._shown = None
        if made.id == len(self.classes):
            self.classes.append(made)
            self._keys.append(key)
            self._pods.append(0)
            if made.id == len(self._requests):
                self._requests = np.concatenate([self._requests, np.zeros_like(self._requests)])
        self.classes[made.id], self._keys[made.id] = made, key
        self._by_key[key] = made
        self._requests[made.id] = self._dimensions.vector(made.request)

    def request(self, pod_class: PodClass) -> Vector:
        """The requests of a class, shape (dimensions,); callers must not keep the array."""
        row: Vector = self._requests[pod_class.id]
        return row

    def shown(self) -> tuple[Sequence[PodClass], Matrix]:
        """A copy of all classes and of their requests, shape (classes, dimensions), shared until one changes."""
        if self._shown is None:
            requests = self._requests[: len(self.classes)].copy()
            requests.flags.writeable = False
            self._shown = self.classes[:], requests
        return self._shown

    def reshape(self, dimensions: Dimensions) -> None:
        """Read the requests of all classes in other dimensions."""
        self._dimensions, self._shown = dimensions, None
        self._requests = np.zeros((max(16, len(self.classes)), len(dimensions)))
        for pod_class in self._by_key.values():
            self._requests[pod_class.id] = dimensions.vector(pod_class.request)


def _make(
    number: int,
    shape: _Shape,
    spec: objects.PodSpec,
    read: ClassReads,
    mounts: _Mounts,
    namespace: str,
) -> PodClass:
    amounts = shape.amounts
    return PodClass(
        id=number,
        spec=spec,
        request=amounts.request,
        scoring_request=amounts.scoring_request,
        limit=amounts.limit,
        best_effort=not amounts.request.keys() - {"pods"},
        gated=any(gate.name != GANG_GATE for gate in spec.scheduling_gates or ()),
        reads=read,
        namespace=namespace,
        terms=shape.terms,
        conditions=shape.conditions,
        claims=mounts.claims,
        ephemeral_claims=mounts.ephemeral_claims,
        disks=mounts.disks,
        shape=shape,
    )


def pod_request(spec: objects.PodSpec) -> Counter[str]:
    """The requests of a pod by resource, including one of the resource `pods`, without zeros."""
    return +Counter(requests.total(spec, "requests", amounts)) + Counter(pods=1)


def _scoring_request(spec: objects.PodSpec) -> tuple[float, float]:
    """cpu and memory with the defaults that kube-scheduler assumes for each container that requests none.

    If the pod has pod-level requests, defaults apply only to what neither it nor any container requests.
    """
    unset: Mapping[str, int] = _DEFAULT_REQUEST
    if requests.pod_level(spec, "requests"):
        named = requests.total(spec, "requests", amounts)
        unset = {name: amount for name, amount in _DEFAULT_REQUEST.items() if name not in named}
    total = requests.total(spec, "requests", amounts, unset)
    return float(total.get("cpu", 0)), float(total.get("memory", 0))


class _Mounts(NamedTuple):
    """The claims and disks behind a pod's volumes, see the fields of `PodClass`."""

    claims: tuple[str, ...]
    ephemeral_claims: tuple[str, ...]
    disks: tuple[objects.Volume, ...]


_NO_MOUNTS = _Mounts((), (), ())


def _mounts(pod: str, volumes: Sequence[objects.Volume]) -> _Mounts:
    """The claims and disks behind the volumes of a pod with a given name."""
    claims, ephemeral, disks = [], [], []
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            claims.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            claims.append(f"{pod}-{volume.name}")
            ephemeral.append(claims[-1])
        elif volume.names_disk:
            disks.append(msgspec.structs.replace(volume, name=""))
    return _Mounts(tuple(claims), tuple(ephemeral), tuple(disks))


def _depends_on_namespace(spec: objects.PodSpec, claims: tuple[str, ...]) -> bool:
    inter_pod = spec.affinity is not None and (spec.affinity.pod_affinity or spec.affinity.pod_anti_affinity)
    return bool(claims or inter_pod or spec.topology_spread_constraints or spec.resource_claims)
