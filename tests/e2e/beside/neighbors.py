"""What pods ask of the nodes they come to, and of the pods that are near: spread, affinity, ports, taints, gates."""

from __future__ import annotations

from typing import Any

from tests.e2e.beside.scene import HOSTNAME, SLOWLY, Scene, requesting
from tests.e2e.provisioner import MERGE_PATCH
from tests.e2e.world import CORE, Object

ZONE = "topology.kubernetes.io/zone"


def zones(at: Scene, **zones: str) -> None:
    """Nodes, each in a zone."""
    for node, zone in zones.items():
        at.node(node, None, **{ZONE: zone})


def spread(key: str = ZONE, app: str = "web", **more: Any) -> Object:
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **selector, **more}


def webs(at: Scene, count: int, *constraints: Object, **more: Any) -> None:
    """Pods of one application, one after the other."""
    for number in range(count):
        at.pod(f"web-{number}", labels={"app": "web"}, topologySpreadConstraints=list(constraints), **more)


# -- spread ---


def as_many_domains_as_a_pod_wants(at: Scene) -> None:
    zones(at, a="x", b="y")
    webs(at, 3, spread(minDomains=3))


def domains_that_a_pod_cannot_go_to_do_not_count(at: Scene) -> None:
    zones(at, a="x", b="y")
    webs(at, 3, spread(), nodeSelector={ZONE: "x"})


def domains_that_a_pod_cannot_go_to_count_when_it_says_so(at: Scene) -> None:
    zones(at, a="x", b="y")
    webs(at, 2, spread(nodeAffinityPolicy="Ignore"), nodeSelector={ZONE: "x"})


def domains_with_taints_count(at: Scene) -> None:
    zones(at, a="x", b="y")
    taint(at, "b", "dedicated")
    webs(at, 2, spread())


def domains_with_taints_do_not_count_when_a_pod_says_so(at: Scene) -> None:
    zones(at, a="x", b="y")
    taint(at, "b", "dedicated")
    webs(at, 3, spread(nodeTaintsPolicy="Honor"))


def releases_are_spread_by_themselves(at: Scene) -> None:
    zones(at, a="x", b="y")
    for name, release, zone in (("old-0", "1", "x"), ("old-1", "1", "y"), ("new-0", "2", "x"), ("new-1", "2", "x")):
        constraint = spread(matchLabelKeys=["release"])
        labels = {"app": "web", "release": release}
        at.pod(name, labels=labels, topologySpreadConstraints=[constraint], nodeSelector={ZONE: zone})


def spread_over_nodes_without_the_label(at: Scene) -> None:
    at.nodes("a")
    zones(at, b="x")
    webs(at, 2, spread())


def spread_over_zones_and_nodes(at: Scene) -> None:
    zones(at, a="x", b="x", c="y")
    at.placed("first", "a", labels={"app": "web"})
    webs(at, 3, spread(), spread(HOSTNAME))


def spread_of_other_pods(at: Scene) -> None:
    zones(at, a="x", b="y")
    for number in range(2):
        at.placed(f"db-{number}", "a", labels={"app": "db"})
    for number in range(3):
        at.pod(f"p-{number}", labels={"app": "web"}, topologySpreadConstraints=[spread(app="db")])


def pods_that_end_are_not_spread(at: Scene) -> None:
    zones(at, a="x", b="y")
    at.placed("going", "a", labels={"app": "web"}, finalizers=[SLOWLY])
    at.delete("going")
    at.placed("staying", "b", labels={"app": "web"})
    webs(at, 1, spread())


# -- affinity ---


def near(key: str = ZONE, namespaces: Object | None = None, **labels: str) -> Object:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}, **(namespaces or {})}


def requiring(*terms: Object, kind: str = "podAffinity") -> Object:
    """The affinity of a pod that requires other pods to be near, or far."""
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def preferring(weight: int, term: Object, kind: str = "podAffinity") -> Object:
    key = "preference" if kind == "nodeAffinity" else "podAffinityTerm"
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, key: term}]}}


def pods_of_namespaces_by_their_labels(at: Scene) -> None:
    zones(at, a="x", b="y")
    path = f"{CORE}/namespaces/{at.world.namespace}"
    at.world.api.patch(path, json={"metadata": {"labels": {"team": "a"}}}, headers=MERGE_PATCH).raise_for_status()
    at.placed("db", "b", labels={"app": "db"})
    for name, team in (("mine", "a"), ("theirs", "b")):
        namespaces = {"namespaceSelector": {"matchLabels": {"team": team}}}
        at.pod(name, affinity=requiring(near(app="db", namespaces=namespaces)))
        at.pod(f"far-{name}", affinity=requiring(near(app="db", namespaces=namespaces), kind="podAntiAffinity"), on="b")
    at.pod("all", affinity=requiring(near(app="db", namespaces={"namespaceSelector": {}})))
    at.pod("elsewhere", affinity=requiring(near(app="db", namespaces={"namespaces": ["kube-system"]})))


def one_pod_meets_all_that_is_required(at: Scene) -> None:
    zones(at, a="x", b="x")
    at.placed("db", "a", labels={"app": "db"})
    at.placed("gold", "b", labels={"tier": "gold"})
    at.pod("apart", affinity=requiring(near(app="db"), near(tier="gold")))
    at.placed("both", "b", labels={"tier": "gold", "app": "db"})
    at.pod("together", affinity=requiring(near(app="db"), near(HOSTNAME, tier="gold")))


def the_first_of_pods_that_want_each_other(at: Scene) -> None:
    at.nodes("a")
    zones(at, b="x", c="y")
    for number in range(3):
        at.pod(f"web-{number}", labels={"app": "web"}, affinity=requiring(near(app="web")), cpu="1500m")


def releases_that_stay_together(at: Scene) -> None:
    zones(at, a="x", b="y")
    at.placed("one", "a", labels={"app": "web", "release": "1"})
    at.placed("two", "b", labels={"app": "web", "release": "2"})
    term = near(app="web")
    for name, keys in (("with", "matchLabelKeys"), ("without", "mismatchLabelKeys")):
        affinity = requiring({**term, keys: ["release"]})
        at.pod(name, labels={"app": "web", "release": "1"}, affinity=affinity)


def what_placed_pods_keep_away(at: Scene) -> None:
    zones(at, a="x", b="x", c="y")
    at.placed("alone", "a", labels={"app": "db"}, affinity=requiring(near(app="web"), kind="podAntiAffinity"))
    at.pod("web", labels={"app": "web"}, on="b")
    at.pod("other", labels={"app": "cache"}, on="b")
    at.pod("free", labels={"app": "web"})


def far_from_pods_on_nodes_without_the_label(at: Scene) -> None:
    at.nodes("a")
    at.placed("db", "a", labels={"app": "db"})
    at.pod("far", affinity=requiring(near(app="db"), kind="podAntiAffinity"))
    at.pod("near", affinity=requiring(near(app="db")))


def what_pods_would_rather_have(at: Scene) -> None:
    zones(at, a="x", b="y", c="z")
    for node in ("a", "c"):
        at.placed(f"on-{node}", node, labels={"app": f"on-{node}"})
    zone = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["y"]}]}
    at.pod("node", affinity=preferring(100, zone, "nodeAffinity"))
    at.pod("close", affinity=preferring(100, near(app="on-c")))
    at.pod("apart", affinity=preferring(100, near(app="on-a"), "podAntiAffinity"), nodeSelector={ZONE: "z"})
    at.pod("wide", labels={"app": "on-c"}, topologySpreadConstraints=[spread(app="on-c")])


def nodes_by_name_and_number(at: Scene) -> None:
    at.node("a", None, generation="7")
    at.node("b", None, generation="eight")

    def affine(*terms: Object) -> Object:
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}

    def expression(operator: str, *values: str, key: str = "generation", of: str = "matchExpressions") -> Object:
        return {of: [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}

    terms = {
        "more": expression("Gt", "6"),
        "as-many": expression("Gt", "7"),
        "less": expression("Lt", "8"),
        "none": expression("DoesNotExist"),
        "another": expression("NotIn", "x", key="color"),
        "by-name": expression("In", "b", key="metadata.name", of="matchFields"),
        "not-by-name": expression("NotIn", "b", key="metadata.name", of="matchFields"),
        "empty": {},
    }
    for name, term in terms.items():
        at.pod(name, affinity=affine(term), cpu="10m", **({"on": "a"} if name == "another" else {}))
    at.pod("one-of-two", affinity=affine(terms["none"], terms["by-name"]))


# -- ports, taints, gates ---


def listening(port: int = 8080, ip: str = "", **container: Any) -> Object:
    found = {"containerPort": port, "hostPort": port, **({"hostIP": ip} if ip else {})}
    return {**requesting(cpu="10m"), "ports": [found], **container}


def ports_of_addresses(at: Scene) -> None:
    at.nodes("a")
    at.pod("six", containers=[listening(ip="::")])
    at.pod("four", containers=[listening(ip="127.0.0.1")])
    at.pod("every", containers=[listening(ip="0.0.0.0")])
    at.pod("six-again", containers=[listening(ip="::")])


def ports_of_init_containers(at: Scene) -> None:
    at.nodes("a")
    first = listening(name="first")
    side = listening(9090, name="side", restartPolicy="Always")
    at.placed("holder", "a", initContainers=[first, side])
    at.pod("first", containers=[listening()])
    at.pod("side", containers=[listening(9090)])


def ports_of_the_nodes_network(at: Scene) -> None:
    at.nodes("a")
    port = {**requesting(cpu="10m"), "ports": [{"containerPort": 8080}]}
    at.pod("host", hostNetwork=True, containers=[port])
    at.pod("again", hostNetwork=True, containers=[port])
    at.pod("own", containers=[port])


def taint(at: Scene, node: str, key: str, value: str = "", effect: str = "NoSchedule") -> None:
    taints = [{"key": key, "value": value, "effect": effect}]
    path = f"{CORE}/nodes/{node}"
    at.world.api.patch(path, json={"spec": {"taints": taints}}, headers=MERGE_PATCH).raise_for_status()


def taints_that_evict(at: Scene) -> None:
    at.nodes("a")
    taint(at, "a", "broken", "badly", "NoExecute")
    tolerations: dict[str, Object] = {
        "none": {"key": "other", "operator": "Exists"},
        "for-a-while": {"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        "other-effect": {"key": "broken", "operator": "Exists", "effect": "NoSchedule"},
        "every-effect": {"key": "broken", "value": "badly"},
        "other-value": {"key": "broken", "value": "slightly"},
        "everything": {"operator": "Exists"},
    }
    for name, toleration in tolerations.items():
        at.pod(name, tolerations=[toleration], cpu="10m")


def taints_that_pods_would_rather_avoid(at: Scene) -> None:
    at.nodes("a", "b")
    taint(at, "a", "worn", effect="PreferNoSchedule")
    at.placed("holder", "b", cpu="200m")
    at.pod("p")


def gates_that_are_lifted(at: Scene) -> None:
    at.nodes("a", cpu="1")
    at.pod("gated", schedulingGates=[{"name": "example.com/wait"}, {"name": "example.com/more"}], cpu="800m")
    at.pod("small", cpu="500m")
    pod = f"{CORE}/namespaces/{at.world.namespace}/pods/gated"
    at.world.api.patch(pod, json={"spec": {"schedulingGates": None}}, headers=MERGE_PATCH).raise_for_status()


def what_comes_first_and_beside(at: Scene) -> None:
    at.nodes("a", cpu="4")
    before = requesting("before", cpu="1500m")
    side = {**requesting("side", cpu="1"), "restartPolicy": "Always"}
    after = requesting("after", cpu="1500m")
    at.placed("holder", "a", initContainers=[before, side, after], containers=[requesting(cpu="500m")])
    at.pod("large", cpu="1600m")
    at.pod("fits", cpu="1500m")
