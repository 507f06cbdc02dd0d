"""Kubernetes' own end-to-end specs of scheduling on the service in kube-scheduler's place.

`python -m tests.suites.kubernetes`; the control plane is a real one, and its nodes are simulated.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import yaml

from stromboli.api import crd_schema
from tests.controlplane.build import HERE as MODULE
from tests.controlplane.build import cached, control_plane, go, run
from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.provisioner import MERGE_PATCH
from tests.e2e.service import Service
from tests.e2e.world import CORE, World, define, pod
from tests.suites import ginkgo
from tests.suites.kubelet import Kubelet, stages

MAIN = Path(__file__).with_name("kubernetes_test.go")
POLICY = Path(__file__).parents[2] / "deploy" / "default-scheduler.conf"
_NODES = 3
FOCUS = "SchedulerPredicates|SchedulerPriorities|SchedulerPreemption"


def build() -> Path:
    """Return the compiled specs; compile them if they are not there yet."""
    files = {"go.mod": MODULE / "go.mod", "go.sum": MODULE / "go.sum", "scheduling_test.go": MAIN}
    digest = hashlib.sha256(b"\0".join(each.read_bytes() for each in files.values())).hexdigest()

    def make(directory: Path) -> None:
        for name, file in files.items():
            shutil.copy(file, directory / name)
        target = str(directory / "scheduling.test")
        run(go(), "test", "-C", str(directory), "-c", "-mod=mod", "-trimpath", "-o", target, ".")

    return cached(f"kubernetes-specs-{digest[:12]}", make) / "scheduling.test"


def main() -> int:
    options = ginkgo.arguments(__doc__).parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    specs = build()
    with Cluster(control_plane()) as cluster:
        cluster.start_controller_manager("--controllers=replicationcontroller-controller")
        cluster.start_kwok(stages(cluster.binaries, options.logs))
        world = World(cluster, "default")
        define(world.api, [yaml.safe_load(text) for text in crd_schema.files().values()])
        world.nodes(_NODES, "8", **{"ephemeral-storage": "100Gi"})
        arguments = ("--scheduler-name", "default-scheduler", "--extender-scheduler-name", "", "--policy", str(POLICY))
        service = Service(cluster.kubeconfig(), options.logs / "service.log", *arguments)
        kubelet = Kubelet(cluster.client())
        kubelet.start()
        try:
            service.wait_ready()
            _furnish(world)
            flags = [f"--ginkgo.focus={options.focus or FOCUS}", f"--kubeconfig={cluster.kubeconfig()}"]
            flags.append(f"--num-nodes={_NODES}")
            found = ginkgo.play(specs, options.logs, flags, {})
        finally:
            kubelet.stop()
            service.end()
    return int(ginkgo.tell("scheduling", found) > 0)


def _furnish(world: World) -> None:
    """What specs look for on each node: an address, and something of each name that they wait for."""
    name = "kube-proxy-fluentd-elasticsearch-node-problem-detector"
    for number in range(_NODES):
        node = f"node-{number}"
        status = {"status": {"addresses": [{"type": "InternalIP", "address": f"10.0.1.{number}"}]}}
        world.api.patch(f"{CORE}/nodes/{node}/status", json=status, headers=MERGE_PATCH).raise_for_status()
        selector = {"kubernetes.io/hostname": node}
        part = pod(f"{name}-{number}", cpu="0", scheduler="default-scheduler", nodeSelector=selector)
        world.create(f"{CORE}/namespaces/kube-system/pods", part)
    eventually(lambda: all(each["status"]["phase"] == "Running" for each in world.items(f"{CORE}/pods")))


if __name__ == "__main__":
    sys.exit(main())
