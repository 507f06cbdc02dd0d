"""Random small clusters whose pods are being resized: what they ask for, what was granted and what is in force."""

from __future__ import annotations

from collections.abc import Iterator

from tests.compat.scenes import HOST, Object, Scenes

_AMOUNTS = {"cpu": ("250m", "500m", "1", "2"), "memory": ("256Mi", "1Gi", "2Gi")}


class RequestScenes(Scenes):
    """Few nodes, full of pods between one size and another, in part with the overhead of a RuntimeClass."""

    def objects(self) -> Iterator[tuple[str, Object]]:
        yield from super().objects()
        fixed = {"cpu": self.any("250m", "1"), "memory": "256Mi", "example.com/card": "1", "ephemeral-storage": "1Gi"}
        overhead = {key: value for key, value in fixed.items() if self.often(0.15 if "." in key else 0.6)}
        made = {"metadata": {"name": "boxed"}, "handler": "boxed", "overhead": {"podFixed": overhead}}
        if self.often(0.3):
            made["scheduling"] = {"nodeSelector": {HOST: "n0"}}
        yield "/apis/node.k8s.io/v1/runtimeclasses", made

    def node(self, number: int) -> Object:
        name = f"n{number}"
        amounts = {
            "cpu": self.any("2", "4", "6"),
            "memory": self.any("4Gi", "8Gi"),
            "pods": self.any("3", "110", "110"),
        }
        amounts |= {"example.com/card": "2", "hugepages-2Mi": "8Mi"} if self.often(0.5) else {}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        return {"metadata": {"name": name, "labels": {HOST: name}}, "status": status}

    def placed(self, name: str, node: str) -> Object:
        pod = self._asking(name)
        spec = pod["spec"] | {"nodeName": node, "schedulerName": "none"}
        status: Object = {"phase": self.any("Running", "Running", "Running", "Pending", "Succeeded")}
        for kind, into in (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")):
            named = [self._status(each["name"]) for each in spec[kind] if self.often(0.8)]
            status |= {into: named} if named else {}
        if self.often(0.6):
            reason = self.any("Infeasible", "Infeasible", "Deferred", "Error", "")
            kind = self.any("PodResizePending", "PodResizePending", "PodResizeInProgress")
            status["conditions"] = [{"type": kind, "status": self.any("True", "True", "False"), "reason": reason}]
        if "resources" in spec and self.often(0.7):
            status |= {"resources": {"requests": self._some()}} if self.often(0.7) else {}
            status |= {"allocatedResources": self._some()} if self.often(0.7) else {}
        return {**pod, "spec": spec, "status": status}

    def pending(self, name: str) -> Object:
        return self._asking(name)

    def _asking(self, name: str) -> Object:
        containers = [self._of(f"c{number}") for number in range(self.any(1, 1, 2))]
        first = [self._of(f"i{number}") for number in range(self.any(0, 0, 1, 2, 3))]
        for each in first:
            each |= {"restartPolicy": "Always"} if self.often(0.6) else {}
        spec: Object = {"containers": containers, "initContainers": first}
        if self.often(0.35):
            whole = {"cpu": self.any("2", "4", "6"), "memory": self.any("2Gi", "8Gi"), "hugepages-2Mi": "6Mi"}
            requests = {
                key: value for key, value in whole.items() if self.often(0.2 if key == "hugepages-2Mi" else 0.7)
            }
            huge = {key: value for key, value in requests.items() if key == "hugepages-2Mi"}
            limits = {"cpu": "6", "memory": "8Gi"} if self.often(0.2) else {}
            spec["resources"] = {"requests": requests, "limits": limits | huge}
        if self.often(0.25):
            spec["runtimeClassName"] = "boxed"
        return {"metadata": {"name": name}, "spec": spec}

    def _of(self, name: str) -> Object:
        requests = self._some()
        fixed = {"example.com/card": (0.12, ("0", "1")), "hugepages-2Mi": (0.1, ("2Mi", "4Mi"))}
        limits = {key: self.any(*values) for key, (share, values) in fixed.items() if self.often(share)}
        if self.often(0.1):
            limits["memory"] = "2Gi"
        return {
            "name": name,
            "image": "example.com/x:1",
            "resources": {"requests": requests | limits, "limits": limits},
        }

    def _some(self) -> Object:
        return {key: self.any(*values, "0") for key, values in _AMOUNTS.items() if self.often(0.7)}

    def _status(self, name: str) -> Object:
        status: Object = {"name": name, "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
        status |= {"resources": {"requests": self._some()}} if self.often(0.7) else {}
        return status | ({"allocatedResources": self._some()} if self.often(0.7) else {})
