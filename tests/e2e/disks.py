"""Storage classes, volumes and claims of a world, and in which order claims and pods are bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tests.controlplane.cluster import eventually
from tests.e2e.provisioner import SELECTED_NODE, VOLUMES
from tests.e2e.watch import Since
from tests.e2e.world import CORE, Object, World, pod

STORAGE = "/apis/storage.k8s.io/v1"
_CLASSES = f"{STORAGE}/storageclasses"


class Disks:
    """Storage classes, volumes and claims of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.claims = f"{CORE}/namespaces/{world.namespace}/persistentvolumeclaims"

    def storage_class(self, name: str, provisioner: str = "kubernetes.io/no-provisioner", **more: Any) -> None:
        manifest = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Retain"}
        self.world.create(_CLASSES, {"metadata": {"name": name}, **manifest, **more})

    def delete_class(self, name: str) -> None:
        self.world.api.delete(f"{_CLASSES}/{name}").raise_for_status()

    def volumes(self, manifests: Sequence[Object]) -> None:
        self.world.create_all(VOLUMES, manifests)
        eventually(lambda: all(v["status"]["phase"] != "Pending" for v in self.world.items(VOLUMES)))

    def claim(self, name: str, storage_class: str, size: str = "5Gi") -> Object:
        spec = {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce"]}
        return {"metadata": {"name": name}, "spec": {**spec, "resources": {"requests": {"storage": size}}}}

    def claim_all(self, manifests: Sequence[Object]) -> None:
        self.world.create_all(self.claims, manifests)

    def get(self, name: str) -> Object:
        return self.world.get(f"{self.claims}/{name}")

    def all(self) -> list[Object]:
        return self.world.items(self.claims)

    def bound(self) -> dict[str, str]:
        """The volume of each claim that has one for good."""
        return {
            each["metadata"]["name"]: each["spec"]["volumeName"]
            for each in self.all()
            if each["status"].get("phase") == "Bound"
        }

    def reserved(self) -> set[str]:
        """The volumes that name a claim, and the claims that name a node, without being bound."""
        # One whose claim was deleted is released, and is its owner's to delete or to clear.
        free = [each for each in self.world.items(VOLUMES) if each["status"].get("phase") not in ("Bound", "Released")]
        waiting = [each for each in self.all() if not each["spec"].get("volumeName")]
        selected = [each for each in waiting if SELECTED_NODE in each["metadata"].get("annotations", {})]
        return {each["metadata"]["name"] for each in [*selected, *(v for v in free if v["spec"].get("claimRef"))]}

    def clear(self) -> None:
        for path in (VOLUMES, _CLASSES, f"{STORAGE}/csidrivers", f"{STORAGE}/csinodes"):
            self.world.api.delete(path).raise_for_status()


def pod_with_claims(name: str, *claims: str, group: str = "", **spec: Any) -> Object:
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": each}} for i, each in enumerate(claims)]
    return pod(name, group, volumes=volumes, **spec)


def node_of(volume: Object) -> str:
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    (node,) = term["matchExpressions"][0]["values"]
    return str(node)


class Order:
    """When, in versions of the whole cluster, claims were bound and pods were."""

    def __init__(self, disks: Disks) -> None:
        pods = f"{CORE}/namespaces/{disks.world.namespace}/pods"
        self._pods = Since(disks.world.cluster, pods, lambda each: bool(each["spec"].get("nodeName")))
        self._claims = Since(disks.world.cluster, disks.claims, is_bound)

    def __enter__(self) -> Self:
        self._pods.__enter__()
        self._claims.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._pods.__exit__(*failure)
        self._claims.__exit__(*failure)

    def check(self, claims_of: dict[str, list[str]]) -> None:
        """No pod was bound before its claims, nor before those of its gang."""
        eventually(lambda: self._pods.since.keys() >= claims_of.keys())
        eventually(lambda: all(each in self._claims.since for claims in claims_of.values() for each in claims))
        last: dict[str, tuple[int, str]] = {}
        for name, claims in claims_of.items():
            gang = name.rpartition("-")[0]
            last[gang] = max([last.get(gang, (0, "")), *((self._claims.since[each], each) for each in claims)])
        late = {name: (version, *last[name.rpartition("-")[0]]) for name, version in self._pods.since.items()}
        late = {name: found for name, found in late.items() if found[0] < found[1]}
        assert not late, f"pods, the version they were bound in, and that of the last claim of their gangs: {late}"


def is_bound(claim: Object) -> bool:
    return "pv.kubernetes.io/bind-completed" in claim["metadata"].get("annotations", {})
