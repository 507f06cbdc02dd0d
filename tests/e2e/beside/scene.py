"""Where a situation is played for the pods of one scheduler, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.controlplane.cluster import eventually
from tests.e2e.provisioner import MERGE_PATCH, VOLUMES, volume
from tests.e2e.world import CORE, SCHEDULING, Object, World, pod

STORAGE = "/apis/storage.k8s.io/v1"
DEVICES = "/apis/resource.k8s.io/v1"
#: what a situation leaves that is of no namespace
_CLUSTER_WIDE = (
    VOLUMES,
    *(f"{STORAGE}/{kind}" for kind in ("storageclasses", "csinodes", "csidrivers", "volumeattachments")),
    *(f"{DEVICES}/{kind}" for kind in ("resourceslices", "deviceclasses")),
)
HOSTNAME = "kubernetes.io/hostname"
DRIVER = "gpu.example.com"
#: the finalizer of pods that end when they are let go
SLOWLY = "example.com/slowly"
_PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
#: without it the API server refuses to resize what a pod asks for as a whole
_RESIZES_WHOLE_PODS = "InPlacePodLevelResourcesVerticalScaling"
#: how kube-scheduler is told not to keep a pod back that it refused for longer than a second
SHORT_BACKOFF = {"podMaxBackoffSeconds": 1}
#: for how many seconds it does, and some
_PATIENCE = 2
#: seconds between two looks
_PAUSE = 0.4
Situation = Callable[["Scene"], None]


class Scene:
    """Nodes, objects and pods of one play of a situation."""

    def __init__(self, world: World, scheduler: str) -> None:
        self.world = world
        self._scheduler = scheduler
        self._pods = f"{CORE}/namespaces/{world.namespace}/pods"
        self._groups = f"{SCHEDULING}/namespaces/{world.namespace}/podgroups"
        self.claims = f"{CORE}/namespaces/{world.namespace}/persistentvolumeclaims"
        self._device_claims = f"{DEVICES}/namespaces/{world.namespace}/resourceclaims"

    def clear(self) -> None:
        """Delete everything, and wait until nothing is left that the next play could see."""
        self._let_all_go()
        everything = (self._pods, self._groups, self._device_claims, f"{CORE}/nodes", *_CLUSTER_WIDE)
        for path in everything:
            self.world.api.delete(path, params={"gracePeriodSeconds": "0"}).raise_for_status()
        self.world.api.delete(f"{CORE}/namespaces/{self.world.namespace}").raise_for_status()
        eventually(lambda: not any(self.world.items(path) for path in everything), 60)
        self.world.api.close()

    def _let_all_go(self) -> None:
        for each in self.world.items(self._pods):
            if SLOWLY in each["metadata"].get("finalizers", ()):
                path = f"{self._pods}/{each['metadata']['name']}"
                self.world.api.patch(path, json={"metadata": {"finalizers": None}}, headers=MERGE_PATCH)

    # -- nodes and pods ---

    def node(self, name: str, amounts: Mapping[str, str] | None = None, **labels: str) -> None:
        found = {"cpu": "4", "memory": "16Gi", "pods": "110", **(amounts or {})}
        metadata = {"name": name, "labels": {HOSTNAME: name, **labels}}
        status = {"capacity": found, "allocatable": found, "declaredFeatures": [_RESIZES_WHOLE_PODS]}
        self.world.create(f"{CORE}/nodes", {"metadata": metadata, "status": status})

    def nodes(self, *names: str, **amounts: str) -> None:
        for name in names:
            self.node(name, amounts)

    def pod(self, name: str, on: str = "", **spec: Any) -> None:
        """A pod of the scheduler, decided when this returns; `on` is the only node that it may have."""
        self._create(name, self._scheduler, **({"nodeSelector": {HOSTNAME: on}} if on else {}) | spec)
        eventually(lambda: name in self.world.placed() or name in self.world.refused(), 60)

    def running(self, name: str, on: str, **spec: Any) -> None:
        """A pod of the scheduler that has got its only node and runs."""
        self.pod(name, on, **spec)
        eventually(lambda: self._status(name).get("phase") == "Running")

    def placed(self, name: str, on: str, **spec: Any) -> None:
        """A pod that no scheduler placed, and that runs."""
        self._create(name, "none", nodeName=on, **spec)
        eventually(lambda: self._status(name).get("phase") == "Running")

    def _create(self, name: str, scheduler: str, **spec: Any) -> None:
        metadata = {key: spec.pop(key) for key in ("labels", "finalizers") if key in spec}
        if "priority" in spec:
            spec["priorityClassName"] = self._priority_class(spec.pop("priority"), **spec)
        manifest = pod(name, scheduler=scheduler, **{"cpu": "100m", **spec})
        manifest["metadata"] |= metadata
        if "priorityClassName" in spec:
            # A class that is new is known a moment later.
            eventually(lambda: self.world.api.post(self._pods, json=manifest, params={"dryRun": "All"}).is_success)
        self.world.pods([manifest])

    def _priority_class(self, value: int, preemptionPolicy: str = "PreemptLowerPriority", **_: Any) -> str:  # noqa: N803
        """The class of a priority, which stays for other plays."""
        name = f"beside-{value}-{preemptionPolicy.lower()}"
        manifest = {"metadata": {"name": name}, "value": value, "preemptionPolicy": preemptionPolicy}
        self.world.api.post(_PRIORITIES, json=manifest)
        return name

    def delete(self, name: str) -> None:
        self.world.api.delete(f"{self._pods}/{name}").raise_for_status()

    def let_go(self, name: str) -> None:
        """Let a pod end that has to, once it has to."""
        pod = f"{self._pods}/{name}"
        eventually(lambda: "deletionTimestamp" in self.world.get(pod)["metadata"])
        self.world.api.patch(pod, json={"metadata": {"finalizers": None}}, headers=MERGE_PATCH).raise_for_status()

    def tell(self, name: str, **status: Any) -> None:
        """Write of a pod what a kubelet would."""
        answer = self.world.api.patch(f"{self._pods}/{name}/status", json={"status": status}, headers=MERGE_PATCH)
        assert answer.is_success, answer.text

    def resize(self, name: str, **spec: Any) -> None:
        answer = self.world.api.patch(f"{self._pods}/{name}/resize", json={"spec": spec}, headers=MERGE_PATCH)
        assert answer.is_success, answer.text

    def _status(self, name: str) -> Object:
        status: Object = self.world.get(f"{self._pods}/{name}")["status"]
        return status

    # -- volumes ---

    def storage_class(self, name: str, provisioner: str = "kubernetes.io/no-provisioner", **more: Any) -> None:
        manifest = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Retain"}
        self.world.create(f"{STORAGE}/storageclasses", {"metadata": {"name": name}, **manifest, **more})

    def volume(self, name: str, node: str, size: str = "10Gi", **spec: Any) -> None:
        """A volume of the class `local`, which only the node reaches."""
        manifest = volume(name, node, "local", size, **({"csi": spec.pop("csi")} if "csi" in spec else {}))
        labels = spec.pop("labels", {})
        manifest["metadata"]["labels"] = labels
        manifest["spec"] |= spec
        self.world.create(VOLUMES, manifest)
        eventually(lambda: self.world.get(f"{VOLUMES}/{name}")["status"].get("phase", "Pending") != "Pending")

    def claim(self, name: str, size: str = "5Gi", storage_class: str = "local", **spec: Any) -> None:
        self.world.create(self.claims, {"metadata": {"name": name}, "spec": claim_spec(size, storage_class, **spec)})

    def bound_claim(self, name: str, on: str, **spec: Any) -> None:
        """A claim with a volume of its own on a node."""
        csi = {"csi": {"driver": "csi.example.com"}}
        modes = spec.pop("accessModes", ["ReadWriteOnce"])
        reference = {"kind": "PersistentVolumeClaim", "namespace": self.world.namespace, "name": name}
        self.volume(f"v-{name}", on, accessModes=modes, claimRef=reference, **{**csi, **spec})
        self.claim(name, accessModes=modes, volumeName=f"v-{name}")
        eventually(lambda: self.world.get(f"{self.claims}/{name}")["status"].get("phase") == "Bound")

    def csi_node(self, node: str, count: int | None, driver: str = "csi.example.com") -> None:
        allocatable = {} if count is None else {"allocatable": {"count": count}}
        drivers = [{"name": driver, "nodeID": node, "topologyKeys": [], **allocatable}]
        self.world.create(f"{STORAGE}/csinodes", {"metadata": {"name": node}, "spec": {"drivers": drivers}})

    # -- devices ---

    def device_class(self, name: str = "gpu", **spec: Any) -> None:
        selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
        self.world.create(
            f"{DEVICES}/deviceclasses", {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}
        )

    def slice(self, node: str, *devices: Object, counters: Object | None = None, slices: int = 0, **spec: Any) -> None:
        """The devices of a node, and with counters a slice of these."""
        pool = {"name": node, "generation": 1, "resourceSliceCount": slices or (2 if counters else 1)}
        common = {"driver": DRIVER, "pool": pool, **({"nodeName": node} | spec)}
        shared = {name: {"value": value} for name, value in (counters or {}).items()}
        contents: list[Object] = [{"devices": list(devices)}]
        contents += [{"sharedCounters": [{"name": "card", "counters": shared}]}] if counters else []
        for number, content in enumerate(contents):
            metadata = {"name": f"{node}-{number}"}
            self.world.create(f"{DEVICES}/resourceslices", {"metadata": metadata, "spec": {**common, **content}})

    def devices(self, name: str, *requests: Object, **devices: Any) -> None:
        """A claim of devices."""
        spec = {"devices": {"requests": list(requests or (asked(),)), **devices}}
        self.world.create(self._device_claims, {"metadata": {"name": name}, "spec": spec})

    def using(self, name: str, claim: str = "", **spec: Any) -> None:
        """A pod that uses a claim of devices, by default the one of its name."""
        self.pod(name, resourceClaims=[{"name": "d", "resourceClaimName": claim or name}], **spec)

    # -- the end ---

    def outcome(self, expected: Object | None = None) -> Object:
        """Where pods are, and what claims have, once nothing has changed for as long as a refused pod is kept back.

        What is expected is waited for longer.
        """
        pods, patience = self.world.items(self._pods), _PATIENCE if expected is None else 5 * _PATIENCE
        found, since = self._found(pods), time.monotonic()
        while found != expected and _may_change(pods) and time.monotonic() < since + patience:
            time.sleep(_PAUSE)
            pods = self.world.items(self._pods)
            now = self._found(pods)
            if now != found:
                found, since = now, time.monotonic()
        return found

    def _found(self, pods: Sequence[Object]) -> Object:
        # Claims are written before pods are bound: of what is bound here, both are seen.
        allocations = {
            each["metadata"]["name"]: each.get("status", {}).get("allocation")
            for each in self.world.items(self._device_claims)
            if "generateName" not in each["metadata"]
        }
        return {
            "pods": {each["metadata"]["name"]: each["spec"]["nodeName"] for each in pods if "nodeName" in each["spec"]},
            "ending": [each["metadata"]["name"] for each in pods if "deletionTimestamp" in each["metadata"]],
            "volumes": {
                each["metadata"]["name"]: each["spec"].get("volumeName", "").partition("pvc-")[0]
                for each in self.world.items(self.claims)
            },
            "devices": {
                name: [f"{each['request']}: {each['pool']}/{each['device']}" for each in found["devices"]["results"]]
                for name, found in allocations.items()
                if found
            },
        }


def _may_change(pods: Sequence[Object]) -> bool:
    """Whether pods that wait may still be placed, or pods are on their way out."""
    return any("deletionTimestamp" in each["metadata"] or "nodeName" not in each["spec"] for each in pods)


def claim_spec(size: str = "5Gi", storage_class: str = "local", **spec: Any) -> Object:
    requests = {"requests": {"storage": size}}
    return {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce"], "resources": requests, **spec}


def mounting(*claims: str) -> list[Object]:
    """The volumes of a pod that mounts claims."""
    return [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": each}} for i, each in enumerate(claims)]


def asked(name: str = "r", /, **exactly: Any) -> Object:
    """A request for a device."""
    return {"name": name, "exactly": {"deviceClassName": "gpu", **exactly}}


def requesting(name: str = "main", **amounts: str) -> Object:
    """A container that requests amounts."""
    return {"name": name, "image": "example.com/x:1", "resources": {"requests": amounts}}
