"""What pods ask for: as a whole, while they are resized, and nothing at all; and what nodes are ready for."""

from __future__ import annotations

from typing import Any

from tests.controlplane.cluster import eventually
from tests.e2e.beside.scene import Scene, requesting
from tests.e2e.world import CORE, Object

_RESIZABLE = {"image": "example.com/x:1", "name": "main"}


def whole(cpu: str, *containers: Object, **more: Any) -> Object:
    """The spec of a pod that asks for an amount as a whole."""
    listed = list(containers) or [{"name": "main", "image": "example.com/x:1"}]
    return {"resources": {"requests": {"cpu": cpu}}, "containers": listed, **more}


def probes(at: Scene, *cpus: str) -> None:
    """Pods that each show how much is left on the node."""
    for number, cpu in enumerate(cpus):
        at.pod(f"probe-{number}", containers=[requesting(cpu=cpu)])


def a_pod_that_asks_as_a_whole(at: Scene) -> None:
    at.nodes("a", cpu="4")
    at.placed("holder", "a", **whole("3", requesting(cpu="1")))
    probes(at, "1100m", "1")


def a_pending_pod_that_asks_as_a_whole(at: Scene) -> None:
    at.nodes("a", cpu="2")
    at.nodes("b")
    at.pod("p", **whole("3", requesting(cpu="1")))
    at.pod("q", **whole("3", requesting(cpu="1")))


def a_whole_below_what_comes_first(at: Scene) -> None:
    at.nodes("a", cpu="4")
    first = requesting("first", cpu="2")
    at.placed("holder", "a", **whole("3", requesting(cpu="1"), initContainers=[first]))
    probes(at, "1100m", "1")


def a_whole_with_a_sidecar(at: Scene) -> None:
    at.nodes("a", cpu="4")
    sidecar = {**requesting("side", cpu="1"), "restartPolicy": "Always"}
    at.placed("holder", "a", **whole("2500m", requesting(cpu="1"), initContainers=[sidecar]))
    probes(at, "1600m", "1500m")


def a_whole_of_one_resource_and_containers_of_another(at: Scene) -> None:
    at.nodes("a", cpu="4")
    at.placed("holder", "a", **whole("3", requesting(memory="10Gi")))
    at.pod("large", containers=[requesting(memory="7Gi")])
    at.pod("small", containers=[requesting(cpu="1", memory="6Gi")])
    at.pod("more", containers=[requesting(cpu="100m")])


def a_whole_that_asks_for_limits_only(at: Scene) -> None:
    at.nodes("a", cpu="4")
    container = {"name": "main", "image": "example.com/x:1"}
    at.placed("holder", "a", resources={"limits": {"cpu": "3"}}, containers=[container])
    probes(at, "1100m", "1")


def _resized(at: Scene, wanted: str, granted: str, in_force: str, reason: str = "", **field: str) -> None:
    """A pod of one container on node a, of 4 CPUs, that is resized as a kubelet tells it."""
    at.nodes("a", cpu="4")
    before = {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}
    as_whole = field.get("of") == "pod"
    container = {**_RESIZABLE, "resources": {} if as_whole else before}
    at.placed("holder", "a", containers=[container], **({"resources": before} if as_whole else {}))
    status = {"name": "main", "image": "example.com/x:1", "imageID": "x", "ready": True, "restartCount": 0}
    status |= {"started": True, "state": {"running": {}}}

    def tell(granted: str, in_force: str, *conditions: Object) -> None:
        amounts = {"allocatedResources": {"cpu": granted}, "resources": {"requests": {"cpu": in_force}}}
        of_container, of_pod = ({"resources": {}}, amounts) if as_whole else (amounts, {})
        at.tell("holder", conditions=list(conditions), containerStatuses=[{**status, **of_container}], **of_pod)

    # The API server resizes only what a kubelet has told the amounts of.
    tell("1", "1")
    after = {"requests": {"cpu": wanted}, "limits": {"cpu": "4"}}
    at.resize("holder", **({"resources": after} if as_whole else {"containers": [{**container, "resources": after}]}))
    tell(granted, in_force, *([{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []))


def a_container_that_is_to_grow(at: Scene) -> None:
    _resized(at, "3", "1", "1")
    probes(at, "1100m", "1")


def a_container_that_cannot_grow(at: Scene) -> None:
    _resized(at, "3", "1", "1", "Infeasible")
    probes(at, "3100m", "3")


def a_container_that_grows_later(at: Scene) -> None:
    _resized(at, "3", "1", "1", "Deferred")
    probes(at, "1100m", "1")


def a_container_that_shrinks(at: Scene) -> None:
    _resized(at, "500m", "500m", "1")
    probes(at, "3100m", "3")


def a_container_whose_growth_is_granted(at: Scene) -> None:
    _resized(at, "2", "3", "1")
    probes(at, "1100m", "1")


def a_whole_that_is_to_grow(at: Scene) -> None:
    _resized(at, "3", "1", "1", of="pod")
    probes(at, "1100m", "1")


def a_whole_that_cannot_grow(at: Scene) -> None:
    _resized(at, "3", "1", "1", "Infeasible", of="pod")
    probes(at, "3100m", "3")


def a_whole_that_grows_later(at: Scene) -> None:
    _resized(at, "3", "1", "1", "Deferred", of="pod")
    probes(at, "1100m", "1")


def a_whole_that_cannot_grow_and_has_more(at: Scene) -> None:
    _resized(at, "3", "1", "2", "Infeasible", of="pod")
    probes(at, "2100m", "2")


def a_whole_that_shrinks(at: Scene) -> None:
    _resized(at, "500m", "500m", "1", of="pod")
    probes(at, "3100m", "3")


def overhead_beside_a_whole(at: Scene) -> None:
    at.nodes("a", cpu="4")
    name = f"kata-{at.world.namespace}"
    overhead = {"podFixed": {"cpu": "500m"}}
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    at.world.create(path, {"metadata": {"name": name}, "handler": "kata", "overhead": overhead})
    at.placed("holder", "a", **whole("2500m", runtimeClassName=name))
    probes(at, "1100m", "1")
    at.world.api.delete(f"{path}/{name}").raise_for_status()


def a_request_of_nothing_on_a_full_node(at: Scene) -> None:
    at.nodes("a", cpu="1")
    at.placed("holder", "a", containers=[requesting(cpu="3")])
    at.pod("nothing", containers=[requesting()])
    at.pod("zero", containers=[requesting(cpu="0")])
    at.pod("memory", containers=[requesting(memory="1Gi")])


def pages_of_memory(at: Scene) -> None:
    at.node("a", {"hugepages-2Mi": "8Mi"})
    at.nodes("b")
    amounts = {"cpu": "100m", "memory": "64Mi", "hugepages-2Mi": "6Mi"}
    container = {"name": "main", "image": "example.com/x:1", "resources": {"requests": amounts, "limits": amounts}}
    for name in ("p", "q"):
        at.pod(name, containers=[container])


def pages_of_memory_as_a_whole(at: Scene) -> None:
    at.node("a", {"hugepages-2Mi": "8Mi"})
    amounts = {"cpu": "100m", "memory": "64Mi", "hugepages-2Mi": "6Mi"}
    for name in ("p", "q"):
        at.pod(name, resources={"requests": amounts, "limits": amounts}, containers=[requesting()])


def as_many_pods_as_a_node_takes(at: Scene) -> None:
    at.nodes("a", pods="2")
    at.placed("holder", "a")
    for name in ("p", "q"):
        at.pod(name)


def a_node_that_is_not_ready_and_says_so(at: Scene) -> None:
    at.nodes("a", "b")
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    _taint(at, "a", taint)
    at.pod("p")
    at.pod("q", on="a")
    at.pod("r", on="a", tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}])


def a_node_that_is_cordoned(at: Scene) -> None:
    at.nodes("a", "b")
    headers = {"Content-Type": "application/merge-patch+json"}
    at.world.api.patch(f"{CORE}/nodes/a", json={"spec": {"unschedulable": True}}, headers=headers).raise_for_status()
    at.pod("p")
    at.pod("q", on="a")
    at.pod("r", on="a", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])


def a_taint_that_is_tolerated_up_to_a_number(at: Scene) -> None:
    at.nodes("a", "b")
    _taint(at, "a", {"key": "worn", "value": "7", "effect": "NoSchedule"})
    for name, value in (("p", "8"), ("q", "7")):
        at.pod(name, on="a", tolerations=[{"key": "worn", "operator": "Equal", "value": value, "effect": "NoSchedule"}])


def a_quota_that_is_used_up(at: Scene) -> None:
    """The API server refuses the third pod, whatever the scheduler; what it took counts for both."""
    at.nodes("a")
    path = f"{CORE}/namespaces/{at.world.namespace}/resourcequotas"
    hard = {"requests.cpu": "2", "pods": "5"}
    at.world.create(path, {"metadata": {"name": "some"}, "spec": {"hard": hard}})
    eventually(lambda: at.world.get(f"{path}/some").get("status", {}).get("hard") == hard)
    for name in ("p", "q"):
        at.pod(name, containers=[requesting(cpu="1")])
    place = f"{CORE}/namespaces/{at.world.namespace}/pods"
    spec = {"containers": [requesting(cpu="1")]}
    assert at.world.api.post(place, json={"metadata": {"name": "r"}, "spec": spec}).status_code == 403


def a_port_of_the_node_and_of_an_address(at: Scene) -> None:
    at.nodes("a")

    def listening(ip: str = "", protocol: str = "TCP") -> list[Object]:
        port = {"containerPort": 80, "hostPort": 8080, "protocol": protocol, **({"hostIP": ip} if ip else {})}
        return [{**requesting(cpu="100m"), "ports": [port]}]

    at.placed("holder", "a", containers=listening("127.0.0.1"))
    at.pod("other-address", containers=listening("10.0.0.1"))
    at.pod("every-address", containers=listening())
    at.pod("other-protocol", containers=listening(protocol="UDP"))


def _taint(at: Scene, node: str, taint: Object) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    at.world.api.patch(f"{CORE}/nodes/{node}", json={"spec": {"taints": [taint]}}, headers=headers).raise_for_status()
