"""What one placed pod costs with each feature that looks at nodes or at placed pods.

    python -m tests.perf.matrix [CASE ...] [--nodes N] [--pods N] [--runs N]

A Markdown table of CPU milliseconds goes to standard output: of the first session, per pod, and of a tick with one new
pod on the same cluster, where each node runs `--placed` pods. The best run counts.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from stromboli.api import objects
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.framework.environment import Environment, NodeUsage
from stromboli.simulation import workload
from stromboli.simulation.manifests import decode
from stromboli.state.cluster import ClusterState

_GPU_MEMORY, _GPU_NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
_VGPU = {"volcano.sh/vgpu-number": "100", "volcano.sh/vgpu-memory": "1000000", "volcano.sh/vgpu-cores": "800"}
_HOSTNAME = "kubernetes.io/hostname"
#: any time: measurements are of this moment
NOW = 1_700_000_000.0

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """What a feature needs of policy, nodes and pods; `pod` and `placed` give a pod's spec by its number."""

    pod: Callable[[int], Fields]
    placed: Callable[[int], Fields] = lambda number: {}
    node: Callable[[int], Fields] = lambda number: {}
    plugins: dict[str, Fields] = dataclasses.field(default_factory=dict)
    objects: Callable[[int], Iterator[tuple[str, Any]]] = lambda nodes: iter(())
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)


def _limits(**amounts: str) -> Fields:
    named = {"memory": "1Gi", "cpu": "1"} | {name.replace("_", "-"): amount for name, amount in amounts.items()}
    named = {f"volcano.sh/{name}" if "gpu" in name else name: amount for name, amount in named.items()}
    return {"containers": [{"name": "main", "resources": {"requests": named, "limits": named}}]}


def _cards(number: int) -> Fields:
    cards = "".join(f"card-{number}-{card},10,32000,NVIDIA-A100,true,hami-core:" for card in range(8))
    gpus = {_GPU_MEMORY: "256000", _GPU_NUMBER: "8"}
    return {"annotations": {"volcano.sh/node-vgpu-register": cards}, "amounts": _VGPU | gpus}


def _sharer(number: int) -> Fields:
    """A pod that holds a part of a card, as each way of sharing writes it."""
    ids = f"card-{number}-0,NVIDIA,100,0:"
    return {"annotations": {"volcano.sh/gpu-index": str(number % 8), "volcano.sh/vgpu-ids-new": ids}} | _limits(
        gpu_memory="100", vgpu_memory="100"
    )


def _device(way: str, weight: int = 0) -> Any:
    """The fields of a case for one way of sharing."""
    policy = {"deviceshare.SchedulePolicy": "binpack", "deviceshare.ScheduleWeight": weight} if weight else {}
    return {"placed": _sharer, "node": _cards, "plugins": {"deviceshare": {f"deviceshare.{way}": True, **policy}}}


def _anti_affinity(labels: dict[str, str]) -> Fields:
    term = {"topologyKey": _HOSTNAME, "labelSelector": {"matchLabels": labels}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"labels": labels, "affinity": {"podAntiAffinity": required}}


def _spread(labels: dict[str, str]) -> Fields:
    constraint = {"maxSkew": 1, "topologyKey": _HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
    selected = {"labelSelector": {"matchLabels": labels}}
    return {"labels": labels, "topologySpreadConstraints": [constraint | selected]}


def _port(number: int) -> Fields:
    return {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 1 + number % 65_000}]}]}


def _tainted(number: int) -> Fields:
    return {"taints": [{"key": "owner", "value": f"team-{number}", "effect": "NoSchedule"}]}


def _ranks(number: int) -> Fields:
    terms = [
        {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": [str(number * 31 + at)]}]} for at in range(20)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def _numa(nodes: int) -> Iterator[tuple[str, Any]]:
    for number in range(nodes):
        detail = {str(cpu): {"numa": cpu // 16, "socket": cpu // 16, "core": cpu // 2} for cpu in range(32)}
        policies = {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"}
        spec = {"cpuDetail": detail, "policies": policies, "numares": {"cpu": {"allocatable": "0-31"}}}
        yield "Numatopology", {"metadata": {"name": f"node-{number:05}"}, "spec": spec}


def _groups(nodes: int) -> Iterator[tuple[str, Any]]:
    queue = workload.queue("default")
    affinity = {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [f"g{n}" for n in range(500)]}}
    raw = {"metadata": {"name": "default"}, "spec": {"weight": 1, "affinity": affinity}, "status": {"state": "Open"}}
    yield "Queue", type(queue).parse(raw)


CASES = {
    "default": Case(lambda n: {}),
    "usage": Case(lambda n: {}, plugins={"usage": {}}),
    "vgpu gang": Case(
        lambda n: _limits(vgpu_number="1", vgpu_memory="4000"),
        **_device("VGPUEnable"),
    ),
    "vgpu distinct": Case(
        lambda n: _limits(vgpu_number="1", vgpu_memory=str(1_000 + n)),
        **_device("VGPUEnable"),
    ),
    "vgpu distinct, score": Case(
        lambda n: _limits(vgpu_number="1", vgpu_memory=str(1_000 + n)),
        **_device("VGPUEnable", 1),
    ),
    "gpu-memory gang": Case(lambda n: _limits(gpu_memory="4000"), **_device("GPUSharingEnable")),
    "gpu-memory distinct": Case(lambda n: _limits(gpu_memory=str(1_000 + n)), **_device("GPUSharingEnable")),
    "gpu-number gang": Case(lambda n: _limits(gpu_number="1"), **_device("GPUNumberEnable")),
    "numa distinct": Case(
        lambda n: _limits(memory=f"{n + 1}Mi", cpu="2"),
        plugins={"numa-aware": {}},
        objects=_numa,
        annotations={"volcano.sh/numa-topology-policy": "single-numa-node"},
    ),
    "own taint on each node": Case(lambda n: {"tolerations": [{"key": "owner", "value": f"team-{n}"}]}, node=_tainted),
    "Gt on a unique label, 20 terms": Case(_ranks, node=lambda n: {"labels": {"rank": str(n)}}),
    "own anti-affinity": Case(
        lambda n: _anti_affinity({"app": f"new-{n}"}), placed=lambda n: _anti_affinity({"app": f"app-{n}"})
    ),
    "own spread label": Case(lambda n: _spread({"app": f"new-{n}"}), placed=lambda n: {"labels": {"app": f"app-{n}"}}),
    "own host port": Case(_port, placed=_port),
    "nodegroup, 500 groups": Case(
        lambda n: {},
        node=lambda n: {"labels": {"volcano.sh/nodegroup-name": f"g{n % 500}"}},
        plugins={"nodegroup": {}},
        objects=_groups,
    ),
    "task-topology": Case(
        lambda n: {},
        plugins={"task-topology": {}},
        annotations={"volcano.sh/task-spec": "worker"},
    ),
}


def policy(case: Case) -> str:
    """The built-in policy with the case's plugins."""
    document = yaml.safe_load(workload.policy(workload.Shape.gang))
    more = [{"name": name, "arguments": arguments} for name, arguments in case.plugins.items()]
    document["tiers"][-1]["plugins"] += more
    return str(yaml.safe_dump(document))


def cluster(case: Case, nodes: int, pods: int, placed: int) -> ClusterState:
    """Nodes with `placed` running pods each, and one gang of pending pods."""
    state = ClusterState(("stromboli",), reads=discover().reads)
    state.upsert("Queue", workload.queue("default"))
    group = workload.pod_group("new", pods)
    if "task-topology" in case.plugins:
        group.metadata.annotations["volcano.sh/task-topology-affinity"] = "worker"
    state.upsert("PodGroup", group)
    for number in range(nodes):
        state.upsert("Node", _node(number, case.node(number)))
    for kind, obj in case.objects(nodes):
        state.upsert(kind, obj)
    for number in range(nodes * placed):
        state.upsert("Pod", _pod("run", number, case.placed(number), case, f"node-{number % nodes:05}"))
    for number in range(pods):
        state.upsert("Pod", _pod("new", number, case.pod(number), case))
    return state


def _node(number: int, more: Fields) -> objects.Node:
    name = f"node-{number:05}"
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", **more.get("amounts", {})}
    metadata = {
        "name": name,
        "labels": {_HOSTNAME: name, **more.get("labels", {})},
        "annotations": more.get("annotations", {}),
    }
    status = {"allocatable": amounts, "capacity": amounts}
    manifest = {"metadata": metadata, "spec": {"taints": more.get("taints", [])}, "status": status}
    node: objects.Node = decode("Node", manifest, name)
    return node


def _pod(job: str, number: int, spec: Fields, case: Case, node: str = "") -> objects.Pod:
    spec = dict(spec)
    metadata = {
        "name": f"{job}-{number}",
        "namespace": "default",
        "uid": f"{job}-{number}",
        "labels": spec.pop("labels", {}),
        "annotations": {"scheduling.k8s.io/group-name": job, **case.annotations, **spec.pop("annotations", {})},
    }
    container = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    spec = {"schedulerName": "stromboli", "containers": [container], **spec, **({"nodeName": node} if node else {})}
    status = {"phase": "Running" if node else "Pending", "startTime": "2020-01-01T00:00:00Z"}
    pod: objects.Pod = decode("Pod", {"metadata": metadata, "spec": spec, "status": status}, metadata["name"])
    return pod


def _session(engine: Engine, state: ClusterState, environment: Environment) -> tuple[float, int]:
    """CPU seconds of a snapshot and its session, and how many pods it bound."""
    gc.collect()
    began = time.process_time()
    result = engine.decide(state.snapshot(), now=NOW, environment=environment)
    return time.process_time() - began, len(result.session.bound)


def measure(name: str, nodes: int, pods: int, placed: int, runs: int) -> tuple[float, float, float, int]:
    """Milliseconds for each pod in the best session and in ticks of one pod, peak MiB, and how many were bound."""
    case = CASES[name]
    state, engine = cluster(case, nodes, pods, placed), Engine(policy(case))
    idle = NodeUsage(cpu=10.0, memory=10.0, measured=NOW)
    environment = Environment(node_usage={f"node-{number:05}": idle for number in range(nodes)})
    spent, bound = min(_session(engine, state, environment) for _ in range(runs))
    for number in range(1, pods):
        state.delete("Pod", f"default/new-{number}")
    state.upsert("PodGroup", workload.pod_group("new", 1))
    ticks = [_session(engine, state, environment)[0] for _ in range(max(2, runs))]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return 1e3 * spent / max(1, bound), 1e3 * min(ticks), peak, bound


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50)
    parser.add_argument("--placed", type=int, default=2, help="running pods on each node")
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    print("| case | ms a pod | ms a tick | peak MiB | bound |\n|---|---|---|---|---|", flush=True)
    for name in options.cases or CASES:
        per_pod, tick, peak, bound = measure(name, options.nodes, options.pods, options.placed, options.runs)
        print(f"| {name} | {per_pod:.2f} | {tick:.1f} | {peak} | {bound} |", flush=True)


if __name__ == "__main__":
    main()
