"""What pods with claims cost: CPU of placing one, and of a tick with one new pod on a full cluster.

    python -m tests.perf.claims [--nodes N] [--case NAME] [--runs N]

Placing is measured on 32 pods that each have claims of their own, in milliseconds for one of them; a tick is the
second session on the same cluster after one more pod has come, in milliseconds, with the peak memory of the process.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from stromboli.engine import Engine
from stromboli.state.cluster import ClusterState
from tests import builders

POLICY = builders.policy("gang", "predicates nodeorder binpack")
DRIVER, CSI = "gpu.example.com", "csi.example.com"
PODS = 32


def claim(name: str, storage_class: str, volume: str = "") -> dict[str, Any]:
    """A claim for 5Gi, bound when it names a volume."""
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    spec = {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce"], "volumeName": volume}
    resources = {"requests": {"storage": "5Gi"}}
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    return {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {**spec, "resources": resources}}


def volume(name: str, storage_class: str, *, node: str = "", of: str = "") -> dict[str, Any]:
    """A volume: local when it names a node, else one of the CSI driver; `of` is the claim that has it."""
    spec: dict[str, Any] = {
        "storageClassName": storage_class,
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
    }
    if node:
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    else:
        spec["csi"] = {"driver": CSI, "volumeHandle": name}
    if of:
        spec["claimRef"] = {"namespace": "default", "name": of}
    phase = "Bound" if of else "Available"
    return {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}


def storage_class(name: str, provisioner: str) -> dict[str, Any]:
    """A class whose claims wait for their first pod."""
    more = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    return {"kind": "StorageClass", "metadata": {"name": name}, **more}


def csi_node(name: str) -> dict[str, Any]:
    """A node that takes 40 volumes."""
    drivers = [{"name": CSI, "allocatable": {"count": 40}}]
    return {"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": drivers}}


def devices(name: str, count: int, **where: Any) -> dict[str, Any]:
    """A slice of alike devices that each have a number of their own."""
    listed = [
        {
            "name": f"gpu-{i}",
            "attributes": {"model": {"string": "h100"}, "uuid": {"string": f"{name}-{i}"}, "index": {"int": i}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for i in range(count)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "devices": listed, **where}
    return {"kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def device_claim(name: str, expression: str, node: str = "") -> dict[str, Any]:
    """A claim for one device that an expression selects; with a node it has the first device there."""
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]}
    found = [{"request": "r", "driver": DRIVER, "pool": node, "device": name.rpartition("-")[2]}]
    status = {"allocation": {"devices": {"results": found}}} if node else {}
    metadata = {"name": name, "namespace": "default", "uid": name}
    requests = [{"name": "r", "exactly": exactly}]
    return {
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": requests}},
        "status": status,
    }


def pod(name: str, of: str, kind: str, node: str = "") -> Any:
    """A pod with one claim, for volumes or devices; on a node it is of no job of ours."""
    spec: dict[str, Any] = {"resourceClaims": [{"name": "c", "resourceClaimName": of}]}
    if kind == "volume":
        spec = {"volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": of}}]}
    return builders.pod(name, "" if node else "g", cpu="1m", memory="1Mi", node=node, **spec)


def names(nodes: int) -> list[str]:
    """The names of so many nodes."""
    return [f"node-{number:05}" for number in range(nodes)]


Objects = Iterator[Any]


def local_volumes(nodes: int) -> Objects:
    yield storage_class("local", "kubernetes.io/no-provisioner")
    yield from (volume(f"v-{name}", "local", node=name) for name in names(nodes))
    for i in range(PODS):
        yield from (claim(f"c{i}", "local"), pod(f"p{i}", f"c{i}", "volume"))


def bound_volumes(nodes: int) -> Objects:
    yield storage_class("made", CSI)
    yield from (volume(f"v{i}", "made", of=f"other{i}") for i in range(10_000))
    for i in range(PODS):
        yield from (claim(f"c{i}", "made"), pod(f"p{i}", f"c{i}", "volume"))


def _attached(nodes: int, placed: int) -> Objects:
    yield storage_class("made", CSI)
    yield from map(csi_node, names(nodes))
    for i in range(placed):
        yield volume(f"v{i}", "made", of=f"run{i}")
        yield claim(f"run{i}", "made", f"v{i}")
        yield pod(f"run{i}", f"run{i}", "volume", names(nodes)[i % nodes])
    for i in range(PODS):
        yield volume(f"n{i}", "made", of=f"c{i}")
        yield from (claim(f"c{i}", "made", f"n{i}"), pod(f"p{i}", f"c{i}", "volume"))


def _selected(slices: Iterator[Any]) -> Objects:
    expression = f'device.driver == "{DRIVER}"'
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    yield {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": spec}
    yield from slices
    for i in range(PODS):
        selector = f'device.attributes["{DRIVER}"].model == "h100" && device.attributes["{DRIVER}"].index != {100 + i}'
        yield from (device_claim(f"c{i}", selector), pod(f"p{i}", f"c{i}", "device"))


def own_selectors(nodes: int) -> Objects:
    yield from _selected(devices(name, 8, nodeName=name) for name in names(nodes))


def devices_everywhere(nodes: int) -> Objects:
    yield from _selected(iter([devices("all", 128, allNodes=True)]))


def tick_volumes(nodes: int) -> Objects:
    yield from _attached(nodes, 20 * nodes)


def tick_devices(nodes: int) -> Objects:
    yield from own_selectors(nodes)
    for i in range(20 * nodes):
        name = names(nodes)[i // 20]
        yield device_claim(f"run{i}-gpu-{i % 20}", "true", name)
        yield pod(f"run{i}", f"run{i}-gpu-{i % 20}", "device", name)


PLACING: dict[str, Callable[[int], Objects]] = {
    "no claims": lambda nodes: iter([builders.pod(f"p{i}", "g", cpu=f"{i + 1}m") for i in range(PODS)]),
    "local volumes, one a node": local_volumes,
    "10,000 bound volumes of the class": bound_volumes,
    "attach limits, 10,000 placed": lambda nodes: _attached(nodes, 10_000),
    "attach limits, none placed": lambda nodes: _attached(nodes, 0),
    "devices, own selector each": own_selectors,
    "128 devices on all nodes": devices_everywhere,
}
TICKS: dict[str, Callable[[int], Objects]] = {
    "tick, each placed pod with volumes": tick_volumes,
    "tick, each placed pod with devices": tick_devices,
}


def cluster(case: Callable[[int], Objects], nodes: int) -> ClusterState:
    """A cluster of the case with all its objects, pods last."""
    made = list(case(nodes))
    pods = [each for each in made if not isinstance(each, dict)]
    state = builders.state(
        [builders.node(name, cpu="64", memory="256Gi") for name in names(nodes)],
        builders.queue("default"),
        builders.pod_group("g"),
        pods,
    )
    for each in made:
        if isinstance(each, dict):
            state.upsert(each["kind"], each)
    return state


ENGINE = Engine(POLICY)


def seconds(state: ClusterState) -> tuple[float, int]:
    """CPU of one session, and how many pods it bound."""
    snapshot = state.snapshot()
    started = time.process_time()
    result = ENGINE.decide(snapshot, now=builders.NOON)
    return time.process_time() - started, len(result.decisions)


def placing(case: Callable[[int], Objects], nodes: int, runs: int) -> str:
    """Milliseconds for a pod."""
    state = cluster(case, nodes)
    seconds(state)
    spent = [seconds(state) for _ in range(runs)]
    return f"{min(spent)[0] * 1e3 / PODS:.2f} ms ({spent[0][1]} decisions)"


def ticking(case: Callable[[int], Objects], nodes: int, runs: int) -> str:
    """Milliseconds of a later session, and memory."""
    state = cluster(case, nodes)
    for i in range(1, PODS):
        state.delete("Pod", f"default/p{i}")
    seconds(state)
    spent = min(seconds(state)[0] for _ in range(runs))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{spent * 1e3:.0f} ms, {peak:.0f} MiB"


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--case", default="")
    options = parser.parse_args()
    print(f"| {options.nodes:,} nodes | |\n|---|---|")
    for table, measure in ((PLACING, placing), (TICKS, ticking)):
        for name, case in table.items():
            if options.case in name:
                print(f"| {name} | {measure(case, options.nodes, options.runs)} |")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
