"""Random small clusters: nodes, pods that have one, and pods that ask for one, with all that Kubernetes lets them ask.

The API server may refuse a pod. `NEAR` and `FAR` stand for the names of the two namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

Object = dict[str, Any]

NEAR, FAR = "NEAR", "FAR"
#: label of a claim's template whose claim is not the pod's
OWNER = "example.com/owner"
#: finalizer of what is being deleted
KEPT = "example.com/kept"
HOST = "kubernetes.io/hostname"
_APPS = ["a", "b", "c"]
_TOPOLOGY = ["zone", "rack", HOST]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
#: by label of a node, the values that pods name
_NAMED = {
    "zone": ["z1", "z2"],
    "rack": ["r1", "r2"],
    HOST: ["n0", "n1", "n2"],
    "disk": ["ssd", "hdd", ""],
    "generation": ["1", "5", "10"],
}
_OF_KUBERNETES = [f"node.kubernetes.io/{each}" for each in ("unschedulable", "not-ready", "unreachable")]
_FEATURES = ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"]
_SETS = ["In", "NotIn", "Exists", "DoesNotExist"]


def ending(path: str) -> Iterator[tuple[str, Object | None]]:
    """The changes after which an object is being deleted for the rest of its scene."""
    yield path, {"metadata": {"finalizers": [KEPT]}}
    yield path, None


class Scenes:
    """Objects from one source of randomness."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.count = self._random.randint(2, 6)

    def any(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def often(self, share: float) -> bool:
        return self._random.random() < share

    def some(self, choices: list[str], most: int = 2) -> list[str]:
        return self._random.sample(choices, self._random.randint(1, min(most, len(choices))))

    def objects(self) -> Iterator[tuple[str, Object]]:
        """What there is before any pod, each with the collection that it belongs to."""
        for number in range(self.count):
            yield "/api/v1/nodes", self.node(number)

    def changes(self) -> Iterator[tuple[str, Object | None]]:
        """Merge patches for what there is, each with its path, once pods have nodes; None for what is deleted."""
        for number in range(self.count):
            path = f"/api/v1/nodes/n{number}"
            if self.often(0.1):
                yield path, {"spec": {"unschedulable": self.often(0.7)}}
            if self.often(0.15):
                allocatable = {"cpu": self.any("1", "3", "8"), "memory": self.any("2Gi", "16Gi")}
                yield f"{path}/status", {"status": {"allocatable": allocatable}}
            if self.often(0.06):
                status, key = self.any(("False", "not-ready"), ("Unknown", "unreachable"))
                taints = [{"key": f"node.kubernetes.io/{key}", "effect": each} for each in ("NoSchedule", "NoExecute")]
                yield path, {"spec": {"taints": taints}}
                yield f"{path}/status", {"status": {"conditions": [{"type": "Ready", "status": status}]}}

    def changes_of_placed(self, path: str) -> Iterator[tuple[str, Object | None]]:
        """The same for a pod that has a node."""
        if self.often(0.06):
            yield f"{path}/status", {"status": {"phase": self.any("Succeeded", "Failed")}}
        elif self.often(0.08):
            yield path, None

    # -- nodes -----------------------------------------------------------------------------------------------------

    def node(self, number: int) -> Object:
        name, labels = f"n{number}", {HOST: f"n{number}"}
        offered = {
            "zone": (0.85, ("z1", "z2", "z3")),
            "rack": (0.6, ("r1", "r2")),
            "disk": (0.5, ("ssd", "hdd", "")),
            "generation": (0.5, ("1", "5", "10", "x")),
        }
        labels |= {key: self.any(*values) for key, (share, values) in offered.items() if self.often(share)}
        amounts = {
            "cpu": self.any("2", "4", "1500m"),
            "memory": self.any("4Gi", "8Gi"),
            "pods": self.any("3", "10", "110"),
            "ephemeral-storage": self.any("10Gi", "2Gi"),
            **({"example.com/card": self.any("0", "1", "4")} if self.often(0.4) else {}),
            **({"hugepages-2Mi": self.any("0", "64Mi")} if self.often(0.3) else {}),
        }
        taints = {(taint["key"], taint["effect"]): taint for taint in map(self._taint, range(self.any(0, 0, 0, 1, 2)))}
        spec = {"taints": list(taints.values()), **({"unschedulable": True} if self.often(0.1) else {})}
        ready = {"type": "Ready", "status": "True"}
        pressure = {"type": "MemoryPressure", "status": self.any("True", "False", "Unknown")}
        status: Object = {"capacity": amounts, "allocatable": amounts, "conditions": [ready, pressure]}
        if self.often(0.5):
            status["declaredFeatures"] = sorted(self.some(_FEATURES))
        return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}

    def _taint(self, _: int) -> Object:
        effect = self.any("NoSchedule", "NoExecute", "PreferNoSchedule")
        return {"key": self.any("k1", "k2"), "value": self.any("", "v", "5"), "effect": effect}

    # -- pods ------------------------------------------------------------------------------------------------------

    def placed(self, name: str, node: str) -> Object:
        """A pod that has a node, on which much else fits."""
        pod = self._pod(name, {"requests": {"cpu": "100m", "memory": self.any("0", "512Mi")}})
        pod["spec"] |= {"nodeName": node, "schedulerName": "none"}
        if self.often(0.2):
            pod["spec"]["affinity"] = {"podAntiAffinity": self._pod_terms()}
        return pod

    def pending(self, name: str) -> Object:
        """A pod that asks for a node."""
        pod = self._pod(name)
        spec = pod["spec"]
        if self.often(0.12):
            spec["resources"] = {"requests": {"cpu": self.any("2", "4"), "memory": self.any("4Gi", "8Gi")}}
        if self.often(0.15):
            key = self.any("zone", "disk")
            spec["nodeSelector"] = {key: self.any(*_NAMED[key])}
        if self.often(0.3):
            constraints = [self._spread() for _ in range(self.any(1, 1, 2))]
            different = {(each["topologyKey"], each["whenUnsatisfiable"]): each for each in constraints}
            spec["topologySpreadConstraints"] = list(different.values())
        if self.often(0.5):
            spec["tolerations"] = [self._toleration() for _ in range(self.any(1, 2))]
        if self.often(0.08):
            spec["hostNetwork"] = True
            spec |= {"hostUsers": False} if self.often(0.4) else {}
        if self.often(0.06):
            codes = {"operator": "In", "values": [3]}
            rule = {"action": self.any("RestartAllContainers", "Restart"), "exitCodes": codes}
            spec["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
        spec["affinity"] = {
            **({"nodeAffinity": self._node_affinity()} if self.often(0.25) else {}),
            **({"podAffinity": self._pod_terms()} if self.often(0.15) else {}),
            **({"podAntiAffinity": self._pod_terms()} if self.often(0.2) else {}),
        }
        return pod

    def _pod(self, name: str, resources: Object | None = None) -> Object:
        labels = {key: self.any(*values) for key, values in (("app", _APPS), ("ver", "12")) if self.often(0.7)}
        containers: list[Object] = [self._container(f"c{number}", resources) for number in range(self.any(1, 1, 2))]
        first = [self._container(f"i{number}", resources) for number in range(self.any(0, 0, 0, 1, 2))]
        for container in first:
            container |= {"restartPolicy": "Always"} if self.often(0.5) else {}
        spec = {"containers": containers, "initContainers": first}
        return {"metadata": {"name": name, "labels": labels}, "spec": spec}

    def _container(self, name: str, resources: Object | None) -> Object:
        container = {"name": name, "image": "example.com/x:1", "resources": resources or self._resources()}
        if self.often(0.2):
            port = {
                "containerPort": 80,
                "hostPort": self.any(80, 81),
                "protocol": self.any("TCP", "TCP", "UDP", "SCTP"),
            }
            port |= {"hostIP": self.any("0.0.0.0", "127.0.0.1", "10.0.0.1")} if self.often(0.4) else {}
            container["ports"] = [port]
        return container

    def _resources(self) -> Object:
        offered = {
            "cpu": (0.8, ("0", "100m", "500m", "1")),
            "memory": (0.6, ("0", "512Mi", "1Gi", "3Gi")),
            "ephemeral-storage": (0.2, ("1Gi", "3Gi")),
            "example.com/card": (0.15, ("0", "1", "2")),
            "hugepages-2Mi": (0.08, ("2Mi", "40Mi")),
        }
        requests = {key: self.any(*values) for key, (share, values) in offered.items() if self.often(share)}
        # These may not be overcommitted.
        limits = {key: requests[key] for key in ("example.com/card", "hugepages-2Mi") if key in requests}
        return {"requests": requests, "limits": limits}

    # -- what pods ask of nodes and of each other ------------------------------------------------------------------

    def _node_affinity(self) -> Object:
        terms = []
        for _ in range(self.any(1, 1, 2)):
            term: Object = {"matchExpressions": [self._about_nodes() for _ in range(self.any(0, 1, 1, 2))]}
            if self.often(0.2):
                names = {"key": "metadata.name", "operator": self.any("In", "NotIn"), "values": [self.any("n0", "n3")]}
                term["matchFields"] = [names]
            terms.append(term)
        return {_REQUIRED: {"nodeSelectorTerms": terms}}

    def _about_nodes(self) -> Object:
        key = self.any(*_NAMED)
        operator = self.any(*_SETS, "Gt", "Lt")
        if operator in ("Gt", "Lt"):
            return {"key": key, "operator": operator, "values": [self.any("0", "1", "4", "5", "7")]}
        values = {"values": self.some(_NAMED[key])} if operator in ("In", "NotIn") else {}
        return {"key": key, "operator": operator, **values}

    def _pod_terms(self) -> Object:
        return {_REQUIRED: [self._pod_term() for _ in range(self.any(1, 1, 2))]}

    def _pod_term(self) -> Object:
        namespaces = self.any(
            *[{}] * 6,
            {"namespaces": self.some([NEAR, FAR])},
            {"namespaceSelector": {}},
            {"namespaceSelector": {"matchLabels": {"team": self.any("x", "y")}}},
            {"namespaceSelector": {"matchLabels": {"team": "y"}}, "namespaces": [NEAR]},
        )
        kind = "matchLabelKeys" if self.often(0.7) else "mismatchLabelKeys"
        return {"topologyKey": self.any(*_TOPOLOGY), **self._selecting(kind), **namespaces}

    def _spread(self) -> Object:
        hard = self.often(0.85)
        return {
            "maxSkew": self.any(1, 1, 2),
            "topologyKey": self.any(*_TOPOLOGY),
            "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
            **({"minDomains": self.any(1, 2, 3, 4)} if hard and self.often(0.3) else {}),
            **({"nodeAffinityPolicy": self.any("Honor", "Ignore")} if self.often(0.3) else {}),
            **({"nodeTaintsPolicy": self.any("Honor", "Ignore")} if self.often(0.4) else {}),
            **self._selecting("matchLabelKeys"),
        }

    def _selecting(self, kind: str) -> Object:
        """A selector of pods, or none, and at times keys whose values are the asking pod's."""
        selector: Object = {}
        if self.often(0.6):
            selector["matchLabels"] = {"app": self.any(*_APPS)}
        if self.often(0.4):
            key, operator = self.any("app", "ver"), self.any(*_SETS)
            values = {"values": self.some(_APPS if key == "app" else ["1", "2"])} if operator in ("In", "NotIn") else {}
            selector["matchExpressions"] = [{"key": key, "operator": operator, **values}]
        if not selector and self.often(0.5):
            return {}
        used = {*selector.get("matchLabels", ()), *(each["key"] for each in selector.get("matchExpressions", ()))}
        free = sorted({"app", "ver"} - used)
        return {"labelSelector": selector, **({kind: [self.any(*free)]} if free and self.often(0.25) else {})}

    def _toleration(self) -> Object:
        key = {"key": self.any("k1", "k2", *_OF_KUBERNETES)} if self.often(0.85) else {}
        value = (
            {"operator": "Equal", "value": self.any("", "v", "5")}
            if key and self.often(0.5)
            else {"operator": "Exists"}
        )
        effect = {"effect": self.any("NoSchedule", "NoExecute", "PreferNoSchedule")} if self.often(0.6) else {}
        return {**key, **value, **effect}
