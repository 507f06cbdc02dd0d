"""Random small clusters whose pods mount volumes: static, made and ephemeral ones, disks, limits, attachments."""

from __future__ import annotations

from collections.abc import Iterator

from tests.compat.scenes import FAR, HOST, NEAR, OWNER, Object, Scenes, ending

_CSI = ["a.example.com", "b.example.com", "ebs.csi.aws.com"]
_AZURE = ["/subscriptions/s/disks/d", "https://a.blob.core.windows.net/c/d.vhd"]
_MODES = [["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteMany"], ["ReadWriteOncePod"]]
_SIZES = ["1Gi", "5Gi", "10Gi"]
_ZONE, _OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
_ZONES = ["z1", "z2", "z3"]
_STORAGE = "/apis/storage.k8s.io/v1"
_CLASSES = ["local", "made", "elsewhere", "in-tree", "at-once"]
_VOLUMES = 6
_CLAIMS = 5


class StorageScenes(Scenes):
    """Volumes and claims in all states, and pods that name them."""

    def node(self, number: int) -> Object:
        name = f"n{number}"
        amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
        labels = {HOST: name, **({_ZONE: self.any(*_ZONES)} if self.often(0.8) else {})}
        ready = {"type": "Ready", "status": "True"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        return {"metadata": {"name": name, "labels": labels}, "status": status}

    def objects(self) -> Iterator[tuple[str, Object]]:
        yield from super().objects()
        yield from self._classes()
        for number in range(self.count):
            if self.often(0.8):
                yield f"{_STORAGE}/csinodes", self._csi_node(f"n{number}")
        for number in range(_VOLUMES):
            yield "/api/v1/persistentvolumes", self._volume(f"v{number}")
        for space in (NEAR, FAR):
            for number in range(_CLAIMS):
                yield f"/api/v1/namespaces/{space}/persistentvolumeclaims", self._claim(f"c{number}")
        for number in range(self.any(0, 1, 3)):
            where = {"attacher": self.any(*_CSI), "nodeName": f"n{self.any(*range(self.count))}"}
            source = {"persistentVolumeName": f"v{self.any(*range(_VOLUMES))}"}
            yield (
                f"{_STORAGE}/volumeattachments",
                {"metadata": {"name": f"a{number}"}, "spec": {**where, "source": source}},
            )

    def _classes(self) -> Iterator[tuple[str, Object]]:
        term = {"matchLabelExpressions": [{"key": _ZONE, "values": self.some(_ZONES)}]}
        for name, provisioner, more in (
            ("local", "kubernetes.io/no-provisioner", {}),
            ("made", _CSI[0], {}),
            ("elsewhere", _CSI[1], {"allowedTopologies": [term]}),
            ("in-tree", self.any("kubernetes.io/aws-ebs", "kubernetes.io/gce-pd"), {}),
            ("at-once", _CSI[0], {"volumeBindingMode": "Immediate"}),
        ):
            made = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
            yield f"{_STORAGE}/storageclasses", made | more
        for name in _CSI[:2]:
            yield f"{_STORAGE}/csidrivers", {"metadata": {"name": name}, "spec": {"storageCapacity": self.often(0.4)}}
        for number in range(self.any(0, 1, 3)):
            labels = self.any({_ZONE: self.any(*_ZONES)}, {HOST: f"n{self.any(*range(self.count))}"}, {})
            capacity = {
                "metadata": {"name": f"cap{number}"},
                "storageClassName": self.any("made", "elsewhere"),
                "capacity": self.any("0", "5Gi", "20Gi"),
                **({"nodeTopology": {"matchLabels": labels}} if self.often(0.9) else {}),
                **({"maximumVolumeSize": self.any("1Gi", "5Gi")} if self.often(0.3) else {}),
            }
            yield f"{_STORAGE}/namespaces/{self.any(NEAR, FAR)}/csistoragecapacities", capacity

    def _csi_node(self, name: str) -> Object:
        drivers = [
            {
                "name": each,
                "nodeID": name,
                **({"allocatable": {"count": self.any(0, 1, 2, 3)}} if self.often(0.7) else {}),
            }
            for each in _CSI
            if self.often(0.7)
        ]
        migrated = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"}
        annotations = {"annotations": migrated} if self.often(0.5) else {}
        return {"metadata": {"name": name, **annotations}, "spec": {"drivers": drivers}}

    def _volume(self, name: str) -> Object:
        spec: Object = {
            "accessModes": self.any(*_MODES, ["ReadWriteOnce", "ReadWriteMany"]),
            "capacity": {"storage": self.any(*_SIZES)},
            "storageClassName": self.any(*_CLASSES, "local", "local", ""),
            "persistentVolumeReclaimPolicy": "Retain",
            "volumeMode": "Block" if self.often(0.08) else "Filesystem",
        }
        spec |= self.any(
            {"local": {"path": "/mnt"}},
            {"local": {"path": "/mnt"}},
            {"csi": {"driver": self.any(*_CSI), "volumeHandle": f"vol-{self.any(0, 1, 2)}"}},
            {"csi": {"driver": self.any(*_CSI), "volumeHandle": f"vol-{self.any(0, 1, 2)}"}},
            {"awsElasticBlockStore": {"volumeID": self.any("vol-0", "aws://z1/vol-1")}},
            {"gcePersistentDisk": {"pdName": "vol-0"}},
        )
        if "local" in spec or self.often(0.4):
            terms = [self._reached_by() for _ in range(self.any(1, 1, 1, 2))]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        if "csi" in spec and self.often(0.15):
            spec["volumeAttributesClassName"] = self.any("fast", "slow")
        labels = {"disk": self.any("x", "y")}
        if self.often(0.2):
            labels |= {self.any(_ZONE, _OLD_ZONE): self.any("z1", "z2", "z1__z2")}
        if self.often(0.3):
            spec["claimRef"] = {"namespace": self.any(NEAR, FAR), "name": f"c{self.any(*range(_CLAIMS))}"}
        phase = self.any(*["Available"] * 6, "Bound", "Released", "Failed", "Pending")
        metadata = {"name": name, "labels": labels}
        return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}

    def _reached_by(self) -> Object:
        """A term of a volume's node affinity."""
        key, values = self.any((HOST, self.some(["n0", "n1", "n2"])), (_ZONE, self.some(_ZONES)))
        operator = self.any("In", "In", "In", "NotIn", "Exists")
        there = {} if operator == "Exists" else {"values": values}
        term: Object = {"matchExpressions": [{"key": key, "operator": operator, **there}]}
        if self.often(0.1):
            term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": [self.any("n0", "n1")]}]
        return term

    def _claim(self, name: str) -> Object:
        spec: Object = {
            "accessModes": self.any(*_MODES),
            "resources": {"requests": {"storage": self.any(*_SIZES)}},
            "volumeMode": "Block" if self.often(0.08) else "Filesystem",
        }
        if self.often(0.95):
            spec["storageClassName"] = self.any(
                *_CLASSES, "local", "made", "made", *(["", "nowhere"] if self.often(0.2) else [])
            )
        if self.often(0.2):
            spec["selector"] = self.any(
                {"matchLabels": {"disk": "x"}},
                {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["x"]}]},
            )
        if self.often(0.1):
            spec["volumeAttributesClassName"] = self.any("fast", "slow")
        annotations = {"volume.kubernetes.io/selected-node": self.any("n0", "n1")} if self.often(0.1) else {}
        if self.often(0.05):
            annotations["volume.beta.kubernetes.io/storage-class"] = self.any(*_CLASSES)
        phase = "Pending"
        if self.often(0.45):
            spec["volumeName"] = f"v{self.any(*range(_VOLUMES + 1))}"
            if self.often(0.85):
                annotations["pv.kubernetes.io/bind-completed"] = "yes"
                phase = self.any("Bound", "Bound", "Bound", "Lost")
        metadata = {"name": name, "annotations": annotations}
        return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}

    def placed(self, name: str, node: str) -> Object:
        pod = self._mounting(name)
        pod["spec"] |= {"nodeName": node, "schedulerName": "none"}
        return pod

    def pending(self, name: str) -> Object:
        return self._mounting(name)

    def changes(self) -> Iterator[tuple[str, Object | None]]:
        for number in range(_CLAIMS):
            if self.often(0.04):
                yield from ending(f"/api/v1/namespaces/{self.any(NEAR, FAR)}/persistentvolumeclaims/c{number}")
        for number in range(_VOLUMES):
            if self.often(0.05):
                yield from ending(f"/api/v1/persistentvolumes/v{number}")
        for number in range(self.count):
            if self.often(0.05):
                labels = {_ZONE: self.any(*_ZONES, None)}
                yield f"/api/v1/nodes/n{number}", {"metadata": {"labels": labels}}

    def _mounting(self, name: str) -> Object:
        volumes: list[Object] = [
            {"name": each, "persistentVolumeClaim": {"claimName": each, "readOnly": self.often(0.2)}}
            for each in self.some([f"c{number}" for number in range(_CLAIMS + self.often(0.05))], self.any(1, 1, 2, 3))
            if self.often(0.85)
        ]
        if self.often(0.25):
            claim = self._claim("own")
            labels = {"labels": {OWNER: "another"}} if self.often(0.1) else {}
            template = {"metadata": labels, "spec": claim["spec"]}
            volumes.append({"name": "own", "ephemeral": {"volumeClaimTemplate": template}})
        if self.often(0.25):
            disk = self.any(
                {"awsElasticBlockStore": {"volumeID": self.any("vol-0", "vol-1"), "readOnly": self.often(0.5)}},
                {"gcePersistentDisk": {"pdName": self.any("vol-0", "vol-1"), "readOnly": self.often(0.5)}},
                {
                    "iscsi": {
                        "targetPortal": "10.0.0.1",
                        "iqn": "iqn.2001-04.com.example:x",
                        "lun": 0,
                        "readOnly": self.often(0.5),
                    }
                },
                {"azureDisk": {"diskName": "d", "diskURI": self.any(*_AZURE), "kind": self.any("Shared", "Managed")}},
                {"awsElasticBlockStore": {"volumeID": "aws://z1/odd"}},
                {"rbd": {"image": "x", "monitors": self.some(["m0", "m1", "m2"]), "readOnly": self.often(0.5)}},
            )
            volumes.append({"name": "disk", **disk})
        container = {"name": "main", "image": "example.com/x:1"}
        return {"metadata": {"name": name}, "spec": {"containers": [container], "volumes": volumes}}
