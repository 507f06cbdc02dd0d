"""A provisioner of volumes, which does as Kubernetes' external provisioner with claims that name a node."""

from __future__ import annotations

import time
from collections import defaultdict
from http import HTTPStatus
from typing import Any

import httpx
import msgspec

from tests.controlplane.cluster import Cluster
from tests.e2e.follower import Follower

SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONER = "csi.example.com"
VOLUMES = "/api/v1/persistentvolumes"
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
Object = dict[str, Any]


class Provisioner(Follower):
    """Follows the claims of a namespace, or of all for an empty name, and makes a volume for each that names a node."""

    def __init__(self, cluster: Cluster, namespace: str, classes: frozenset[str] = frozenset(("made",))) -> None:
        super().__init__(cluster, _claims(namespace))
        self._classes = classes
        #: uids of the claims that have a volume
        self._made: set[str] = set()
        #: nodes for which it refuses to make volumes: it takes the annotation back, so that pods are scheduled anew
        self.refusing: set[str] = set()
        #: how many volumes still find room on a node, where that is limited; then it refuses as well
        self.room: dict[str, int] = {}
        #: of each claim the nodes that it named
        self.asked: defaultdict[str, list[str]] = defaultdict(list)
        #: for how long it is busy with each volume, in seconds
        self.takes = 0.0

    def see(self, api: httpx.Client, found: msgspec.Raw) -> None:
        claim = msgspec.json.decode(found)
        metadata, spec = claim["metadata"], claim["spec"]
        node = metadata.get("annotations", {}).get(SELECTED_NODE)
        if not node or spec.get("volumeName") or spec["storageClassName"] not in self._classes:
            return
        if self.asked[metadata["name"]][-1:] != [node]:
            self.asked[metadata["name"]].append(node)
        if node in self.refusing or (metadata["uid"] not in self._made and self.room.get(node, 1) <= 0):
            version = {"resourceVersion": metadata["resourceVersion"]}
            patch = {"metadata": {**version, "annotations": {SELECTED_NODE: None}}}
            api.patch(f"{_claims(metadata['namespace'])}/{metadata['name']}", json=patch, headers=MERGE_PATCH)
            return
        if metadata["uid"] in self._made:
            return
        time.sleep(self.takes)
        ref = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")}
        manifest = volume(f"pvc-{metadata['uid']}", node, spec["storageClassName"], csi={"driver": PROVISIONER})
        manifest["spec"] |= {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **ref}}
        manifest["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": PROVISIONER}
        answer = api.post(VOLUMES, json=manifest)
        # There is one already if the answer to an earlier request was lost; what raises is seen, and tried, once more.
        assert answer.is_success or answer.status_code == HTTPStatus.CONFLICT, answer.text
        self._made.add(metadata["uid"])
        if node in self.room:
            self.room[node] -= 1


def _claims(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims" if namespace else "/api/v1/persistentvolumeclaims"


def volume(name: str, node: str, storage_class: str, size: str = "10Gi", **source: Any) -> Object:
    """A volume that only one node reaches, by default on a disk of it."""
    on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    if "csi" in source:
        source["csi"] = {"volumeHandle": name, **source["csi"]}
    return {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": storage_class,
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
            **(source or {"local": {"path": f"/mnt/{name}"}}),
        },
    }
