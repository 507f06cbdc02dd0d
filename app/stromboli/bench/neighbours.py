"""Pods that other pods keep from nodes, or draw to them: affinity, spread and host ports."""

from __future__ import annotations

from stromboli.bench.trial import HOSTNAME, Fields, Trial, container

ZONE = "topology.kubernetes.io/zone"


def anti_affinity(labels: dict[str, str]) -> Fields:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": labels}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"labels": labels, "affinity": {"podAntiAffinity": required}}


def spread(labels: dict[str, str]) -> Fields:
    constraint = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
    selected = {"labelSelector": {"matchLabels": labels}}
    return {"labels": labels, "topologySpreadConstraints": [constraint | selected]}


def by_zone(labels: dict[str, str]) -> Fields:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor"}
    counted = {"labelSelector": {}, "matchLabelKeys": ["app"]}
    return {"labels": labels, "topologySpreadConstraints": [constraint | counted]}


def _in_zone(number: int) -> Fields:
    return {"labels": {ZONE: f"zone-{number % 20}"}}


def _near_app(number: int, how: str) -> Fields:
    """Near the pods of one of a thousand apps, by their zone."""
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": f"app-{number % 1_000}"}}}
    terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": [term],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm": term}],
    }
    return {"labels": {"app": "new"}, "affinity": {"podAffinity": {how: terms[how]}}}


def beside_apps(how: str) -> Trial:
    """Pods near those of an app, on nodes that lie in zones."""
    return Trial(pod=lambda n: _near_app(n, how), placed=of_app, node=_in_zone, per_node=20)


def alone(labels: dict[str, str]) -> Fields:
    """Far from all pods but those of its own app and the one that is everywhere."""
    others = [{"key": key, "operator": "NotIn", "values": [value, "everywhere"]} for key, value in labels.items()]
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchExpressions": others}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"labels": labels, "affinity": {"podAntiAffinity": required}}


def of_app(number: int) -> Fields:
    return {"labels": {"app": f"app-{number % 1_000}"}}


def rather_alone(labels: dict[str, str]) -> Fields:
    """Rather far from all pods but those of its own app, wherever they are."""
    others = [{"key": key, "operator": "NotIn", "values": [value]} for key, value in labels.items()]
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchExpressions": others}, "namespaceSelector": {}}
    weighted = [{"weight": 10, "podAffinityTerm": term}]
    return {
        "labels": labels,
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}},
    }


def port(number: int) -> Fields:
    return {"containers": [container(ports=[{"containerPort": 80, "hostPort": 1 + number % 65_000}])]}


def address(number: int) -> Fields:
    """A port on an address of its own."""
    address = f"10.{number // 65_536 % 256}.{number // 256 % 256}.{number % 256}"
    return {"containers": [container(ports=[{"containerPort": 80, "hostPort": 80, "hostIP": address}])]}
