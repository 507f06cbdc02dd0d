"""A provisioner of volumes, which does as Kubernetes' external provisioner with claims that name a node."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from types import TracebackType
from typing import Any, Self

import httpx

from tests.controlplane.cluster import Cluster

SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONER = "csi.example.com"
VOLUMES = "/api/v1/persistentvolumes"
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
Object = dict[str, Any]


class Provisioner:
    """Follows the claims of a namespace in a thread, and makes a volume for each that names a node."""

    def __init__(self, cluster: Cluster, namespace: str, classes: frozenset[str] = frozenset(("made",))) -> None:
        self._cluster = cluster
        self._classes = classes
        self._claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        self._stopping = False
        #: uids of the claims that have a volume
        self._made: set[str] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="provisioner", daemon=True)
        #: nodes for which it refuses to make volumes: it takes the annotation back, so that pods are scheduled anew
        self.refusing: set[str] = set()
        #: of each claim the nodes that it named
        self.asked: defaultdict[str, list[str]] = defaultdict(list)
        #: for how long it is busy with each volume, in seconds
        self.takes = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The thread ends when its watch next says something, or times out.
        self._stopping = True

    def _follow(self) -> None:
        while not self._stopping:
            try:
                with self._cluster.client(timeout=10) as api:
                    listed = api.get(self._claims).raise_for_status().json()
                    for claim in listed["items"]:
                        self._provision(api, claim)
                    self._ready.set()
                    self._stream(api, listed["metadata"]["resourceVersion"])
            except httpx.HTTPError:
                time.sleep(0.1)

    def _stream(self, api: httpx.Client, version: str) -> None:
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "60"}
        with api.stream("GET", self._claims, params=query, timeout=httpx.Timeout(10, read=None)) as answer:
            for line in answer.raise_for_status().iter_lines():
                event = json.loads(line)
                if self._stopping or event["type"] == "ERROR":
                    return
                if event["type"] != "DELETED":
                    self._provision(api, event["object"])

    def _provision(self, api: httpx.Client, claim: Object) -> None:
        metadata, spec = claim["metadata"], claim["spec"]
        node = metadata.get("annotations", {}).get(SELECTED_NODE)
        if not node or spec.get("volumeName") or spec["storageClassName"] not in self._classes:
            return
        if self.asked[metadata["name"]][-1:] != [node]:
            self.asked[metadata["name"]].append(node)
        if node in self.refusing:
            version = {"resourceVersion": metadata["resourceVersion"]}
            patch = {"metadata": {**version, "annotations": {SELECTED_NODE: None}}}
            api.patch(f"{self._claims}/{metadata['name']}", json=patch, headers=MERGE_PATCH)
            return
        if metadata["uid"] in self._made:
            return
        self._made.add(metadata["uid"])
        time.sleep(self.takes)
        ref = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")}
        manifest = volume(f"pvc-{metadata['uid']}", node, spec["storageClassName"], csi={"driver": PROVISIONER})
        manifest["spec"] |= {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **ref}}
        manifest["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": PROVISIONER}
        answer = api.post(VOLUMES, json=manifest)
        assert answer.is_success, answer.text


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
