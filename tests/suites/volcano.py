"""Volcano's own end-to-end suites on the service in its scheduler's place: `python -m tests.suites.volcano [SUITE...]`.

Volcano's controllers and webhooks run beside it, on a control plane whose nodes are simulated.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import trustme
import yaml

from tests.controlplane.build import BUILD_FLAGS, cached, control_plane, go, helm, run
from tests.controlplane.cluster import Cluster, Program, free_port
from tests.controlplane.projects import Project
from tests.e2e.provisioner import PROVISIONER, Provisioner
from tests.e2e.service import Service
from tests.e2e.world import CORE, Object, World, define
from tests.suites import commands, ginkgo
from tests.suites.kubelet import Kubelet, stages

CHART = "installer/helm/chart/volcano"
VOLCANO = Project("volcano", "volcano.sh/volcano", "v1.14.1", f"{CHART}/crd/bases")
JOB_FLOW = Project("volcano-jobflow", VOLCANO.module, VOLCANO.version, f"{CHART}/charts/jobflow/crd/bases")
#: the release of the module of its API, which is in its repository beside it
API = "volcano.sh/apis@v1.14.0"
SUITES = ("schedulingaction", "schedulingbase", "hypernode", "jobseq", "jobp", "vcctl")
PROGRAMS = {"controllers": "cmd/controller-manager", "webhooks": "cmd/webhook-manager", "vcctl": "cmd/cli"}
ADMISSIONS = (
    "/pods/mutate,/queues/mutate,/podgroups/mutate,/jobs/mutate,/jobs/validate,/jobflows/validate,"
    "/pods/validate,/queues/validate,/podgroups/validate,/hypernodes/validate,/cronjobs/validate"
)
#: that of kind's clusters, whose volumes the tests' own provisioner makes
STORAGE_CLASS: Object = {
    "metadata": {"name": "standard"},
    "provisioner": PROVISIONER,
    "volumeBindingMode": "WaitForFirstConsumer",
    "reclaimPolicy": "Retain",
}
NAMESPACE, RELEASE, CONFIG = "volcano-system", "integration", "volcano-scheduler-ci.conf"


def build() -> Path:
    """Return the folder of Volcano's programs and suites; compile them if they are not there yet."""

    def make(directory: Path) -> None:
        source = VOLCANO.source()
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "go.mod"
            shutil.copy(source / "go.mod", file)
            shutil.copy(source / "go.sum", file.with_suffix(".sum"))
            run(go(), "mod", "edit", f"-replace=volcano.sh/apis={API}", str(file))
            flags = ("-C", str(source), *(each for each in BUILD_FLAGS if "-mod=" not in each))
            flags = (*flags, "-mod=mod", f"-modfile={file}", "-o")
            for name, package in PROGRAMS.items():
                run(go(), "build", *flags, str(directory / name), f"./{package}")
            for suite in SUITES:
                run(go(), "test", *flags[:2], "-c", *flags[2:], str(directory / f"{suite}.test"), f"./test/e2e/{suite}")

    return cached(f"volcano-{VOLCANO.version}", make)


class Site:
    """A control plane with Volcano's definitions, controllers and webhooks, and the service as its scheduler."""

    def __init__(self, binaries: Path, logs: Path, arguments: list[str]) -> None:
        self._binaries, self._logs, self._arguments = binaries, logs, arguments
        self._stack = ExitStack()

    def __enter__(self) -> World:
        binaries, answers = commands.that_run(control_plane(), self._logs)
        cluster = self._stack.enter_context(Cluster(binaries))
        # One spec binds a pod to a node that is not there, another makes a ReplicationController.
        cluster.start_controller_manager(
            "--controllers=pod-garbage-collector-controller,replicationcontroller-controller"
        )
        cluster.start_kwok(stages(cluster.binaries, self._logs), answers)
        # Some specs fill nodes with the pods of a ReplicaSet that name no scheduler.
        cluster.start_scheduler()
        world = World(cluster, NAMESPACE)
        define(world.api, [*VOLCANO.resources(), *JOB_FLOW.resources()])
        world.begin()
        world.nodes(4, "4", f"{RELEASE}-worker")
        # What a queue may admit is measured by all nodes, that of the control plane included.
        _tainted(world, f"{RELEASE}-control-plane", "node-role.kubernetes.io/control-plane", cpu="4", memory="256Gi")
        source = VOLCANO.source() / CHART / "config" / CONFIG
        name = f"{RELEASE}-scheduler-configmap"
        config = {"metadata": {"name": name}, "data": {CONFIG: source.read_text()}}
        world.create(f"{CORE}/namespaces/{NAMESPACE}/configmaps", config)
        world.create("/apis/storage.k8s.io/v1/storageclasses", STORAGE_CLASS)
        self._stack.enter_context(Provisioner(cluster, "", frozenset((STORAGE_CLASS["metadata"]["name"],))))
        self._webhooks(world)
        self._program("controllers", cluster, "--leader-elect=false", f"--healthz-address=127.0.0.1:{free_port()}")
        policy = self._logs / CONFIG
        follower = Follower(cluster.client(), f"{CORE}/namespaces/{NAMESPACE}/configmaps/{name}", policy)
        kubelet = Kubelet(cluster.client())
        for thread in (follower, kubelet):
            thread.start()
            self._stack.callback(thread.stop)
        arguments = ("--scheduler-name", "volcano", "--policy", str(policy), *self._arguments)
        service = Service(cluster.kubeconfig(), self._logs / "service.log", *arguments)
        self._stack.callback(service.end)
        service.wait_ready()
        return world

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _program(self, name: str, cluster: Cluster, *arguments: str) -> Program:
        argv = [str(self._binaries / name), f"--kubeconfig={cluster.kubeconfig()}", *arguments]
        program = Program(argv, self._logs / f"{name}.log")
        self._stack.callback(program.stop)
        return program

    def _webhooks(self, world: World) -> None:
        authority, port = trustme.CA(), free_port()
        certificate = authority.issue_cert("127.0.0.1")
        chain, key, bundle = (self._logs / name for name in ("tls.crt", "tls.key", "ca.crt"))
        chain.write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(str(key))
        authority.cert_pem.write_to_path(str(bundle))
        for manifest in webhooks(self._logs, port, authority.cert_pem.bytes()):
            path = f"/apis/admissionregistration.k8s.io/v1/{manifest['kind'].lower()}s"
            world.create(path, manifest)
        program = self._program(
            "webhooks",
            world.cluster,
            f"--enabled-admission={ADMISSIONS}",
            "--listen-address=127.0.0.1",
            f"--port={port}",
            f"--tls-cert-file={chain}",
            f"--tls-private-key-file={key}",
            f"--ca-cert-file={bundle}",
            f"--webhook-url=https://127.0.0.1:{port}",
        )
        with httpx.Client(verify=False, trust_env=False) as http:
            program.wait_until(lambda: bool(http.get(f"https://127.0.0.1:{port}/").status_code))


class Follower(threading.Thread):
    """Writes the ConfigMap of the scheduler to the file that the service follows, as a kubelet does."""

    def __init__(self, api: httpx.Client, path: str, file: Path) -> None:
        super().__init__(daemon=True)
        self._api, self._path, self._file = api, path, file
        self._over = threading.Event()
        self._write()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.3):
            self._write()

    def _write(self) -> None:
        try:
            text = self._api.get(self._path).raise_for_status().json()["data"][CONFIG]
        except httpx.HTTPError:
            return
        if not self._file.exists() or self._file.read_text() != text:
            self._file.write_text(text)


def webhooks(scratch: Path, port: int, authority: bytes) -> Iterator[Object]:
    """The configurations of Volcano's webhooks, served on a port of this machine."""
    values = scratch / "values.yaml"
    values.write_text(yaml.safe_dump({"custom": {"enabled_admissions": ADMISSIONS}}))
    chart = str(VOLCANO.source() / CHART)
    flags = ("--namespace", NAMESPACE, "--values", str(values), "--show-only", "templates/webhooks.yaml")
    for manifest in yaml.safe_load_all(run(str(helm()), "template", RELEASE, chart, *flags)):
        for webhook in manifest["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            bundle = base64.b64encode(authority).decode()
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
        yield manifest


def main() -> int:
    parser = ginkgo.arguments(__doc__)
    parser.add_argument("suites", nargs="*", default=SUITES)
    parser.add_argument("--compatibility", default="volcano")
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    binaries, failed = build(), 0
    flags = [f"--ginkgo.focus={options.focus}"] if options.focus else []
    for suite in options.suites:
        with Site(binaries, options.logs, ["--compatibility", options.compatibility]) as world:
            if suite == "hypernode":
                for number in range(8):
                    _tainted(world, f"kwok-node-{number}", "kwok.x-k8s.io/node=fake", cpu="8", memory="8Gi")
                    _daemon(world, f"kwok-node-{number}")
            config = str(world.cluster.kubeconfig())
            environment = {"KUBECONFIG": config, "VC_BIN": str(binaries), "ARTIFACTS_PATH": str(options.logs)}
            specs = ginkgo.play(binaries / f"{suite}.test", options.logs, flags, environment)
        failed += ginkgo.tell(suite, specs)
    return int(failed > 0)


def _tainted(world: World, name: str, taint: str, **amounts: str) -> None:
    key, _, value = taint.partition("=")
    spec = {"taints": [{"key": key, "value": value, "effect": "NoSchedule"}]}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    status: Object = {kind: {**amounts, "pods": "110"} for kind in ("capacity", "allocatable")}
    world.create(f"{CORE}/nodes", {"metadata": metadata, "spec": spec, "status": status})


def _daemon(world: World, node: str) -> None:
    """A pod of kind's network on a node: specs rely on that eight CPUs do not hold two pods of four."""
    requests = {"cpu": "100m", "memory": "50Mi"}
    container = {"name": "kindnet", "image": "example.com/kindnet:1", "resources": {"requests": requests}}
    manifest = {"metadata": {"name": f"kindnet-{node}"}, "spec": {"nodeName": node, "containers": [container]}}
    world.create(f"{CORE}/namespaces/kube-system/pods", manifest)


if __name__ == "__main__":
    sys.exit(main())
