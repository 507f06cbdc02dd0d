"""What a hostile tenant does, each as a load of so many objects that stays while others are timed.

Nodes have 32 CPUs, of which 2 are taken: pods that ask for more than 30 wait, though they would fit an empty node.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.e2e.provisioner import MERGE_PATCH
from tests.e2e.service import Service
from tests.e2e.world import CORE, SCHEDULING, Object, World, pod

#: an object that a load needs beside its pods: the path of its collection, and the object
Extra = tuple[str, Object]
#: what goes on while others are timed, until the event is set
Activity = Callable[["Hostile", threading.Event], None]

_GROUP = "scheduling.k8s.io/group-name"
_RACK = "example.com/rack"
_STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
#: members of a gang that is tried in one turn
_GANG = 1_000
#: pods that are changed or replaced in a round, and the pause after one, in seconds
_ROUND, _PAUSE = 50, 0.25
#: those who ask what would be at the same time, and the resources that each names: more are refused at once
_ASKERS, _NAMED = 4, 250
#: claims of a pod
_CLAIMS = 200


@dataclass(slots=True)
class Hostile:
    """The tenant that is in the others' way, and the service that it may ask."""

    world: World
    service: Service
    mass: int

    def path(self, collection: str, name: str = "") -> str:
        base = SCHEDULING if collection == "podgroups" else CORE
        return f"{base}/namespaces/{self.world.namespace}/{collection}" + (f"/{name}" if name else "")


def _nothing(_: int) -> Object:
    return {}


def _no_extras(_: str, __: int) -> Iterator[Extra]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Load:
    """Pods that wait, by number, and what the tenant does with them."""

    #: fields of the pod's spec; `cpu` and `annotations` go to their places
    spec: Callable[[int], Mapping[str, Any]] = _nothing
    #: the spec of a PodGroup, by number, with `annotations`; the service makes one where this is None
    group: Callable[[int], Mapping[str, Any]] | None = None
    #: pods in each of these PodGroups
    size: int = 1
    #: more objects for the pod of a number in a namespace
    extras: Callable[[str, int], Iterator[Extra]] = _no_extras
    #: a part of the objects that the others have
    share: float = 1.0
    #: whether there are pods
    pods: bool = True
    activity: Activity | None = None
    #: what each pod's metadata has beside its name
    metadata: Mapping[str, Any] = field(default_factory=dict)


# -- activities ------------------------------------------------------------------------------------------------------


def _flap_labels(hostile: Hostile, stop: threading.Event) -> None:
    """Change a label of some pods, over and over."""
    at = 0
    while not stop.wait(_PAUSE):
        for _ in range(_ROUND):
            at += 1
            patch = {"metadata": {"labels": {"flaps": str(at)}}}
            name = f"mass-{at % hostile.mass}"
            hostile.world.api.patch(hostile.path("pods", name), json=patch, headers=MERGE_PATCH)


def _flap_annotations(hostile: Hostile, stop: threading.Event) -> None:
    """Change annotations of some PodGroups, over and over."""
    at = 0
    while not stop.wait(_PAUSE):
        for _ in range(_ROUND):
            at += 1
            patch = {"metadata": {"annotations": {"example.com/flaps": str(at) * 2_000}}}
            name = f"mass-{at % hostile.mass}"
            hostile.world.api.patch(hostile.path("podgroups", name), json=patch, headers=MERGE_PATCH)


def _flap_pods(hostile: Hostile, stop: threading.Event) -> None:
    """Delete pods and create them again, over and over."""
    at, now = 0, {"gracePeriodSeconds": "0"}
    while not stop.wait(_PAUSE):
        for _ in range(_ROUND // 2):
            at += 1
            name = f"mass-{at % hostile.mass}"
            hostile.world.api.delete(hostile.path("pods", name), params=now)
            hostile.world.api.post(hostile.path("pods"), json=_pod(LOADS["requests"], at % hostile.mass))


def _flap_gates(hostile: Hostile, stop: threading.Event) -> None:
    """Lift the gate of some pods, and replace as many by pods behind one, over and over."""
    at, now = 0, {"gracePeriodSeconds": "0"}
    while not stop.wait(_PAUSE):
        for _ in range(_ROUND // 2):
            at += 1
            number = at % hostile.mass
            path = hostile.path("pods", f"mass-{number}")
            hostile.world.api.patch(path, json={"spec": {"schedulingGates": None}}, headers=MERGE_PATCH)
            hostile.world.api.delete(hostile.path("pods", f"mass-{(number + 1) % hostile.mass}"), params=now)
            gated = _pod(LOADS["flapping gates"], (number + 1) % hostile.mass)
            hostile.world.api.post(hostile.path("pods"), json=gated)


def _flap_sizes(hostile: Hostile, stop: threading.Event) -> None:
    """Change how many pods some PodGroups start with, over and over."""
    at = 0
    while not stop.wait(_PAUSE):
        for _ in range(_ROUND):
            at += 1
            path = hostile.path("podgroups", f"mass-{at % hostile.mass}")
            hostile.world.api.patch(path, json={"spec": {"minMember": 1 + at % 3}}, headers=MERGE_PATCH)


def _flap_queues(hostile: Hostile, stop: threading.Event) -> None:
    """Create queues, move PodGroups into them, and delete them, over and over."""
    at, queues = 0, f"{SCHEDULING}/queues"
    while not stop.wait(_PAUSE):
        for _ in range(_ROUND // 3):
            at += 1
            hostile.world.queue(f"flaps-{at}")
            path = hostile.path("podgroups", f"mass-{at % hostile.mass}")
            hostile.world.api.patch(path, json={"spec": {"queue": f"flaps-{at}"}}, headers=MERGE_PATCH)
            hostile.world.api.delete(f"{queues}/flaps-{at - _ROUND}")


def _ask(hostile: Hostile, stop: threading.Event) -> None:
    """Ask what would be if there were more nodes, several at a time."""
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"more-{number}"},
            "status": {"allocatable": {"cpu": "8", "pods": "10", f"example.com/r{number}": "1"}},
        }
        for number in range(_NAMED)
    ]
    body = {"apiVersion": "v1", "kind": "List", "items": nodes}

    def ask() -> None:
        with httpx.Client(base_url=hostile.service.url, trust_env=False, timeout=30) as http:
            while not stop.is_set():
                try:
                    http.post("/api/v1/whatif", json=body)
                except httpx.TransportError:
                    time.sleep(0.1)

    askers = [threading.Thread(target=ask, daemon=True) for _ in range(_ASKERS)]
    for each in askers:
        each.start()
    for each in askers:
        each.join()


def _terminate(hostile: Hostile, stop: threading.Event) -> None:
    """Delete bound pods that a finalizer keeps, and create others in their places, over and over."""
    at = 0
    while not stop.wait(_PAUSE):
        for _ in range(_ROUND // 10):
            hostile.world.api.delete(hostile.path("pods", f"mass-{at % hostile.mass}"))
            at += 1


# -- loads -----------------------------------------------------------------------------------------------------------


def _amounts(number: int) -> Object:
    """A request that no other pod has, more than any node has left."""
    return {"cpu": f"{30_001 + number % 1_900}m", "memory": f"{64 + number}Mi"}


def _selectors(number: int) -> Object:
    return {"nodeSelector": {_RACK: f"none-{number}"}}


def _affinities(number: int) -> Object:
    rather = {"key": _RACK, "operator": "NotIn", "values": [f"rack-{number}", f"rack-{number + 1}"]}
    nobody = {"key": _RACK, "operator": "In", "values": [f"none-{number}"]}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": f"app-{number}"}}}
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [nobody, rather]}]
                }
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        },
    }


def _with_claim(number: int) -> Object:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": f"mass-{number}"}}]
    return {"volumes": volumes, **_amounts(number)}


def _claims(namespace: str, number: int) -> Iterator[Extra]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "nobody-provides",
        "resources": {"requests": {"storage": f"{1 + number}Mi"}},
    }
    yield (
        f"{CORE}/namespaces/{namespace}/persistentvolumeclaims",
        {"metadata": {"name": f"mass-{number}"}, "spec": spec},
    )


def _of_large_gang(number: int) -> Object:
    """A request that no other pod has; those of a gang find places up to its last one."""
    return _amounts(number) if number % _GANG == _GANG - 1 else {"cpu": f"{1 + number}m"}


def _large_gang(number: int) -> Object:
    """A gang that is never complete and asks for a part of the cluster."""
    return {"minMember": 2 + number % 7, "minResources": {"cpu": f"{100 + number}", "memory": "64Gi"}}


def _refused(number: int) -> Object:
    """A gang that asks for so much that few of its kind are admitted at a time."""
    return {"minMember": 1, "minResources": {"cpu": f"{4_000 + number}"}}


def _never_fits(number: int) -> Object:
    """A gang that asks for more than the cluster has."""
    return {"minMember": 2, "minResources": {"cpu": f"{1_000_000 + number}"}}


def _many_claims(number: int) -> Object:
    """A pod that fits a node and has many claims."""
    claims = (f"mass-{number}-{at}" for at in range(_CLAIMS))
    return {"volumes": [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]}


def _late_claims(namespace: str, number: int) -> Iterator[Extra]:
    """The claims of such a pod, of a class whose volumes nobody makes."""
    late = {"metadata": {"name": "late"}, "provisioner": "example.com/none"}
    if number == 0:
        yield _STORAGE, {**late, "volumeBindingMode": "WaitForFirstConsumer"}
    once = {"accessModes": ["ReadWriteOnce"], "storageClassName": "late"}
    for at in range(_CLAIMS):
        spec = {**once, "resources": {"requests": {"storage": "1Mi"}}}
        path = f"{CORE}/namespaces/{namespace}/persistentvolumeclaims"
        yield path, {"metadata": {"name": f"mass-{number}-{at}"}, "spec": spec}


_NOTES = {f"volcano.sh/{name}": "9" * 4_000 for name in ("sla-waiting-time", "jdb-min-available", "vgpu-mode")}

LOADS: Mapping[str, Load] = {
    "requests": Load(_amounts),
    "selectors": Load(_selectors),
    "affinities": Load(_affinities),
    "claims": Load(_with_claim, extras=_claims),
    "claims by the hundred": Load(_many_claims, extras=_late_claims, share=0.01),
    "PodGroups": Load(group=_large_gang, pods=False),
    "PodGroups that never fit": Load(group=_never_fits, pods=False),
    "admissions": Load(_amounts, group=_refused, share=0.4, activity=_flap_annotations),
    "large gangs": Load(
        _of_large_gang,
        group=lambda _: {"minMember": _GANG},
        size=_GANG,
        activity=_flap_labels,
    ),
    "annotations": Load(
        _amounts,
        group=lambda number: {"minMember": 1, "annotations": {**_NOTES, "example.com/number": str(number)}},
        share=0.4,
        activity=_flap_annotations,
    ),
    "flapping pods": Load(_amounts, activity=_flap_pods),
    "flapping labels": Load(_amounts, activity=_flap_labels),
    "flapping gates": Load(
        lambda number: {**_amounts(number), "schedulingGates": [{"name": "example.com/flaps"}]},
        share=0.4,
        activity=_flap_gates,
    ),
    "flapping sizes": Load(_amounts, group=lambda _: {"minMember": 1}, share=0.4, activity=_flap_sizes),
    "flapping queues": Load(_amounts, group=lambda _: {"minMember": 1}, share=0.4, activity=_flap_queues),
    "terminating pods": Load(
        lambda number: {"cpu": f"{1 + number % 7}m"},
        share=0.4,
        activity=_terminate,
        metadata={"finalizers": ["example.com/slowly"]},
    ),
    "what-ifs": Load(_amounts, share=0.1, activity=_ask),
}


def _pod(load: Load, number: int) -> Object:
    spec = dict(load.spec(number))
    requests = {"cpu": spec.pop("cpu", "1"), "memory": spec.pop("memory", "64Mi")}
    manifest = pod(f"mass-{number}", "" if load.group is None else f"mass-{number // load.size}", **spec)
    manifest["spec"]["containers"][0]["resources"]["requests"] = requests
    manifest["metadata"] |= load.metadata
    manifest["metadata"]["labels"] = {"app": f"app-{number}"}
    manifest["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] = "hostile"
    return manifest


def _group(load: Load, number: int) -> Object:
    assert load.group is not None
    spec = {"queue": "hostile", **load.group(number)}
    metadata = {"name": f"mass-{number}", "annotations": spec.pop("annotations", {})}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
    }


@contextmanager
def under(load: Load, hostile: Hostile) -> Iterator[None]:
    """Have a load on the cluster; what is left of it afterwards goes with the cluster."""
    count = int(hostile.mass * load.share)
    world, numbers = hostile.world, range(count)
    part = Hostile(world, hostile.service, count)
    extras = [extra for number in numbers for extra in load.extras(world.namespace, number)]
    for path in dict.fromkeys(path for path, _ in extras):
        world.create_all(path, [manifest for where, manifest in extras if where == path])
    if load.group is not None:
        world.create_all(part.path("podgroups"), [_group(load, number) for number in range(-(-count // load.size))])
    if load.pods:
        world.pods([_pod(load, number) for number in numbers])
    stop = threading.Event()
    busy = threading.Thread(target=load.activity, args=(part, stop), daemon=True) if load.activity else None
    if busy:
        busy.start()
    try:
        yield
    finally:
        stop.set()
        if busy:
            busy.join()
