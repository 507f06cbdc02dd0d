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
from tests.controlplane.cluster import Cluster
from tests.e2e.service import Service
from tests.e2e.world import World, define
from tests.suites import ginkgo

MAIN = Path(__file__).with_name("kubernetes_test.go")
POLICY = Path(__file__).parents[2] / "deploy" / "default-scheduler.conf"
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
        cluster.start_controller_manager()
        cluster.start_kwok()
        world = World(cluster, "default")
        define(world.api, [yaml.safe_load(text) for text in crd_schema.files().values()])
        world.nodes(3, "8")
        arguments = ("--scheduler-name", "default-scheduler", "--extender-scheduler-name", "", "--policy", str(POLICY))
        service = Service(cluster.kubeconfig(), options.logs / "service.log", *arguments)
        try:
            service.wait_ready()
            flags = [f"--ginkgo.focus={options.focus or FOCUS}", f"--kubeconfig={cluster.kubeconfig()}"]
            found = ginkgo.play(specs, options.logs, flags, {})
        finally:
            service.end()
    return int(ginkgo.tell("scheduling", found) > 0)


if __name__ == "__main__":
    sys.exit(main())
